"""List and watch: what is missed, torn, old or strange never leaves a wrong set of replicas behind."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilocard.core.replica import Change, Endpoint, Found, Leaving, Lost
from kilocard.scrape.watch import MOST_RESUMED, List, SliceWatch, Watch

READY = {"ready": True}
UNREADY = {"ready": False}
TERMINATING = {"ready": False, "serving": True, "terminating": True}


def piece(name: str, version: int, **pods: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "resourceVersion": str(version)},
        "addressType": "IPv4",
        "ports": [{"port": 8000}],
        "endpoints": [
            {"addresses": [f"10.0.0.{pod[1:]}"], "targetRef": {"kind": "Pod", "name": pod}, "conditions": conditions}
            for pod, conditions in pods.items()
        ],
    }


def listing(version: int, *pieces: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "EndpointSliceList", "metadata": {"resourceVersion": str(version)}, "items": list(pieces)}


def event(kind: str, thing: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "object": thing}


def at(pod: str) -> Endpoint:
    return Endpoint(f"p/{pod}", "p", f"http://10.0.0.{pod[1:]}:8000")


def watching(*pieces: dict[str, Any]) -> SliceWatch:
    watch = SliceWatch("p")
    watch.listed(0.0, listing(10, *pieces))
    return watch


def test_a_list_comes_first_and_then_a_watch_from_its_version() -> None:
    watch = SliceWatch("p")
    assert watch.next() == List("first list")
    assert watch.listed(0.0, listing(10, piece("s", 7, w1=READY, w2=UNREADY))) == [Found(at("w1"))]
    assert watch.next() == Watch("10")


def test_a_pod_that_becomes_ready_and_then_terminates() -> None:
    watch = watching(piece("s", 7, w1=READY, w2=UNREADY))
    assert watch.event(1.0, event("MODIFIED", piece("s", 11, w1=READY, w2=READY))) == [Found(at("w2"))]
    changes = watch.event(2.0, event("MODIFIED", piece("s", 12, w1=TERMINATING, w2=READY)))
    assert changes == [Leaving("p/w1", "terminating")]
    changes = watch.event(3.0, event("MODIFIED", piece("s", 13, w2=READY)))
    assert changes == [Lost("p/w1", "no longer an endpoint of the service")]
    assert watch.next() == Watch("13")


def test_a_replica_that_is_not_ready_gets_nothing_until_it_is_again() -> None:
    watch = watching(piece("s", 7, w1=READY, w2=READY))
    assert watch.event(1.0, event("MODIFIED", piece("s", 11, w1=READY, w2=UNREADY))) == [Leaving("p/w2", "not ready")]
    assert watch.event(2.0, event("MODIFIED", piece("s", 12, w1=READY, w2=READY))) == [Found(at("w2"))]


def test_a_bookmark_only_moves_the_version() -> None:
    watch = watching(piece("s", 7, w1=READY))
    assert watch.event(1.0, event("BOOKMARK", {"metadata": {"resourceVersion": "99"}})) == []
    assert watch.next() == Watch("99")


def test_a_deletion_that_was_missed_is_noticed_by_the_next_list() -> None:
    watch = watching(piece("s", 7, w1=READY), piece("t", 8, w2=READY))
    watch.ended(clean=False)
    assert watch.next() == List("the watch broke")
    changes = watch.listed(1.0, listing(20, piece("t", 8, w2=READY)))
    assert changes == [Lost("p/w1", "no longer an endpoint of the service")]


def test_gone_means_list() -> None:
    watch = watching(piece("s", 7, w1=READY))
    assert watch.event(1.0, event("ERROR", {"kind": "Status", "code": 410})) == []
    assert watch.next() == List("410 Gone")
    assert watch.serving == {"p/w1": at("w1")}
    watch = watching()
    watch.gone()
    assert watch.next() == List("410 Gone")


def test_a_watch_that_ended_in_good_order_is_resumed_but_not_for_ever() -> None:
    watch = watching(piece("s", 7, w1=READY))
    for _ in range(MOST_RESUMED):
        watch.ended(clean=True)
        assert watch.next() == Watch("10")
    watch.ended(clean=True)
    assert isinstance(watch.next(), List)


@pytest.mark.parametrize(
    "last",
    [
        event("DELETED", piece("s", 11, w1=READY)),
        event("MODIFIED", piece("s", 11)),
        event("MODIFIED", piece("s", 11, w1=UNREADY)),
    ],
)
def test_only_a_list_empties_the_set(last: dict[str, Any]) -> None:
    watch = watching(piece("s", 7, w1=READY))
    assert watch.event(1.0, last) == []
    assert isinstance(watch.next(), List)
    assert watch.serving
    assert watch.listed(2.0, listing(12)) == [Lost("p/w1", "no longer an endpoint of the service")]
    assert watch.next() == Watch("12")


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"kind": "Status", "metadata": {}, "status": "Failure"},
        {"items": []},
        {"metadata": {"resourceVersion": "5"}},
        {"metadata": {"resourceVersion": "5"}, "items": [{"spec": 1}]},
        {"metadata": None, "items": {}},
    ],
)
def test_what_is_no_list_changes_nothing(answer: dict[str, Any]) -> None:
    watch = watching(piece("s", 7, w1=READY))
    watch.ended(clean=False)
    assert watch.listed(1.0, answer) is None
    assert isinstance(watch.next(), List)
    assert watch.serving
    assert watch.misunderstood == 1


def test_no_items_at_all_is_an_empty_list() -> None:
    watch = watching(piece("s", 7, w1=READY))
    assert watch.listed(1.0, {"metadata": {"resourceVersion": "5"}, "items": None}) is not None
    assert not watch.serving


@pytest.mark.parametrize(
    "strange",
    [{}, event("ADDED", {}), event("PATCHED", piece("s", 11)), {"type": "ADDED", "object": 5}, {"type": ["x"]}],
)
def test_a_strange_event_asks_for_a_list(strange: dict[str, Any]) -> None:
    watch = watching(piece("s", 7, w1=READY))
    assert watch.event(1.0, strange) == []
    assert isinstance(watch.next(), List)


# --- any interleaving with losses converges ---

CONDITIONS = st.sampled_from([READY, UNREADY, TERMINATING, {}])
PODS = st.dictionaries(st.sampled_from(["w1", "w2", "w3", "w4"]), CONDITIONS, max_size=3)
FAULTS = ["lose", "break", "end", "gone", "bookmark", "junk", "list"]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.sampled_from(["s", "t", "u"]), PODS),
        st.tuples(st.just("delete"), st.sampled_from(["s", "t", "u"]), st.just({})),
        st.tuples(
            st.sampled_from(["lose", "break", "end", "gone", "bookmark", "junk", "list"]), st.just(""), st.just({})
        ),
    ),
    max_size=25,
)


class Listener:
    """What someone believes who hears the changes only."""

    def __init__(self) -> None:
        self.serving: dict[str, Endpoint] = {}
        self.leaving: set[str] = set()

    def hear(self, changes: list[Change] | None) -> None:
        for change in changes or ():
            if isinstance(change, Found):
                self.serving[change.endpoint.replica] = change.endpoint
                self.leaving.discard(change.endpoint.replica)
            elif isinstance(change, Leaving):
                assert self.serving.pop(change.replica), "Leaving of a replica that was not serving"
                self.leaving.add(change.replica)
            else:
                assert change.replica in self.serving or change.replica in self.leaving, "Lost twice"
                self.serving.pop(change.replica, None)
                self.leaving.discard(change.replica)


def truth(slices: dict[str, dict[str, Any]]) -> dict[str, Endpoint]:
    """Ready in some slice, by the Kubernetes rules, written down a second time."""
    found = {}
    for slice_ in slices.values():
        for endpoint in slice_["endpoints"]:
            if endpoint["conditions"].get("ready") is not False:
                pod = endpoint["targetRef"]["name"]
                found[f"p/{pod}"] = at(pod)
    return found


@settings(max_examples=200, deadline=None)
@given(steps=STEPS)
def test_any_interleaving_with_losses_converges_to_the_truth(steps: list[tuple[str, str, dict[str, Any]]]) -> None:
    slices: dict[str, dict[str, Any]] = {}
    version = 1
    watch, listener = SliceWatch("p"), Listener()
    losing = False

    def catch_up() -> None:
        nonlocal losing
        losing = False
        was_serving = bool(listener.serving)
        listener.hear(watch.listed(0.0, listing(version, *slices.values())))
        assert listener.serving == watch.serving == truth(slices), f"after a list (served before: {was_serving})"

    for what, name, pods in steps:
        if isinstance(watch.next(), List) and what == "list":
            catch_up()
        happened = None
        if what == "set":
            version += 1
            kind = "MODIFIED" if name in slices else "ADDED"
            slices[name] = piece(name, version, **pods)
            happened = event(kind, slices[name])
        elif what == "delete" and name in slices:
            version += 1
            happened = event(
                "DELETED", {**slices.pop(name), "metadata": {"name": name, "resourceVersion": str(version)}}
            )
        elif what == "lose":
            losing = True  # a connection that is dead and does not know it yet
        elif what == "junk":
            happened = {"type": "???"}
        elif what == "bookmark":
            happened = event("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})
        elif what == "gone":
            watch.gone()
        elif what in ("break", "end"):
            watch.ended(clean=what == "end" and not losing)
        if happened is not None and not losing:
            before = dict(listener.serving)
            listener.hear(watch.event(0.0, happened))
            assert not before or listener.serving, "an event emptied the set"
            if isinstance(watch.next(), Watch):
                assert listener.serving == truth(slices), "all events heard, and yet wrong"
    if losing:
        watch.ended(clean=False)
    while isinstance(watch.next(), Watch):
        watch.ended(clean=True)
    catch_up()
