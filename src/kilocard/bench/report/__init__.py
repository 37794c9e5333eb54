"""The HTML report: one file that needs nothing else, to be kept, mailed and printed.

Results in, text out. It computes nothing that results.json does not say, and asks no server for anything.
"""
