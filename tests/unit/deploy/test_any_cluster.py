"""Any legitimate cluster file: each target renders it, loses no pool, and nothing breaks out of its place."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from kilocard.core.errors import KilocardError
from kilocard.deploy.target import RenderOptions
from kilocard.deploy.targets import TARGETS
from kilocard.spec.model import ClusterSpec
from kilocard.spec.parse import parse

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
#: what means something in YAML, shells, Go's templates, Compose, Kubernetes, systemd, nginx and PromQL
# A few examples each time and no shrinking: a unit test has two seconds.
nasty = st.text(st.sampled_from("aB1 .:#'\"`\\$(){}%;&|<>!*[]~,=-_\n\t\r\x85\u2028é模"), min_size=1, max_size=12)
pool_names = st.text(st.sampled_from("aA0.-_"), min_size=1, max_size=6).filter(
    lambda name: name[0] not in ".-_" and name[-1] not in ".-_"
)
model_names = st.text(st.sampled_from("aB /:{}\"'\\$%é模"), min_size=1, max_size=10).filter(
    lambda name: name == name.strip()
)
#: a pool of vLLM with words that nobody reads before the engine does
pools = st.fixed_dictionaries(
    {
        "engine": st.just("vllm"),
        "version": st.just("0.32.0"),
        "model": nasty.map(lambda text: f"org/{text}x"),
        "args": st.fixed_dictionaries(
            {"chat-template": nasty, "allowed-origins": st.lists(nasty, min_size=1, max_size=2)}
        ),
        "env": st.fixed_dictionaries({"SOME": nasty}),
        "placement": st.fixed_dictionaries(
            {"node_selector": st.dictionaries(st.sampled_from(["gpu", "card"]), st.sampled_from(["A", "a", "b"]))}
        ),
    }
)


@st.composite
def clusters(draw: st.DrawFn) -> ClusterSpec:
    made = draw(st.dictionaries(pool_names, pools, min_size=1, max_size=2))
    models = {draw(model_names): {"pools": {name: 1}} for name in made}
    document: dict[str, Any] = {"gateway": {"allow_open": True}, "pools": made, "models": models}
    try:
        return parse(document)
    except KilocardError:  # two pools drew one model's name
        return parse({**document, "models": {f"m{number}": {"pool": name} for number, name in enumerate(made)}})


def rendered(name: str, spec: ClusterSpec) -> dict[str, str]:
    return TARGETS[name].render(spec, RenderOptions(version="1.2.3"))


@pytest.mark.parametrize("name", [name for name in TARGETS if name != "helm"])
@settings(max_examples=4, deadline=None, phases=(Phase.generate,))
@given(clusters())
def test_every_target_writes_files_that_can_be_read(name: str, spec: ClusterSpec) -> None:
    for path, text in rendered(name, spec).items():
        assert text.endswith("\n") and ".." not in path.split("/")
        if path.endswith(".yaml"):
            assert all(yaml.load_all(text, LOADER))


@settings(max_examples=4, deadline=None, phases=(Phase.generate,))
@given(clusters())
def test_no_pool_is_lost_and_its_words_stay_its_own(spec: ClusterSpec) -> None:
    made = yaml.load(rendered("compose", spec)["compose.yaml"], LOADER)["services"]
    assert len(made) == 1 + len(spec.pools)
    (cluster,) = [
        one
        for one in yaml.load_all(rendered("ray", spec)["kuberay/raycluster.yaml"], LOADER)
        if one["kind"] == "RayCluster"
    ]
    groups = {group["groupName"] for group in cluster["spec"]["workerGroupSpecs"]}
    assert len(groups) == len(spec.pools)
    deployments = [
        one
        for path, text in rendered("kubernetes", spec).items()
        if path.startswith("pool-")
        for one in yaml.load_all(text, LOADER)
        if one["kind"] == "Deployment"
    ]
    assert len(deployments) == len(spec.pools)
    in_kubernetes = [_filled_in(one["spec"]["template"]["spec"]["containers"][0]["command"]) for one in deployments]
    in_compose = [
        [word.replace("$$", "$") for word in [*one["entrypoint"], *one["command"]]]
        for name, one in made.items()
        if name != "gateway"
    ]
    assert sorted(in_kubernetes) == sorted(in_compose)
    assert {str(pool.model) for pool in spec.pools.values()} == {command[2] for command in in_compose}
    assert {str(pool.env["SOME"]) for pool in spec.pools.values()} == {
        one["environment"]["SOME"].replace("$$", "$") for name, one in made.items() if name != "gateway"
    }


def _filled_in(words: list[str]) -> list[str]:
    """Kubernetes takes two $ for one; there is no variable that it could fill in."""
    return [word.replace("$$", "$") for word in words]
