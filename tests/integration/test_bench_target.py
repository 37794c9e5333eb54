"""What the load tester finds out about a server, and what it says when it can't."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest
from openai_stub import TEMPLATE, Stub, served

from free_ports import free_port
from kilocard.bench.accepted import TRIAL
from kilocard.bench.form import Form
from kilocard.bench.prompt_counter import calibrate_prompts
from kilocard.bench.prompts import Prompts
from kilocard.bench.server import IgnoreEos, Server
from kilocard.bench.target import look, target_of
from kilocard.core.errors import KilocardError, Unauthorized, UpstreamError, UsageError
from kilocard.emulator.replica import Replica
from kilocard.emulator.settings import Settings


def found(stub: Stub, **known: object) -> Server:
    async def story() -> Server:
        async with served(stub) as url:
            return await look(target_of(url), **known)  # type: ignore[arg-type]

    return asyncio.run(story())


def failure(story: Callable[[], Awaitable[object]]) -> KilocardError:
    with pytest.raises(KilocardError) as caught:
        asyncio.run(story())  # type: ignore[arg-type]
    return caught.value


def test_a_server_that_takes_all_of_it() -> None:
    server = found(Stub())
    assert (server.model, server.chat, server.completions) == ("m", True, True)
    assert server.target.path == "/v1/chat/completions"
    assert server.ignore_eos is IgnoreEos.WORKS
    assert server.form == Form("m")
    assert server.notes == ("no metrics page was found: queue, KV cache and prefix hits of the engine are unknown",)


def test_it_asks_for_little() -> None:
    stub = Stub()
    found(stub)
    assert len(stub.asked) <= 3
    assert all(said["max_tokens"] <= 24 for said in stub.asked)


@pytest.mark.parametrize("says_which", [True, False])
@pytest.mark.parametrize("name", ["ignore_eos", "temperature", "stream_options"])
def test_bn_08_a_field_that_is_refused_is_dropped_and_said(name: str, says_which: bool) -> None:
    stub = Stub(refused=(name,), says_which=says_which)
    server = found(stub)
    assert name not in server.form.optional()
    assert any(f"the server refuses '{name}' (400: " in note for note in server.notes)
    if says_which:
        assert len(server.form.optional()) == 2, "the others stay"


def test_max_tokens_by_its_newer_name() -> None:
    server = found(Stub(refused=("max_tokens",)))
    assert server.form.limit == "max_completion_tokens"


def test_bn_08_ignore_eos_that_is_taken_and_ignored() -> None:
    server = found(Stub(takes_ignore_eos=False))
    assert server.ignore_eos is IgnoreEos.IGNORED
    assert any(note.startswith("ignore_eos is ignored: answers end where the model wants") for note in server.notes)


def test_bn_08_a_model_that_talks_on_anyway_proves_nothing() -> None:
    server = found(Stub(natural=100))
    assert server.ignore_eos is IgnoreEos.UNSEEN
    assert server.form.ignore_eos


@pytest.mark.parametrize(
    ("stub", "wanted"),
    [
        (Stub(talks_on=TRIAL), IgnoreEos.WORKS),
        (Stub(talks_on=TRIAL, takes_ignore_eos=False), IgnoreEos.IGNORED),
        (Stub(talks_on=TRIAL, takes_ignore_eos=False, takes_min_tokens=True), IgnoreEos.MIN_TOKENS),
        (Stub(talks_on=TRIAL, refused=("ignore_eos",)), IgnoreEos.REFUSED),
        (Stub(refused=("ignore_eos",), takes_min_tokens=True), IgnoreEos.MIN_TOKENS),
        (Stub(natural=100, refused=("ignore_eos",), takes_min_tokens=True), IgnoreEos.REFUSED),
    ],
)
def test_bn_08_a_second_question_where_the_model_talks_on_at_the_first(stub: Stub, wanted: IgnoreEos) -> None:
    assert found(stub).ignore_eos is wanted


def test_bn_08_min_tokens_is_the_fallback_where_it_works() -> None:
    server = found(Stub(takes_ignore_eos=False, takes_min_tokens=True))
    assert server.ignore_eos is IgnoreEos.MIN_TOKENS
    assert server.form.min_tokens


def test_nobody_asks_for_ignore_eos_if_the_user_does_not_want_it() -> None:
    stub = Stub()
    server = found(stub, form=Form("", ignore_eos=False))
    assert server.ignore_eos is IgnoreEos.UNSEEN
    assert not any("ignore_eos" in said for said in stub.asked)


def test_no_usage_in_streams_is_said() -> None:
    assert any(note.startswith("the server counts no tokens in streams") for note in found(Stub(counts=False)).notes)


def test_completions_alone() -> None:
    server = found(Stub(chat=False))
    assert (server.chat, server.completions, server.target.path) == (False, True, "/v1/completions")
    assert any(note.startswith("/v1/completions is used, since ") for note in server.notes)


def test_several_models_are_listed_and_one_must_be_chosen() -> None:
    async def story() -> None:
        async with served(Stub(models=("b", "a"))) as url:
            await look(target_of(url))

    error = failure(story)
    assert isinstance(error, UsageError)
    assert str(error).endswith("serves 2 models. Say which with --model: a, b")
    assert found(Stub(models=("b", "a")), model="b").model == "b"


def test_no_list_of_models_is_no_obstacle_if_the_model_is_given() -> None:
    server = found(Stub(list_status=500), model="m")
    assert any("answers 500 and no list" in note for note in server.notes)


def test_the_key_is_sent_and_never_repeated() -> None:
    stub = Stub(key="sk-right-key-123")

    async def story(key: str | None) -> Server:
        async with served(stub) as url:
            return await look(target_of(url, api_key=key))

    assert asyncio.run(story("sk-right-key-123")).model == "m"
    error = failure(lambda: story("sk-wrong-key-456"))
    assert isinstance(error, Unauthorized)
    assert "does not accept this API key (401" in str(error)
    assert "sk-wrong-key-456" not in str(error), "the stub's own message has it"
    error = failure(lambda: story(None))
    assert "wants an API key (401" in str(error)
    assert "OPENAI_API_KEY" in str(error)


def test_a_metrics_page_elsewhere_gets_no_key() -> None:
    here, there = Stub(key="sk-right-key-123"), Stub(metrics=b"# TYPE x gauge\nvllm:num_requests_running 1\n")

    async def story() -> Server:
        async with served(here) as url, served(there) as other:
            return await look(target_of(url, api_key="sk-right-key-123"), metrics_urls=[f"{other}/metrics"])

    server = asyncio.run(story())
    assert [page.url.rpartition("/")[2] for page in server.pages] == ["metrics"]
    assert server.engine == "vllm"
    assert there.keys == {""}


def test_the_page_that_a_reader_empties_is_not_read_first() -> None:
    """TensorRT-LLM: /metrics hands each record out once, to whoever asks first."""
    stub = Stub(metrics=b"# TYPE x gauge\nvllm:num_requests_running 1\n")
    found(stub)
    assert stub.targets.index("/prometheus/metrics") < stub.targets.index("/metrics")


def test_a_router_whose_metrics_page_wants_the_model() -> None:
    stub = Stub(
        models=("a b",), metrics=b"# TYPE x gauge\nllamacpp:requests_processing 1\n", metrics_query="model=a%20b"
    )
    server = found(stub)
    assert [page.url.rpartition("/")[2] for page in server.pages] == ["metrics?model=a%20b"]


def test_a_metrics_page_that_is_named_must_be_one() -> None:
    async def story(metrics: bytes | None) -> None:
        async with served(Stub(metrics=metrics)) as url:
            await look(target_of(url), metrics_urls=[f"{url}/metrics"])

    assert "there is no such page" in str(failure(lambda: story(None)))
    assert "nothing on this page is known" in str(failure(lambda: story(b"# HELP x y\nnode_load1 1\n")))
    assert "not Prometheus text" in str(failure(lambda: story(b"<html></html>")))


def test_nothing_listens() -> None:
    error = failure(lambda: look(target_of(f"http://127.0.0.1:{free_port()}")))
    assert isinstance(error, UpstreamError)
    assert "can't connect" in str(error)
    assert str(error).endswith("Is the server running, and are host and port right?")


def test_https_to_a_plain_port() -> None:
    async def story() -> None:
        async with served(Stub()) as url:
            await look(target_of(url.replace("http://", "https://")))

    assert str(failure(story)).endswith("Is it https at all (try http://), and is its certificate known here?")


def test_a_page_that_is_not_there() -> None:
    async def story() -> None:
        async with served(Stub(chat=False)) as url:
            await look(target_of(f"{url}/elsewhere"))

    assert "/elsewhere/v1/models is not there (404" in str(failure(story))


def test_prompts_for_a_server_that_says_only_usage() -> None:
    """No tokenize page, a chat template, and some words that are several tokens."""
    stub = Stub(long_words=frozenset({"the", "you", "was", "zip"}))

    async def story() -> None:
        async with served(stub) as url:
            server = await look(target_of(url))
            assert server.tokenize is None
            calibration = await calibrate_prompts(server, [100, 1000], Random(1))
            assert calibration.overhead == TEMPLATE
            assert not stub.long_words & set(calibration.words)
            prompts = Prompts(calibration, server.form, Random(2))
            for tokens in (30, 100, 777, 4096):
                assert stub.tokens(prompts.text(tokens)) + TEMPLATE == tokens

    asyncio.run(story())


def test_an_emulated_engine() -> None:
    async def story() -> None:
        async with Replica(Settings(speed=20.0)) as replica:
            server = await look(target_of(await replica.start()))
            assert (server.engine, server.max_model_len) == ("emulated", replica.settings.context)
            assert server.tokenize is not None
            assert server.kv_tokens == replica.engine.kv_tokens
            assert [page.url for page in server.pages] == [f"{replica.url}/metrics"]
            calibration = await calibrate_prompts(server, [50, 500], Random(1))
            assert (calibration.tokens_per_word, calibration.overhead) == (1.0, 0)

    asyncio.run(story())
