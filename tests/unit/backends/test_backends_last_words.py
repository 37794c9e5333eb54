"""Why a process ended, in plain words."""

from __future__ import annotations

import pytest

from kilocard.backends.last_words import exit_meaning, exit_reason, last_words


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (-9, "killed by SIGKILL (out of memory?)"),
        (137, "killed by SIGKILL (out of memory?)"),  # how shells and containers say it
        (-15, "killed by SIGTERM"),
        (-11, "killed by SIGSEGV (it crashed: a fault in the engine or its driver)"),
        (0, "exited by itself with code 0"),
        (1, "exited with code 1"),
        (127, "exited with code 127 (the program was not found)"),
        (-70, "killed by signal 70"),
    ],
)
def test_exit_codes(code: int, words: str) -> None:
    assert exit_meaning(code) == words


# the end of a vLLM log whose engine core failed, shortened
VLLM = """\
(EngineCore_0 pid=91) ERROR 11-29 10:00:01 [core.py:700] EngineCore failed to start.
(EngineCore_0 pid=91) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
(APIServer pid=12) Traceback (most recent call last):
(APIServer pid=12)   File "vllm/v1/engine/core_client.py", line 500, in __init__
(APIServer pid=12) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
""".splitlines()


def test_the_root_cause_not_the_line_that_points_to_it() -> None:
    assert last_words(VLLM) == "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def test_a_line_that_speaks_of_trouble_beats_the_last_one() -> None:
    lines = [
        "loading",
        "\x1b[31mE load_model: failed to load model 'x.gguf'\x1b[0m",
        "I cleaning up before exit...",
        "",
    ]
    assert last_words(lines) == "E load_model: failed to load model 'x.gguf'"


def test_else_the_last_line() -> None:
    assert last_words(["hello", "goodbye", " "]) == "goodbye"
    assert last_words([]) == ""
    assert exit_reason(1, []) == "exited with code 1"


def test_an_engine_may_put_it_in_plainer_words() -> None:
    def hint(line: str) -> str | None:
        return "the GPU's memory is too small" if "OutOfMemory" in line else None

    assert exit_reason(1, VLLM, hint) == "exited with code 1: the GPU's memory is too small"


def test_endless_lines_are_cut() -> None:
    assert len(last_words(["ValueError: " + "x" * 10_000])) == 300


def test_the_command_that_kilocard_wrote_is_no_word_of_the_engine() -> None:
    assert exit_reason(1, ["kilocard: starting /bin/false --error-log /tmp/failed"]) == "exited with code 1"
    assert exit_reason(1, ["kilocard: starting /bin/x", "no such flag"]) == "exited with code 1: no such flag"


def test_who_was_killed_could_not_say_why() -> None:
    log = [
        "0.00.001.831 I srv init: build_info: b0-unknown",
        "0.01.726.514 I srv init: listening on http://127.0.0.1:1",
    ]
    for code in (-9, 137):
        assert exit_reason(code, log) == "killed by SIGKILL (out of memory?)"
    assert exit_reason(-9, VLLM).endswith("CUDA out of memory. Tried to allocate 2.00 GiB.")  # but may have said before
    assert exit_reason(1, log) == f"exited with code 1: {log[-1]}"
