"""Replicas on a Ray cluster: a placement group and an actor for each, which owns the engine's process.

Ray places, keeps GPUs apart and tells of dead nodes. The life of a replica is the same state machine as on one machine
(`backends.lifecycle`), run by the actor beside its engine: it goes on while no controller runs, and a new controller
finds it again by name. `berth.py`, `shape.py` and `same_versions.py` are pure. `ray` is imported by `link.py` and
`node.py` alone, when the backend is made.
"""
