"""What the controller exports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kilocard.metrics import names
from kilocard.metrics.render import Registry

if TYPE_CHECKING:
    from kilocard.controller.controller import Controller


class ControllerMeters:
    """Read from the controller when the page is asked for."""

    def __init__(self, controller: Controller, registry: Registry) -> None:
        self._controller = controller
        self._leads = registry.gauge(names.CONTROLLER_LEADS).only
        self._age = registry.gauge(names.CONTROLLER_LOOK_AGE).only
        self._errors = registry.counter(names.CONTROLLER_ERRORS)
        self._wanted = registry.gauge(names.REPLICAS_WANTED)
        self._replicas = registry.gauge(names.REPLICAS)
        self._moves = registry.counter(names.SCALED_REPLICAS)
        self._decisions = registry.counter(names.SCALING_DECISIONS)
        registry.before_page.append(self._refresh)

    def _refresh(self) -> None:
        controller = self._controller
        self._leads.set(int(bool(controller.leads)))
        self._age.set(None if controller.looked_at is None else controller.clock() - controller.looked_at)
        for where, count in controller.events.errors.items():
            self._errors.labels(where).value = count
        for family in (self._wanted, self._replicas):
            family.children.clear()  # a pool that is gone leaves no series behind
        for name, keeper in controller.keepers.items():
            if keeper.decision is not None:
                self._wanted.labels(name).set(keeper.decision.wanted)
            for phase, count in keeper.phases.items():
                self._replicas.labels(name, phase.value).set(count)
        for (pool, way), count in controller.moves.items():
            self._moves.labels(pool, way).value = count
        for (pool, reason), count in controller.decided.items():
            self._decisions.labels(pool, reason).value = count
