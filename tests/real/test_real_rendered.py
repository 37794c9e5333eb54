"""The commands that `kilocard render` writes, read by the real vLLM's own parser: no flag that it does not know."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
import yaml
from tests.golden_cases import GOLDEN

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]

#: what Kubernetes fills in
FILLED_IN = {"$(LWS_GROUP_SIZE)": "2", "$(LWS_WORKER_INDEX)": "1", "$(LWS_LEADER_ADDRESS)": "leader"}
PARSE = """
import json, sys
from vllm.entrypoints.cli.serve import ServeSubcommand
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
ServeSubcommand().subparser_init(parser.add_subparsers())
keys = ("model_tag", "tensor_parallel_size", "pipeline_parallel_size", "nnodes", "node_rank", "master_addr", "headless",
        "shutdown_timeout", "max_num_seqs")
for line in sys.stdin:
    found = parser.parse_args(json.loads(line)[1:])
    print(json.dumps({key: getattr(found, key) for key in keys}))
"""


def commands() -> list[list[str]]:
    """Those of the golden fleet whose vLLM is the one that is built here."""
    found = []
    for file in ("pool-qwen-7b-v1.yaml", "pool-llama-405b-152c891f.yaml"):
        for thing in yaml.safe_load_all((GOLDEN / "kubernetes" / "fleet" / file).read_text()):
            if thing["kind"] == "Deployment":
                templates = [thing["spec"]["template"]]
            elif thing["kind"] == "LeaderWorkerSet":
                both = thing["spec"]["leaderWorkerTemplate"]
                templates = [both["leaderTemplate"], both["workerTemplate"]]
            else:
                continue
            found += [template["spec"]["containers"][0]["command"] for template in templates]
    return [[FILLED_IN.get(word, word) for word in command] for command in found]


def test_vllm_understands_every_word(request: pytest.FixtureRequest) -> None:
    built = request.getfixturevalue("vllm_cpu")
    python = built.vllm.with_name("python")
    done = subprocess.run(
        [str(python), "-c", PARSE],
        input="".join(json.dumps(command) + "\n" for command in commands()),
        capture_output=True,
        text=True,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
    )
    assert done.returncode == 0, done.stderr
    one, leader, worker = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    assert (one["max_num_seqs"], one["shutdown_timeout"], one["nnodes"]) == (32, 120, 1)
    for each in (leader, worker):
        assert (each["tensor_parallel_size"], each["pipeline_parallel_size"]) == (8, 2)
        assert (each["nnodes"], each["node_rank"], each["master_addr"]) == (2, 1, "leader")
    assert worker["headless"] and not leader["headless"]
