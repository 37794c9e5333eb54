"""`--backend ray` without Ray says what to install."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kilocard.cli.controlling import backend_of
from kilocard.core.errors import UsageError
from kilocard.spec.model import ClusterSpec


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in [name for name in sys.modules if name.startswith("kilocard.backends.ray.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"pip install 'kilocard\[ray\]'"):
        backend_of("ray", ClusterSpec(), print, tmp_path, None)
