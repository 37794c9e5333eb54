"""What makes it safe to write past a transport: whose descriptor it is, and until when, on both event loops."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from kilocard.gateway.borrowed import BorrowedSocket, borrow

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    def run(test: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(test)

    return run


class Borrower(asyncio.Protocol):
    """A connection that borrows its own socket and notes, as it is lost, whether the descriptor is still its own."""

    def __init__(self) -> None:
        self.made, self.lost = asyncio.Event(), asyncio.Event()
        self.still_ours: bool | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]  # uvloop's has no base
        borrowed = borrow(transport)
        assert borrowed is not None
        self.borrowed, self.number = borrowed, borrowed.fileno()
        self.inode = os.fstat(self.number).st_ino
        self.made.set()

    def connection_lost(self, exc: Exception | None) -> None:
        try:
            self.still_ours = os.fstat(self.number).st_ino == self.inode
        except OSError:
            self.still_ours = False
        self.borrowed.detach()
        self.lost.set()


async def connected() -> tuple[Borrower, socket.socket, asyncio.Server]:
    """A borrower, the other end of its connection, and the server that made it."""
    borrower = Borrower()
    server = await asyncio.get_running_loop().create_server(lambda: borrower, "127.0.0.1", 0)
    other = socket.create_connection(server.sockets[0].getsockname())
    await asyncio.wait_for(borrower.made.wait(), 30)
    return borrower, other, server


def reset(other: socket.socket) -> None:
    other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    other.close()


ENDS: dict[str, Callable[[Borrower, socket.socket], None]] = {
    "abort": lambda borrower, other: borrower.transport.abort(),
    "close": lambda borrower, other: borrower.transport.close(),
    "end of the other side": lambda borrower, other: other.shutdown(socket.SHUT_WR),
    "reset by the other side": lambda borrower, other: reset(other),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_descriptor_is_the_connections_until_it_is_lost(
    run: Callable[[Coroutine[Any, Any, None]], None], end: str
) -> None:
    async def test() -> None:
        borrower, other, server = await connected()
        ENDS[end](borrower, other)
        await asyncio.wait_for(borrower.lost.wait(), 30)
        other.close()
        server.close()
        assert borrower.still_ours is True

    run(test())


def test_nothing_reaches_the_next_connection_with_that_number(
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    async def test() -> None:
        borrower, other, server = await connected()
        send = borrower.borrowed.send
        assert send(b"mine") == 4 and other.recv(10) == b"mine"
        borrower.transport.abort()
        await asyncio.wait_for(borrower.lost.wait(), 30)
        await asyncio.sleep(0)  # the loop closes the descriptor
        pairs = [socket.socketpair() for _ in range(20)]
        numbers = {one.fileno(): two for one, two in pairs} | {two.fileno(): one for one, two in pairs}
        assert borrower.number in numbers, "the number is in use again"
        with pytest.raises(OSError, match="Bad file descriptor"):
            send(b"another tenant's text")
        ends_at = numbers[borrower.number]
        ends_at.setblocking(False)
        with pytest.raises(BlockingIOError):
            ends_at.recv(100)
        for pair in pairs:
            for one in pair:
                one.close()
        other.close()
        server.close()

    run(test())


def test_who_forgets_to_give_it_back_closes_nothing() -> None:
    one, two = socket.socketpair()
    with one, two:
        borrowed = BorrowedSocket(one.family, one.type, one.proto, one.fileno())
        assert borrowed.send(b"a") == 1
        del borrowed
        gc.collect()
        one.sendall(b"b")
        assert two.recv(2) == b"ab"


def test_a_full_socket_says_so_at_once() -> None:
    one, two = socket.socketpair()
    with one, two:
        one.setblocking(False)

        class Transport(asyncio.Transport):
            pass

        borrowed = borrow(Transport({"socket": one}))
        assert borrowed is not None
        with pytest.raises(BlockingIOError):
            while True:
                borrowed.send(b"x" * 65536)
        borrowed.detach()


def test_without_a_socket_nothing_is_borrowed() -> None:
    assert borrow(asyncio.Transport()) is None
