"""Which target is rendered from which cluster file, for the golden folders. A new target adds a line to GOLDEN_OF."""

from __future__ import annotations

from pathlib import Path

from kilocard import __version__
from kilocard.deploy.target import Files, RenderOptions
from kilocard.deploy.targets import target
from kilocard.spec.load import load

GOLDEN = Path(__file__).parent / "golden"
CLUSTERS = GOLDEN / "clusters"

#: target → names of files in tests/golden/clusters/
GOLDEN_OF: dict[str, tuple[str, ...]] = {
    "kubernetes": ("one-model", "fleet"),
    "helm": ("one-model", "fleet"),
    "ray": ("one-model", "fleet"),
    "compose": ("one-model", "one-machine"),
    "systemd": ("one-model", "one-machine"),
    "nginx": ("one-model",),
    "haproxy": ("one-model",),
    "envoy": ("one-model",),
    "prometheus": ("one-model", "fleet"),
    "grafana": ("one-model",),
}
CASES = [(name, cluster) for name, clusters in GOLDEN_OF.items() for cluster in clusters]


def chart() -> Files:
    """charts/kilocard: the chart of examples/kubernetes.yaml, of this version."""
    example = GOLDEN.parent.parent / "examples" / "kubernetes.yaml"
    return target("helm").render(load(example), RenderOptions(version=__version__))


def render(name: str, cluster: str) -> Files:
    """With a version of its own, so that a release does not change every golden file."""
    return target(name).render(load(CLUSTERS / f"{cluster}.yaml"), RenderOptions(version="1.2.3"))
