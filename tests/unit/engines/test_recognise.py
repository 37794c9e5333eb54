from __future__ import annotations

import pytest

from kilocard.engines.recognise import FACT_PAGES, GATEWAY, ServerFacts, facts, recognise
from kilocard.engines.registry import ENGINES


@pytest.mark.parametrize(
    ("owner", "headers", "page", "name"),
    [
        ("vllm", {"server": "uvicorn"}, b"", "vllm"),
        ("sglang", {}, b"", "sglang"),
        ("llamacpp", {"server": "llama.cpp"}, b"", "llamacpp"),
        (None, {"server": "llama.cpp"}, b"", "llamacpp"),
        ("library", {}, b"", "ollama"),
        ("kilocard-emulated", {}, b"vllm:num_requests_running 0\n", "emulated"),
        ("vllm", {"x-kilocard-emulated": "1"}, b"", "emulated"),
        ("someone", {}, b"# TYPE x gauge\nvllm:num_requests_running 0\n", "vllm"),
        ("someone", {}, b"trtllm_num_requests_running 0\n", "trtllm"),
        ("kilocard", {}, b"vllm:num_requests_running 0\n", GATEWAY),
        ("openai", {"server": "cloudflare"}, b"", None),
        (None, {}, b"my_vllm:x 1\n", None),
    ],
)
def test_guesses(owner: str | None, headers: dict[str, str], page: bytes, name: str | None) -> None:
    assert recognise(owner, headers, page) == name
    assert name is None or name == GATEWAY or name in ENGINES


@pytest.mark.parametrize(
    ("path", "body", "wanted"),
    [
        ("/version", b'{"version":"0.32.0"}', ServerFacts("0.32.0")),
        ("/props", b'{"total_slots":4,"build_info":"b10549-1","chat_template":""}', ServerFacts("b10549-1", 4)),
        ("/get_server_info", b'{"version":"0.5.3","max_running_requests":2048}', ServerFacts("0.5.3", 2048)),
        ("/props", b'{"total_slots":2,"build_info":"b0-unknown"}', ServerFacts(None, 2)),
        ("/version", b"0.32.0", ServerFacts()),
        ("/version", b'["0.32.0"]', ServerFacts()),
        ("/props", b'{"total_slots":"4","build_info":7}', ServerFacts()),
    ],
)
def test_what_a_server_says_of_itself(path: str, body: bytes, wanted: ServerFacts) -> None:
    assert path in FACT_PAGES
    assert facts(path, body) == wanted
