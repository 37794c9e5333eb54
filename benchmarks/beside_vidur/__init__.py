"""The simulator beside vidur (PyPI), on one same scenario."""
