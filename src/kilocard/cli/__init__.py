"""One file per command. The only room that prints, exits and (in wiring.py) puts the parts together."""
