"""Is the engine model true to the real vLLM? A profile from one sweep, then other loads, measured and predicted.

    python -m benchmarks.fidelity                          # compare what is stored: a minute, no engine needed
    python -m benchmarks.fidelity --write                  # and put the table into docs/fidelity.md
    python -m benchmarks.fidelity measure calibration      # measure anew: 3 minutes on two quiet cores
    python -m benchmarks.fidelity measure rates again …    # up to 6 minutes each

The engine runs on one core, the load tester on the other; a machine with other work measures that work.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.bench_truth.server import Engine
from benchmarks.fidelity import compare, earlier, stored
from benchmarks.fidelity.loads import PARTS
from benchmarks.fidelity.measure import Measuring
from kilocard.cli.calibration_table import show

DOCS = Path(__file__).parents[2] / "docs" / "fidelity.md"
BEGIN, END = "<!-- begin: python -m benchmarks.fidelity --write -->\n", "<!-- end -->"
CALIBRATION = "calibration"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [CALIBRATION, *(part.name for part in PARTS)]
    parser.add_argument("what", nargs="*", help=f"measure, and which of {', '.join(names)} (none: all of them)")
    parser.add_argument("--folder", type=Path, default=stored.FOLDER, help="of what was measured")
    parser.add_argument("--raw", type=Path, help="keep here what kilocard bench wrote")
    parser.add_argument("--write", action="store_true", help=f"put the table into {DOCS.name}")
    options = parser.parse_args()
    if options.what:
        if options.what[0] != "measure" or not set(options.what[1:]) <= set(names):
            parser.error(f"say: measure, and which of {', '.join(names)}")
        with tempfile.TemporaryDirectory() as temporary:
            raw = options.raw or Path(temporary)
            raw.mkdir(parents=True, exist_ok=True)
            measure(options.what[1:] or names, Measuring(Engine.built(), raw, options.folder))
        return 0
    found = compare.fitted(options.folder)
    if not options.write:
        show(found)
    table = compare.markdown(compare.rows(found, options.folder))
    if options.folder == stored.FOLDER:
        table += f"\n\nAn earlier sweep, from a table alone ([below](#an-earlier-sweep)):\n\n{earlier.markdown()}"
    print(table)
    if options.write:
        text = DOCS.read_text()
        before, _, rest = text.partition(BEGIN)
        DOCS.write_text(f"{before}{BEGIN}\n{table}\n\n{END}{rest.partition(END)[2]}")
    return 0


def measure(names: list[str], measuring: Measuring) -> None:
    parts = {part.name: part for part in PARTS}
    for name in names:
        if name == CALIBRATION:
            measuring.calibration()
        else:
            measuring.part(parts[name])


if __name__ == "__main__":
    sys.exit(main())
