"""kilocard: serve your own language models from one GPU to a thousand.

Rooms are stacked in floors (docs/architecture.md); tests/test_layering.py holds the table.
"""

__version__ = "0.1.0"
