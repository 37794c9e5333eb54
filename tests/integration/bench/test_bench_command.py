"""`kilocard bench` as a user runs it: its files, its exit codes, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from bench_server import emulated, gateway

from free_ports import free_port
from kilocard.bench.requests_log import ALONE, read
from kilocard.bench.results import load

SHORT = ["--input", "64", "--output", "8", "--duration", "0.5s"]


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    with emulated("--max-num-seqs", "4") as (url,):
        yield url


def bench(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "kilocard", "bench", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, env={**os.environ, **env})


def trusted(code: int, document: dict[str, Any]) -> None:
    """Exit code 0, unless others took the processor of this machine: then 1, and the document says so."""
    limited = any(point["client"]["limited"] for point in document["points"])
    assert code == (1 if limited else 0)


def test_a_run_leaves_three_files_that_belong_together(engine: str, tmp_path: Path) -> None:
    done = bench(engine, *SHORT, "--sweep", "2,4", "--no-stop-early", "--out", str(tmp_path / "run"))
    document = json.loads((tmp_path / "run" / "results.json").read_text())
    trusted(done.returncode, document)
    assert [point["concurrency"] for point in document["points"]] == [2, 4]
    assert document["target"]["model"] == "emulated"
    for point in document["points"]:
        assert point["errors"] == 0 and point["output_tokens"] == 8 * point["completed"]
        assert set(point["ttft_s"]) >= {"mean", "p50", "p95", "p99"}
    assert {"knee", "limit", "advice"} <= set(document)
    assert document["single"]["decode_tpot_s"] > 0
    load((tmp_path / "run" / "results.json").read_bytes(), "results.json")
    with (tmp_path / "run" / "requests.jsonl").open("rb") as lines:
        requests = list(read(lines, "requests.jsonl"))
    for place, point in enumerate(document["points"]):
        assert sum(line.point == place and not line.carried for line in requests) == point["requests"]
    assert any(line.point == ALONE for line in requests)
    page = (tmp_path / "run" / "report.html").read_text()
    assert page.startswith("<!doctype html>") and "http://" not in page.replace(engine, "").replace("http://www.w3", "")


def test_json_is_one_document_on_stdout(engine: str) -> None:
    done = bench(engine, *SHORT, "--rate", "20", "--no-single", "--json", "--slo-ttft", "10s")
    document = json.loads(done.stdout)
    trusted(done.returncode, document)
    (point,) = document["points"]
    assert point["rate_per_s"] == 20 and point["concurrency"] is None
    assert point["goodput"]["share"] == 1.0


def test_the_answer_is_a_table_and_words(engine: str) -> None:
    done = bench(engine, *SHORT, "--sweep", "1", "--no-single")
    assert "TTFT" in done.stdout and "Knee" in done.stdout
    assert "1 at once" in done.stderr


def test_a_trace_is_asked_again_at_its_times(engine: str, tmp_path: Path) -> None:
    rows = [f"2023-11-16 18:15:{46 + i * 0.05:09.6f}00,{50 + i},{5 + i}" for i in range(20)]
    (tmp_path / "azure.csv").write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]))
    done = bench(engine, "--trace", str(tmp_path / "azure.csv"), "--no-single", "--json")
    (point,) = json.loads(done.stdout)["points"]
    assert (point["requests"], point["completed"]) == (20, 20)
    assert point["output_tokens"] == sum(range(5, 25))
    assert point["input_tokens"] == sum(range(50, 70))


def test_two_runs_are_compared(engine: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        bench(engine, *SHORT, "--sweep", "2", "--no-single", "--repeats", "2", "--out", str(tmp_path / name))
    done = bench("--compare", str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(tmp_path / "both"))
    assert done.returncode in (0, 1) and "2 in flight" in done.stdout
    assert (tmp_path / "both" / "compare.html").read_text().startswith("<!doctype html>")
    missing = bench("--compare", str(tmp_path / "a"), str(tmp_path / "c"))
    assert missing.returncode == 2 and "kilocard bench --out" in missing.stderr


def test_ctrl_c_keeps_what_was_measured(engine: str, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "kilocard", "bench", engine, *SHORT[:4], "--duration", "1s", "--no-single"]
    argv += ["--sweep", "1,2,3,4,5,6,7,8", "--repeats", "50", "--out", str(tmp_path)]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = iter(process.stderr.readline, "")
        next(line for line in said if "3 at once" in line)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        begun = time.monotonic()
        _, rest = process.communicate(timeout=60)
    assert time.monotonic() - begun < 30  # of the 50 times 8 s that it had been told to measure
    assert process.returncode == 1
    assert "Traceback" not in rest
    document = json.loads((tmp_path / "results.json").read_text())
    assert len(document["points"]) >= 2
    assert any("it was stopped" in finding["text"] for finding in document["findings"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "give the server's URL"),
        (["http://127.0.0.1:1", "--sweep", "0"], "--sweep 0"),
        (["http://127.0.0.1:1", "--rate", "1", "--sweep", "1"], "exclude each other"),
        (["nonsense://x"], "nonsense"),
        (["http://127.0.0.1:1", "--api-key-env", "NOT_THERE_AT_ALL"], "NOT_THERE_AT_ALL"),
        (["http://127.0.0.1:1", "--out", "/dev/null/x"], "--out"),
        (["http://127.0.0.1:1", "--endpoint", "images"], "chat or completions"),
    ],
)
def test_bad_input_is_exit_code_2_and_names_the_option(words: list[str], says: str) -> None:
    done = bench(*words)
    assert done.returncode == 2
    assert says in done.stderr and "Traceback" not in done.stderr


def test_nobody_there_is_exit_code_1_and_says_where() -> None:
    port = free_port()
    done = bench(f"http://127.0.0.1:{port}")
    assert done.returncode == 1
    assert str(port) in done.stderr and "Traceback" not in done.stderr


def test_lengths_that_do_not_fit_are_told_at_once(engine: str) -> None:
    done = bench(engine, "--input", "8000", "--output", "500")
    assert done.returncode == 2
    assert "do not fit into the 8192 tokens" in " ".join(done.stderr.split())


def test_a_key_is_sent_and_stands_in_no_file(tmp_path: Path) -> None:
    key = "kc-secret-0123456789"
    with emulated(count=2) as urls, gateway(tmp_path, urls, key) as url:
        done = bench(url, *SHORT, "--sweep", "4", "--out", str(tmp_path / "run"), KILOCARD_API_KEY=key)
        refused = bench(url, *SHORT, "--sweep", "1", KILOCARD_API_KEY="kc-wrong")
    document = json.loads((tmp_path / "run" / "results.json").read_text())
    (point,) = document["points"]
    assert point["errors"] == 0 and point["output_tokens"] == 8 * point["completed"]
    for file in (tmp_path / "run").iterdir():
        assert key not in file.read_text()
    assert key not in done.stdout + done.stderr
    assert refused.returncode == 1 and "401" in refused.stderr


@contextmanager
def answering(*pieces: bytes, then_s: float = 0.0) -> Iterator[str]:
    """A server whose every answer is a stream of these pieces, which goes on for `then_s` more."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path == "/v1/models"
            body = b'{"data":[{"id":"m"}]}' if found else b"{}"
            self.send_response(200 if found else 404)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            for piece in pieces:
                self.wfile.write(piece)
            self.wfile.flush()
            gone.wait(then_s)

        def log_message(self, *_: object) -> None:
            pass

    gone = threading.Event()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            gone.set()
            server.shutdown()


def test_a_stream_that_never_ends_ends_with_the_time_of_the_run() -> None:
    piece = b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n'
    with answering(piece, then_s=40.0) as url:
        began = time.monotonic()
        done = bench(url, *SHORT, "--max-seconds", "2")
        assert time.monotonic() - began < 35
    assert done.returncode == 1 and "--max-seconds were over" in done.stderr


@pytest.mark.parametrize(("piece", "says"), [(b"data: {no\n\n", "not JSON"), (b'data: {"error":"CUDA"}\n\n', "CUDA")])
def test_a_failure_behind_a_200_is_not_called_a_502(piece: bytes, says: str) -> None:
    with answering(piece) as url:
        done = bench(url, *SHORT)
        said = done.stderr.replace(url, "URL")  # its port may have any digits, 502 too
    assert done.returncode == 1
    assert "URL/v1/chat/completions began to answer (200) and then sent: " in said
    assert says in said and "502" not in said
