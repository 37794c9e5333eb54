"""The chart: its values are the cluster file, and what its schema allows it renders as `render kubernetes` would."""

from __future__ import annotations

import json
from functools import cache

import pytest
import yaml
from chart import OPTIONS, Chart, allowed, by_kubernetes
from clusters import cluster, pool
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from tests.golden_cases import CLUSTERS, GOLDEN

from kilocard.deploy.helm.template import filled_in
from kilocard.deploy.helm.values import at, changed
from kilocard.deploy.kubernetes.render import objects
from kilocard.spec.load import load
from kilocard.spec.parse import parse

NAMES = ("one-model", "fleet")


@cache
def chart(name: str) -> Chart:
    return Chart(load(CLUSTERS / f"{name}.yaml"))


@pytest.mark.parametrize("name", NAMES)
def test_the_chart_as_it_is_renders_what_render_kubernetes_does(name: str) -> None:
    spec = load(CLUSTERS / f"{name}.yaml")
    plain = parse({**chart(name).values, "kubernetes": {**chart(name).values["kubernetes"]}})
    assert chart(name).released(chart(name).values) == by_kubernetes(chart(name).values)
    names = [thing["metadata"]["name"] for each in objects(spec, OPTIONS).values() for thing in each]
    released = [thing["metadata"]["name"] for thing in chart(name).released(chart(name).values)]
    assert [one for one in names if one != spec.kubernetes.namespace] == released
    assert plain.pools.keys() == spec.pools.keys()


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@settings(max_examples=12, deadline=None)
def test_any_values_that_the_schema_allows_render_as_the_cluster_file_would(name: str, data: st.DataObject) -> None:
    one = chart(name)
    turned = data.draw(st.lists(st.sampled_from(one.knobs), min_size=1, unique_by=lambda knob: knob.place))
    news = {knob.place: data.draw(allowed(one.schema_of(knob.place)), ".".join(knob.place)) for knob in turned}
    document = changed(one.values, news)
    if not list(Draft202012Validator(one.schema).iter_errors(document)):
        assert one.released(document) == by_kubernetes(document)


@pytest.mark.parametrize("name", NAMES)
def test_the_schema_lets_the_charts_own_values_in(name: str) -> None:
    Draft202012Validator.check_schema(chart(name).schema)
    Draft202012Validator(chart(name).schema).validate(chart(name).values)


def test_what_a_release_may_set() -> None:
    assert chart("fleet").places >= {
        "models.qwen-7b.pools.qwen-7b-v1",
        "pools.qwen-7b-v1.image",
        "pools.qwen-7b-v1.replicas.min",
        "pools.qwen-7b-v1.args.max-num-seqs",
        "pools.qwen-7b-v1.args.gpu-memory-utilization",
        "pools.qwen-7b-v1.placement.node_selector.gpu-type",
        "kubernetes.image",
        "kubernetes.hub_secret",
        "kubernetes.monitoring_namespace",
    }


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("pools.old-vllm.version", "0.32.0"),  # another version has other flags and ends otherwise
        ("pools.qwen-7b-v2.model", "/models/other"),  # a path is mounted, a hub's name is fetched
        ("pools.qwen-7b-v1.gpus.type", "H100"),
        ("pools.qwen-7b-v1.args.enable-prefix-caching", False),  # another flag
        ("pools.qwen-7b-v1.model", "/models/other"),
        ("pools.qwen-7b-v1.image", "a$(B)"),
        ("pools.qwen-7b-v1.args.max-num-seqs", 1.5),
        ("pools.qwen-7b-v1.args.gpu-memory-utilization", 1),  # Helm writes 1, kilocard 1.0
        ("pools.qwen-7b-v1.replicas.min", 9),  # above max
        ("kubernetes.hub_secret", "No_Name"),
        ("gateway.drain", "1m"),
    ],
)
def test_what_a_release_may_not_set(place: str, value: object) -> None:
    document = changed(chart("fleet").values, {tuple(place.split(".")): value})
    assert list(Draft202012Validator(chart("fleet").schema).iter_errors(document))


def test_a_model_without_a_pool_that_gets_requests_is_refused() -> None:
    news = {("models", "qwen-7b", "pools", pool): 0 for pool in ("qwen-7b-v1", "qwen-7b-v2")}
    validator = Draft202012Validator(chart("fleet").schema)
    assert list(validator.iter_errors(changed(chart("fleet").values, news)))
    one_of_them = dict([next(iter(news.items()))])
    assert not list(validator.iter_errors(changed(chart("fleet").values, one_of_them)))


def test_a_number_that_others_are_reckoned_from_is_no_knob() -> None:
    """data-parallel-size is a flag and also a number of GPUs."""
    places = Chart(pool("gpus: {tensor: 2}, args: {data-parallel-size: 2, max-num-seqs: 8}")).places
    assert "pools.a.args.max-num-seqs" in places and "pools.a.args.data-parallel-size" not in places


def test_no_secret_is_in_the_chart() -> None:
    text = "".join(chart("fleet").files.values())
    assert "hf-secret" not in text and "another-secret" not in text and "a-password" not in text
    assert at(chart("fleet").values, ("pools", "qwen-7b-v1", "env", "HF_TOKEN")) == "from-a-secret"


def test_braces_of_a_chat_template_are_not_helms() -> None:
    braces = '{% for m in messages %}{{ m.content }}{{ index .Values "x" | toJson }}{% endfor %}'
    spec = pool(f"args: {{chat-template: {json.dumps(braces)}}}")
    one = Chart(spec)
    (deployment,) = [
        each
        for each in one.released(one.values)
        if each["metadata"]["name"] == "kilocard-a" and each["kind"] == "Deployment"
    ]
    assert braces in deployment["spec"]["template"]["spec"]["containers"][0]["command"]


def test_a_release_brings_its_own_namespace() -> None:
    one = chart("fleet")
    assert "templates/namespace.yaml" not in one.files
    assert not [each for each in one.released(one.values) if "namespace" in each["metadata"]]


def test_a_template_has_nothing_but_looks_at_values() -> None:
    for path in GOLDEN.glob("helm/*/templates/*.yaml"):
        assert "{{" not in filled_in(path.read_text(), yaml.safe_load((path.parent.parent / "values.yaml").read_text()))


def test_a_chart_of_pools_that_exist_already() -> None:
    one = Chart(cluster("a: {engine: external, endpoints: ['http://h:1']}"))
    assert one.released(one.values) == by_kubernetes(one.values)
