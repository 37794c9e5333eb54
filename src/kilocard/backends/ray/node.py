"""What an actor knows of its node: address, GPUs, environment, where logs go."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from collections.abc import Mapping
from pathlib import Path

import ray

from kilocard.backends.launching import engine_env
from kilocard.backends.ray.plan import HostPlan
from kilocard.engines.base import Launch

#: dropped from the engine's environment. Ray's own variables would make an engine that uses Ray a part of our actor;
#: OMP_NUM_THREADS is set to 1 by Ray and would make a CPU engine crawl (a pool's `env` may set it)
_DROPPED = ("RAY_", "OMP_NUM_THREADS")
SIOCGIFADDR = 0x8915


def address() -> str:
    return str(ray.util.get_node_ip_address())


def gpu_ids() -> tuple[int | str, ...]:
    """Of the GPUs that Ray gave to this actor: indices, or UUIDs where the node was started with such."""
    return tuple(int(one) if str(one).isdecimal() else str(one) for one in ray.get_gpu_ids())


def cluster_address() -> str:
    return str(ray.get_runtime_context().gcs_address)


def clean_env(env: Mapping[str, str]) -> dict[str, str]:
    """The node's environment without what Ray put there for its own workers."""
    return {name: value for name, value in env.items() if not name.startswith(_DROPPED)}


def network_env(env: Mapping[str, str], host: str) -> dict[str, str]:
    """Which network card NCCL and Gloo use, where nobody said so: the one with the node's address.

    Left alone they may take the loopback or a container bridge, and parts on other nodes never meet.
    """
    card = interface_of(host)
    names = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
    return {} if card is None else {name: card for name in names if name not in env}


def interface_of(host: str) -> str | None:
    """The network interface that has this IPv4 address (Linux); None where none says so."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            for _, name in socket.if_nameindex():
                try:
                    answer = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                except OSError:
                    continue  # it has no address
                if socket.inet_ntoa(answer[20:24]) == host:
                    return name
    except OSError:
        pass
    return None


def log_dir(namespace: str) -> Path:
    """$KILOCARD_HOME of the node, else ~/.cache/kilocard, as on a single machine."""
    home = os.environ.get("KILOCARD_HOME")
    base = Path(home) if home else Path.home() / ".cache" / "kilocard"
    return base / "logs" / f"ray-{namespace}"


def process_env(plan: HostPlan, launch: Launch, gpus: tuple[int | str, ...], host: str) -> dict[str, str]:
    """The environment of an engine process on this node."""
    env = engine_env(launch, gpus, clean_env(os.environ))
    if plan.over_ray:
        env["RAY_ADDRESS"] = cluster_address()
        del env["CUDA_VISIBLE_DEVICES"]  # its workers get theirs from Ray
    if plan.over_ray or plan.parts > 1:
        env.update(network_env(env, host))
    return env
