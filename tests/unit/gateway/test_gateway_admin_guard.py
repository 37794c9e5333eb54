"""The admin address asks for no key, so it takes changes from this machine only."""

from __future__ import annotations

import pytest

from kilocard.core.errors import Forbidden
from kilocard.gateway.admin_guard import only_from_here


def test_changes_come_from_programs_of_this_machine_only() -> None:
    only_from_here("127.0.0.1", {"host": "x"})
    only_from_here("::1", {})
    for peer, headers in [("10.0.0.1", {}), ("", {}), ("127.0.0.1", {"origin": "http://127.0.0.1:8001"})]:
        with pytest.raises(Forbidden) as caught:
            only_from_here(peer, headers)
        assert caught.value.code == "local_only"
