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


def test_as_09_from_zero_for_the_first_request_and_back_when_nobody_asks_any_more(tmp_path: Path) -> None:
    async def body() -> None:
        world = World(tmp_path, cluster(least=0, most=2))
        await world.backend.open()
        await world.seconds(5)
        assert world.states() == {}
        request = world.arrive()
        assert request not in world.sent  # it waits in the gateway
        await world.seconds(1)
        assert world.sent[request] == "p-0"
        assert world.pool()["reason"] == "held"
        await world.seconds(20, waiting=0)
        assert world.states() == {"p-0": "ready"}  # its answer has not ended
        world.finish(request)
        await world.seconds(9, waiting=0)
        assert world.states() == {"p-0": "stopped"}

    run(body())


def test_who_waits_for_a_pool_at_zero_wakes_the_controller_and_not_again_while_a_replica_comes(tmp_path: Path) -> None:
    async def body() -> None:
        world = World(tmp_path, cluster(least=0, most=2), auto_ready=False)
        controller = world.controller
        await world.backend.open()
        await world.seconds(2)
        world.arrive()
        controller.wake()
        assert controller._soon.is_set()
        controller._soon.clear()
        await world.seconds(1)
        assert world.states() == {"p-0": "starting"}
        world.arrive()
        controller.wake()
        assert not controller._soon.is_set()

    run(body())


def test_as_08_one_start_for_all_who_wait(tmp_path: Path) -> None:
    """knative#13208."""

    async def body() -> None:
        world = World(tmp_path, cluster(least=0, most=4), auto_ready=False)
        await world.backend.open()
        requests = [world.arrive() for _ in range(60)]
        await world.seconds(3)
        assert world.states() == {"p-0": "starting"}
        world.backend.make_ready("p-0")
        await world.seconds(4, waiting=0)
        assert set(world.sent) == set(requests)

    run(body())


def test_mt_10_a_queue_of_2826_adds_a_replica_at_28_percent_of_the_cache(tmp_path: Path) -> None:
    """SGLang's documentation, production metrics: cache use alone tells nothing."""

    async def body() -> None:
        world = World(tmp_path)
        await world.backend.open()
        await world.seconds(4, waiting=2826)
        assert world.ready() == ["p-0", "p-1"]
        assert world.pool()["journal"][0]["numbers"]["value"] == 2826

    run(body())


def test_as_11_one_writer_and_a_pool_that_answers_now_and_then_stays(tmp_path: Path) -> None:
    """kthena#1019: requests of 300 ms between two looks of a scaler that only samples."""

    async def body() -> None:
        world = World(tmp_path, cluster(least=0, most=2))
        await world.backend.open()
        world.arrive()
        await world.seconds(1)
        for _ in range(12):
            for request in list(world.sent):
                world.finish(request)
            await world.seconds(5, waiting=0)
            world.arrive()  # served between two looks, and over
            for request in list(world.sent):
                world.finish(request)
        await world.seconds(7, waiting=0)
        assert world.states() == {"p-0": "ready"}
        await world.seconds(4, waiting=0)
        assert world.states() == {"p-0": "stopped"}
        assert [call[0] for call in world.backend.calls if call[0] != "idle"] == ["open", "start", "drain"]

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
