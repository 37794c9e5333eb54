"""The engine model beside the real vLLM: a profile from one sweep, then other loads, measured and predicted."""
