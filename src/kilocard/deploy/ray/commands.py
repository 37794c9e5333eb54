"""Shell scripts that make machines the nodes of one Ray cluster."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from kilocard.deploy.ray.nodes import NOT_THESE, Machines
from kilocard.spec.model import ClusterSpec

#: the node's address: its first, or that of a card; and the card that has the address
_FIRST = '$(hostname -I | cut -d" " -f1)'
_ON_CARD = "$(ip -4 -o addr show dev {card} | awk '{{split($4, a, \"/\"); print a[1]; exit}}')"
_CARD_OF = """$(ip -4 -o addr show | awk -v ip="$NODE_IP/" 'index($4, ip) == 1 {print $2; exit}')"""
_WRITTEN = "# Written by `kilocard render ray`. Change the cluster file and render again."


def scripts(spec: ClusterSpec, kinds: Sequence[Machines]) -> dict[str, str]:
    """One script for the head, which is a machine of the first kind too, and one for each kind of worker."""
    files = {"machines/head.sh": head(spec, kinds[0] if kinds else None)}
    for kind in kinds:
        files[f"machines/worker-{_file(kind.name)}.sh"] = worker(spec, kind)
    return files


def head(spec: ClusterSpec, kind: Machines | None) -> str:
    ray = spec.ray
    gpus = kind.gpus if kind is not None else 0
    redis = "" if ray.redis is None else f"export RAY_REDIS_ADDRESS={shlex.quote(ray.redis)}\n"
    about = (
        "The head of the Ray cluster, on one machine. It runs replicas as well: NUM_CPUS=0 NUM_GPUS=0 leaves it free\n"
        "# of them. Ray's ports have no password: keep them inside your network."
    )
    return _script(
        about,
        _surroundings(spec) + redis,
        ["ray", "start", "--head", '--node-ip-address="$NODE_IP"', f"--port={ray.port}", *_node(spec, kind, gpus)],
        " --include-dashboard=false",
    )


def worker(spec: ClusterSpec, kind: Machines) -> str:
    machines = "machine" if kind.count == 1 else "machines"
    about = (
        f"A worker node, on each further machine of the kind {kind.name!r}; {kind.count} {machines} (the head counts)\n"
        f"# hold the most replicas of: {', '.join(kind.pools)}.\n"
        "# HEAD is the head's address: HEAD=10.0.0.1 sh " + f"worker-{_file(kind.name)}.sh"
    )
    address = f'--address="${{HEAD:?set HEAD to the head\'s address}}:{spec.ray.port}"'
    return _script(
        about,
        _surroundings(spec),
        ["ray", "start", address, '--node-ip-address="$NODE_IP"', *_node(spec, kind, kind.gpus)],
    )


def _node(spec: ClusterSpec, kind: Machines | None, gpus: int) -> list[str]:
    labels = ",".join(f"{key}={value}" for key, value in kind.labels) if kind is not None else ""
    return [
        f'--num-gpus="${{NUM_GPUS:-{gpus}}}"',
        '${NUM_CPUS:+--num-cpus="$NUM_CPUS"}',
        f"--object-store-memory={spec.ray.object_store}",
        *([f"--labels={shlex.quote(labels)}"] if labels else []),
    ]


def _surroundings(spec: ClusterSpec) -> str:
    """What every process of the node inherits; the shell that starts vLLM later does not give it to other nodes."""
    card = spec.ray.interface
    address = _FIRST if card is None else _ON_CARD.format(card=card)
    return (
        f"NODE_IP=${{NODE_IP:-{address}}}\n"
        'export VLLM_HOST_IP="$NODE_IP"\n'
        f"export NCCL_SOCKET_IFNAME='{card or NOT_THESE}'\n"
        f"GLOO_SOCKET_IFNAME={card or _CARD_OF}\n"
        "export GLOO_SOCKET_IFNAME\n"
        "export RAY_USAGE_STATS_ENABLED=0\n"
    )


def _script(about: str, surroundings: str, words: list[str], more: str = "") -> str:
    command = " \\\n  ".join([" ".join(words[:3]), *words[3:]])
    return f"#!/bin/sh\n{_WRITTEN}\n#\n# {about}\nset -eu\n{surroundings}exec {command}{more} \\\n  --block\n"


def _file(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)
