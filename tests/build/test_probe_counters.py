"""The profiler beside the probes: its page, its fallbacks, and every way in which it may refuse."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from probe_suite import run
from probe_suite.gpu import counters
from probe_suite.probe import Setting
from probe_suite.record import Record

PAGE = """\
==PROF== Connected to process 1
"ID","Kernel Name","dram__bytes.sum","dram__bytes_read.sum","lts__t_bytes.sum"
"","","byte","byte","byte"
"0","strided(float*, int)","n/a","4,096","8192"
"1","strided(float*, int)","n/a","1","1"
"2","banks","12","n/a","7"
"""


def counted(text: str) -> dict[tuple[str, str], tuple[float | None, str]]:
    return {(c.kernel, c.counter): (c.value, c.note) for c in counters.parse(text)}


def test_a_page_gives_the_first_launch_of_every_kernel() -> None:
    found = counted(PAGE)
    assert found["banks", "dram.bytes"] == (12.0, "")
    assert found["strided", "l2.bytes"] == (8192.0, "")


def test_a_missing_counter_takes_the_next_spelling_or_says_so() -> None:
    found = counted(PAGE)
    words = "dram__bytes_read.sum, as dram__bytes.sum is not known here"
    assert found["strided", "dram.bytes"] == (4096.0, words)
    absent = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum is not known here"
    assert found["strided", "bank conflicts"] == (None, absent)


def fake(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a profiler of ours on the search path."""
    tool = folder / "ncu"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.mark.parametrize(
    "script, why",
    [
        (
            "echo '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission'; exit 1",
            (
                "no permission for counters (ERR_NVGPUCTRPERM): timings only; "
                "the administrator sets NVreg_RestrictProfilingToAdminUsers=0"
            ),
        ),
        ("exec sleep 5", "the profiler gave no answer within 0.2 s: timings only"),
        ("echo 'no kernels'; exit 3", "the profiler counted nothing (status 3): no kernels"),
    ],
)
def test_a_profiler_that_refuses_is_recorded_and_the_timings_stay(
    script: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(tmp_path, monkeypatch, script)
    timed = Record("gpu_stride", "What?", "done")
    found = run.profiled(timed, Setting("cuda:0", "sm_90", tmp_path, {}), limit_s=0.2)
    assert found == replace(timed, facts={"counters": why})


def test_counters_join_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "page.csv").write_text(PAGE)
    fake(tmp_path, monkeypatch, f"cat {tmp_path}/page.csv")
    timed = Record("gpu_stride", "What?", "done")
    found = run.profiled(timed, Setting("cuda:0", "sm_90", tmp_path, {}), limit_s=20)
    assert {each.kernel for each in found.counters} == {"strided", "banks"}


def test_without_a_profiler_or_a_gpu_nothing_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    timed = Record("gpu_stride", "What?", "done")
    absent = run.profiled(timed, Setting("cuda:0", "sm_90", tmp_path, {}), limit_s=1)
    assert absent.facts["counters"] == "Nsight Compute (ncu) is not installed: timings only"
    assert run.profiled(timed, Setting("cpu", "x86-64-v3", tmp_path, {}), limit_s=1) is timed
