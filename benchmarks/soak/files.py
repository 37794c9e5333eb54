"""The cluster file of a run, in many versions: what a reload may change, and files that no reload may take over."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.soak.cast import FRAGILE, MODEL, OWNER, Tenant
from benchmarks.soak.malformed import MAX_BODY, MAX_HEAD

#: time-outs so short that ten minutes hold many, in seconds
CONNECT, FIRST_TOKEN, IDLE, TOTAL, CLIENT_IDLE, HOLD = 1.0, 3.0, 2.0, 20.0, 3.0, 5.0
#: attempts that one request has, each on another replica
ATTEMPTS = 3
#: sequences that one replica runs at once; more wait in the gateway
SLOTS = 12
#: seconds between two writes of the ledger
FLUSH = 1.0
#: replicas that one body may kill of the fragile pool
DEATHS = 2

POLICIES = ("queue_depth", "least_connections", "adaptive", "round_robin")
WEIGHTS = ((1, 1), (3, 1), (1, 2))


@dataclass(frozen=True)
class Layout:
    """What the file is made of. `folder` has everything that the gateway writes."""

    folder: Path
    port: int
    admin_port: int
    #: URLs of the replicas that suffer, of the exclusive one and of those that die of poison
    suffering: Sequence[str]
    own: Sequence[str]
    fragile: Sequence[str]
    tenants: Mapping[str, Tenant]
    #: certificate and key
    tls: tuple[Path, Path] | None = None
    #: redis:// URL
    limit_store: str | None = None
    workers: int = 1

    @property
    def path(self) -> Path:
        return self.folder / "cluster.yaml"

    @property
    def store(self) -> Path:
        return self.folder / "kilocard.db"

    @property
    def access_log(self) -> Path:
        return self.folder / "access.log"

    @property
    def decisions(self) -> Path:
        return self.folder / "decisions.jsonl"

    def text(self, variant: int) -> str:
        """The file in that version; 0 is the first. Each differs from the one before. YAML that is JSON too."""
        left, right = WEIGHTS[variant % len(WEIGHTS)]
        gone = variant // 3 % len(self.suffering) if variant % 3 == 2 else None
        pools = [
            [url for place, url in enumerate(self.suffering) if place % 2 == side and place != gone] for side in (0, 1)
        ]
        model = {
            "policy": POLICIES[variant % len(POLICIES)],
            # four seconds of 500 requests/s: with two of four replicas ill, one second's worth did not outlast a pause
            # of the machine, and whoever came then was refused for want of room
            "hold": {"max": 2000, "timeout": f"{HOLD}s"},
            "retry": {"attempts": ATTEMPTS},
            "eject": {"backoff": "500ms", "backoff_max": "4s"},
            "slow_start": "1s",
        }
        hedge = {"hedge": {"after": "700ms", "budget": 0.05}} if variant % 4 == 3 else {}
        return json.dumps(
            {
                "gateway": self._gateway(variant),
                "models": {
                    # killed every few seconds, as spot instances are: see docs/protection.md
                    MODEL: {
                        "pools": {"left": left, "right": right, "own": 1},
                        "quarantine": {"deaths": 3, "ttl": "60s"},
                    }
                    | model
                    | hedge,
                    FRAGILE: {"pools": {"fragile": 1}, "quarantine": {"deaths": DEATHS, "ttl": "60s"}} | model,
                },
                "pools": {
                    "left": _pool(pools[0]),
                    "right": _pool(pools[1]),
                    "own": _pool(self.own) | {"tenants": [OWNER]},
                    "fragile": _pool(self.fragile),
                },
                "tenants": {name: self._tenant(tenant, variant) for name, tenant in self.tenants.items()},
            },
            indent=1,
        )

    def broken(self, variant: int) -> str:
        """A file that has to be refused."""
        good = self.text(variant)
        return (
            good[: len(good) // 2],
            good.replace('"policy"', '"polcy"'),
            good.replace('"left": {', '"lefd": {'),
            good.replace(f'"{HOLD}s"', '"soon"'),
        )[variant % 4]

    def _gateway(self, variant: int) -> dict[str, Any]:
        tls = {} if self.tls is None else {"tls": {"certificate": str(self.tls[0]), "key": str(self.tls[1])}}
        limit_store = {} if self.limit_store is None else {"limit_store": self.limit_store}
        return {
            "listen": f"127.0.0.1:{self.port}",
            "admin": f"127.0.0.1:{self.admin_port}",
            "timeouts": {
                "connect": f"{CONNECT}s",
                "first_token": f"{FIRST_TOKEN - 0.5 * (variant % 2)}s",
                "first_token_per_prompt_token": "0s",
                "idle": f"{IDLE}s",
                "total": f"{TOTAL - variant % 2}s",
            },
            "limits": {
                "header": MAX_HEAD, "body": MAX_BODY, "buffered": "64MiB", "client_idle": f"{CLIENT_IDLE}s",
                "keep_alive": "60s",
            },
            "drain": "5s",
            "store": str(self.store),
            "usage": {"flush": f"{FLUSH}s"},
            "access_log": str(self.access_log),
            "record": {"path": str(self.decisions), "size": "64MiB"},
        } | tls | limit_store  # fmt: skip

    def _tenant(self, tenant: Tenant, variant: int) -> dict[str, Any]:
        limits = tenant.limits_in(variant)
        return (
            {
                "keys": [f"sha256:{tenant.digest}"],
                "priority": tenant.priority,
                "weight": tenant.weight + variant % 2,
            }
            | ({} if tenant.model == MODEL else {"models": [tenant.model]})
            | ({"limits": dict(limits)} if limits else {})
        )


def _pool(endpoints: Sequence[str]) -> dict[str, Any]:
    return {"engine": "vllm", "args": {"max-num-seqs": SLOTS}, "endpoints": list(endpoints)}
