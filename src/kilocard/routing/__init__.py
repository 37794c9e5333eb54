"""Policies: which replica next. Pure; random numbers come from a generator that is handed in."""
