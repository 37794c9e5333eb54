"""The text of an endpoints file → replicas. Pure: all that is wrong with it at once, or all of it."""

from __future__ import annotations

from collections.abc import Collection

from kilocard.core.errors import SpecError
from kilocard.core.replica import Endpoint
from kilocard.scrape.discovery.source import endpoint_at
from kilocard.spec.endpoint import endpoint
from kilocard.spec.problems import Problems, did_you_mean, of_another_file
from kilocard.spec.units import UnitError
from kilocard.spec.yaml_document import read_document


def read_endpoints(text: str, pools: Collection[str], file: str) -> dict[str, Endpoint]:
    """`pool: [http://host:port, …]` in YAML or JSON → replica id → endpoint.

    `pools` are the pools that the file may speak of. Raises SpecError that lists every problem with its line.
    """
    with of_another_file():
        document = read_document(text, file=file)
    problems = Problems(document.lines)
    for where, problem, advice in document.found:
        problems.add(where, problem, advice)
    found: dict[str, Endpoint] = {}
    if not isinstance(document.value, dict):
        said = "is empty" if document.value is None else "is not a mapping of pools"
        raise SpecError(f"{file}: {said}; write POOL: [http://host:port, …], or {{}} for no replicas at all")
    for pool, urls in document.value.items():
        if pool not in pools:
            problems.add((pool,), "is not a pool of the cluster file", did_you_mean(pool, pools) or "check its name")
        elif not isinstance(urls, list):
            problems.add((pool,), "is not a list", "write [http://host:port, …], or [] for no replicas")
        else:
            for index, url in enumerate(urls):
                try:
                    place = endpoint_at(pool, endpoint(url))
                except UnitError as error:
                    problems.add((pool, index), error.problem, error.advice)
                else:
                    found[place.replica] = place
    problems.raise_if_any()
    return found
