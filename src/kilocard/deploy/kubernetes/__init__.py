"""A cluster file as Kubernetes objects: one pool is one Deployment, one Service and what guards them; the gateway.

Each file here makes one kind of object as plain dicts; `render.py` puts them together. The objects hold for Kubernetes
1.37 and are checked against its strict schemas by scripts/test-deploy.
"""
