"""A document, as YAML or JSON gives it, → ClusterSpec. Pure: `load.py` reads files and calls this."""

from __future__ import annotations

from collections.abc import Mapping

from kilocard.spec.checks import complete
from kilocard.spec.kinds import At
from kilocard.spec.model import ClusterSpec
from kilocard.spec.problems import Line, Path, Problems
from kilocard.spec.scalars import resolve
from kilocard.spec.table import cluster_section
from kilocard.spec.units import kind_of
from kilocard.spec.vocabulary import ENGINES


def parse(
    document: object,
    *,
    lines: Mapping[Path, Line] | None = None,
    texts: Mapping[Path, str] | None = None,
    engines: frozenset[str] = ENGINES,
) -> ClusterSpec:
    """The cluster that a document describes, checked and completed.

    `lines`: where each path stands in the file, for messages. `texts`: how numbers were written, so that
    `version: 0.10` is "0.10". `engines`: names that pools may use.

    Raises InvalidClusterFile (a SpecError) that lists every problem, and nothing else, whatever the document is.
    """
    problems = Problems(lines)
    spec = read_cluster(document, problems, texts=texts or {}, engines=engines)
    problems.raise_if_any()
    return spec


def read_cluster(
    document: object, problems: Problems, *, texts: Mapping[Path, str], engines: frozenset[str]
) -> ClusterSpec:
    """Like `parse`, but what is wrong is only added to `problems`; the result means something if there is nothing."""
    if not isinstance(document, Mapping):
        problem = "is empty" if document is None else f"is {kind_of(document)}, not a mapping"
        problems.add((), problem, "start with pools: {my-model: {engine: vllm, model: …}}")
        return ClusterSpec()
    spec: ClusterSpec = cluster_section(engines).read(document, At((), problems, texts))
    return complete(spec, problems, lambda path: _is_written(document, path))


def _is_written(document: object, path: Path) -> bool:
    """Is there a value (not null) at this path?"""
    for part in path:
        if not isinstance(document, Mapping):
            return False
        # Names that look like numbers are numbers in documents that other YAML readers made.
        document = document.get(part, document.get(resolve(str(part))))
    return document is not None
