from __future__ import annotations

import pytest

from kilocard.bench.form import Form
from kilocard.bench.server import Server
from kilocard.bench.target import target_of
from kilocard.core.errors import UsageError


@pytest.mark.parametrize(
    ("given", "base"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000"),
        ("https://host/proxy/v1/", "https://host/proxy"),
        ("https://host/v1/chat/completions", "https://host"),
        (" http://host/v1/models", "http://host"),
    ],
)
def test_urls_as_people_paste_them(given: str, base: str) -> None:
    assert target_of(given).url == base


@pytest.mark.parametrize("given", ["ftp://host", "http://", "http://a b", "http://user:pw@host", "http://host?x=1"])
def test_what_is_no_address(given: str) -> None:
    with pytest.raises(UsageError):
        target_of(given)


def test_the_key_comes_from_the_option_before_the_environment() -> None:
    environ = {"OPENAI_API_KEY": "sk-openai", "KILOCARD_API_KEY": "sk-kilocard"}
    assert target_of("http://h", api_key="sk-given", environ=environ).headers == (("authorization", "Bearer sk-given"),)
    assert target_of("http://h", environ=environ).headers == (("authorization", "Bearer sk-kilocard"),)
    assert target_of("http://h", environ={"OPENAI_API_KEY": "sk-openai"}).headers[0][1] == "Bearer sk-openai"
    assert target_of("http://h", environ={"OPENAI_API_KEY": ""}).headers == ()


def test_a_header_of_ones_own_wins() -> None:
    own = [("Authorization", "Basic abc")]
    assert target_of("http://h", api_key="sk-given", headers=own).headers == (("Authorization", "Basic abc"),)


def test_no_key_is_ever_shown() -> None:
    target = target_of("http://h", api_key="sk-secret", headers=[("x-other", "also-secret")])
    assert "secret" not in repr(target)
    about = Server(target, "m", Form("m")).about()
    assert "secret" not in repr(about)
