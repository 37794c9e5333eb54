"""The cluster file: typed model, parser, JSON Schema, and the way back to YAML.

`table*.py` say every key once; parser, schema, reference page and dump are made from them. Pure: `load.py` alone opens
files, the environment is an argument, and nothing here knows what an engine or a policy does. A document that is
wrong gives one SpecError with every problem in it, never another exception.
"""
