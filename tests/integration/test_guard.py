"""The guard by itself: the test is the parent that holds the other end of its link."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fake_engine import is_alive
from kilocard.backends import guard
from kilocard.backends.process import read_pid

SLEEP = "import time; time.sleep(60)"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"


class Guarded:
    def __init__(self, process: subprocess.Popen[str], link: socket.socket) -> None:
        self.process = process
        self.link = link
        first = b""
        while not first.endswith(b"\n"):  # and no byte of what may come right behind it
            first += link.recv(1)
        self.engine = int(first.decode().removeprefix("pid "))

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@contextmanager
def guarded(*argv: str, program: tuple[str, ...] = (guard.__file__,)) -> Iterator[Guarded]:
    ours, theirs = socket.socketpair()
    ours.settimeout(60)
    with (
        ours,
        subprocess.Popen(
            [sys.executable, "-I", "-S", *program, str(theirs.fileno()), str(os.getpid()), "--", *argv],
            pass_fds=(theirs.fileno(),),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        theirs.close()
        try:
            yield Guarded(process, ours)
        finally:
            process.kill()


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", code)


def gone(pid: int, seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while is_alive(pid):
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("raise SystemExit(0)", 0),
        ("raise SystemExit(7)", 7),
        ("import os; os.kill(os.getpid(), 9)", -9),
        ("import os; os.kill(os.getpid(), 15)", -15),
        ("import os; os.kill(os.getpid(), 11)", -11),
    ],
)
def test_it_ends_as_the_engine_did(code: str, status: int) -> None:
    with guarded(*python(code)) as run:
        assert run.process.wait(60) == status
        assert run.link.recv(64) == b"end\n"


def test_a_program_that_is_not_there() -> None:
    with guarded("/no/such/engine") as run:
        assert run.line() == "kilocard: /no/such/engine: the program was not found"
        assert run.process.wait(60) == 127


def test_a_file_that_is_no_program(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    with guarded(str(tmp_path / "text")) as run:
        assert "can't be run: Permission denied" in run.line()
        assert run.process.wait(60) == 126


def test_sigterm_goes_to_the_engine_alone() -> None:
    """Engines end their children in order; a signal to all of them would cut that short."""
    code = (
        "import os, signal, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-I', '-S', '-c', 'import time; time.sleep(60)'])\n"
        # not print(): the signal may come in the middle of the other one
        "def end(number, frame): os.write(1, f'child {child.poll()}\\n'.encode()); os._exit(3)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with guarded(*python(code)) as run:
        child = int(run.line())
        run.process.send_signal(signal.SIGTERM)
        assert run.line() == "child None", "its child still ran when it was told"
        assert run.process.wait(60) == 3
        assert gone(child), "and what it leaves behind is killed"


SLOW_FORK = """
import os, runpy, signal, time
fork = os.fork
def slow():
    {first}
    child = fork()
    if not child:
        time.sleep(0.5)
    return child
os.fork = slow
runpy.run_path({guard!r}, run_name="__main__")
"""


@pytest.mark.parametrize("first", ["os.kill(os.getpid(), signal.SIGTERM)", "pass"])
def test_a_signal_right_at_the_start_is_not_lost(first: str) -> None:
    """Neither before there is an engine to pass it on to, nor while that still has the guard's own handlers."""
    program = ("-c", SLOW_FORK.format(first=first, guard=guard.__file__))
    with guarded(*python(SLEEP), program=program) as run:
        if first == "pass":
            run.process.send_signal(signal.SIGTERM)
        assert run.process.wait(30) == -signal.SIGTERM


def test_sigquit_kills_everything_at_once() -> None:
    with guarded(*python(DEAF)) as run:
        assert run.line() == "deaf"
        run.process.send_signal(signal.SIGQUIT)
        assert run.process.wait(60) == -signal.SIGKILL
        assert gone(run.engine)


def test_a_link_that_ends_is_the_end_even_for_the_deaf() -> None:
    with guarded(*python(DEAF)) as run:
        assert run.line() == "deaf"
        run.link.close()
        assert gone(run.engine)
        run.process.wait(60)


def test_another_parent_is_the_end_too() -> None:
    """Somebody may hold a copy of the link: then our parent's process id tells."""
    ours, theirs = socket.socketpair()
    ours.settimeout(60)
    with ours, theirs:
        number = theirs.fileno()
        argv = [sys.executable, "-I", "-S", guard.__file__, str(number), "PARENT", "--", *python(SLEEP)]
        middle = (
            "import json, os, subprocess, sys\n"
            "argv = [str(os.getpid()) if word == 'PARENT' else word for word in json.loads(sys.argv[1])]\n"
            f"subprocess.Popen(argv, pass_fds=({number},)); sys.stdin.read(1); os._exit(0)"
        )
        with subprocess.Popen(
            [sys.executable, "-c", middle, json.dumps(argv)], pass_fds=(number,), stdin=subprocess.PIPE
        ) as parent:
            engine = int(ours.recv(64).decode().removeprefix("pid "))
            assert is_alive(engine)
            parent.kill()
        assert gone(engine)


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_the_engine_dies_with_its_guard() -> None:
    with guarded(*python("print('up', flush=True); " + SLEEP)) as run:
        assert run.line() == "up"
        run.process.kill()
        run.process.wait(60)
        assert gone(run.engine)


def test_a_wrong_command_line() -> None:
    done = subprocess.run([sys.executable, "-I", "-S", guard.__file__, "3"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "usage: python -m kilocard.backends.guard" in done.stderr


def test_an_engine_that_ends_at_once_has_an_end_behind_its_pid() -> None:
    """On a busy machine both are there when the parent looks."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"pid 24021\nend\n")
        assert asyncio.run(read_pid(ours)) == 24021
        assert ours.recv(64) == b"end\n"
