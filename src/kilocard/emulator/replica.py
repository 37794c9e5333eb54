"""One emulated engine on one port."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime
from typing import Any, Never, Self

import msgspec

from kilocard.core.errors import BackendError, EngineError
from kilocard.emulator import asked, other
from kilocard.emulator.failure import Refused
from kilocard.emulator.faults import NO_FAULT, Fault, Faults, Kind
from kilocard.emulator.generate import generate, refuse_if_hit
from kilocard.emulator.observed import Observed
from kilocard.emulator.page import metrics_page
from kilocard.emulator.settings import Settings
from kilocard.emulator.stepper import Stepper
from kilocard.net.reply import JSON, Answer, Reply
from kilocard.net.server import Server
from kilocard.sim.engine import Engine
from kilocard.wire.http1 import Request

VERSION = "0.32.0+kilocard.emulated"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
GENERATION = {"/v1/chat/completions": True, "/v1/completions": False}
POSTS = {*GENERATION, "/v1/embeddings", "/tokenize", "/detokenize"}
GETS = {"/v1/models", "/health", "/ping", "/version", "/metrics", "/load"}
ADMIN = {"/admin/fault": {"GET", "POST"}, "/admin/stats": {"GET"}}
NOT_FOUND = Answer(404, JSON, b'{"detail":"Not Found"}')
NOT_ALLOWED = Answer(405, JSON, b'{"detail":"Method Not Allowed"}')


class Replica:
    """Serves what vLLM serves, at the speed of a profile; every answer says that it is emulated."""

    def __init__(self, settings: Settings, index: int = 0) -> None:
        self.settings = settings
        self.index = index
        self.rng = random.Random(settings.seed * 100_003 + index)  # noqa: S311  # filler text and faults
        self.created = int(datetime.now(UTC).timestamp())
        self.engine = Engine(
            settings.profile,
            max_num_seqs=settings.max_num_seqs,
            kv_tokens=settings.kv_tokens,
            max_num_batched_tokens=settings.max_num_batched_tokens,
        )
        self.observed = Observed()
        self.stepper = Stepper(self.engine, self.observed, speed=settings.speed)
        self.faults = Faults(random.Random(settings.seed * 7919 + index))  # noqa: S311  # which requests are hit
        self.server = Server(self._handle, idle_timeout=settings.keep_alive, headers=(("x-kilocard-emulated", "1"),))
        self.url = ""
        self.in_flight = 0
        self.seen = 0
        self._ids = 0
        self._fault_timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Listen; returns the URL. Raises BackendError."""
        port = await self.server.start(host, port)
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{port}"
        return self.url

    async def close(self, grace: float = 5.0) -> None:
        """Let running requests finish for `grace` seconds, then cut them."""
        self._clear_timer()
        for task in tuple(self._tasks):
            task.cancel()
        await self.server.close(grace)
        self.stepper.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close(grace=0.0)

    def next_id(self) -> str:
        self._ids += 1
        return str(self._ids)

    def served(self, model: str | None) -> str:
        """The model to name in the answer. Refuses (404) what is not served; none given means the first."""
        if not model:
            return self.settings.models[0]
        if model not in self.settings.models:
            raise Refused(404, f"The model `{model}` does not exist.", "model")
        return model

    async def forever(self) -> Never:
        """Until the client gives up."""
        await asyncio.get_running_loop().create_future()
        raise AssertionError("unreachable")

    async def _handle(self, request: Request, reply: Reply) -> Answer | None:
        path = request.path
        if path in ADMIN:
            return await self._admin(request, reply)
        api = path in POSTS
        if not api and path not in GETS:
            return NOT_FOUND
        if request.method != ("POST" if api else "GET"):
            return NOT_ALLOWED
        if api:
            self.seen += 1
            self.in_flight += 1
        try:
            fault = self.faults.hit(control=not api)
            if fault is not None and fault.kind is Kind.HANG:
                await self.forever()
            if fault is not None and fault.kind is Kind.RESET_BEFORE_RESPONSE:
                reply.abort()
                return None
            refuse_if_hit(fault)
            if not api:
                return self._look(path)
            answer = await self._work(request, reply, fault)
            self.observed.http[path, "2xx"] += 1
            return answer
        except (Refused, EngineError) as error:
            refused = error if isinstance(error, Refused) else Refused(400, str(error))
            self.observed.http[path, f"{refused.status // 100}xx"] += 1
            return Answer(refused.status, JSON, refused.body())
        finally:
            if api:
                self.in_flight -= 1

    async def _work(self, request: Request, reply: Reply, fault: Fault | None) -> Answer | None:
        path = request.path
        if path in GENERATION:
            await generate(self, request, reply, fault, chat=GENERATION[path])
            return None
        if path == "/v1/embeddings":
            return Answer(200, JSON, await other.embed(self, request, reply))
        if path == "/tokenize":
            return Answer(200, JSON, other.tokenize(self, request))
        return Answer(200, JSON, other.detokenize(self, request))

    def _look(self, path: str) -> Answer:
        if path == "/metrics":
            return Answer(200, PROMETHEUS, metrics_page(self))
        if path == "/version":
            return Answer(200, JSON, msgspec.json.encode({"version": VERSION}))
        if path == "/load":
            return Answer(200, JSON, msgspec.json.encode({"server_load": self.in_flight}))
        if self.faults.says_ill:
            return Answer(503, JSON, b"")
        if path == "/v1/models":
            return Answer(200, JSON, other.models(self))
        return Answer(200, JSON, b"")

    # the admin's side

    async def _admin(self, request: Request, reply: Reply) -> Answer | None:
        if request.method not in ADMIN[request.path]:
            return NOT_ALLOWED
        if request.path == "/admin/stats":
            return Answer(200, JSON, msgspec.json.encode(self.stats()))
        if request.method == "POST":
            try:
                fault = asked.read(request.body, Fault)
                fault.check()
            except Refused as refused:
                return Answer(refused.status, JSON, refused.body())
            self.set_fault(fault)
            if fault.kind is Kind.REFUSE:
                # Answer first: the connections are cut with the port.
                await reply.send(200, msgspec.json.encode(self.faults.fault))
                self._spawn_refusal(fault.duration_s or 0.0)
                return None
        return Answer(200, JSON, msgspec.json.encode(self.faults.fault))

    def set_fault(self, fault: Fault) -> None:
        """Put a fault in force in place of the last one; it ends by itself after its duration."""
        self._clear_timer()
        self.faults.set(fault)
        self.stepper.slowdown = fault.factor if fault.kind is Kind.SLOW else 1.0
        if fault.duration_s is not None and fault.kind is not Kind.REFUSE:
            loop = asyncio.get_running_loop()
            self._fault_timer = loop.call_later(fault.duration_s, self.set_fault, NO_FAULT)

    async def refuse(self, seconds: float) -> None:
        """As if the process were gone for so long: no listener, no connections."""
        await self.server.stop_listening()
        for connection in tuple(self.server.connections):
            connection.cut()
        await asyncio.sleep(seconds)
        self.set_fault(NO_FAULT)
        while True:
            try:
                await self.server.listen_again()
            except BackendError:
                await asyncio.sleep(0.2)  # somebody else has the port for the moment
            else:
                return

    def _spawn_refusal(self, seconds: float) -> None:
        task = asyncio.get_running_loop().create_task(self.refuse(seconds))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _clear_timer(self) -> None:
        if self._fault_timer is not None:
            self._fault_timer.cancel()
            self._fault_timer = None

    def stats(self) -> dict[str, Any]:
        """Numbers for tests and benchmarks: requests, connections, counters since the start."""
        counters = self.engine.counters
        return {
            "connections": len(self.server.connections),
            "in_flight": self.in_flight,
            "requests": self.seen,
            "running": self.engine.running,
            "waiting": self.engine.waiting,
            "kv_usage": self.engine.kv_usage,
            "finished": counters.finished,
            "aborted": counters.aborted,
            "preempted": counters.preempted,
            "steps": counters.steps,
            "prompt_tokens": counters.prompt_tokens,
            "generation_tokens": counters.generation_tokens,
            "fault_hits": self.faults.hits,
        }
