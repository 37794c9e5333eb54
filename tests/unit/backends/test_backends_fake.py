"""What the backend in memory offers to tests beside the contract."""

from __future__ import annotations

import asyncio

import pytest

from fake_engine import one_pool
from kilocard.backends.base import ReplicaState
from kilocard.backends.fake import FakeBackend
from kilocard.core.errors import BackendError
from kilocard.core.replica import Change, Found, Lost
from kilocard.spec.model import StartSpec


def test_calls_errors_and_time_are_the_tests_own() -> None:
    async def story() -> None:
        news: list[Change] = []
        fake = FakeBackend(one_pool(start=StartSpec(backoff=5.0)), news.append, auto_ready=False)
        fake.fail_next("open", BackendError("no"))
        with pytest.raises(BackendError, match="no"):
            await fake.open()
        await fake.open()
        assert fake.describe("p-0").state is ReplicaState.STARTING
        fake.make_ready("p-0")
        fake.crash("p-0", "boom")
        assert [type(change) for change in news] == [Found, Lost]
        fake.advance(4.9)
        assert fake.describe("p-0").state is ReplicaState.RESTARTING
        fake.advance(0.2)
        assert fake.describe("p-0").state is ReplicaState.STARTING
        assert fake.describe("p-0").restarts == 1
        assert fake.calls == [("open",), ("open",)]

    asyncio.run(story())
