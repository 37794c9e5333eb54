"""The controller with a fake backend and a real dispatcher: what it does, second by second."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from controlled import World, cluster, run, settle, with_range

from kilocard.core.errors import BackendError


def test_load_rises_and_one_is_added_then_falls_and_one_goes(tmp_path: Path) -> None:
    async def body() -> None:
        world = World(tmp_path)
        await world.backend.open()
        await world.seconds(3, waiting=30)
        assert world.ready() == ["p-0"]  # above for 2 s: the condition does not hold yet
        await world.seconds(1, waiting=30)
        assert world.ready() == ["p-0", "p-1"]
        assert [kind for kind in world.kinds() if kind != "leads"] == ["started"]
        await world.seconds(1, waiting=10)
        assert world.kinds()[-1] == "ready"
        await world.seconds(7, waiting=1)
        assert sorted(world.states().values()) == ["ready", "stopped"]
        assert world.kinds()[-2:] == ["draining", "gone"]
        assert world.pool()["started"] == world.pool()["drained"] == 1

    run(body())


def test_as_04_the_one_with_least_work_leaves_the_routing_first_and_stops_when_its_streams_have_ended(
    tmp_path: Path,
) -> None:
    """kthena#1589: a scale-down deletes a pod with running generations."""

    async def body() -> None:
        world = World(tmp_path, cluster(least=1, most=2))
        await world.backend.open()
        await world.backend.start("p")
        requests = [world.arrive() for _ in range(5)]
        least = min(("p-0", "p-1"), key=list(world.sent.values()).count)
        await world.seconds(8, waiting=0)
        assert world.states()[least] == "draining"
        assert set(world.controller.departures.under_way) == {least}
        later = [world.arrive() for _ in range(4)]
        assert least not in {world.sent[request] for request in later}
        for request in requests:
            if world.sent[request] == least:
                assert world.states()[least] == "draining"  # until its last stream has ended
                world.finish(request)
        await settle()
        assert world.states()[least] == "stopped"
        assert not world.controller.departures.under_way

    run(body())


def test_a_stream_that_does_not_end_is_waited_for_until_the_grace_is_over(tmp_path: Path) -> None:
    async def body() -> None:
        world = World(tmp_path, cluster(least=1, most=2))
        await world.backend.open()
        await world.backend.start("p")
        for _ in range(6):
            world.arrive()
        await world.seconds(7, waiting=0)
        [leaves] = world.controller.departures.under_way
        await world.seconds(29, waiting=10)
        assert world.states()[leaves] == "draining"
        await world.seconds(2, waiting=10)  # drain.grace is 30 s
        assert world.states()[leaves] == "stopped"

    run(body())


def test_no_gpu_is_no_error_but_a_wish_that_is_kept(tmp_path: Path) -> None:
    async def body() -> None:
        world = World(tmp_path, cluster(gpus=1), gpus=1)
        await world.backend.open()
        await world.seconds(10, waiting=30)
        assert world.ready() == ["p-0"]
        assert world.kinds() == ["leads", "pending"]
        [pending] = world.pool()["pending"]
        assert "needs 1 GPU" in pending["reason"] and pending["tries"] > 3
        assert world.pool()["replicas"]["pending"] == 1
        assert not world.controller.events.errors
        await world.backend.stop("p-0", "somebody")  # its GPU is free
        await world.seconds(2, waiting=30)
        assert world.ready() == ["p-0"] and not world.pool()["pending"]

    run(body())


def test_a_wish_is_the_first_to_go_when_load_falls(tmp_path: Path) -> None:
    async def body() -> None:
        world = World(tmp_path, cluster(gpus=1), gpus=1)
        await world.backend.open()
        await world.seconds(5, waiting=30)
        assert world.pool()["pending"]
        await world.seconds(8, waiting=0)
        assert not world.pool()["pending"] and world.ready() == ["p-0"]
        assert "draining" not in world.kinds()

    run(body())


def test_a_backend_that_fails_is_asked_again_ever_more_seldom_and_its_error_is_shown(tmp_path: Path) -> None:
    async def body() -> None:
        world = World(tmp_path)
        await world.backend.open()
        for _ in range(3):
            world.backend.fail_next("start", BackendError("the machine is on fire"))
        await world.seconds(4, waiting=30)
        assert world.controller.events.errors == {"start": 1}
        assert world.pool()["pending"][0]["reason"] == "the machine is on fire"
        await world.seconds(7, waiting=30)  # after 1 and 2 and 4 s
        assert world.controller.events.errors == {"start": 3}
        assert world.ready() == ["p-0", "p-1"]

    run(body())


def test_errors_nobody_foresaw_end_nothing(tmp_path: Path) -> None:
    async def body() -> None:
        world = World(tmp_path)
        await world.backend.open()
        world.backend.fail_next("start", ZeroDivisionError("oh"))
        world.deaf = True
        await world.seconds(2)
        world.deaf = False
        await world.seconds(4, waiting=30)
        await world.seconds(2, waiting=30)
        assert world.controller.events.errors == {"observe": 2, "start": 1}
        assert world.ready() == ["p-0", "p-1"]

    run(body())


def test_without_any_gateway_nothing_is_removed(tmp_path: Path) -> None:
    async def body() -> None:
        world = World(tmp_path)
        await world.backend.open()
        await world.backend.start("p")
        world.deaf = True
        await world.seconds(60, waiting=0)
        assert world.ready() == ["p-0", "p-1"]
        assert world.pool()["reason"] == "blind"

    run(body())


def test_a_changed_file_is_followed_and_bounds_hold_at_the_next_look(tmp_path: Path) -> None:
    async def body() -> None:
        world = World(tmp_path)
        await world.backend.open()
        world.controller.adopt(with_range(world.spec, 3, 4))
        await world.seconds(1, waiting=10)
        assert world.ready() == ["p-0", "p-1", "p-2"]
        world.controller.adopt(with_range(world.spec, 1, 2))
        await world.seconds(1, waiting=10)
        await settle()
        assert len(world.ready()) == 2
        assert world.pool()["reason"] == "at_most"

    run(body())


def test_a_pool_without_scaling_is_nobodys_business_here(tmp_path: Path) -> None:
    async def body() -> None:
        spec = cluster()
        spec = replace(spec, pools={"p": replace(spec.pools["p"], scaling=None)})
        world = World(tmp_path, spec)
        await world.backend.open()
        await world.seconds(10, waiting=90)
        assert world.ready() == ["p-0"] and not world.controller.keepers

    run(body())
