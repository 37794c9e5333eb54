"""Where virtual time wants more replicas than the closed form, everything that the page says is about those."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from kilocard.cli.main import app

LONG = "Qwen/Qwen2.5-7B-Instruct --gpu A100-80GB --rate 1 --input 100000 --max-model-len 100256"


def test_growth_errors_and_changes_are_of_the_replicas_that_virtual_time_wanted() -> None:
    found = CliRunner().invoke(app, ["plan", *LONG.split(), "--json"])
    assert found.exit_code == 0, found.exception
    document = json.loads(found.stdout)
    choice, growth = document["choice"], document["advice"]["growth"]
    assert choice["replicas_before_simulation"] < choice["replicas"]
    # fewer than the trial wanted can't carry the rate that it was tried with
    assert all(step["up_to_rate_per_s"] < 1 for step in growth if step["replicas"] < choice["replicas"])
    fewest, most = document["provenance"]["replicas_within"]["median"]
    assert fewest < choice["replicas"] < most
    assert not [each for each in document["advice"]["changes"] if "replicas instead of" in each and "twice" in each]
