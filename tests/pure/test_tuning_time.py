"""The seconds of a search bound the compilers of its trials."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

import pytest

from unistack_aot.base.errors import ToolFailed
from unistack_aot.targets.toolchain import Job, Tool, run_jobs
from unistack_aot.tune.bench import TimeIsOver, no_later_than


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UA_CACHE", str(tmp_path))


def job(seconds: str) -> Job:
    return Job(Tool(("sleep",), seconds), (seconds,), (), "made")


def test_a_compiler_that_still_runs_is_stopped_and_later_ones_run() -> None:
    began = perf_counter()
    with pytest.raises(TimeIsOver), no_later_than(began + 0.3):
        run_jobs([job("30"), job("31")])
    assert perf_counter() - began < 10
    with pytest.raises(ToolFailed, match="sleep failed"):  # it ran to its end, and made nothing
        run_jobs([job("0")])


def test_an_error_in_time_stays_what_it_is() -> None:
    with pytest.raises(ToolFailed, match="sleep failed"), no_later_than(perf_counter() + 60):
        run_jobs([job("0")])
