"""An honest load tester for any OpenAI-compatible endpoint: client, phases, what the numbers mean, report.

It never decides anything about a running cluster, and it prints no number that its own checks do not stand behind.
"""
