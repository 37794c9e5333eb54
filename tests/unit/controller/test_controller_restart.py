"""Controllers end, die, and stand in for each other; what was begun is finished, and nobody acts twice."""

from __future__ import annotations

import errno
import fcntl
import json
from pathlib import Path

import pytest
from controlled import START, World, cluster, run, settle

from kilocard.controller.lease import FileLease
from kilocard.controller.memory import DrainUnderWay, Memory, MemoryFile


def test_a_drain_under_way_is_picked_up_by_the_next_controller(tmp_path: Path) -> None:
    async def body() -> None:
        world = World(tmp_path, cluster(least=1, most=2))
        await world.backend.open()
        await world.backend.start("p")
        requests = [world.arrive() for _ in range(4)]
        await world.seconds(7, waiting=0)
        [leaves] = world.controller.departures.under_way
        await world.end()  # as if killed: the file is there, the backend lives on
        written = MemoryFile(tmp_path / "controller.json").read()
        assert written.drains[leaves].pool == "p"

        world.controller = world.another()
        await world.seconds(1, waiting=10)
        assert world.kinds() == ["leads", "resumed"]
        assert set(world.controller.departures.under_way) == {leaves}
        assert world.pool()["replicas"]["draining"] == 1  # not counted as one that the pool has
        for request in requests:
            if world.sent[request] == leaves:
                world.finish(request)
        await settle()
        assert world.states()[leaves] == "stopped" and world.kinds()[-1] == "gone"
        assert not MemoryFile(tmp_path / "controller.json").read().drains

    run(body())


def test_what_is_to_go_is_written_before_it_is_told_to(tmp_path: Path) -> None:
    """A controller that dies between the two leaves a drain that the next one finishes."""

    async def body() -> None:
        world = World(tmp_path, cluster(least=1, most=2))
        await world.backend.open()
        await world.backend.start("p")
        seen: list[bool] = []
        drain = world.backend.drain

        async def watched(replica: str, reason: str) -> None:
            seen.append(replica in MemoryFile(tmp_path / "controller.json").read().drains)
            await drain(replica, reason)

        world.backend.drain = watched  # type: ignore[method-assign]  # a spy
        await world.seconds(7, waiting=0)
        await settle()
        assert seen == [True]

    run(body())


def test_a_drain_of_a_replica_that_is_no_more_is_forgotten(tmp_path: Path) -> None:
    async def body() -> None:
        world = World(tmp_path)
        MemoryFile(tmp_path / "controller.json").write(Memory(START, {"p-7": DrainUnderWay("p", "old", START)}))
        await world.backend.open()
        await world.seconds(6, waiting=10)
        assert not world.controller.departures.under_way
        assert not MemoryFile(tmp_path / "controller.json").read().drains

    run(body())


def test_where_replicas_die_with_the_controller_their_ids_mean_others(tmp_path: Path) -> None:
    """`kilocard up`: after a crash a new p-0 is another replica than the p-0 that was to go."""

    async def body() -> None:
        world = World(tmp_path)
        MemoryFile(tmp_path / "controller.json").write(Memory(START, {"p-0": DrainUnderWay("p", "old", START)}))
        world.controller = world.another(outlives=False)
        await world.backend.open()
        await world.seconds(3, waiting=10)
        assert world.states() == {"p-0": "ready"}

    run(body())


def test_a_condition_that_held_goes_on_over_a_short_absence(tmp_path: Path) -> None:
    async def body() -> None:
        world = World(tmp_path)
        await world.backend.open()
        await world.seconds(3, waiting=30)
        await world.end()
        world.controller = world.another()
        await world.seconds(1, waiting=30)
        assert world.ready() == ["p-0", "p-1"]  # 3 s, two controllers together

    run(body())


def test_two_controllers_never_act_at_once_and_the_second_says_who_leads(tmp_path: Path) -> None:
    async def body() -> None:
        world = World(tmp_path)
        await world.backend.open()
        standby = world.another(FileLease(tmp_path / "lock"))
        both = [world.controller, standby]
        await world.seconds(10, waiting=30, controllers=both)
        assert world.pool()["started"] > 0 and not standby.moves
        assert standby.leads is False and standby.leader is not None
        assert [event.kind for event in standby.events] == ["standby"]
        assert "leads" in next(iter(standby.events)).text
        starts = sum(call[0] == "start" for call in world.backend.calls)
        assert starts == world.pool()["started"]

        await world.end()
        await world.seconds(1, waiting=10, controllers=[standby])
        assert standby.leads is True

    run(body())


def test_who_loses_the_lease_stops_acting(tmp_path: Path) -> None:
    async def body() -> None:
        world = World(tmp_path)
        await world.backend.open()
        await world.seconds(1, waiting=10)
        (tmp_path / "lock").unlink()
        other = FileLease(tmp_path / "lock")
        assert other.take(START)
        await world.seconds(10, waiting=90)
        assert world.controller.leads is False and world.ready() == ["p-0"]
        assert world.kinds() == ["leads", "standby"]
        other.give_back()
        await world.seconds(5, waiting=90)
        assert len(world.ready()) > 1

    run(body())


def test_who_cant_ask_for_the_lease_does_not_act(tmp_path: Path) -> None:
    class Broken(FileLease):
        def take(self, wall: float) -> bool:
            raise OSError("disk on fire")

    async def body() -> None:
        world = World(tmp_path, lease=Broken(tmp_path / "lock"))
        await world.backend.open()
        await world.seconds(6, waiting=90)
        assert world.ready() == ["p-0"]
        assert world.controller.events.errors == {"lease": 6}

    run(body())


def test_a_full_disk_is_an_error_that_is_shown_and_ends_nothing(tmp_path: Path) -> None:
    class Full(MemoryFile):
        def write(self, memory: Memory) -> None:
            raise OSError("no space left on device")

    async def body() -> None:
        world = World(tmp_path)
        world.controller._memory = Full(tmp_path / "controller.json")
        await world.backend.open()
        await world.seconds(5, waiting=30)
        assert world.ready() == ["p-0", "p-1"]
        assert world.controller.events.errors["record"] > 0

    run(body())


def test_an_orderly_end_leaves_nothing_to_pick_up(tmp_path: Path) -> None:
    async def body() -> None:
        world = World(tmp_path)
        await world.backend.open()
        await world.seconds(6, waiting=10)
        assert (tmp_path / "controller.json").exists()
        await world.controller.close(finished=True)
        assert not (tmp_path / "controller.json").exists()

    run(body())


WRONG = (
    '{"version": 1, "saved_at": 0, "drains": {}, "scalers": {"p": 3}}',
    '{"version": 1, "saved_at": 0, "drains": {"p-0": {"pool": "p", "reason": "", "since": "x"}}, "scalers": {}}',
    '{"version": 1, "saved_at": NaN, "drains": {}, "scalers": {}}',
)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": 99}', '{"version": 1, "drains": {"p-0": 3}}', "\x00", "[" * 99_999, *WRONG]
)
def test_a_damaged_file_is_put_aside(tmp_path: Path, text: str) -> None:
    file = MemoryFile(tmp_path / "controller.json")
    file.path.write_text(text)
    assert file.read() == Memory()
    assert (tmp_path / "controller.damaged").read_text() == text
    assert not file.path.exists()


def test_a_file_that_is_no_text_is_put_aside(tmp_path: Path) -> None:
    (tmp_path / "controller.json").write_bytes(b"\xff\xfe{}")
    assert MemoryFile(tmp_path / "controller.json").read() == Memory()
    assert (tmp_path / "controller.damaged").exists()


def test_a_file_that_cant_be_read_keeps_nobody_from_leading(tmp_path: Path) -> None:
    async def body() -> None:
        (tmp_path / "controller.json").mkdir()
        world = World(tmp_path)
        await world.backend.open()
        await world.seconds(5, waiting=30)
        assert world.ready() == ["p-0", "p-1"]
        assert world.controller.events.errors["record"] > 0

    run(body())


def test_a_memory_survives_the_disk(tmp_path: Path) -> None:
    file = MemoryFile(tmp_path / "folder" / "controller.json")
    memory = Memory(START, {"p-1": DrainUnderWay("p", "less to do", START)}, {"p": {"policy": {"above_for_s": 2.5}}})
    file.write(memory)
    assert file.read() == memory
    assert json.loads(file.path.read_text())["version"] == 1
    assert sorted(path.name for path in file.path.parent.iterdir()) == ["controller.json"]
    file.forget()
    file.forget()
    assert file.read() == Memory()


def test_a_lock_is_free_when_its_process_ends_and_only_then(tmp_path: Path) -> None:
    first, second = FileLease(tmp_path / "lock"), FileLease(tmp_path / "lock")
    assert first.take(1.0) and first.take(2.0)
    assert not second.take(3.0)
    holder = second.holder()
    assert holder is not None and holder.since == 1.0
    first.give_back()
    first.give_back()
    assert second.take(4.0) and not first.take(5.0)
    second.give_back()
    assert not list(tmp_path.iterdir())


def test_who_waits_with_a_file_open_that_is_gone_gets_the_next_one(tmp_path: Path) -> None:
    """The one that holds it removes it while another one is about to lock it."""
    first, second, third = (FileLease(tmp_path / "lock") for _ in range(3))
    assert first.take(1.0)
    with (tmp_path / "lock").open() as opened:
        first.give_back()
        assert third.take(2.0)
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)  # free, and worth nothing
        assert not second.take(3.0)
    third.give_back()


def test_on_a_full_disk_the_lock_is_a_lock_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.pwrite", full)
    first, second = FileLease(tmp_path / "lock"), FileLease(tmp_path / "lock")
    assert first.take(1.0) and not second.take(2.0)
    assert second.holder() is None
    first.give_back()
    assert second.take(3.0)
    second.give_back()
