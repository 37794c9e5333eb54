"""`transformers serve` behind `kilocard up`: an engine without metrics that knows its model by a folder's path.

It loads the model on the first request, generates one answer at a time, sends no [DONE] and puts the usage into its
last chunk whether it was asked for or not (transformers 5.19).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from openai import OpenAI
from real_cluster import Up, until, up

from conftest import VllmCpu

pytestmark = [pytest.mark.slow, pytest.mark.vllm, pytest.mark.timeout(300)]

PARIS = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def cluster(vllm_cpu: VllmCpu, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    pool = {
        "engine": "transformers",
        "command": [str(vllm_cpu.transformers)],
        "model": str(vllm_cpu.model),
        # torch's threads wait for each other actively: two of them on shared cores are slower than one
        "env": {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
    }
    spec = {"models": {"tiny": {"pools": {"plain": 1}}}, "pools": {"plain": pool}}
    with up(spec, tmp_path_factory.mktemp("transformers")) as running:
        running.wait_ready(1)
        yield running


@pytest.fixture
def client(cluster: Up) -> Iterator[OpenAI]:
    with cluster.client() as made:
        yield made


def test_chat(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="tiny", messages=PARIS, max_tokens=20, temperature=0)
    assert "Paris" in (answer.choices[0].message.content or "")
    assert answer.usage is not None and answer.usage.completion_tokens > 3


def test_a_stream_ends_well_without_done(client: OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(model="tiny", messages=PARIS, max_tokens=20, temperature=0, stream=True)
    )
    assert "Paris" in "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_usage_of_a_stream(client: OpenAI) -> None:
    stream = client.chat.completions.create(
        model="tiny", messages=PARIS, max_tokens=4, stream=True, stream_options={"include_usage": True}
    )
    usages = [chunk.usage for chunk in stream if chunk.usage]
    assert len(usages) == 1
    assert usages[0].completion_tokens == 4


def test_the_public_name_is_all_that_clients_see_of_the_model(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tiny"]


def test_load_without_metrics_is_what_we_have_in_flight(client: OpenAI, cluster: Up) -> None:
    (replica,) = cluster.ready()
    assert replica["age_s"] is None and replica["kv_usage"] is None, "no reading: unknown, never 0"
    assert replica["in_flight"] == 0
    stream = client.chat.completions.create(model="tiny", messages=PARIS, max_tokens=20, stream=True)
    next(stream)
    assert cluster.in_flight() == 1
    stream.close()
    until("the count is back at zero", lambda: cluster.in_flight() == 0, 2)


def test_ctrl_c_ends_it(cluster: Up) -> None:
    assert cluster.stop() == 0, cluster.said()
    assert until("no engine process is left", lambda: not cluster.left_over(), 5)
