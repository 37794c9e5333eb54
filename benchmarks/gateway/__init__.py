"""Proxies side by side in one run: processor time per request and per streamed chunk.

Nothing here is imported by the package, and nothing here asserts a time. `python -m benchmarks.gateway --help`.
"""
