"""Fuzzing: bytes that nobody sends on purpose, by the million, into everything that reads bytes of others.

    pip install -e '.[fuzz]'              # Atheris: Linux, Python 3.11 to 3.13
    python -m fuzz --list
    python -m fuzz request --runs 100000  # one target; also --seconds, --seed, --seeds (only what it begins with)
    scripts/fuzz 600                      # all of them, ten minutes in all

Each file in `targets/` has SEEDS, to begin with, and `check(data)`, which raises where something is wrong: an
exception that should not be, or two answers that should be one. What it finds is kept in `fuzz/found/`; run it again
with `python -m fuzz TARGET --input FILE`.
"""
