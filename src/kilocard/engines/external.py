"""Replicas that someone else runs, of an engine that the cluster file does not name."""

from __future__ import annotations

from kilocard.core.errors import EngineError
from kilocard.engines import llamacpp, sglang, trtllm, vllm
from kilocard.engines.base import Capabilities, Launch, MetricsPage, Placement
from kilocard.engines.flags import whole
from kilocard.spec.model import PoolSpec

#: pages are tried in this order; the first one with a known name on it is kept
PAGES = (
    MetricsPage("/metrics", vllm.DIALECT),
    MetricsPage("/metrics", sglang.DIALECT),
    MetricsPage(trtllm.METRICS_PATH, trtllm.PREFIXED),
    MetricsPage("/metrics", llamacpp.DIALECT),
)


class External:
    name = "external"
    #: the cautious assumptions, with one exception: every OpenAI-compatible engine that kilocard knows either
    #: understands or ignores stream_options, and without it the usage of streams would be a guess
    capabilities = Capabilities(
        aborts_on_disconnect=False,
        stream_usage=True,
        prefix_cache=False,
        shutdown_flag=None,
        keep_alive=5.0,  # the shortest of the known engines
        needs_gpu=False,
        launchable=False,
        lists_models=False,
    )

    def launch(self, pool: PoolSpec, place: Placement, served_names: tuple[str, ...]) -> Launch:
        raise EngineError(
            f"pool {pool.name!r}: engine external is never started by kilocard; give `endpoints` or `dns`, or name the "
            "engine",
            param="engine",
        )

    def upstream_model(self, pool: PoolSpec, public_name: str) -> str:
        return pool.served_model_name or public_name

    def liveness_path(self, pool: PoolSpec) -> str:
        return "/health"

    def readiness_path(self, pool: PoolSpec) -> str:
        return "/v1/models"  # the one page that every OpenAI-compatible server has

    def loading_hint(self, line: str) -> str | None:
        return None  # its log is not ours to read

    def metrics_pages(self, pool: PoolSpec) -> tuple[MetricsPage, ...]:
        return PAGES

    def max_running(self, pool: PoolSpec) -> int | None:
        return whole(pool, "max-num-seqs", "max-running-requests", "max-batch-size", "parallel")

    def gpu_count(self, pool: PoolSpec) -> int:
        return 0
