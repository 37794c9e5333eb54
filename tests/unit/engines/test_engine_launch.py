"""Each engine's command line, as a user would type it."""

from __future__ import annotations

from typing import Any

import pytest

from kilocard.core.errors import EngineError
from kilocard.engines.base import Launch, Placement
from kilocard.engines.registry import engine
from kilocard.spec.model import DrainSpec, GpuSpec, PoolSpec

HERE = Placement("127.0.0.1", 8101)


def launch(name: str, *served: str, **pool: Any) -> Launch:
    made = PoolSpec("p", name, **{"model": "org/m", **pool})
    return engine(name).launch(made, HERE, served or ("qwen",))


def command(name: str, *served: str, **pool: Any) -> str:
    return " ".join(launch(name, *served, **pool).argv)


def test_vllm() -> None:
    args = {
        "max-model-len": 32768, "gpu-memory-utilization": 0.85, "max-num-seqs": 32, "enable-prefix-caching": True,
        "enable-chunked-prefill": False, "disable-log-stats": False, "lora_modules": ("a=/a", "b=/b"),
        "override-generation-config": '{"temperature": 0}',
    }  # fmt: skip
    assert command("vllm", "qwen", "qwen-latest", args=args, gpus=GpuSpec("A100", tensor=2, pipeline=3)) == (
        "vllm serve org/m --host 127.0.0.1 --port 8101 --served-model-name qwen qwen-latest"
        " --tensor-parallel-size 2 --pipeline-parallel-size 3"
        " --max-model-len 32768 --gpu-memory-utilization 0.85 --max-num-seqs 32 --enable-prefix-caching"
        ' --no-enable-chunked-prefill --lora-modules a=/a b=/b --override-generation-config {"temperature": 0}'
    )


@pytest.mark.parametrize(
    ("version", "flag"),
    [("0.18", "--shutdown-timeout 91"), ("v0.32.0+cpu", "--shutdown-timeout 91"), ("0.17.9", ""), (None, "")],
)
def test_vllm_lets_running_requests_finish_where_it_can(version: str | None, flag: str) -> None:
    assert command("vllm", version=version, drain=DrainSpec(90.5)).endswith(
        ("--served-model-name qwen " + flag).strip()
    )


def test_vllm_flags_without_a_negative_form_are_left_out() -> None:
    assert command("vllm", args={"disable-log-stats": False, "headless": False, "dp": 2}).endswith("qwen -dp 2")


def test_vllm_keeps_a_shutdown_timeout_of_the_users_own() -> None:
    assert command("vllm", version="0.18", args={"shutdown-timeout": 5}).count("--shutdown-timeout") == 1


def test_sglang() -> None:
    assert command(
        "sglang", args={"mem-fraction-static": 0.8, "disable-radix-cache": False}, gpus=GpuSpec(tensor=4)
    ) == (
        "python3 -m sglang.launch_server --model-path org/m --host 127.0.0.1 --port 8101 --served-model-name qwen"
        " --tp-size 4 --enable-metrics --mem-fraction-static 0.8"
    )


def test_trtllm_writes_underscores() -> None:
    assert command(
        "trtllm", args={"max-batch-size": 64, "extra_llm_api_options": "/x.yaml"}, gpus=GpuSpec(tensor=2)
    ) == (
        "trtllm-serve org/m --host 127.0.0.1 --port 8101 --tp_size 2"
        " --max_batch_size 64 --extra_llm_api_options /x.yaml"
    )


def test_llamacpp() -> None:
    made = launch("llamacpp", model="/m.gguf", args={"ctx-size": 8192, "t": 2, "flash-attn": True, "webui": False})
    assert " ".join(made.argv) == (
        "llama-server -m /m.gguf --host 127.0.0.1 --port 8101 -np 4 --alias qwen --metrics"
        " --ctx-size 8192 -t 2 --flash-attn on --no-webui"
    )
    assert made.fallback_module == "kilocard.backends.llamacpp_server"


def test_llamacpp_without_a_model_leaves_the_choice_to_the_server() -> None:
    argv = launch("llamacpp", "a", "b", model=None, args={"parallel": 2}).argv
    assert "-m" not in argv
    assert "-np" not in argv
    assert argv[argv.index("--alias") + 1] == "a,b"


def test_ollama_takes_its_settings_from_the_environment() -> None:
    args = {"num-parallel": 4, "flash_attention": True, "origins": ("http://a", "http://b")}
    made = launch("ollama", args=args, env={"OLLAMA_DEBUG": "1"})
    assert made.argv == ("ollama", "serve")
    assert made.env == {
        "OLLAMA_HOST": "127.0.0.1:8101", "OLLAMA_NUM_PARALLEL": "4", "OLLAMA_FLASH_ATTENTION": "1",
        "OLLAMA_ORIGINS": "http://a,http://b", "OLLAMA_DEBUG": "1",
    }  # fmt: skip


def test_transformers_is_told_its_model_by_each_request() -> None:
    assert command("transformers", args={"continuous-batching": True, "trust-remote-code": False}) == (
        "transformers serve --host 127.0.0.1 --port 8101 --continuous-batching --no-trust-remote-code"
    )
    pool = PoolSpec("p", "transformers", model="/models/smol")
    assert engine("transformers").upstream_model(pool, "public") == "/models/smol"


def test_transformers_loads_its_model_at_the_start_where_it_can() -> None:
    assert command("transformers", version="5.19.0").startswith("transformers serve org/m --host")
    assert command("transformers", version="4.57").startswith("transformers serve --host")


def test_emulated() -> None:
    made = launch("emulated", "a", model=None, profile="h100", args={"max-num-seqs": 8, "kv-tokens": 50000})
    assert " ".join(made.argv) == (
        "kilocard emulate --port 8101 --model a --profile h100 --max-num-seqs 8 --kv-tokens 50000"
    )
    assert made.fallback_module == "kilocard.cli.main"


def test_external_is_never_started() -> None:
    with pytest.raises(EngineError, match="never started by kilocard; give `endpoints`"):
        launch("external")


@pytest.mark.parametrize(
    ("name", "program", "begins"),
    [
        ("vllm", ("/opt/venv/bin/vllm",), "/opt/venv/bin/vllm serve org/m"),
        ("vllm", ("/opt/venv/bin/vllm", "serve"), "/opt/venv/bin/vllm serve org/m"),
        ("vllm", ("python", "-m", "vllm.entrypoints.cli.main"), "python -m vllm.entrypoints.cli.main serve org/m"),
        ("sglang", ("/opt/py",), "/opt/py -m sglang.launch_server --model-path"),
        ("sglang", ("/opt/py", "-m", "sglang.launch_server"), "/opt/py -m sglang.launch_server --model-path"),
        ("llamacpp", ("./llama-server",), "./llama-server -m org/m"),
        ("transformers", ("/v/bin/transformers",), "/v/bin/transformers serve --host"),
    ],
)
def test_command_replaces_the_program_only(name: str, program: tuple[str, ...], begins: str) -> None:
    made = launch(name, command=program)
    assert " ".join(made.argv).startswith(begins)
    assert made.fallback_module is None, "a program of the user's choice is never swapped for another"


@pytest.mark.parametrize(
    ("name", "key", "advice"),
    [
        ("vllm", "port", "free port of its own"),
        ("vllm", "--host", "where kilocard runs"),
        ("vllm", "tensor_parallel_size", "gpus: {tensor: N}"),
        ("vllm", "served-model-name", "served_model_name"),
        ("sglang", "tp", "gpus: {tensor: N}"),
        ("sglang", "model-path", "the pool's `model`"),
        ("trtllm", "pp_size", "gpus: {pipeline: N}"),
        ("llamacpp", "m", "the pool's `model`"),
        ("ollama", "host", "where kilocard runs"),
        ("transformers", "force-model", "the pool's `model`"),
        ("emulated", "count", "the pool's `replicas`"),
    ],
)
def test_what_kilocard_sets_is_refused_with_the_key_and_the_way_out(name: str, key: str, advice: str) -> None:
    with pytest.raises(EngineError) as caught:
        launch(name, args={key: 1})
    assert f"pool 'p': args.{key} is set by kilocard" in str(caught.value)
    assert advice in str(caught.value)


@pytest.mark.parametrize(
    ("args", "what"),
    [
        ({"max-num-seqs": None}, "has no value; write `true`"),
        ({"max-num-seqs": 1, "max_num_seqs": 2}, "given twice"),
        ({"bad key": 1}, "not the name of a flag"),
        ({"lora-modules": ()}, "empty list"),
    ],
)
def test_args_that_can_not_be_flags(args: dict[str, Any], what: str) -> None:
    with pytest.raises(EngineError, match=what):
        launch("vllm", args=args)


def test_ollama_settings_that_it_would_ignore_in_silence_are_refused() -> None:
    with pytest.raises(EngineError, match="num-paralel is no setting"):
        launch("ollama", args={"num-paralel": 4})


def test_values_that_look_like_flags_stay_with_theirs() -> None:
    assert launch("vllm", args={"x": "-y", "seed": -1, "s": "-2"}).argv[-5:] == ("--x=-y", "--seed", "-1", "--s", "-2")


@pytest.mark.parametrize("name", ["vllm", "sglang", "trtllm", "ollama", "transformers"])
def test_a_missing_model_is_named(name: str) -> None:
    with pytest.raises(EngineError, match=r"pool 'p': engine .* needs `model`"):
        launch(name, model=None)


def test_sglang_serves_under_one_name() -> None:
    with pytest.raises(EngineError, match="models a, b route to it"):
        launch("sglang", "a", "b")
    assert "--served-model-name own" in command("sglang", "a", "b", served_model_name="own")


@pytest.mark.parametrize(
    ("name", "pool", "count"),
    [
        ("vllm", {}, 1),
        ("vllm", {"gpus": GpuSpec(tensor=4, pipeline=2)}, 8),
        ("vllm", {"gpus": GpuSpec(tensor=2), "args": {"data-parallel-size": 4}}, 8),
        ("vllm", {"version": "0.32.0+cpu"}, 0),
        ("vllm", {"env": {"VLLM_CPU_KVCACHE_SPACE": "1"}}, 0),
        ("vllm", {"args": {"device": "cpu"}}, 0),
        ("sglang", {"args": {"dp-size": 2}}, 2),
        ("sglang", {"gpus": GpuSpec(tensor=8), "args": {"dp-size": 8, "enable-dp-attention": True}}, 8),
        ("trtllm", {}, 1),
        ("llamacpp", {}, 0),
        ("llamacpp", {"gpus": GpuSpec(tensor=2)}, 2),
        ("emulated", {"gpus": GpuSpec("H100", tensor=8)}, 0),
        ("external", {}, 0),
    ],
)
def test_gpus_of_one_replica(name: str, pool: dict[str, Any], count: int) -> None:
    assert engine(name).gpu_count(PoolSpec("p", name, **pool)) == count


@pytest.mark.parametrize(
    ("name", "pool", "running"),
    [
        ("vllm", {}, None),
        ("vllm", {"args": {"max_num_seqs": 32}}, 32),
        ("vllm", {"args": {"max-num-seqs": "32", "data-parallel-size": 2}}, 64),
        ("sglang", {"args": {"max-running-requests": 48}}, 48),
        ("trtllm", {"args": {"max_batch_size": 16}}, 16),
        ("llamacpp", {}, 4),
        ("llamacpp", {"args": {"np": 2}}, 2),
        ("llamacpp", {"endpoints": ("http://h:1",)}, None),
        ("ollama", {"args": {"num-parallel": 3}}, 3),
        ("ollama", {"env": {"OLLAMA_NUM_PARALLEL": "2"}}, 2),
        ("ollama", {}, None),
        ("emulated", {"args": {"max-num-seqs": 8}}, 8),
        ("external", {"args": {"max-num-seqs": 8}}, 8),
    ],
)
def test_requests_that_one_replica_runs_at_once(name: str, pool: dict[str, Any], running: int | None) -> None:
    assert engine(name).max_running(PoolSpec("p", name, **pool)) == running


@pytest.mark.parametrize("value", [0, -1, True, "many", 2.5])
def test_numbers_that_decide_on_limits_are_checked(value: object) -> None:
    with pytest.raises(EngineError, match="whole number of at least 1"):
        engine("vllm").max_running(PoolSpec("p", "vllm", args={"max-num-seqs": value}))  # type: ignore[dict-item]  # wrong on purpose


@pytest.mark.parametrize(
    ("model", "known_as"), [("org/m", "org/m"), ("/data/Qwen2.5-7B/", "Qwen2.5-7B"), ("./m", "m"), (None, "public")]
)
def test_trtllm_knows_folders_by_their_last_part(model: str | None, known_as: str) -> None:
    assert engine("trtllm").upstream_model(PoolSpec("p", "trtllm", model=model), "public") == known_as
