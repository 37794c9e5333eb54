"""Lines as nvidia-smi and DCGM exporters print them."""

from __future__ import annotations

import pytest

from kilocard.bench.gpu_readings import NOTHING, GpuReading, all_gpus, parse_dcgm, parse_smi
from kilocard.bench.gpu_watch import is_local

# dcgm-exporter beside a training run on an A100; labels shortened
DCGM = b"""\
# HELP DCGM_FI_DEV_FB_FREE Framebuffer memory free (in MiB).
# TYPE DCGM_FI_DEV_FB_FREE gauge
DCGM_FI_DEV_FB_FREE{gpu="0",UUID="GPU-0",device="nvidia0",Hostname="node"} 35690
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-0",device="nvidia0",Hostname="node"} 4845
DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",UUID="GPU-0",device="nvidia0",Hostname="node"} 0.995630
"""
TWO = b"""\
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-0",Hostname="node-a",modelName="NVIDIA-L40S"} 12000
DCGM_FI_DEV_FB_USED{gpu="1",UUID="GPU-1",Hostname="node-a",modelName="NVIDIA-L40S"} 8000
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-0",Hostname="node-a",modelName="NVIDIA-L40S"} 50
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-1",Hostname="node-a",modelName="NVIDIA-L40S"} 25
"""


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("0, 1, 57", (0, GpuReading(1 / 1024, 0.57))),  # an RTX 3090
        ("1, 38742, 100\n", (1, GpuReading(38742 / 1024, 1.0))),  # an A6000 beside it
        ("0, 36537, [N/A]", (0, GpuReading(36537 / 1024, None))),  # an A800 in MIG mode
        ("3, [N/A], 12", (3, GpuReading(None, 0.12))),  # a Grace-Hopper machine with shared memory
        ("0, [Unknown Error], [Unknown Error]", (0, NOTHING)),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", None),
        ("No devices were found", None),
        ("index, memory.used [MiB], utilization.gpu [%]", None),
        ("", None),
    ],
)
def test_lines_of_nvidia_smi(line: str, wanted: tuple[int, GpuReading] | None) -> None:
    assert parse_smi(line) == wanted


def test_pages_of_dcgm() -> None:
    assert parse_dcgm(DCGM) == GpuReading(4845 / 1024, 0.99563)
    assert parse_dcgm(TWO) == GpuReading(20000 / 1024, 0.375)
    assert parse_dcgm(b"# HELP node_load1 x\nnode_load1 0.5\n") == NOTHING


def test_gpus_together_are_those_that_say_something() -> None:
    assert all_gpus([GpuReading(1.0, None), GpuReading(2.0, 0.5)]) == GpuReading(3.0, 0.5)
    assert all_gpus([]) == NOTHING


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://127.0.0.1:8000", True),
        ("http://localhost", True),
        ("http://[::1]:8000", True),
        ("http://10.0.0.7:8000", False),
        ("https://api.example.com/x", False),
    ],
)
def test_gpus_here_are_the_servers_only_if_it_is_here(url: str, local: bool) -> None:
    assert is_local(url) is local
