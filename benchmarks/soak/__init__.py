"""Hours in minutes: a gateway under load while its replicas and its clients misbehave at random.

Unlike the other benchmarks it has a verdict: a stuck request, a leaked counter or connection, a stream that ends
wrongly or growing memory makes it fail. `python -m benchmarks.soak --help`.
"""
