"""What a gateway makes of a request that comes: whose it is, what is estimated, how its prompt begins.

The only way from a workload to the dispatcher. Here `output_tokens`, which only the engine may know, is never read.
"""

from __future__ import annotations

from kilocard.core.prefix import Prefix, of_blocks
from kilocard.dispatch.config import PRIORITIES
from kilocard.dispatch.events import Arrived
from kilocard.sim.scenario import Scenario, Tenant
from kilocard.spec.vocabulary import READS_PROMPTS
from kilocard.workload.request import WorkloadRequest

USUAL = Tenant()


class Asking:
    """Requests that say no model, or one that is not there, ask for the first."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._model = next(iter(scenario.models))
        #: models whose policy wants to know how a prompt begins, and whether a header names its session
        self._reads = {
            name: spec.affinity.header is not None
            for name, spec in scenario.models.items()
            if spec.policy in READS_PROMPTS
        }

    def event(self, now: float, id: int, request: WorkloadRequest) -> Arrived:
        scenario = self._scenario
        tenant = request.tenant or ""
        treated = scenario.tenants.get(tenant, USUAL)
        model = request.model or self._model
        if model not in scenario.models:
            model = self._model
        return Arrived(
            now,
            id,
            model,
            request.input_tokens,
            scenario.declared_tokens if request.max_tokens is None else request.max_tokens,
            now + scenario.timeouts.total,
            tenant,
            treated.priority if request.priority not in PRIORITIES else PRIORITIES.index(request.priority),
            treated.weight,
            prefix=self._prefix(request, tenant, self._reads[model]) if model in self._reads else None,
        )

    @staticmethod
    def _prefix(request: WorkloadRequest, tenant: str, names_sessions: bool) -> Prefix | None:
        session = request.session
        named = names_sessions and session is not None
        if not request.blocks and not named:
            return None
        return of_blocks(
            request.input_tokens,
            request.blocks,
            request.block_tokens,
            session if request.conversation is None else request.conversation,
            f"{tenant}\n{session}" if named else None,  # a tenant's sessions are its own
        )
