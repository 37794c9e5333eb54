"""What every engine in the registry must do, whichever it is."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from kilocard.core.errors import EngineError
from kilocard.engines.base import Capabilities, Engine, Group, Placement
from kilocard.engines.registry import ENGINES, engine
from kilocard.spec.model import GpuSpec, PoolSpec

PAGE = Path(__file__).parents[2] / "docs" / "engines.md"


@pytest.fixture(params=ENGINES, ids=str)
def each(request: pytest.FixtureRequest) -> Engine:
    return ENGINES[request.param]


def pool(each: Engine, **more: object) -> PoolSpec:
    return dataclasses.replace(PoolSpec("chat-v1", each.name, model="/models/m"), **more)  # type: ignore[arg-type]  # a test's own mapping


def test_it_is_listed_under_its_name(each: Engine) -> None:
    assert engine(each.name) is each


def test_it_launches_or_refuses_clearly(each: Engine) -> None:
    place = Placement("127.0.0.1", 18_123, (0, 1))
    if not each.capabilities.launchable:
        with pytest.raises(EngineError, match="chat-v1"):
            each.launch(pool(each), place, ("chat",))
        return
    launch = each.launch(pool(each, env={"HF_HOME": "/cache"}), place, ("chat",))
    assert launch.argv
    assert all(isinstance(word, str) and word for word in launch.argv)
    assert launch.env["HF_HOME"] == "/cache"
    said = [*launch.argv, *launch.env.values()]
    assert any("18123" in word for word in said), "the port reaches it"
    assert "CUDA_VISIBLE_DEVICES" not in launch.env, "GPUs are the backend's business"


def test_two_replicas_differ_in_their_port_only(each: Engine) -> None:
    if not each.capabilities.launchable:  # its clear refusal is the test above
        with pytest.raises(EngineError):
            each.launch(pool(each), Placement("127.0.0.1", 18_123), ("chat",))
        return
    first, second = (each.launch(pool(each), Placement("127.0.0.1", port), ("chat",)) for port in (18_123, 18_124))
    replaced = [word.replace("18123", "18124") for word in first.argv]
    assert replaced == list(second.argv)


def test_the_users_own_port_and_host_are_refused_by_name(each: Engine) -> None:
    for key in ("port", "host"):
        with pytest.raises(EngineError) as caught:
            each.launch(pool(each, args={key: "9"}), Placement("127.0.0.1", 1), ("chat",))
        assert key in str(caught.value) or not each.capabilities.launchable


def test_a_name_to_send_upstream(each: Engine) -> None:
    assert each.upstream_model(pool(each), "chat")
    assert each.upstream_model(pool(each, served_model_name="own"), "chat") == "own"
    there = pool(each, model=None, endpoints=("http://h:1",))
    assert each.upstream_model(there, "chat") == "chat", "of a replica that exists we know the public name at best"


def test_paths(each: Engine) -> None:
    paths = [each.liveness_path(pool(each)), each.readiness_path(pool(each))]
    paths += [page.path for page in each.metrics_pages(pool(each))]
    assert all(path.startswith("/") for path in paths)


def test_its_metric_pages_have_a_load(each: Engine) -> None:
    for page in each.metrics_pages(pool(each)):
        assert page.dialect.running
        assert page.dialect.waiting
        assert hash(page.dialect) is not None


def test_capabilities_are_complete(each: Engine) -> None:
    for field in dataclasses.fields(Capabilities):
        value = getattr(each.capabilities, field.name)
        assert isinstance(value, bool | str | float | tuple | Group | None), field.name
    assert each.capabilities.keep_alive is None or each.capabilities.keep_alive > 0
    assert each.capabilities.shutdown_flag is None or each.capabilities.shutdown_flag.startswith("--")
    assert all(name and not name.startswith("-") for name, _ in each.capabilities.places_itself)
    group = each.capabilities.group
    assert group is None or group.flags[0].startswith("--")


def test_gpus(each: Engine) -> None:
    count = each.gpu_count(pool(each))
    assert count == (1 if each.capabilities.needs_gpu else 0)
    assert each.gpu_count(pool(each, gpus=GpuSpec(tensor=2))) in {0, 2}


def test_an_ordinary_log_line_says_nothing(each: Engine) -> None:
    assert each.loading_hint('INFO:     127.0.0.1:58310 - "POST /v1/chat/completions HTTP/1.1" 200 OK') is None
    assert each.loading_hint("") is None


def test_it_is_documented(each: Engine) -> None:
    assert f"| `{each.name}` |" in PAGE.read_text()


def test_an_unknown_engine_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(EngineError, match="no engine 'vlm'; known: vllm, sglang"):
        engine("vlm")
