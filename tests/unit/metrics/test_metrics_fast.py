"""fast == exact, on whatever page hypothesis can think of."""

from __future__ import annotations

import json
import random
from math import inf, nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilocard.metrics.dialect import Dialect
from kilocard.metrics.exact import parse
from kilocard.metrics.exposition_error import NotExposition
from kilocard.metrics.fast import Layout, extract
from kilocard.metrics.load import sample_from

DIALECTS = (
    Dialect(
        running=("e:running", "e:run"),
        waiting=("e:waiting",),
        kv_usage=("e:kv", "kv"),
        prompt_tokens_total=("e:tokens_total",),
        generation_tokens_total=("e:tokens",),
        kv_config=("e:info", "size", "blocks"),
        sum_over=("engine",),
    ),
    Dialect(
        running=("e:run",),
        waiting=("running", "waiting_total"),
        kv_usage=("e:info",),
        preemptions_total=("kv",),
        copies_over=("rank", "size"),
        aggregate=(("priority", ""),),
        kv_config=("e:kv", "blocks", "size"),
        kv_tokens_label="engine",
    ),
    Dialect(running=("e:waiting_by_reason", "e:waiting"), aggregate=(("engine", "0"), ("rank", "1"))),
)

NAMES = (
    "e:running", "e:run", "e:waiting", "e:waiting_by_reason", "e:kv", "kv", "e:tokens_total", "e:tokens",
    "e:tokens_total_total", "e:info", "running", "waiting_total", "waiting", "other", "xe:running",
)  # fmt: skip
VALUES = ("0", "1", "2.0", "0.5", "1e2", "7.25", "NaN", "+Inf", "-Inf", "-4", "1_0", "1e", "x", "", "0x10", ".5", "Inf")

label_text = st.one_of(
    st.sampled_from(
        ["", "0", "1", "16", "m", "a} 5", "{", 'q"', "back\\", "new\nline", "# {", "\u2028", "e:kv 3", "千"]
    ),
    st.text(max_size=6),
)


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@st.composite
def sample_line(draw: st.DrawFn, name: str | None = None) -> str:
    name = name or draw(st.sampled_from(NAMES))
    labels = draw(
        st.dictionaries(
            st.sampled_from(["engine", "rank", "size", "blocks", "priority", "model_name", "le"]),
            label_text,
            max_size=3,
        )
    )
    pairs = ",".join(f'{label}="{escaped(value)}"' for label, value in labels.items())
    comma = draw(st.sampled_from(["", "", "", ",", ", "])) if pairs else ""
    inside = draw(st.sampled_from([f"{{{pairs}{comma}}}"] * 3 + ([] if pairs else [""])))
    blank = draw(st.sampled_from([" ", " ", " ", "  ", "\t", ""]))
    tail = draw(st.sampled_from([""] * 5 + [" ", " 1712345678", " 1.5e3", ' # {id="} 9"} 0.3', " junk"]))
    return (
        draw(st.sampled_from(["", "", "", "", " ", "\t"]))
        + name
        + inside
        + blank
        + draw(st.sampled_from(VALUES))
        + tail
    )


odd_line = st.one_of(
    st.just(""),
    st.sampled_from(NAMES).map(lambda name: f"# HELP {name} text"),
    st.sampled_from(NAMES).map(lambda name: f"# TYPE {name} gauge"),
    st.sampled_from(NAMES),
    st.sampled_from(NAMES).map(lambda name: f'{name}{{engine="0'),
    st.sampled_from(NAMES).map(lambda name: f'{name}{{engine="0"}} 3 # {{engine="1"}} 4'),
    st.text(max_size=12).map(lambda text: text.replace("\n", "")),
)
pages = st.builds(
    lambda lines, first, end, last: first + end.join(lines) + last,
    st.lists(st.one_of(sample_line(), sample_line(), odd_line), max_size=14),
    st.sampled_from(["# page\n", "# page\n", "#\n", "", "\n", "\ufeff# page\n"]),
    st.sampled_from(["\n", "\n", "\n", "\r\n"]),
    st.sampled_from(["", "\n", "\n# EOF\n"]),
)


@settings(max_examples=80, deadline=None)
@given(page=pages, models=st.sampled_from([(), ("m",), ("m", "0")]), quoted=st.sampled_from([False] * 4 + [True]))
def test_the_fast_way_says_what_the_exact_way_says(page: str, models: tuple[str, ...], quoted: bool) -> None:
    body = (json.dumps(page) if quoted else page).encode("utf-8", "replace")
    try:
        samples = parse(body).samples
    except NotExposition:
        with pytest.raises(NotExposition):
            extract(body, DIALECTS[0], 1.0, models)
        return
    for dialect in DIALECTS:
        assert extract(body, dialect, 1.0, models) == sample_from(samples, dialect, 1.0, models)


@settings(max_examples=60, deadline=None)
@given(body=st.binary(max_size=60))
def test_bytes_that_are_no_utf8_are_the_same_to_both(body: bytes) -> None:
    page = b'# page\ne:running{model_name="' + body + b'"} 3\ne:running{model_name="\xff' + body + b'"} 4\n'
    for dialect in DIALECTS:
        assert extract(page, dialect, 1.0) == sample_from(parse(page).samples, dialect, 1.0)


def grouped_page(rng: random.Random, names: list[str]) -> bytes:
    """A page as the format wants it: each family's lines stand together; its order is the same each time."""
    lines = ["# page"]
    for name in names:
        if rng.random() < 0.5:
            lines.append(f"# HELP {name} text about {name} or e:running")
        for _ in range(rng.choice([0, 1, 1, 1, 2, 9])):
            engine, rank = rng.randrange(4), rng.randrange(3)
            value = rng.choice([*VALUES, "123456.25"])
            lines.append(f'{name}{{engine="{engine}",rank="{rank}",size="16",blocks="{rng.randrange(99)}"}} {value}')
        lines.extend(["other_metric_bucket 1234567890123456789012345"] * rng.choice([0, 0, 3, 40]))
    return "\n".join(lines).encode()


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_remembered_layout_changes_nothing_but_the_cost(seed: int) -> None:
    rng = random.Random(seed)
    names = list(NAMES)
    rng.shuffle(names)
    layouts = [Layout() for _ in DIALECTS]
    for _ in range(5):
        page = grouped_page(rng, names)
        for dialect, layout in zip(DIALECTS, layouts, strict=True):
            remembered = extract(page, dialect, 1.0, layout=layout)
            assert remembered == sample_from(parse(page).samples, dialect, 1.0)


def test_the_layout_is_used_and_follows_the_page_as_it_grows() -> None:
    layout, dialect = Layout(), Dialect(running=("e:running",))
    for size in (0, 50, 900, 5000, 10):
        page = b"# page\n" + b"other 1\n" * size + b'e:running{engine="0"} 3\ne:running{engine="1"} 4\n'
        assert extract(page, dialect, 1.0, layout=layout).running == 7.0
        assert layout.places == {"e:running": page.index(b"e:running")}


def test_lines_that_do_not_stand_together_are_not_remembered() -> None:
    layout, dialect = Layout(), Dialect(running=("e:running",))
    page = b'# page\ne:running{engine="0"} 3\nother 1\ne:running{engine="1"} 4\n'
    assert extract(page, dialect, 1.0, layout=layout).running == 7.0
    assert layout.places == {}


@pytest.mark.parametrize("value", [inf, nan, -1.0])
def test_unsound_values_leave_the_quantity_unknown(value: float) -> None:
    assert extract(f"#\ne:running {value}\n".encode(), DIALECTS[0], 1.0).running is None
