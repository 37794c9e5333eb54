"""What `kilocard plan` reads and writes beside its options: topologies, the cluster file."""

from __future__ import annotations

from pathlib import Path

import yaml

from kilocard.cli.model_source import CONFIG, ModelSource
from kilocard.core.errors import UsageError
from kilocard.planner.demand import USUAL_INPUT, USUAL_OUTPUT
from kilocard.planner.topology import Topology, parse_topology
from kilocard.spec.dump import dump
from kilocard.spec.model import ClusterSpec
from kilocard.workload.lengths import Fixed, Length, read_length


def engine_model(text: str, source: ModelSource) -> str:
    """What the engine is told to load: the folder of a config.json, or the hub name of a built-in shape."""
    path = Path(text).expanduser()
    if path.is_dir():
        return str(path)
    if path.is_file():
        return str(path.parent) if path.name == CONFIG and str(path.parent) != "." else source.architecture.name
    return source.architecture.name


def lengths(inputs: str | None, outputs: str | None) -> tuple[Length, Length]:
    return (
        Fixed(USUAL_INPUT) if inputs is None else read_length(inputs),
        Fixed(USUAL_OUTPUT) if outputs is None else read_length(outputs),
    )


def read_topology(path: Path) -> Topology:
    return parse_topology(_text(path, "topology"))


def write_cluster(path: Path, spec: ClusterSpec, *, note: str = "") -> None:
    """`note` goes on top, as a comment."""
    text = yaml.safe_dump(dump(spec), sort_keys=False, allow_unicode=True, width=120)
    try:
        path.write_text((f"# {note}\n" if note else "") + text)
    except OSError as error:
        raise UsageError(f"{path} can't be written: {error.strerror or error}") from error


def _text(path: Path, what: str) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UsageError(f"{what} {path} can't be read: {reason}") from error
