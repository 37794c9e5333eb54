"""The chart's values: the cluster file, complete, without secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from kilocard.deploy.kubernetes.cluster_file import secret_places
from kilocard.deploy.kubernetes.render import own_image
from kilocard.deploy.replica import replica
from kilocard.deploy.secrets import HIDDEN, is_secret
from kilocard.deploy.target import RenderOptions
from kilocard.spec.dump import dump
from kilocard.spec.model import ClusterSpec

Document = dict[str, Any]
Place = tuple[str, ...]


def values(spec: ClusterSpec, options: RenderOptions) -> Document:
    """A cluster file again (`parse` reads it), with images and counts written out so that a release can set them.

    Without `kubernetes.namespace`: a release has one already.
    """
    own = own_image(spec, options)
    pools = {
        name: pool if pool.exists else replace(pool, image=replica(spec, pool, own).image)
        for name, pool in spec.pools.items()
    }
    document = dump(replace(spec, pools=pools, kubernetes=replace(spec.kubernetes, namespace=None, image=own)))
    document["kubernetes"] |= {key: getattr(spec.kubernetes, key) for key in ("hub_secret", "monitoring_namespace")}
    for one, pool in document["pools"].items():
        if not spec.pools[one].exists:
            pool["replicas"] = {"min": spec.pools[one].replicas.min, "max": spec.pools[one].replicas.max}
        for name, value in pool.get("env", {}).items():
            if is_secret(name, value):
                pool["env"][name] = HIDDEN
    for place in secret_places(document):
        hide(document, ("gateway", *place))
    return document


def hide(document: Document, place: Place) -> None:
    *way, last = place
    for part in way:
        document = document.get(part, {})
    if last in document:
        scheme, separator, _ = str(document[last]).partition("://")
        document[last] = f"{scheme}{separator}{HIDDEN}" if separator else HIDDEN


def leaves(document: Document, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Every value that is neither a mapping nor a list, with the keys that lead to it."""
    for key, value in document.items():
        if isinstance(value, Mapping):
            yield from leaves(dict(value), (*place, key))
        elif not isinstance(value, list):
            yield (*place, key), value


def at(document: Document, place: Place) -> Any:
    found: Any = document
    for part in place:
        found = found[part]
    return found


def changed(document: Document, news: Mapping[Place, Any]) -> Document:
    """A copy with other values at some places."""
    result: Document = {}
    for key, value in document.items():
        below = {place[1:]: new for place, new in news.items() if place[0] == key}
        if () in below:
            result[key] = below[()]
        elif isinstance(value, Mapping):
            result[key] = changed(dict(value), below)
        else:
            result[key] = value
    return result
