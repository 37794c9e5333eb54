from __future__ import annotations

import json
from random import Random

from kilocard.bench.calibration import Calibration
from kilocard.bench.form import Form
from kilocard.bench.prompts import Prompts
from kilocard.bench.words import WORDS
from kilocard.workload.request import WorkloadRequest

OVERHEAD = 31


def prompts(seed: int = 1, **form: object) -> Prompts:
    return Prompts(Calibration(WORDS, 1.0, OVERHEAD), Form("m", **form), Random(seed))  # type: ignore[arg-type]


def said(body: bytes) -> str:
    message = json.loads(body)["messages"][0]
    assert message["role"] == "user"
    return str(message["content"])


def test_length_is_that_of_the_whole_prompt() -> None:
    made = prompts()
    for tokens in (32, 47, 48, 49, 100, 1000, 4097):
        assert OVERHEAD + len(made.text(tokens).split()) == tokens


def test_shorter_than_the_template_gives_the_shortest_prompt() -> None:
    assert len(prompts().text(3).split()) == 1


def test_bn_01_no_two_prompts_begin_alike() -> None:
    """Neither in one run nor in two: 16 words is a block of the engines' prefix caches."""
    makers = (prompts(1), prompts(2), prompts(1).fresh())
    beginnings = [tuple(made.text(80).split()[:16]) for made in makers for _ in range(2500)]
    assert len(set(beginnings)) == len(beginnings)
    # and they differ from the first word on, not only somewhere in the block
    assert len({words[0] for words in beginnings}) > 150


def test_bn_01_two_runs_say_different_things_for_equal_workloads() -> None:
    request = WorkloadRequest(0.0, 300, 10, blocks=(1, 2, 3), block_tokens=64)
    first = prompts(1)
    # a point finds nothing of the one before either
    texts = [said(made.of(request).body).split()[:16] for made in (first, prompts(2), first.fresh())]
    assert texts[0] != texts[1]
    assert texts[0] != texts[2]


def test_equal_blocks_at_the_same_place_are_equal_text() -> None:
    made = prompts()
    one = made.text(431, (7, 8, 9), 100).split()
    two = made.text(531, (7, 8, 10), 100).split()
    assert len(one) == 400
    assert len(two) == 500
    assert one[:200] == two[:200]
    assert one[200:216] != two[200:216]
    assert one[300:316] != made.text(431, (7, 8, 9), 100).split()[300:316], "what no block covers is its own"


def test_a_later_turn_begins_with_the_whole_of_the_earlier_one() -> None:
    made = prompts()
    first = WorkloadRequest(0.0, OVERHEAD + 128, 10, session="s", turn=0, blocks=(1, 2), block_tokens=64)
    second = WorkloadRequest(
        1.0, OVERHEAD + 256, 10, session="s", turn=1, think_s=2.0, blocks=(1, 2, 3, 4), block_tokens=64
    )
    asks = made.of(first), made.of(second)
    assert said(asks[1].body).startswith(said(asks[0].body) + " ")
    assert [(ask.session, ask.turn, ask.think_s, ask.at_s) for ask in asks] == [("s", 0, 0.0, 0.0), ("s", 1, 2.0, 1.0)]


def test_the_last_block_is_cut_where_the_prompt_ends() -> None:
    """Mooncake traces: hash ids for every block of 512, the last one not full."""
    made = prompts()
    words = made.text(OVERHEAD + 700, (5, 6), 512).split()
    assert len(words) == 700
    assert made.text(OVERHEAD + 1024, (5, 6), 512).split()[:700] == words


def test_blocks_do_not_depend_on_what_was_asked_before() -> None:
    one, two = prompts(4), prompts(4)
    two.text(400)
    assert one.text(OVERHEAD + 64, (3,), 64) == two.text(OVERHEAD + 64, (3,), 64)


def test_the_body_has_what_the_form_says() -> None:
    ask = prompts(extra={"top_k": 1}).ask(100, 7)
    body = json.loads(ask.body)
    body.pop("messages")
    assert body == {
        "model": "m", "max_tokens": 7, "ignore_eos": True, "temperature": 0.0, "stream": True,
        "stream_options": {"include_usage": True}, "top_k": 1,
    }  # fmt: skip
    assert (ask.asked_input, ask.asked_output) == (100, 7)


def test_completions_and_min_tokens() -> None:
    body = json.loads(prompts(chat=False, min_tokens=True, ignore_eos=False, temperature=None).ask(100, 7).body)
    assert len(body.pop("prompt").split()) == 69
    assert body == {
        "model": "m", "max_tokens": 7, "min_tokens": 7, "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip


def test_what_is_refused_can_be_left_out() -> None:
    form = Form("m", min_tokens=True)
    assert form.optional() == ("min_tokens", "ignore_eos", "temperature", "stream_options")
    for name in form.optional():
        form = form.without(name)
    assert json.loads(form.without("max_tokens").body("hi", 3)) == {
        "model": "m", "messages": [{"role": "user", "content": "hi"}], "max_completion_tokens": 3, "stream": True,
    }  # fmt: skip
