"""Plays what results.json has not yet, then writes docs/policy-study.md and its pictures from it.

    python -m benchmarks.policy_study --traces DIR            # all that is missing; some minutes from nothing
    python -m benchmarks.policy_study --traces DIR --fresh    # everything anew
    python -m benchmarks.policy_study --traces DIR --minutes 3        # a part; again to go on
    python -m benchmarks.policy_study --page                  # only the page

DIR has the four public traces (docs/workloads.md says where they are from); else KILOCARD_TRACES says it.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from time import monotonic, process_time

from benchmarks.policy_study.cases import SECTIONS, cases
from benchmarks.policy_study.page import write_page
from benchmarks.policy_study.play import Study, Traces, read_pools
from benchmarks.policy_study.record import RESULTS, Record, settings
from kilocard.core.errors import UsageError

#: seconds between two writes of the results, and words of progress
WRITE_EVERY = 20.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.policy_study", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--traces", type=Path, default=os.environ.get("KILOCARD_TRACES"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so much processor time")
    parser.add_argument("--section", choices=SECTIONS, help="play only this one")
    parser.add_argument("--fresh", action="store_true", help="forget what was played")
    parser.add_argument("--page", action="store_true", help="play nothing")
    o = parser.parse_args()
    record = None if o.fresh else Record.read(o.results)
    if not o.page:
        if o.traces is None:
            parser.error("--traces DIR, or KILOCARD_TRACES: the folder with the four public traces")
        try:
            record = play(o, record)
        except UsageError as error:
            parser.error(error.message)
    if record is None:
        parser.error(f"{o.results}: nothing has been played")
    write_page(record)
    return 0


def play(o: argparse.Namespace, record: Record | None) -> Record:
    pools = read_pools()
    if record is None or record.settings != settings(pools):
        record = Record(settings(pools))
    study = Study(Traces(o.traces), pools, record.capacities)
    missing = [case for case in cases() if case.key not in record.runs and o.section in (None, case.section)]
    begun, said = process_time(), monotonic()
    for number, case in enumerate(missing):
        now = monotonic()
        if process_time() - begun > 60 * o.minutes:
            break
        if now - said > WRITE_EVERY:
            said = now
            record.write(o.results)
            print(f"{number} of {len(missing)}: {case.key}", file=sys.stderr, flush=True)
        cpu = process_time()
        record.runs[case.key] = {"case": case.told(), "numbers": study.run(case)}
        record.cpu_s += process_time() - cpu
    record.write(o.results)
    return record


if __name__ == "__main__":
    sys.exit(main())
