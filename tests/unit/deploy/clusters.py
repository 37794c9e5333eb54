"""Cluster files for these tests, and a look into what is rendered of them."""

from __future__ import annotations

from typing import Any

import yaml

from kilocard.deploy.kubernetes.render import objects
from kilocard.deploy.target import RenderOptions
from kilocard.spec.model import ClusterSpec
from kilocard.spec.parse import parse

Object = dict[str, Any]


def cluster(pools: str = "a: {engine: vllm, version: 0.32.0, model: m/m}", rest: str = "") -> ClusterSpec:
    """A cluster of `pools`, written as YAML without the key; `rest` are further keys of the file."""
    lines = "".join(f"  {line}\n" for line in pools.splitlines())
    return parse(yaml.safe_load(f"gateway: {{allow_open: true}}\n{rest}\npools:\n{lines}"))


def pool(keys: str) -> ClusterSpec:
    """One pool `a` of vLLM, with more keys as YAML flow text."""
    return cluster(f"a: {{engine: vllm, version: 0.32.0, model: m/m, {keys}}}")


def rendered(spec: ClusterSpec, kind: str, name: str = "kilocard-a") -> Object:
    """The one object of this kind and name."""
    found = [
        thing
        for each_file in objects(spec, RenderOptions(version="1.2.3")).values()
        for thing in each_file
        if (thing["kind"], thing["metadata"]["name"]) == (kind, name)
    ]
    assert len(found) == 1, f"{len(found)} of {kind}/{name}"
    return found[0]


def everything(spec: ClusterSpec) -> list[Object]:
    return [thing for each_file in objects(spec, RenderOptions()).values() for thing in each_file]


def body(spec: ClusterSpec) -> Object:
    """The pod of pool `a`."""
    found: Object = rendered(spec, "Deployment")["spec"]["template"]["spec"]
    return found


def container(spec: ClusterSpec) -> Object:
    (one,) = body(spec)["containers"]
    found: Object = one
    return found


def environment(spec: ClusterSpec) -> dict[str, Object]:
    return {each["name"]: each for each in container(spec).get("env", [])}
