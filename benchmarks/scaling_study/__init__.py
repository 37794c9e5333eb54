"""Scaling policies beside models of the Kubernetes HPA and of KEDA: `python -m benchmarks.scaling_study`."""
