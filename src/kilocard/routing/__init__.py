"""Policies: which replica next. Pure; random numbers come from a generator that is handed in.

A policy sees only replicas that may take a request now: the caller adds and removes them as they become
available. It never decides whether a replica is healthy, hot or draining, and never counts requests itself.
"""
