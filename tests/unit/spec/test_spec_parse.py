"""Documents → ClusterSpec, and what is said of documents that are wrong."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kilocard.core.errors import SpecError
from kilocard.spec.model import (
    ClusterSpec,
    DrainSpec,
    GpuSpec,
    ModelSpec,
    PoolSpec,
    ReplicaRange,
    TenantLimits,
)
from kilocard.spec.parse import parse
from kilocard.spec.problems import InvalidClusterFile, Path, did_you_mean, path_text
from kilocard.spec.scaling import ScaleStep
from kilocard.spec.table import cluster_section

POOL = {"engine": "vllm", "model": "m"}
HASH = "sha256:" + "0a" * 32


def read(text: str) -> ClusterSpec:
    return parse(yaml.safe_load(text))


def problems(document: object) -> list[str]:
    """Each problem as "path: problem; advice"."""
    with pytest.raises(SpecError) as caught:
        parse(document)
    return str(caught.value).splitlines()


def one_problem(document: object) -> str:
    found = problems(document)
    assert len(found) == 1, found
    return found[0]


def pool(**keys: object) -> dict[str, Any]:
    return {
        "pools": {"p": {**POOL, **{name.replace("_", "-") if name == "x" else name: v for name, v in keys.items()}}}
    }


# --- the smallest forms -----------------------------------------------------------------------------------------


def test_a_pool_alone_is_a_model_of_its_name() -> None:
    spec = read("pools: {qwen: {engine: vllm, model: Qwen/Qwen2.5-7B-Instruct}}")
    assert spec == ClusterSpec(
        models={"qwen": ModelSpec("qwen", {"qwen": 1})},
        pools={"qwen": PoolSpec("qwen", "vllm", "Qwen/Qwen2.5-7B-Instruct")},
    )


def test_a_model_without_pools_has_the_pool_of_its_name() -> None:
    spec = parse({"models": {"p": None, "q": {"policy": "adaptive", "pool": "p"}}, **pool()})
    assert {name: model.pools for name, model in spec.models.items()} == {"p": {"p": 1}, "q": {"p": 1}}


@pytest.mark.parametrize("written", [{"a": 1, "b": 1}, ["a", "b"]])
def test_pools_of_a_model(written: object) -> None:
    spec = parse({"models": {"m": {"pools": written}}, "pools": {"a": POOL, "b": POOL}})
    assert spec.models == {"m": ModelSpec("m", {"a": 1, "b": 1})}


def test_one_pool_by_its_name() -> None:
    assert parse({"models": {"m": {"pools": "p"}}, **pool()}).models["m"].pools == {"p": 1}


def test_a_pool_that_no_model_names_becomes_one_beside_the_others() -> None:
    spec = parse({"models": {"m": {"pools": {"a": 3}}}, "pools": {"a": POOL, "b": POOL}})
    assert {name: model.pools for name, model in spec.models.items()} == {"m": {"a": 3}, "b": {"b": 1}}


def test_short_forms() -> None:
    got = parse(pool(replicas=2, gpus=4, drain="5m")).pools["p"]
    assert (got.replicas, got.gpus, got.drain) == (ReplicaRange(2, 2), GpuSpec(tensor=4), DrainSpec(300.0))


@pytest.mark.parametrize(
    ("written", "range_"),
    [({"min": 4}, (4, 4)), ({"max": 8}, (1, 8)), ({"min": 0}, (0, 1)), ({}, (1, 1)), (None, (1, 1))],
)
def test_replicas(written: object, range_: tuple[int, int]) -> None:
    assert parse(pool(replicas=written)).pools["p"].replicas == ReplicaRange(*range_)


def test_a_header_of_sessions_is_looked_at_where_the_log_wants_prefixes() -> None:
    record = {"gateway": {"record": {"path": "log", "prefixes": True}}}
    spec = parse({"models": {"p": {"affinity": {"header": "x-session-id"}}}, **pool(), **record})
    assert spec.models["p"].policy == "queue_depth" and spec.models["p"].affinity.header == "x-session-id"


def test_the_whole_file_of_the_design() -> None:
    spec = read("""
        gateway: {listen: "127.0.0.1:9000", admin: "127.0.0.1:9001", limits: {body: 1MiB}, timeouts: {total: 1h}}
        models:
          qwen-7b: {policy: queue_depth, pools: {qwen-7b-v1: 100}, overheat: {kv_usage: 90%}, slow_start: 5s}
        pools:
          qwen-7b-v1:
            engine: vllm
            model: Qwen/Qwen2.5-7B-Instruct
            args: {max-model-len: 32768, gpu-memory-utilization: 0.85, enable-prefix-caching: true, lora: [a, b]}
            env: {OMP_NUM_THREADS: 4}
            command: /opt/vllm/bin/vllm serve
            gpus: {type: A100-80G, tensor: 2, pipeline: 1}
            replicas: {min: 1, max: 8}
            scaling: {signal: waiting, up: {above: 20, for: 30s, step: 2}, down: {below: 5, for: 5m}}
            placement: {node_selector: {gpu-type: A100}}
            drain: {grace: 120s}
        tenants:
          team-a:
            keys: ["sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"]
            models: [qwen-7b]
            limits: {requests_per_minute: 600, tokens_per_minute: 200000, concurrency: 32}
            priority: high
    """)
    assert (spec.gateway.listen, spec.gateway.limits.body, spec.gateway.timeouts.total) == (
        "127.0.0.1:9000",
        2**20,
        3600,
    )
    model, got, tenant = spec.models["qwen-7b"], spec.pools["qwen-7b-v1"], spec.tenants["team-a"]
    assert (model.overheat.kv_usage, model.overheat.kv_recover, model.slow_start) == (0.9, 0.81, 5.0)
    assert got.args == {
        "max-model-len": 32768, "gpu-memory-utilization": 0.85, "enable-prefix-caching": True, "lora": ("a", "b"),
    }  # fmt: skip
    assert (got.env, got.command) == ({"OMP_NUM_THREADS": "4"}, ("/opt/vllm/bin/vllm", "serve"))
    assert got.scaling is not None
    assert (got.scaling.up, got.scaling.down) == (ScaleStep(20, 30, 2), ScaleStep(5, 300, 1))
    assert got.placement.node_selector == {"gpu-type": "A100"}
    assert (tenant.keys, tenant.models, tenant.priority) == ((HASH,), ("qwen-7b",), "high")
    assert tenant.limits == TenantLimits(600, 200_000, 32)


def test_endpoints_are_the_replicas() -> None:
    spec = parse({"pools": {"p": {"engine": "external", "endpoints": ["http://A:1/", "http://b", "http://[::1]:3"]}}})
    assert spec.pools["p"].endpoints == ("http://a:1", "http://b:80", "http://[::1]:3")
    assert spec.pools["p"].replicas == ReplicaRange(3, 3)


def test_null_is_the_default() -> None:
    assert parse({"gateway": None, "tenants": None, **pool(scaling=None, args=None)}) == parse(pool())


def test_private_keys_are_ignored_at_the_top_only() -> None:
    assert parse({"x-anything": object(), **pool()}) == parse(pool())
    assert "pools.p.x-anything: is no known key" in one_problem({"pools": {"p": {**POOL, "x-anything": 1}}})


@pytest.mark.parametrize("name", [7, 1.5, "7b"])
def test_names_may_look_like_numbers(name: object) -> None:
    spec = parse({"models": {name: {"pools": [str(name)]}}, "pools": {name: POOL}})
    assert list(spec.models) == list(spec.pools) == [str(name)]


def test_a_number_where_text_is_wanted_is_read_as_it_was_written() -> None:
    document = pool(version=0.1)
    assert "pools.p.version: is a number, not text; put it in quotes" in one_problem(document)
    assert parse(document, texts={("pools", "p", "version"): "0.10"}).pools["p"].version == "0.10"


# --- problems ---------------------------------------------------------------------------------------------------


def test_every_problem_at_once_in_the_order_of_the_file() -> None:
    document = {
        "gatway": {},
        "pools": {"p": {"engine": "vlm", "replicas": {"min": 2, "max": "x"}}, "q": {}},
        "tenants": {"t": {"models": ["z"], "limits": {"concurrency": True}}},
    }
    lines: dict[Path, int] = {
        ("gatway",): 1,
        ("pools", "p", "engine"): 3,
        ("pools", "p", "replicas"): 4,
        ("pools", "q"): 5,
        ("tenants", "t"): 7,
    }
    with pytest.raises(InvalidClusterFile) as caught:
        parse(document, lines=lines)
    assert [re.sub(r"; .*", "", text) for text in str(caught.value).splitlines()] == [
        "line 1: gatway: is no known key here",
        'line 3: pools.p.engine: is "vlm", which is not known',
        'line 4: pools.p.replicas.max: is the text "x", not a number',
        "line 5: pools.q.engine: is missing",
        "line 7: tenants.t.limits.concurrency: is true or false, not a number",
        'line 7: tenants.t.models[0]: is "z", which is no model of this file',
    ]
    assert len(caught.value.problems) == 6


def test_an_error_has_the_status_and_exit_code_of_its_tree() -> None:
    with pytest.raises(SpecError) as caught:
        parse(None)
    assert (caught.value.http_status, caught.value.exit_code) == (400, 2)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (None, "cluster file: is empty; start with pools:"),
        ([], "cluster file: is a list, not a mapping"),
        ("pools", "cluster file: is text, not a mapping"),
        ({}, "pools: is missing; describe at least one pool"),
        ({"pools": {}}, "pools: has no pool"),
        ({"pools": []}, "pools: is a list, not a mapping; write pool: … for each"),
        ({"pools": {"p": 5}}, "pools.p: is a number, not a section; write keys under it: engine, model, "),
        (
            {"pools": {"p": {"engine": "vllm", "modle": "m", "model": "m"}}},
            "pools.p.modle: is no known key here; did you mean model?",
        ),
        ({"pools": {"a b": POOL}}, 'pools."a b": is no name for a pool; use letters, digits'),
        ({"pools": {"Qwen/Qwen": POOL}}, "pools.Qwen/Qwen: is no name for a pool; use letters, digits"),
        ({"pools": {True: POOL, "p": POOL}}, "pools.true: is a key that is true or false; put it in quotes"),
        ({"pools": {None: POOL, "p": POOL}}, "pools: has a key that is empty"),
        ({"pools": {7: POOL, "7": POOL}}, "pools.7: is there twice"),
        ({"pools": {"p": {"engine": "vllm"}}}, "pools.p.model: is missing, and vllm has to load something"),
        ({"pools": {"p": {"model": "m"}}}, "pools.p.engine: is missing; say which program"),
        (pool(engine="VLLM"), 'pools.p.engine: is "VLLM", which is not known; did you mean vllm?'),
        (pool(engine=False), "pools.p.engine: is true or false, not text; put it in quotes"),
        (pool(replicas={"min": 3, "max": 2}), "pools.p.replicas.max: is 2, less than min (3)"),
        (pool(replicas={"min": -1}), "pools.p.replicas.min: is -1; write a whole number from 0"),
        (pool(replicas=True), "pools.p.replicas: is true or false, not a number"),
        (
            pool(replicas="2"),
            'pools.p.replicas: is the text "2", not a number; write a whole number from 1 to 100,000, without',
        ),
        (pool(replicas=2.5), "pools.p.replicas: is 2.5, not a whole number"),
        (pool(replicas=float("nan")), "pools.p.replicas: is not a finite number"),
        (pool(replicas=10**400), "pools.p.replicas: is far too large"),
        (pool(scaling={"down": {"below": 20}}), "pools.p.scaling.down.below: is 20, not less than up.above (20)"),
        (pool(scaling={"signal": "kv_usage"}), "pools.p.scaling.up.above: is 20, which kv_usage never passes"),
        (pool(scaling={"up": {"for": "1 hour"}}), 'pools.p.scaling.up.for: has the unit "hour"'),
        (
            pool(scaling={"up": {"threshold": 3}}),
            "pools.p.scaling.up.threshold: is no known key here; known are above, for, step",
        ),
        (pool(args={"--port": 1}), "pools.p.args.--port: is no name for a flag; write the flag's name without --"),
        (pool(args={"x": {"a": 1}}), "pools.p.args.x: is a mapping; write one value or a list"),
        (pool(args={"x": [[1]]}), "pools.p.args.x: is a list; write one value or a list"),
        (pool(args={"x": float("inf")}), "pools.p.args.x: is not a finite number"),
        (pool(args="--port 1"), "pools.p.args: is text, not a mapping"),
        (pool(env={"A-B": "x"}), "pools.p.env.A-B: is no name for a variable"),
        (pool(env={"A": True}), "pools.p.env.A: is true or false, not text; put it in quotes"),
        (pool(command="vllm 'serve"), "pools.p.command: can't be split into words (no closing quotation)"),
        (pool(command=[]), "pools.p.command: is empty"),
        (pool(model="a\0b"), "pools.p.model: has characters that no program can be given"),
        (pool(model=" "), "pools.p.model: is empty"),
        (pool(endpoints=[]), "pools.p.endpoints: is an empty list"),
        (pool(endpoints="http://a:1"), "pools.p.endpoints: is text, not a list"),
        (
            pool(endpoints=["https://a:1"]),
            "pools.p.endpoints[0]: is an https URL; TLS to replicas is not supported yet",
        ),
        (pool(endpoints=["http://a:1/v1"]), 'pools.p.endpoints[0]: has the path "/v1"; leave it out'),
        (pool(endpoints=["a:1"]), 'pools.p.endpoints[0]: is "a:1", which has no scheme; write http://a:1'),
        (pool(endpoints=["http://u:p@a:1"]), "pools.p.endpoints[0]: has a user name or password"),
        (pool(endpoints=["ftp://a"]), 'pools.p.endpoints[0]: has the scheme "ftp"'),
        (pool(endpoints=["http://a:1", "http://A:1/"]), 'pools.p.endpoints[1]: is the same as [0] ("http://a:1")'),
        (pool(endpoints=["http://a:1"], dns="a:1"), "pools.p.dns: is there beside endpoints"),
        (pool(endpoints=["http://a:1"], replicas=2), "pools.p.replicas: contradicts the 1 endpoints"),
        (pool(endpoints=["http://a:1"], scaling={}), "pools.p.scaling: is there, but kilocard can't add endpoints"),
        ({"pools": {"p": {"engine": "external"}}}, "pools.p: has the engine external, which kilocard doesn't start"),
        (
            {"pools": {"p": {**POOL, "endpoints": ["http://a:1"]}, "q": {**POOL, "endpoints": ["http://a:1"]}}},
            'pools.q.endpoints[0]: is http://a:1, which is in the pool "p" too',
        ),
        (
            {"models": {"m": {"pools": {"pp": 1}}, "p": {}}, **pool()},
            "models.m.pools.pp: is no pool of this file; did you mean p?",
        ),
        ({"models": {"m": {"pools": {"p": 0}}}, **pool()}, "models.m.pools: has only weights of 0"),
        ({"models": {"m": {"pools": {"p": -1}}}, **pool()}, "models.m.pools.p: is -1; write a whole number from 0"),
        ({"models": {"m": {"pools": {"p": 0.5}}}, **pool()}, "models.m.pools.p: is 0.5, not a whole number"),
        ({"models": {"m": {"pools": {"p": None}}}, **pool()}, "models.m.pools.p: is empty, not a number"),
        ({"models": {"m": {"pools": ["p", "p"]}}, **pool()}, 'models.m.pools[1]: is the same as [0] ("p")'),
        ({"models": {"m": {"pool": "p", "pools": ["p"]}}, **pool()}, "models.m.pool: is there beside pools"),
        ({"models": {"m": {}}, **pool()}, "models.m: has no pool, and there is none of its name"),
        ({"models": {"m": ["p"]}, **pool()}, "models.m: is a list, not a section"),
        (
            {"models": {"p": {"pools": ["q"]}}, "pools": {"p": POOL, "q": POOL}},
            "pools.p: gets no traffic: no model names it, and the model of the same name has other pools",
        ),
        (
            {"models": {"p": {"affinity": {"header": "x-session-id"}}}, **pool()},
            "models.p.affinity.header: is not looked at by policy queue_depth; add policy: prefix_affinity",
        ),
        (
            {"models": {"p": {"policy": "prefix_affinity", "affinity": {"header": "Authorization"}}}, **pool()},
            'models.p.affinity.header: is "Authorization"; write a header\'s name, as x-session-id',
        ),
        ({"models": {"p": {"policy": "random"}}, **pool()}, 'models.p.policy: is "random", which is not known'),
        (
            {"models": {"p": {"overheat": {"kv_recover": 0.96}}}, **pool()},
            "models.p.overheat.kv_recover: is 0.96, not less than kv_usage (0.95)",
        ),
        (
            {"models": {"p": {"overheat": {"kv_usage": 95}}}, **pool()},
            "models.p.overheat.kv_usage: is 95, more than the whole; write 95% or 0.95",
        ),
        (
            {"models": {"p": {"eject": {"backoff_max": 1}}}, **pool()},
            "models.p.eject.backoff_max: is 1 s, less than backoff (2 s)",
        ),
        (
            {"gateway": {"admin": "127.0.0.1:8000"}, **pool()},
            "gateway.admin: is 127.0.0.1:8000, which listen (127.0.0.1:8000) takes already",
        ),
        (
            {"gateway": {"listen": "0.0.0.0:8001"}, **pool()},
            "gateway.admin: is 127.0.0.1:8001, which listen (0.0.0.0:8001) takes already",
        ),
        ({"gateway": {"listen": 8000}, **pool()}, "gateway.listen: is a number, not host:port; write host:port"),
        ({"gateway": {"timeouts": {"total": 0}}, **pool()}, "gateway.timeouts.total: is 0; write more than nothing"),
        ({"gateway": "0.0.0.0:80", **pool()}, "gateway: is text, not a section"),
        (
            {"tenants": {"t": {"models": ["pp"]}}, **pool()},
            'tenants.t.models[0]: is "pp", which is no model of this file; did you mean p?',
        ),
        ({"tenants": {"t": {"priority": "urgent"}}, **pool()}, 'tenants.t.priority: is "urgent", which is not known'),
        (
            {"tenants": {"t": {"keys": [HASH]}, "u": {"keys": [HASH.upper().replace("SHA", "sha")]}}, **pool()},
            'tenants.u.keys[0]: is a key of the tenant "t" too',
        ),
        (
            {"tenants": {"t": {"limits": {"concurrency": 0}}}, **pool()},
            "tenants.t.limits.concurrency: is 0; write a whole number from 1",
        ),
    ],
)
def test_one_mistake_gives_one_problem_with_what_to_do(document: object, said: str) -> None:
    text = one_problem(document)
    assert text.startswith(said), text
    assert "; " in text


@pytest.mark.parametrize("key", ["sk-very-secret", "sha256:very-secret", "sha256:" + "very-secret" * 6])
def test_no_message_repeats_what_may_be_a_key(key: str) -> None:
    text = one_problem({"tenants": {"t": {"keys": [key]}}, **pool()})
    assert "secret" not in text
    assert "kilocard keys create" in text


def test_the_same_port_on_two_interfaces_is_fine() -> None:
    assert parse({"gateway": {"listen": "10.0.0.1:8000", "admin": "127.0.0.1:8000"}, **pool()})
    assert parse({"gateway": {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0"}, **pool()})


def test_pools_that_need_no_model() -> None:
    assert parse({"pools": {"e": {"engine": "emulated"}, "l": {"engine": "llamacpp"}}})
    assert parse({"pools": {"d": {"engine": "external", "dns": "replicas.lan:8000"}}})
    assert parse({"pools": {"d": {"engine": "vllm", "endpoints": ["http://a:1"]}}})


def test_engines_are_an_argument() -> None:
    assert parse({"pools": {"p": {**POOL, "engine": "mine"}}}, engines=frozenset({"mine"})).pools["p"].engine == "mine"
    with pytest.raises(SpecError, match="known are mine"):
        parse(pool(), engines=frozenset({"mine"}))


def test_a_broken_pool_does_not_make_its_model_a_problem_too() -> None:
    assert one_problem({"models": {"m": {"pools": {"p": 1}}}, "pools": {"p": 7}}).startswith("pools.p: is a number")


def test_very_many_problems_are_counted() -> None:
    found = problems({"pools": {"p": {**POOL, "endpoints": ["x"] * 1000}}})
    assert len(found) == 201
    assert found[-1] == "… and 800 more problems"


def test_paths_quote_names_with_dots() -> None:
    assert path_text(("pools", "a.b", "endpoints", 0)) == 'pools."a.b".endpoints[0]'
    assert path_text(()) == "cluster file"


def test_did_you_mean() -> None:
    known = ["max-model-len", "max_num_seqs", "replicas"]
    assert did_you_mean("Max_Model_Len", known) == "did you mean max-model-len?"
    assert did_you_mean("zzz", known) == "known are max-model-len, max_num_seqs, replicas"


# --- anything at all --------------------------------------------------------------------------------------------


def known_words() -> list[str]:
    """Keys and words of the table, so that random documents get past the first floor."""
    found: set[str] = set()

    def visit(kind: object) -> None:
        for key in getattr(kind, "keys", ()):
            found.add(key.name)
            visit(key.kind)
        for attribute in ("kind", "pool"):
            if (inner := getattr(kind, attribute, None)) is not None:
                visit(inner)
        found.update(getattr(kind, "words", ()))

    visit(cluster_section())
    return sorted(found)


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from([*known_words(), "p", "m", "30s", "1MiB", "a:1", "http://a:1", HASH, "${X}", "\ud800", "a\nb"]),
    st.just(10**400),
)
keys = st.one_of(st.sampled_from([*known_words(), "p", "m", 7]), scalars)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(keys, inner, max_size=5)),
    max_leaves=10,
)


@pytest.mark.timeout(20)  # 0.3 s; making documents up is slow on a machine that is busy
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(values)
def test_any_document_gives_a_spec_or_a_spec_error(document: object) -> None:
    survives(document)


pools_of_any_kind = st.dictionaries(
    st.sampled_from(["p", "q", 7]), st.dictionaries(st.sampled_from(known_words()), values, max_size=4), max_size=2
)


@pytest.mark.timeout(20)  # 0.3 s; making documents up is slow on a machine that is busy
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "pools": pools_of_any_kind,
            "models": pools_of_any_kind,
            "tenants": pools_of_any_kind,
            "gateway": values,
        },
    )
)
def test_documents_of_nearly_the_right_shape_too(document: object) -> None:
    survives(document)


def test_a_number_too_long_to_print() -> None:
    assert one_problem(pool(replicas=10**5000)).startswith("pools.p.replicas: is far too large")
    assert one_problem({10**5000: 1, **pool()}).startswith('"a huge number": is no known key here')


def survives(document: object) -> None:
    try:
        assert isinstance(parse(document), ClusterSpec)
    except InvalidClusterFile as error:
        text = str(error)
        assert text
        text.encode()  # fit for any terminal or log
        assert len(text.splitlines()) == min(len(error.problems), 201)


@pytest.mark.parametrize(
    "url",
    [
        "redis://u:hid den@h/0", "redis:/u:hidden@h/0", "redsi://:hid@den@h/0", "u:hidden@h", "redis://u:hid/den @h",
        "postgresql://u:hid\nden@h/d", "mysql://u:hidden@h/d", "http://u:hidden@h:1", "ftp://u:hidden@h",
    ],
)  # fmt: skip
@pytest.mark.parametrize("key", ["limit_store", "database", "endpoints", "dns", "listen"])
def test_a_password_in_a_url_that_is_wrong_is_not_repeated(key: str, url: str) -> None:
    document = pool(**{key: [url] if key == "endpoints" else url}) if key in ("endpoints", "dns") else pool()
    if key in ("limit_store", "listen"):
        document["gateway"] = {key: url}
    elif key == "database":
        document["gateway"] = {"usage": {key: url}}
    assert "hid" not in one_problem(document)


def test_an_empty_list_of_who_may_is_not_everybody() -> None:
    """A template whose list has run empty must not open what it was to close."""
    tenant = {"tenants": {"t": {"models": []}}, **pool()}
    assert one_problem(tenant).startswith("tenants.t.models: is an empty list; leave")
    assert one_problem({"tenants": {"t": {}}, **pool(tenants=[])}).startswith("pools.p.tenants: is an empty list; ")
    oidc = {"issuer": "https://id", "audience": [], "tenant_claim": "t"}
    assert one_problem({"tenants": {"t": {}}, "gateway": {"oidc": oidc}, **pool()}).startswith("gateway.oidc.audience")
