"""The keys of one pool."""

from __future__ import annotations

from typing import Any

from kilocard.spec.endpoint import ENDPOINT
from kilocard.spec.kinds import (
    DURATION,
    HOST_AND_PORT,
    SOME_TIME,
    At,
    Choice,
    Text,
    Whole,
)
from kilocard.spec.kinds_command import FlagValue, Words
from kilocard.spec.model import (
    DrainSpec,
    GpuSpec,
    PoolSpec,
    ReplicaRange,
    StartSpec,
)
from kilocard.spec.sections import Key, ListOf, Named, Section
from kilocard.spec.table_deployment import LABEL, PLACEMENT, RESOURCES
from kilocard.spec.table_model import settle_backoff
from kilocard.spec.table_scaling import SCALING
from kilocard.spec.vocabulary import MOST_REPLICAS

GPUS = Section(
    GpuSpec(),
    "The GPUs of one replica: `tensor` × `pipeline` of them.",
    (
        Key("type", Text(), "GPU model, e.g. A100-80G; for placement, planning and simulation."),
        Key("tensor", Whole(1, 1024), "Tensor parallel size."),
        Key("pipeline", Whole(1, 1024), "Pipeline parallel size."),
        Key(
            "per_node",
            Whole(1, 1024),
            "GPUs of one machine that a replica may take; a replica of more is spread over several machines.",
        ),
    ),
    "Gpus",
    short=(Whole(1, 1024), lambda count: {"tensor": count}),
)


def _settle_replicas(values: dict[str, Any], at: At) -> dict[str, Any]:
    """`{min: 4}` alone means 4, not "from 4 to the default 1"."""
    if "min" in values and "max" not in values:
        values["max"] = max(values["min"], 1)
    return values


REPLICAS = Section(
    ReplicaRange(),
    "How many replicas the pool has.",
    (
        Key("min", Whole(0, MOST_REPLICAS), "Fewest; 0: none while there is nothing to do."),
        Key("max", Whole(1, MOST_REPLICAS), "Most.", default="`min`, at least 1"),
    ),
    "Replicas",
    short=(Whole(1, MOST_REPLICAS), lambda count: {"min": count, "max": count}),
    settle=_settle_replicas,
)


DRAIN = Section(
    DrainSpec(),
    "How a replica is stopped: no new requests, running ones finish, then the process ends.",
    (Key("grace", DURATION, "Running requests have this long to finish."),),
    "Drain",
    short=(DURATION, lambda grace: {"grace": grace}),
)

START = Section(
    StartSpec(),
    "How replicas are started and restarted.",
    (
        Key("timeout", SOME_TIME, "A replica has this long to become ready (loading weights takes minutes)."),
        Key("crash_loop", Whole(1, 10_000), "Failed starts in a row before the pool is called crash-looping."),
        Key("backoff", SOME_TIME, "Pause before the first restart; doubles each time."),
        Key("backoff_max", SOME_TIME, "Never longer than this.", default="1m, or `backoff` if that is more"),
    ),
    "Start",
    settle=settle_backoff(StartSpec()),
)


def pool_section(engines: frozenset[str]) -> Section:
    """The keys of a pool, where `engines` are the engines that there are."""
    flag = Named(FlagValue(), "flag", r"(?!--)[^\s=]{1,200}", "write the flag's name without -- and without =")
    variable = Named(
        Text(longest=65_536, may_be_empty=True), "variable", r"[A-Za-z_][A-Za-z0-9_]*", "use letters, digits and _"
    )
    return Section(
        PoolSpec(name="", engine=""),
        "Identical replicas: one engine, one model source, one set of arguments.",
        (
            Key(
                "engine",
                Choice(tuple(sorted(engines))),
                "The program that runs the model; `external`: something else, already running.",
                required="say which program serves the model, e.g. engine: vllm",
            ),
            Key("model", Text(), "What the engine loads: a hub name, a folder or a file."),
            Key("args", flag, "Flags of the engine, without the leading dashes."),
            Key("env", variable, "Environment variables of the engine, besides those it inherits."),
            Key("command", Words(), "Program to start instead of the engine's own name."),
            Key("version", Text(), "Version of the engine: for image tags, and for flags that changed their names."),
            Key("gpus", GPUS, "GPUs of one replica. Left out: what the engine needs, one or none."),
            Key("replicas", REPLICAS, "How many replicas; one number means exactly that many."),
            Key("endpoints", ListOf(ENDPOINT, "http://host:port"), "Replicas that run already; kilocard starts none."),
            Key(
                "dns",
                HOST_AND_PORT,
                "Name whose DNS addresses are the replicas, e.g. a headless Service; and their port.",
            ),
            Key(
                "service",
                Text(
                    pattern=rf"(?:{LABEL}/)?{LABEL}(?::(?:{LABEL}|[0-9]{{1,5}}))?",
                    advice="write a Service's name, with namespace/ before it and :port behind it where needed",
                    label="[namespace/]name[:port]",
                ),
                "Kubernetes Service whose EndpointSlices are the replicas. Needs a pod's service account.",
            ),
            Key(
                "served_model_name",
                Text(),
                "What the engine itself calls the model, where that differs from the public name.",
            ),
            Key("max_in_flight", Whole(1), "Most requests that the gateway lets one replica have at once."),
            Key("scaling", SCALING, "Left out: the pool keeps `replicas.min` replicas."),
            Key("placement", PLACEMENT, "Where replicas may run."),
            Key("image", Text(), "Container image of a replica.", default="the engine's own, at `version`"),
            Key("resources", RESOURCES, "What a replica's container needs besides GPUs."),
            Key("drain", DRAIN, "How a replica is stopped; one duration means `grace`."),
            Key("start", START, "How replicas are started and restarted."),
            Key("profile", Text(), "Emulated engine: name or path of the speed profile."),
            Key(
                "tenants",
                ListOf(Text(), "tenant", if_empty="leave the key out if the pool is everybody's"),
                "Tenants that have this pool to themselves.",
                default="everybody",
            ),
        ),
        "Pool",
    )
