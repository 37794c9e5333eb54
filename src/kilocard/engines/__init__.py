"""One file per engine: command line, endpoints, metric names, capabilities.

The only room that spells an engine's name. Pure: describes processes, never starts one.
"""
