"""The cluster file: typed model, parser, JSON Schema. Pure; `load.py` alone opens files."""
