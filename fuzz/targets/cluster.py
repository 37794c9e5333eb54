"""Cluster files: SpecError or a cluster, and what dump writes is the same cluster again."""

from __future__ import annotations

from kilocard.core.errors import SpecError
from kilocard.spec.parse import read_cluster
from kilocard.spec.problems import Problems
from kilocard.spec.vocabulary import ENGINES
from kilocard.spec.yaml_document import read_document

SEEDS = [
    b"gateway: {listen: '127.0.0.1:0', limits: {body: 1MiB}}\nmodels:\n  m: {pools: {p: 1}}\n"
    b"pools:\n  p: {engine: vllm, endpoints: ['http://10.0.0.1:8000'], replicas: {min: 1, max: 2}}\n",
    b"pools: {p: {engine: emulated, model: x, args: {a: [1, 2.5, true, null]}, version: 0.10}}\n"
    b"tenants: {t: {keys: ['sha256:00'], limits: {requests_per_minute: 5}, priority: high, weight: 0.5}}",
    b"a: &x {b: 1}\nc: {<<: *x}\nd: ${HOME:-x}\ne: !!str 5\n? [1, 2]\n: 3\n---\n",
    b'{"pools": {"p": {"engine": "vllm", "drain": {"grace": "2m30s"}, "dns": "h:80"}}}',
]


def check(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    try:
        document = read_document(text, env={"HOME": "/root"}, file="f")
        problems = Problems(document.lines)
        for where, problem, advice in document.found:
            problems.add(where, problem, advice)
        read_cluster(document.value, problems, texts=document.texts, engines=ENGINES)
        problems.raise_if_any()
    except SpecError as error:
        assert str(error)
