"""Where keys, counts and records of usage are kept: SQLite, watched files, Redis, PostgreSQL, issuers' key sets.

The shells of `tenancy/`: they do I/O and decide nothing. Only `cli/wiring.py` and `workers/` put them together.
"""
