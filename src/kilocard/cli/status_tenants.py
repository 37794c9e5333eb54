"""What `kilocard status` says of tenants with limits: a line for each limit, of many tenants those nearest to one.

Pure: tenants of /state in, a table out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from kilocard.cli import fleet_table

_RIGHT = frozenset({"in flight", "tokens/min", "used", "of", "left"})


def choose(tenants: Sequence[dict[str, Any]], *, everyone: bool) -> list[dict[str, Any]]:
    """Those to be shown: all, in their order, or of many those with the smallest share left of any limit."""
    return fleet_table.choose(tenants, everyone=everyone, by=_share_left)


def _share_left(tenant: dict[str, Any]) -> tuple[float, int]:
    share = min((1 - limit["used"] / limit["of"] for limit in tenant["limits"]), default=1.0)
    return share, -tenant["in_flight"]


def tenants_table(tenants: Sequence[dict[str, Any]]) -> Table:
    """What a tenant has under way stands beside its first limit."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("tenant", "in flight", "tokens/min", "limit", "model", "used", "of", "left"):
        table.add_column(name, justify="right" if name in _RIGHT else "left", overflow="fold")
    for tenant in tenants:
        who = [tenant["id"], str(tenant["in_flight"]), f"{tenant['used_this_minute']:,}"]
        for limit in tenant["limits"]:
            left = max(0, limit["of"] - limit["used"])
            colour = "red" if left == 0 else "yellow" if left < limit["of"] / 10 else "default"
            numbers: list[str | Text] = [f"{limit['used']:,}", f"{limit['of']:,}", Text(f"{left:,}", style=colour)]
            table.add_row(*who, limit["limit"], limit["model"], *numbers)
            who = ["", "", ""]
    return table
