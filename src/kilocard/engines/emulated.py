"""kilocard's own emulated engine: a vLLM-compatible server whose speed comes from a profile. Needs no GPU."""

from __future__ import annotations

from kilocard.engines import command
from kilocard.engines.base import Capabilities, Launch, MetricsPage, Placement
from kilocard.engines.flags import Lists, flags, whole
from kilocard.engines.hints import FAILURES, reader
from kilocard.engines.vllm import DIALECT
from kilocard.spec.model import PoolSpec

_OWNED = {
    "host": command.HOST,
    "port": command.PORT,
    "count": "use the pool's `replicas`",
    "model": command.SERVED_NAME,
    "profile": "use the pool's `profile`",
}


class Emulated:
    name = "emulated"
    capabilities = Capabilities(
        aborts_on_disconnect=True,
        stream_usage=True,
        prefix_cache=True,
        shutdown_flag=None,
        keep_alive=5.0,  # as vLLM
        needs_gpu=False,
        launchable=True,
        lists_models=True,
    )

    def launch(self, pool: PoolSpec, place: Placement, served_names: tuple[str, ...]) -> Launch:
        argv = ["kilocard", "emulate", "--port", str(place.port)]
        if place.host != "127.0.0.1":
            argv += ["--host", place.host]
        for name in (pool.served_model_name,) if pool.served_model_name else served_names or (pool.name,):
            argv += ["--model", name]
        if pool.profile:
            argv += ["--profile", pool.profile]
        argv += flags(pool, _OWNED, lists=Lists.REPEATED)
        return Launch(command.program(pool, argv), dict(pool.env), None if pool.command else "kilocard.cli.main")

    def upstream_model(self, pool: PoolSpec, public_name: str) -> str:
        return pool.served_model_name or public_name

    def liveness_path(self, pool: PoolSpec) -> str:
        return "/health"

    def readiness_path(self, pool: PoolSpec) -> str:
        return "/v1/models"

    loading_hint = staticmethod(reader(FAILURES))

    def metrics_pages(self, pool: PoolSpec) -> tuple[MetricsPage, ...]:
        return (MetricsPage("/metrics", DIALECT),)

    def max_running(self, pool: PoolSpec) -> int | None:
        return whole(pool, "max-num-seqs")

    def gpu_count(self, pool: PoolSpec) -> int:
        return 0
