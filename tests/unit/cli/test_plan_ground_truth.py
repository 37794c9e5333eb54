"""`kilocard plan` with the flags of real start-ups gives what their logs say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.memory_ground_truth import rows
from typer.testing import CliRunner

from kilocard.cli.main import app
from kilocard.core.errors import PlanError

FLAGS = {
    "tensor": "--tensor", "pipeline": "--pipeline", "utilization": "--gpu-memory-utilization",
    "max_model_len": "--max-model-len", "max_num_seqs": "--max-num-seqs", "dtype": "--dtype",
    "quantization": "--quantization", "kv_dtype": "--kv-cache-dtype", "version": "--engine-version",
    "total_gib": "--gpu-memory-gib",
}  # fmt: skip
ROWS = {row["id"]: row for row in rows()}


def words(row: dict[str, str]) -> list[str]:
    pins = [word for column, flag in FLAGS.items() if row[column] for word in (flag, row[column])]
    return ["plan", row["model"], "--gpu", row["gpu"], *pins, "--json"]


@pytest.mark.parametrize("number", ["kv002", "kv009", "kv018", "kv021", "kv026", "kv057", "kv077", "kv105", "kv160"])
def test_rows_go_through_the_command_line(number: str) -> None:
    """Dense, MLA, windows, float32, pipeline, 4 bits; the rows without a version only have to be answered."""
    row = ROWS[number]
    found = CliRunner().invoke(app, words(row))
    assert found.exit_code == 0, found.output
    memory: dict[str, Any] = json.loads(found.stdout)["memory"]
    assert memory["kv_tokens"] > 0
    if row["utilization"] and row["version"] and row["gpu"] == "H100-80GB" and row["total_gib"]:
        assert memory["kv_tokens"] == pytest.approx(float(row["kv_tokens"]), rel=0.01)
        assert memory["kv_gib_per_gpu"] == pytest.approx(float(row["kv_gib"]), abs=0.3)


@pytest.mark.parametrize("number", ["kv095", "kv103", "kv116"])
def test_what_the_engine_refused_is_refused(number: str) -> None:
    """One pinned degree means the engine's defaults for the others: no pipeline that nobody started."""
    found = CliRunner().invoke(app, words(ROWS[number] | {"pipeline": ""}))
    assert isinstance(found.exception, PlanError)
