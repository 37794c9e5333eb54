"""llama-server's flags, as the wheel's server takes them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kilocard.backends.llamacpp_server import CACHE_RAM, CONTEXT_PER_SLOT, PLAIN, fill, main, parser


def params(*flags: str) -> SimpleNamespace:
    empty = SimpleNamespace(model=SimpleNamespace(), cpuparams=SimpleNamespace(), cpuparams_batch=SimpleNamespace())
    filled: SimpleNamespace = fill(empty, parser().parse_args(flags))
    return filled


def test_the_usual_command() -> None:
    made = params(
        "-m", "x.gguf", "--host", "127.0.0.1", "--port", "81", "-np", "4", "-c", "8192", "-a", "m,n", "--metrics"
    )
    assert (made.model.path, made.hostnames, made.port) == ("x.gguf", ["127.0.0.1"], 81)
    assert (made.n_parallel, made.n_ctx, made.model_alias, made.endpoint_metrics) == (4, 8192, {"m", "n"}, True)


def test_the_context_is_for_all_slots_together() -> None:
    assert params("-np", "3").n_ctx == 3 * CONTEXT_PER_SLOT
    assert params("-np", "3", "-c", "0").n_ctx == 0  # llama.cpp: as much as the model was trained with


def test_threads_for_prompts_follow_those_for_generation() -> None:
    made = params("-t", "6")
    assert (made.cpuparams.n_threads, made.cpuparams_batch.n_threads) == (6, 6)
    made = params("-t", "6", "-tb", "2")
    assert (made.cpuparams.n_threads, made.cpuparams_batch.n_threads) == (6, 2)
    assert not hasattr(params().cpuparams, "n_threads")


def test_what_is_not_given_is_left_to_llama_cpp() -> None:
    made = params()
    assert not hasattr(made, "n_batch")
    assert not hasattr(made, "verbosity")
    assert made.cont_batching is True
    assert made.cache_ram_mib == CACHE_RAM
    assert params("--no-cont-batching", "--no-jinja").cont_batching is False


def test_every_plain_flag_exists() -> None:
    assert PLAIN.keys() <= vars(parser().parse_args([])).keys()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--grammar-fiel", "x"], "unknown: --grammar-fiel x. The wheel's server takes a part of llama-server's flags"),
        (["--para", "3"], "unknown: --para 3"),  # no guessing at shortened flags
        (["-np", "0"], "--parallel must be at least 1"),
        (["-m", "/no/such.gguf"], "there is no file /no/such.gguf: give a GGUF file as `model`"),
        (["--port", "x"], "invalid int value"),
    ],
)
def test_mistakes_are_told(flags: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(flags)
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def test_a_missing_wheel_is_told_with_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "xllamacpp", None)
    with pytest.raises(SystemExit) as ended:
        main(["-m", __file__])
    assert ended.value.code == 2
    assert "pip install 'kilocard[local]'" in capsys.readouterr().err
