"""GPUs: memory as CUDA reports it, bandwidth, dense arithmetic, links, and a stated price.

`memory_gib` is `torch.cuda.get_device_properties().total_memory`, which vLLM multiplies by its utilisation: less than
the number on the box, by what the driver and ECC keep (79.19 of an "80 GB" H100). It is read off start-up logs and
out-of-memory messages; cards that differ a little by driver have the middle of what was seen. Bandwidth and TFLOP/s
are the vendors' data sheets, dense (half of what is printed for sparsity). Links: NVLink in both directions
together, PCIe in one, GB/s.

Prices are US dollars an hour for one GPU, on-demand at the cheaper cloud providers, in August 2026: an assumption to
compare layouts with, not an offer. Cards that nobody rents out have a third of their price spread over a year.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from kilocard.core.errors import UsageError

PRICES_DATED = "2026-08"


@dataclass(frozen=True, slots=True)
class Gpu:
    #: as on the command line: "H100-80GB"
    name: str
    #: GiB (2^30) as CUDA reports it
    memory_gib: float
    #: GB as sold
    catalogue_gib: float
    #: GB/s (10^9)
    bandwidth_gb_s: float
    #: dense TFLOP/s by "bf16", "fp16", "fp8", "int8", "fp4"; what is missing the card can't do
    tflops: dict[str, float]
    #: GB/s both directions together, 0 = no NVLink
    nvlink_gb_s: float
    #: GB/s one direction
    pcie_gb_s: float
    #: CUDA compute capability times ten, 0 for AMD and Intel
    capability: int
    #: a desktop card: displays may share it, no NVLink or P2P, articles advise 15 % off its memory
    consumer: bool
    price_per_hour: float
    #: GPUs in the usual server
    node: int = 8

    def tflops_at(self, bits: int) -> float:
        """Dense TFLOP/s of matrix products on operands of 16, 8 or 4 bits; falls back to wider ones."""
        wanted = {4: ("fp4", "fp8", "int8"), 8: ("fp8", "int8")}.get(bits, ())
        for name in (*wanted, "bf16", "fp16"):
            if name in self.tflops:
                return self.tflops[name]
        raise UsageError(f"{self.name}: no matrix arithmetic is known of it")


def _half(bf16: float, *, fp8: float = 0, int8: float = 0, fp4: float = 0, fp16: float = 0) -> dict[str, float]:
    stated = {"bf16": bf16, "fp16": fp16 or bf16, "fp8": fp8, "int8": int8, "fp4": fp4}
    return {name: value for name, value in stated.items() if value}


def _data_center(
    name: str, memory: float, sold: float, bandwidth: float, tflops: dict[str, float], nvlink: float, pcie: float,
    capability: int, price: float,
) -> Gpu:  # fmt: skip
    return Gpu(name, memory, sold, bandwidth, tflops, nvlink, pcie, capability, False, price)


def _desktop(
    name: str, memory: float, sold: float, bandwidth: float, tflops: dict[str, float], pcie: float, capability: int,
    price: float, nvlink: float = 0,
) -> Gpu:  # fmt: skip
    return Gpu(name, memory, sold, bandwidth, tflops, nvlink, pcie, capability, True, price, node=4)


HOPPER = _half(989, fp8=1979, int8=1979)
AMPERE = _half(312, int8=624)
BLACKWELL = _half(2250, fp8=4500, int8=4500, fp4=9000)

GPUS = (
    _data_center("H100-80GB", 79.19, 80, 3352, HOPPER, 900, 64, 90, 2.50),
    _data_center("H100-PCIe-80GB", 79.19, 80, 2039, _half(756, fp8=1513, int8=1513), 0, 64, 90, 2.20),
    _data_center("H100-NVL-94GB", 93.1, 94, 3938, _half(835, fp8=1671, int8=1671), 600, 64, 90, 2.60),
    _data_center("H800-80GB", 79.19, 80, 3352, HOPPER, 400, 64, 90, 2.50),
    _data_center("H200-141GB", 139.81, 141, 4800, HOPPER, 900, 64, 90, 3.30),
    _data_center("H20-96GB", 95.1, 96, 4000, _half(148, fp8=296, int8=296), 900, 64, 90, 1.60),
    _data_center("H20-141GB", 139.81, 141, 4800, _half(148, fp8=296, int8=296), 900, 64, 90, 1.90),
    _data_center("GH200-96GB", 94.5, 96, 4000, HOPPER, 900, 64, 90, 2.00),
    _data_center("GH200-144GB", 139.8, 144, 4900, HOPPER, 900, 64, 90, 2.60),
    _data_center("B200", 178.35, 180, 8000, BLACKWELL, 1800, 128, 100, 4.50),
    _data_center("GB200", 184.3, 192, 8000, _half(2500, fp8=5000, int8=5000, fp4=10000), 1800, 128, 100, 5.00),
    _data_center("B300", 267.7, 288, 8000, _half(2250, fp8=4500, fp4=13500), 1800, 128, 103, 5.50),
    _data_center("GB300", 276.8, 288, 8000, _half(2500, fp8=5000, fp4=15000), 1800, 128, 103, 6.00),
    _data_center("A100-80GB", 79.25, 80, 2039, AMPERE, 600, 32, 80, 1.50),
    _data_center("A100-PCIe-80GB", 79.25, 80, 1935, AMPERE, 0, 32, 80, 1.40),
    _data_center("A100-40GB", 39.49, 40, 1555, AMPERE, 600, 32, 80, 1.10),
    _data_center("A800-80GB", 79.25, 80, 2039, AMPERE, 400, 32, 80, 1.50),
    _data_center("A30-24GB", 23.5, 24, 933, _half(165, int8=330), 200, 32, 80, 0.50),
    _data_center("A10-24GB", 22.06, 24, 600, _half(125, int8=250), 0, 32, 86, 0.60),
    _data_center("A10G-24GB", 22.06, 24, 600, _half(70, int8=140), 0, 32, 86, 0.75),
    _data_center("A16-16GB", 14.6, 16, 200, _half(18, int8=36), 0, 32, 86, 0.30),
    _data_center("A40-48GB", 44.4, 48, 696, _half(150, int8=299), 112, 32, 86, 0.45),
    _data_center("A6000-48GB", 47.5, 48, 768, _half(155, int8=310), 112, 32, 86, 0.50),
    _data_center("A5000-24GB", 23.68, 24, 768, _half(111, int8=222), 112, 32, 86, 0.30),
    _data_center("A4000-16GB", 15.7, 16, 448, _half(77, int8=153), 0, 32, 86, 0.20),
    _data_center("L4", 22.05, 24, 300, _half(121, fp8=242, int8=242), 0, 32, 89, 0.60),
    _data_center("L40-48GB", 44.39, 48, 864, _half(181, fp8=362, int8=362), 0, 32, 89, 0.80),
    _data_center("L40S", 44.39, 48, 864, _half(362, fp8=733, int8=733), 0, 32, 89, 0.90),
    _data_center("L20-48GB", 44.4, 48, 864, _half(120, fp8=239, int8=239), 0, 32, 89, 0.60),
    _data_center("RTX6000Ada-48GB", 47.4, 48, 960, _half(182, fp8=364, int8=364), 0, 32, 89, 0.80),
    _data_center("RTXPRO6000-96GB", 94.97, 96, 1792, _half(252, fp8=504, int8=504, fp4=1008), 0, 64, 120, 1.80),
    _data_center("T4-16GB", 14.58, 16, 320, {"fp16": 65, "int8": 130}, 0, 16, 75, 0.25),
    _data_center("V100-16GB", 15.77, 16, 900, {"fp16": 125}, 300, 16, 70, 0.40),
    _data_center("V100-32GB", 31.73, 32, 900, {"fp16": 125}, 300, 16, 70, 0.55),
    _data_center("P100-16GB", 15.9, 16, 732, {"fp16": 19}, 0, 16, 60, 0.20),
    _data_center("A2-16GB", 14.6, 16, 200, _half(18, int8=36), 0, 16, 86, 0.15),
    _data_center("RTX8000-48GB", 47.45, 48, 672, {"fp16": 130, "int8": 261}, 100, 16, 75, 0.30),
    _data_center("RTX5000Ada-32GB", 31.5, 32, 576, _half(131, fp8=261, int8=261), 0, 32, 89, 0.50),
    _data_center("MI300X", 191.98, 192, 5300, _half(1307, fp8=2615, int8=2615), 896, 64, 0, 2.00),
    _data_center("MI325X", 255.98, 256, 6000, _half(1307, fp8=2615, int8=2615), 896, 64, 0, 2.50),
    _data_center("MI355X", 287.98, 288, 8000, _half(2500, fp8=5000, int8=5000, fp4=10000), 1075, 64, 0, 3.50),
    _data_center("MI210-64GB", 63.98, 64, 1638, _half(181, int8=181), 300, 32, 0, 0.80),
    _data_center("MI250X", 63.98, 64, 1638, _half(191, int8=191), 400, 32, 0, 0.90),
    _data_center("ArcProB70-32GB", 31.9, 32, 608, _half(183, int8=367), 0, 32, 0, 0.30),
    _desktop("RTX5090-32GB", 31.36, 32, 1792, _half(210, fp8=419, int8=419, fp4=838), 64, 120, 0.60),
    _desktop("RTX5080-16GB", 15.47, 16, 960, _half(113, fp8=225, int8=225, fp4=450), 64, 120, 0.30),
    _desktop("RTX5070Ti-16GB", 15.47, 16, 896, _half(88, fp8=176, int8=176, fp4=352), 64, 120, 0.25),
    _desktop("RTX5070-12GB", 11.5, 12, 672, _half(62, fp8=123, int8=123, fp4=247), 64, 120, 0.20),
    _desktop("RTX5060Ti-16GB", 15.47, 16, 448, _half(47, fp8=95, int8=95, fp4=190), 32, 120, 0.15),
    _desktop("RTX4090-24GB", 23.53, 24, 1008, _half(165, fp8=330, int8=661), 32, 89, 0.40),
    _desktop("RTX4090-48GB", 47.38, 48, 1008, _half(165, fp8=330, int8=661), 32, 89, 0.55),
    _desktop("RTX4080-16GB", 15.7, 16, 717, _half(97, fp8=195, int8=390), 32, 89, 0.25),
    _desktop("RTX4070TiSuper-16GB", 15.7, 16, 672, _half(88, fp8=176, int8=353), 32, 89, 0.20),
    _desktop("RTX4070-12GB", 11.73, 12, 504, _half(58, fp8=117, int8=233), 32, 89, 0.15),
    _desktop("RTX4060Ti-16GB", 15.6, 16, 288, _half(44, fp8=88, int8=177), 16, 89, 0.12),
    _desktop("RTX4060", 7.76, 8, 272, _half(30, fp8=60, int8=121), 16, 89, 0.08),
    _desktop("RTX3090-24GB", 23.58, 24, 936, _half(71, int8=284), 32, 86, 0.25, nvlink=112),
    _desktop("RTX3090Ti-24GB", 23.58, 24, 1008, _half(80, int8=320), 32, 86, 0.28, nvlink=112),
    _desktop("RTX3080-10GB", 9.77, 10, 760, _half(60, int8=238), 32, 86, 0.15),
    _desktop("RTX3060-12GB", 11.76, 12, 360, _half(26, int8=102), 32, 86, 0.10),
    _desktop("RTX2080Ti-11GB", 10.75, 11, 616, {"fp16": 54, "int8": 215}, 16, 75, 0.12),
    _desktop("RTX2080Ti-22GB", 21.66, 22, 616, {"fp16": 54, "int8": 215}, 16, 75, 0.15),
    _desktop("GB10-128GB", 119.6, 128, 273, _half(125, fp8=250, int8=250, fp4=500), 32, 121, 0.40),
)

#: other names of the same thing, in the form that _key makes
ALIASES = {
    "rtx5090d": "RTX5090-32GB", "rtx4090": "RTX4090-24GB", "4090": "RTX4090-24GB", "rtx2080ti": "RTX2080Ti-11GB",
    "2080ti": "RTX2080Ti-11GB", "gh200480gb": "GH200-96GB", "gh20096gbhbm3": "GH200-96GB", "mi250": "MI250X",
    "rtx4080super": "RTX4080-16GB", "quadrortx8000": "RTX8000-48GB", "rtx5000ada": "RTX5000Ada-32GB",
    "h100": "H100-80GB", "h100sxm": "H100-80GB", "h100sxm5": "H100-80GB",
    "h10080gbhbm3": "H100-80GB", "h100pcie": "H100-PCIe-80GB", "h100nvl": "H100-NVL-94GB", "h800": "H800-80GB",
    "h200": "H200-141GB", "h200sxm": "H200-141GB", "h20": "H20-96GB", "gh200": "GH200-96GB", "b200sxm": "B200",
    "b200180gb": "B200", "b200192gb": "B200", "b200183gb": "B200", "b300sxm": "B300", "a100": "A100-80GB",
    "a100sxm": "A100-80GB", "a100sxm4": "A100-80GB", "a100sxm80gb": "A100-80GB", "a100sxm480gb": "A100-80GB",
    "a100sxm440gb": "A100-40GB", "a100pcie": "A100-PCIe-80GB", "a100pcie40gb": "A100-40GB",
    "a100sxm40gb": "A100-40GB", "a800": "A800-80GB", "a30": "A30-24GB", "a10": "A10-24GB", "a10g": "A10G-24GB",
    "a16": "A16-16GB", "a40": "A40-48GB", "a6000": "A6000-48GB", "rtxa6000": "A6000-48GB",
    "rtxa600048gb": "A6000-48GB", "a5000": "A5000-24GB", "rtxa5000": "A5000-24GB", "rtxa500024gb": "A5000-24GB",
    "rtxa4000": "A4000-16GB", "a4000": "A4000-16GB", "l424gb": "L4", "l40": "L40-48GB", "l40s48gb": "L40S",
    "l20": "L20-48GB", "rtx6000ada": "RTX6000Ada-48GB", "rtxpro6000": "RTXPRO6000-96GB",
    "rtxpro6000blackwell": "RTXPRO6000-96GB", "t4": "T4-16GB", "v100": "V100-32GB", "p100": "P100-16GB",
    "mi300x192gb": "MI300X", "mi300": "MI300X", "mi325x256gb": "MI325X", "rtx406008gb": "RTX4060",
    "rtx40608gb": "RTX4060", "gb10": "GB10-128GB", "dgxspark": "GB10-128GB", "a10l4": "A10-24GB", "80gb": "A100-80GB",
    "48gb": "A6000-48GB", "24gb": "RTX3090-24GB", "intelarcprob70": "ArcProB70-32GB", "b200sxm180gb": "B200",
    "gb200192gb": "GB200", "gb300288gb": "GB300", "a10080gbpcie": "A100-PCIe-80GB", "a10040gbpcie": "A100-40GB",
    "h10080gbpcie": "H100-PCIe-80GB", "h10080gbsxm": "H100-80GB", "a10080gbsxm": "A100-80GB",
    "h200141gbhbm3e": "H200-141GB",
}  # fmt: skip


def _key(name: str) -> str:
    """Letters and digits alone; "80G" is "80GB"; what everybody leaves out is left out."""
    alone = re.sub(r"^\s*\d{1,2}\s*[x×]\s*|\s[x×]\s*\d{1,2}\s*$", "", name.lower())  # "2x RTX 3090": one of them
    key = re.sub(r"\(.*\)|\bclass\b|[^a-z0-9]", "", alone)
    key = re.sub(r"^(nvidia|amdinstinct|amd|geforce|tesla)+", "", key)
    key = re.sub(r"(nvidia|geforce|tesla)", "", key)
    return key if key in ALIASES else re.sub(r"(\d{2})g(i?b)?$", r"\1gb", key)


def _spellings(name: str) -> set[str]:
    """Without the memory at its end, without RTX at its head, and without both."""
    bare = re.sub(r"-\d+GB$", "", name)
    return {_key(each) for each in (bare, bare.removeprefix("RTX"), name.removeprefix("RTX"))}


_BY_KEY = {_key(each.name): each for each in GPUS}


def gpu(name: str) -> Gpu:
    """By name in any case and spelling ("A100-80G", "h100_sxm", "RTX 4090"); of several ("RTX 5070 Ti + RTX 5090") the
    one with the least memory, which decides. Raises UsageError with near names."""
    if "+" in name:
        return min((gpu(each) for each in name.split("+")), key=lambda each: each.memory_gib)
    key = _key(name)
    if key in ALIASES:
        key = _key(ALIASES[key])
    if key in _BY_KEY:
        return _BY_KEY[key]
    alone = [each for each in GPUS if key in _spellings(each.name)]
    if len(alone) == 1:
        return alone[0]
    if re.search(r"\bmig\b|\b\d{1,2}g\.\d{1,3}gb\b", name.lower()):
        raise UsageError(
            f"GPU {name!r} is a MIG slice, and those are not modelled: with the whole card's type and --gpu-memory-gib "
            "the memory is right, and the speed is not (a slice of 3 in 7 has about that share of it)"
        )
    near = difflib.get_close_matches(key, _BY_KEY, n=4, cutoff=0.5)
    hint = ", ".join(_BY_KEY[each].name for each in near) or ", ".join(each.name for each in GPUS[:12]) + " …"
    raise UsageError(
        f"GPU {name!r} is not in the catalogue; near it are {hint}. --gpu-memory-gib overrides the memory."
    )
