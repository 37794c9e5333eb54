"""Rules for every suite, and the real parts that some of them need.

- A unit test has 2 s of processor time (on a slow machine longer by as much as it is slower), and 30 s before it
  counts as hung (`pytest.mark.timeout` says otherwise, with a reason beside it). Not 2 s of the wall: on a machine that
  others use that would fail tests which did nothing wrong.
- Under CI (the environment has CI=true) a skipped test is a failed test: a suite must not vanish because a part
  is missing. A test that may skip there is marked `may_skip` with the reason.
- The package under test is the one in src/: an installed copy that differs stops the run.
"""

from __future__ import annotations

import filecmp
import importlib.util
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import hypothesis
import pytest

from parts import in_ci, part_missing

ROOT = Path(__file__).parent.parent
UNIT_SECONDS = 2.0
UNIT_HUNG = 30.0
#: seconds of processor time that WORK takes where the 2 s are meant
REFERENCE_SECONDS = 0.0053
WORK = 200_000

# Time limits are pytest-timeout's: a per-example deadline only adds noise on a busy machine, and so does a check of how
# long examples take to be made. In CI the same examples every time, so that a red run can be repeated.
UNTIMED = [hypothesis.HealthCheck.too_slow]
hypothesis.settings.register_profile("here", deadline=None, suppress_health_check=UNTIMED)
hypothesis.settings.register_profile(
    "ci", deadline=None, derandomize=True, print_blob=True, suppress_health_check=UNTIMED
)


hypothesis.settings.load_profile("ci" if in_ci() else "here")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "may_skip(reason): a skip of this test is fine even in CI")


def pytest_report_header() -> str:
    return f"kilocard under test: {_package_under_test()}{', CI rules: a skip is a failure' if in_ci() else ''}"


def pytest_sessionstart(session: pytest.Session) -> None:
    package = _package_under_test()
    source = ROOT / "src" / "kilocard"
    if package.resolve() == source.resolve():
        return
    stale = sorted(_differences(source, package))
    if stale:
        pytest.exit(
            f"the installed kilocard ({package}) is not what is in src/: {', '.join(stale[:5])}"
            f"{' …' if len(stale) > 5 else ''}\n"
            "Install it again: pip install '.[test]' (or once: pip install -e '.[test]')",
            returncode=4,
        )


def _package_under_test() -> Path:
    spec = importlib.util.find_spec("kilocard")
    if spec is None or spec.origin is None:
        pytest.exit("kilocard is not installed in this environment: pip install '.[test]'", returncode=4)
    return Path(spec.origin).parent


def _differences(source: Path, package: Path) -> Iterator[str]:
    """Files of `source` that `package` lacks or has otherwise, and Python files that only `package` has."""
    names = {name for path in source.rglob("*") if path.is_file() and _counts(name := path.relative_to(source))}
    for name in names:
        copy = package / name
        if not copy.exists() or not filecmp.cmp(source / name, copy, shallow=False):
            yield name.as_posix()
    for path in package.rglob("*.py"):
        if path.relative_to(package) not in names:
            yield f"{path.relative_to(package).as_posix()} (gone from src/)"


def _counts(name: Path) -> bool:
    """Caches of Python and of tools are no part of the package."""
    return not any(part == "__pycache__" or part.startswith(".") for part in name.parts)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    unit = ROOT / "tests" / "unit"
    for item in items:
        if item.path.is_relative_to(unit) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(UNIT_HUNG))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """The processor time of a unit test's own thread."""
    before = time.thread_time()
    result = yield
    took = time.thread_time() - before
    mark = item.get_closest_marker("timeout")
    if mark is not None and mark.args == (UNIT_HUNG,) and took > UNIT_SECONDS and took > UNIT_SECONDS * _slowness():
        pytest.fail(f"took {took:.1f} s of processor time; a unit test has {UNIT_SECONDS:g}", pytrace=False)
    return result


def _slowness() -> float:
    """How many times longer than REFERENCE_SECONDS this machine takes now, at its best; not less than 1."""

    def work() -> float:
        before = time.thread_time()
        sum(number * number for number in range(WORK))
        return time.thread_time() - before

    return max(1.0, min(work() for _ in range(20)) / REFERENCE_SECONDS)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if in_ci() and report.skipped and not hasattr(report, "wasxfail") and item.get_closest_marker("may_skip") is None:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped; in CI that is a failure: {_reason(report)}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if in_ci() and report.outcome == "skipped":
        report.outcome = "failed"
        report.longrepr = (
            f"{collector.nodeid} was skipped whole, and in CI a missing part is a failure: {_reason(report)}"
        )
    return report


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    return str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)


@dataclass(frozen=True)
class VllmCpu:
    """What scripts/build-vllm-cpu built."""

    vllm: Path
    transformers: Path
    #: folder with SmolLM2-135M-Instruct in bfloat16
    model: Path


@pytest.fixture(scope="session")
def vllm_cpu() -> VllmCpu:
    """vLLM on the CPU, `transformers serve` and a small real model; skips (in CI: fails) where they are not built."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "build-vllm-cpu"), "--paths"],
        capture_output=True,
        text=True,
        timeout=30,
    )
    if done.returncode != 0:
        part_missing(done.stderr.strip() or "scripts/build-vllm-cpu --paths failed")
    at = dict(line.split("=", 1) for line in done.stdout.splitlines())
    return VllmCpu(Path(at["VLLM"]), Path(at["TRANSFORMERS"]), Path(at["MODEL"]))
