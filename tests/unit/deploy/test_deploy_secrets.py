"""No secret of a cluster file stands in a rendered file: it comes from elsewhere, or the rendering is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from clusters import cluster, environment, pool
from hypothesis import given
from hypothesis import strategies as st

from kilocard.core.errors import UsageError
from kilocard.deploy.kubernetes.cluster_file import secret_variables
from kilocard.deploy.kubernetes.pod import _literal
from kilocard.deploy.secrets import is_secret, is_secret_value
from kilocard.deploy.target import RenderOptions
from kilocard.deploy.targets import TARGETS
from kilocard.spec.model import ClusterSpec
from kilocard.spec.services import OidcSpec, TracingSpec

HIDDEN = "hunter2-hunter2"


def everything(spec: ClusterSpec) -> str:
    return "".join(text for one in TARGETS.values() for text in one.render(spec, RenderOptions()).values())


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "OPENAI_APIKEY",
        "PGPASSWORD",
        "DB_PASS",
        "MYSQL_PWD",
        "SECRET_KEY_BASE",
        "PRIVATE_KEY_PEM",
        "my_api_key",
    ],
)
def test_a_variable_with_such_a_name_is_not_written_out(name: str) -> None:
    spec = pool(f"env: {{{name}: {HIDDEN}}}")
    assert HIDDEN not in everything(spec)
    assert "secretKeyRef" in environment(spec)[name]["valueFrom"]


@pytest.mark.parametrize(
    "name", ["TOKENIZERS_PARALLELISM", "SSL_KEY_FILE", "HF_TOKEN_PATH", "VLLM_KEYS", "MONKEY", "BYPASS_X"]
)
def test_a_name_that_only_resembles_one_is_no_secret(name: str) -> None:
    assert not is_secret(name)
    assert environment(pool(f"env: {{{name}: '1'}}"))[name]["value"] == "1"


@pytest.mark.parametrize("url", [f"http://user:{HIDDEN}@proxy:3128", f"redis://:{HIDDEN}@redis:6379/0"])
def test_a_password_in_a_url_is_a_secret_whatever_the_variable_is_called(url: str) -> None:
    spec = pool(f"env: {{HTTPS_PROXY: '{url}'}}")
    assert HIDDEN not in everything(spec)
    assert environment(spec)["HTTPS_PROXY"]["valueFrom"]["secretKeyRef"]["key"] == "HTTPS_PROXY"


@pytest.mark.parametrize(
    "value", ["http://proxy:3128", "postgresql://kilocard@db/x", "a:b@c", "http://h/a:b@c", "sk-learn", "hf_transfer"]
)
def test_what_has_no_password_in_it_is_written_out(value: str) -> None:
    assert not is_secret_value(value)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (f"args: {{api-key: {HIDDEN}}}", "args.api-key would stand"),
        (f"args: {{kv.password: {HIDDEN}}}", "args.kv.password would stand"),
        (f"args: {{kv: ['redis://:{HIDDEN}@r']}}", "args.kv would stand"),
        (f"command: [vllm, serve, --api-key, {HIDDEN}]", r"command\[2\] would stand"),
        (f"command: [vllm, serve, '--api-key={HIDDEN}']", r"command\[2\] would stand"),
    ],
)
def test_a_secret_on_a_command_line_is_refused(keys: str, message: str) -> None:
    for name in ("kubernetes", "helm", "ray", "compose"):
        with pytest.raises(UsageError, match=message):
            TARGETS[name].render(pool(keys), RenderOptions())


def test_a_switch_that_is_called_like_a_secret_is_none() -> None:
    assert "--hf-token" in everything(pool("args: {hf-token: true}"))


def test_a_collectors_password_comes_from_the_gateways_secret() -> None:
    def traced(url: str) -> ClusterSpec:
        spec = cluster()
        return replace(spec, gateway=replace(spec.gateway, tracing=TracingSpec(endpoint=url)))

    hidden, plain = traced(f"http://u:{HIDDEN}@otel:4318"), traced("http://otel:4318")
    assert HIDDEN not in everything(hidden)
    assert secret_variables(hidden) == {"KILOCARD_TRACING_ENDPOINT": "tracing-endpoint"}
    assert secret_variables(plain) == {} and "endpoint: http://otel:4318" in everything(plain)


def test_a_password_where_nobody_looks_for_one_is_refused() -> None:
    spec = cluster()
    oidc = OidcSpec(issuer=f"https://u:{HIDDEN}@idp", audience=("kilocard",))
    with pytest.raises(UsageError, match=r"gateway\.oidc\.issuer has a password"):
        TARGETS["kubernetes"].render(replace(spec, gateway=replace(spec.gateway, oidc=oidc)), RenderOptions())


def test_replicas_that_exist_already_have_no_environment_to_show() -> None:
    existing = f"a: {{engine: vllm, endpoints: ['http://h:1'], env: {{MY_KEY: {HIDDEN}}}}}"
    assert HIDDEN not in everything(cluster(existing))


words = st.text(st.sampled_from("$(){} aX"), max_size=12)


@given(words)
def test_kubernetes_gives_an_engine_the_words_that_the_cluster_file_has(word: str) -> None:
    assert expanded(_literal(word)) == word


def expanded(text: str) -> str:
    """As third_party/forked/golang/expansion does it, with a variable X that nobody may see."""
    found, place = "", 0
    while place < len(text):
        if text[place] != "$" or place + 1 == len(text):
            found, place = found + text[place], place + 1
        elif text[place + 1] == "$":
            found, place = found + "$", place + 2
        elif text[place + 1] == "(" and ")" in text[place:]:
            end = text.index(")", place)
            found, place = found + "<filled in>", end + 1
        else:
            found, place = found + text[place : place + 2], place + 2
    return found
