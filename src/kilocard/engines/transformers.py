"""Hugging Face `transformers serve`: for trying a model out. Options as in transformers' cli/serve.py (typer)."""

from __future__ import annotations

from kilocard.engines import command
from kilocard.engines.base import Capabilities, Launch, MetricsPage, Placement
from kilocard.engines.flags import Lists, flags
from kilocard.engines.hints import FAILURES, UVICORN, hint, reader
from kilocard.spec.model import PoolSpec

_OWNED = {"host": command.HOST, "port": command.PORT, "force-model": command.MODEL}

#: version from which the model can be given on the command line: loaded at the start, kept while idle
_PRELOADS_SINCE = (5, 19)

_HINTS = (
    hint(r"Loading (?:weights|checkpoint shards):\s+(\d+)%", "loading weights: {0}%"),
    hint(r"Missing dependencies for the serving CLI", "Python packages missing: pip install 'transformers[serving]'"),
)


class Transformers:
    name = "transformers"
    capabilities = Capabilities(
        aborts_on_disconnect=False,  # only while it streams
        stream_usage=False,  # ignores stream_options (5.19 with a warning); sends the usage in the last chunk unasked
        prefix_cache=False,
        shutdown_flag=None,
        keep_alive=5.0,  # uvicorn's default
        needs_gpu=False,
        launchable=True,
        hub_cache="HF_HOME",
        distribution="transformers",
        lists_models=False,  # /v1/models lists the hub cache, and answers 500 without a hub
    )

    def launch(self, pool: PoolSpec, place: Placement, served_names: tuple[str, ...]) -> Launch:
        """Before 5.19 the program is not told its model: requests carry it, and the first one waits for the load."""
        model = command.model_of(pool)
        argv = ["transformers", "serve"]
        version = command.version(pool)
        if version is not None and version >= _PRELOADS_SINCE:
            argv.append(model)
        argv += ["--host", place.host, "--port", str(place.port)]
        argv += flags(pool, _OWNED, negate="--no-{}".format, lists=Lists.REPEATED)
        return Launch(command.program(pool, argv), dict(pool.env))

    def upstream_model(self, pool: PoolSpec, public_name: str) -> str:
        """The hub name or folder that it is to load; see `launch` for when."""
        return pool.served_model_name or pool.model or public_name

    def liveness_path(self, pool: PoolSpec) -> str:
        return "/health"

    def readiness_path(self, pool: PoolSpec) -> str:
        return "/health"

    loading_hint = staticmethod(reader(_HINTS, FAILURES, UVICORN))

    def metrics_pages(self, pool: PoolSpec) -> tuple[MetricsPage, ...]:
        return ()

    def max_running(self, pool: PoolSpec) -> int | None:
        return None

    def gpu_count(self, pool: PoolSpec) -> int:
        return command.gpus(pool, usual=0)
