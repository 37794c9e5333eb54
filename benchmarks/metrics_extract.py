"""What reading one metrics page costs: the fast way, with and without a remembered layout, the exact way, and
prometheus_client's parser as the peer (where it is installed).

    python benchmarks/metrics_extract.py [--page FILE] [--replicas 1000]

Without --page, a page of the size of a real vLLM 0.32 page (51 KB) is made from the excerpt in tests/fixtures.
Prints µs per page, the ratio to the peer, and the share of one core that scraping this many replicas at 1 Hz takes.
"""

from __future__ import annotations

import argparse
import timeit
from collections.abc import Callable
from pathlib import Path

from kilocard.engines.vllm import DIALECT
from kilocard.metrics.exact import parse
from kilocard.metrics.fast import Layout, extract
from kilocard.metrics.load import sample_from

EXCERPT = Path(__file__).parent.parent / "tests" / "fixtures" / "metrics" / "vllm_0.32_busy.txt"
SIZE = 51_000


def full_page() -> bytes:
    """The excerpt with histogram families between the gauges and the last line, where a real page has them."""
    lines = EXCERPT.read_text().splitlines()
    filler: list[str] = []
    family = 0
    while sum(map(len, lines)) + sum(map(len, filler)) < SIZE:
        name = f"vllm:request_phase_{family}_time_seconds"
        filler += [f"# HELP {name} Histogram of one phase of a request.", f"# TYPE {name} histogram"]
        filler += [
            f'{name}_bucket{{engine="0",le="{bound / 10}",model_name="smol"}} {bound * 7}.0' for bound in range(1, 21)
        ]
        family += 1
    return "\n".join([*lines[:-3], *filler, *lines[-3:], ""]).encode()


def micros(call: Callable[[], object], seconds: float = 0.3) -> float:
    """Best of five rounds, in µs per call."""
    timer = timeit.Timer(call)
    number, took = timer.autorange()
    number = max(1, int(number * seconds / took))
    return min(timer.repeat(5, number)) / number * 1e6


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--page", type=Path)
    options.add_argument("--replicas", type=int, default=1000)
    given = options.parse_args()
    page = given.page.read_bytes() if given.page else full_page()

    layout = Layout()
    exact = sample_from(parse(page).samples, DIALECT, 0.0)
    assert extract(page, DIALECT, 0.0) == extract(page, DIALECT, 0.0, layout=layout) == exact
    assert extract(page, DIALECT, 0.0, layout=layout) == exact

    ways: dict[str, Callable[[], object]] = {
        "fast, layout remembered": lambda: extract(page, DIALECT, 0.0, layout=layout),
        "fast": lambda: extract(page, DIALECT, 0.0),
        "exact": lambda: sample_from(parse(page).samples, DIALECT, 0.0),
    }
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError:
        print("prometheus_client is not installed: no peer in this run")
    else:
        text = page.decode()
        ways["prometheus_client"] = lambda: [
            sample for family in text_string_to_metric_families(text) for sample in family.samples
        ]
    results = {name: micros(call) for name, call in ways.items()}
    peer = results.get("prometheus_client")
    lines = page.count(b"\n")
    print(f"page of {len(page):,} bytes, {lines} lines; {given.replicas} replicas at 1 Hz")
    for name, cost in results.items():
        share = f"{cost * given.replicas / 1e6:7.1%} of a core"
        ratio = f"   {peer / cost:7.1f} x faster than prometheus_client" if peer and name != "prometheus_client" else ""
        print(f"{name:26} {cost:10.1f} µs {share}{ratio}")


if __name__ == "__main__":
    main()
