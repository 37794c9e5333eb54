"""Words that every room shares: requests, load, decisions, errors, statistics.

Pure and standard library only. Nothing here knows an engine, a file, a socket or the time.
"""
