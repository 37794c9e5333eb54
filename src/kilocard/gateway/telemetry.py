"""What the gateway counts. Children are resolved once a model, so a request costs a few additions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kilocard import __version__
from kilocard.core.errors import KilocardError
from kilocard.dispatch.config import PRIORITIES
from kilocard.metrics import names
from kilocard.metrics.meters import Counter, Histogram
from kilocard.metrics.render import Registry
from kilocard.tenancy.usage import NOTHING

if TYPE_CHECKING:
    from kilocard.gateway.exchange import Exchange


class ModelMeters:
    """The series of one model."""

    __slots__ = ("e2e", "generation_tokens", "hold", "inter_token", "name", "outcomes", "prompt_tokens", "ttft")

    def __init__(self, telemetry: Telemetry, model: str) -> None:
        self.name = model
        self.ttft: Histogram = telemetry.ttft.labels(model)
        self.inter_token: Histogram = telemetry.itl.labels(model)
        self.e2e: Histogram = telemetry.e2e.labels(model)
        #: by priority class
        self.hold: tuple[Histogram, ...] = tuple(telemetry.hold.labels(model, name) for name in PRIORITIES)
        self.prompt_tokens: Counter = telemetry.prompt_tokens.labels(model)
        self.generation_tokens: Counter = telemetry.generation_tokens.labels(model)
        self.outcomes: dict[tuple[str, str], Counter] = {}


class Telemetry:
    """The gateway's registry. `models` are the names that may become label values; all others are one."""

    def __init__(self, models: list[str]) -> None:
        self.registry = Registry()
        add = self.registry
        self.requests = add.counter(names.REQUESTS)
        self.ttft = add.histogram(names.TTFT)
        self.itl = add.histogram(names.ITL)
        self.e2e = add.histogram(names.E2E)
        self.hold = add.histogram(names.HOLD_TIME)
        self.decision: Histogram = add.histogram(names.DECISION_TIME).only
        self.prompt_tokens = add.counter(names.PROMPT_TOKENS)
        self.generation_tokens = add.counter(names.GENERATION_TOKENS)
        self.retries = add.counter(names.RETRIES)
        self.refused = add.counter(names.REFUSED)
        self.limited = add.counter(names.LIMITED)
        self.internal_errors = add.counter(names.INTERNAL_ERRORS).only
        self.store_errors = add.counter(names.STORE_ERRORS)
        add.gauge(names.BUILD_INFO).labels(__version__).set(1)
        self._stale = self.retries.labels("stale_connection")
        self._models = {model: ModelMeters(self, model) for model in models}
        self._other = ModelMeters(self, names.OTHER)

    def model(self, name: str) -> ModelMeters:
        return self._models.get(name) or self._other

    def known(self, name: str) -> ModelMeters:
        """The same for a name of the cluster file. One that was there before counts on from where it was."""
        if name not in self._models:
            self._models[name] = ModelMeters(self, name)
        return self._models[name]

    def ended(self, exchange: Exchange, outcome: str, now: float) -> None:
        """Once for each exchange."""
        meters = exchange.meters
        send = exchange.send
        key = (send.pool if send is not None else "", outcome)
        counter = meters.outcomes.get(key)
        if counter is None:
            counter = meters.outcomes[key] = self.requests.labels(meters.name, *key)
        counter.value += 1
        if exchange.was_held:  # who is refused at once has not waited
            waited = now - exchange.arrived if send is None else exchange.held_seconds
            meters.hold[exchange.inbound.tenant.priority].observe(waited)
        if outcome == "ok":
            meters.e2e.observe(now - exchange.arrived)
        content_at = exchange.content_at
        if content_at:
            meters.ttft.observe(content_at - exchange.arrived)
        used = exchange.used
        if used is not NOTHING:
            meters.prompt_tokens.value += used.prompt
            meters.generation_tokens.value += used.output

    def failed(self, fault: str) -> None:
        """An attempt failed and goes on to another replica."""
        self.retries.labels(fault).inc()

    def refusal(self, code: str) -> None:
        self.refused.labels(code).inc()

    def bad_request(self, error: KilocardError) -> None:
        """Refused before a replica was thought of."""
        self.refused.labels(error.code).inc()

    def stale_connection(self) -> None:
        self._stale.inc()
