"""A Ray cluster for the pools of a cluster file: commands for machines, and manifests for the KubeRay operator.

What is rendered brings the nodes up and nothing else: replicas are started on them by `kilocard control --backend ray`,
or by Ray Serve where the RayService is used instead.
"""
