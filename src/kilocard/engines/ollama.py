"""Ollama. `ollama serve` has no flags: its settings are environment variables. No metrics page (ollama#3144)."""

from __future__ import annotations

from kilocard.engines import command
from kilocard.engines.base import Capabilities, Launch, MetricsPage, Placement
from kilocard.engines.flags import arguments, refuse, text, wrong
from kilocard.engines.hints import FAILURES, hint, reader
from kilocard.spec.model import PoolSpec

#: args that become OLLAMA_…; a closed list, since Ollama ignores unknown variables in silence (envconfig/config.go)
SETTINGS = {
    "context-length", "debug", "flash-attention", "gpu-overhead", "keep-alive", "kv-cache-type", "llm-library",
    "load-timeout", "max-loaded-models", "max-queue", "models", "multiuser-cache", "new-engine",
    "new-estimates", "noprune", "num-parallel", "origins", "sched-spread", "vulkan",
}  # fmt: skip
_OWNED = {"host": command.HOST, "port": command.PORT}

_HINTS = (
    hint(r"Listening on \S+ \(version ([^)]+)\)", "server is up (version {0})"),
    hint(r"llama runner started in ([\d.]+ seconds)", "weights loaded in {0}"),
    hint(r"starting (?:llama server|runner|llama runner)", "loading weights"),
    hint(r"no compatible GPUs were discovered", "no GPU was found: it runs on the CPU"),
    hint(r"model requires more system memory \((.+?)\) than is available \((.+?)\)",
         "not enough memory: {0} needed, {1} free"),
)  # fmt: skip


class Ollama:
    name = "ollama"
    capabilities = Capabilities(
        aborts_on_disconnect=True,
        stream_usage=True,
        prefix_cache=True,
        shutdown_flag=None,
        keep_alive=None,  # Go's server without an idle timeout
        needs_gpu=False,
        launchable=True,
        lists_models=True,
        keys_in_any_case=True,
        image="ollama/ollama:{version}",
        hub_cache="OLLAMA_MODELS",
    )

    def launch(self, pool: PoolSpec, place: Placement, served_names: tuple[str, ...]) -> Launch:
        refuse(pool, _OWNED)
        if "OLLAMA_HOST" in pool.env:
            raise wrong(pool, "OLLAMA_HOST", f"in the pool's env is set by kilocard; remove it: {command.PORT}")
        command.model_of(pool)  # known under its own name, so it is needed to rewrite requests
        host = f"[{place.host}]" if ":" in place.host else place.host
        env = {"OLLAMA_HOST": f"{host}:{place.port}"}
        for key, value in arguments(pool).items():
            if key not in SETTINGS:
                raise wrong(pool, key, f"is no setting of Ollama's server; known: {', '.join(sorted(SETTINGS))}")
            name = f"OLLAMA_{key.upper().replace('-', '_')}"
            if isinstance(value, tuple):
                env[name] = ",".join(text(pool, key, item) for item in value)
            elif isinstance(value, bool):
                env[name] = "1" if value else "0"
            else:
                env[name] = text(pool, key, value)
        return Launch(command.program(pool, ["ollama", "serve"]), {**env, **pool.env})

    def upstream_model(self, pool: PoolSpec, public_name: str) -> str:
        return pool.served_model_name or pool.model or public_name

    def liveness_path(self, pool: PoolSpec) -> str:
        return "/api/version"

    def readiness_path(self, pool: PoolSpec) -> str:
        """The list of pulled models: it loads them on demand, so a listed model can serve."""
        return "/v1/models"

    loading_hint = staticmethod(reader(_HINTS, FAILURES))

    def metrics_pages(self, pool: PoolSpec) -> tuple[MetricsPage, ...]:
        return ()

    def max_running(self, pool: PoolSpec) -> int | None:
        given = arguments(pool).get("num-parallel", pool.env.get("OLLAMA_NUM_PARALLEL"))
        return int(given) or None if isinstance(given, str | int) and str(given).isdigit() else None

    def gpu_count(self, pool: PoolSpec) -> int:
        return command.gpus(pool, usual=0)
