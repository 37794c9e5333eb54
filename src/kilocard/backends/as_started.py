"""A changed cluster file, and replicas that run with the arguments of the old one. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kilocard.spec.model import ClusterSpec, PoolSpec
from kilocard.spec.served import served_names

#: what makes a replica's command line and environment
LAUNCH = ("engine", "model", "args", "env", "command", "version", "gpus", "profile", "served_model_name")


def as_started(
    spec: ClusterSpec, started: Mapping[str, PoolSpec], served: Mapping[str, tuple[str, ...]]
) -> tuple[ClusterSpec, list[str]]:
    """`spec` with what is fixed at the start of a replica as it was, and the keys that wait for a restart.

    `started`: our pools as the file had them when their replicas were started. `served`: the model names that those
    were told. Where other models route to such a pool now, its replicas are asked by the first name that they know.
    """
    pools = dict(spec.pools)
    waiting = []
    for name, old in started.items():
        new = pools.get(name)
        if new is None or new.exists:
            continue  # it ends
        kept: dict[str, Any] = {field: getattr(old, field) for field in LAUNCH}
        waiting += [f"pools.{name}.{field}" for field in LAUNCH if getattr(new, field) != kept[field]]
        names = served[name]
        if old.served_model_name is None and names and set(served_names(spec, name)) - set(names):
            kept["served_model_name"] = names[0]
        pools[name] = replace(new, **kept)
    return replace(spec, pools=pools), waiting
