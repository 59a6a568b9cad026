"""Nsight Compute beside the timings: which counters, how they are asked for, what its answer says.

The profiler is optional: without it, without permission for it, or where a counter is not known,
the record says so and the timings stand alone. Not here: what a probe times (device.py).
"""

from __future__ import annotations

import csv
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from probe_suite.record import Counted

# What we ask for -> the spellings that profilers of different versions know, the best one first.
COUNTERS: dict[str, tuple[str, ...]] = {
    "dram.bytes": ("dram__bytes.sum", "dram__bytes_read.sum"),
    "l2.bytes": ("lts__t_bytes.sum",),
    "sectors per request": (
        "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
    ),
    "shared wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",),
    "bank conflicts": ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",),
    "matrix instructions": ("sm__inst_executed_pipe_tensor.sum",),
    "warps active": ("sm__warps_active.avg.pct_of_peak_sustained_active",),
}
_NO_PERMISSION = "ERR_NVGPUCTRPERM"
_ABSENT = ("", "n/a", "nan")


@dataclass(frozen=True, slots=True)
class Profiled:
    """The counters of a profiled command, or `why` there are none."""

    counters: tuple[Counted, ...] = ()
    why: str = ""


def profile(command: Sequence[str], limit_s: float) -> Profiled:
    """Run a command under the profiler and read its counters; every refusal becomes a reason."""
    tool = shutil.which("ncu")
    if tool is None:
        return Profiled(why="Nsight Compute (ncu) is not installed: timings only")
    names = ",".join(name for spellings in COUNTERS.values() for name in spellings)
    # The clock and the caches stay as the timed run has them.
    flags = ["--csv", "--page", "raw", "--clock-control", "none", "--cache-control", "none"]
    asked = [tool, *flags, "--target-processes", "all", "--metrics", names, *command]
    try:
        done = subprocess.run(
            asked, capture_output=True, text=True, timeout=limit_s, check=False, errors="replace"
        )
    except subprocess.TimeoutExpired:
        return Profiled(why=f"the profiler gave no answer within {limit_s:g} s: timings only")
    said = done.stdout + done.stderr
    if _NO_PERMISSION in said:
        return Profiled(
            why=f"no permission for counters ({_NO_PERMISSION}): timings only; "
            "the administrator sets NVreg_RestrictProfilingToAdminUsers=0"
        )
    counters = parse(done.stdout)
    if counters:
        return Profiled(counters)
    last = said.strip().splitlines()[-1:] or ["it said nothing"]
    return Profiled(why=f"the profiler counted nothing (status {done.returncode}): {last[0]}")


def parse(text: str) -> tuple[Counted, ...]:
    """The counters in a raw page: a header, a row of units, a row for each launch (the first counts).

    A counter takes the first spelling with a value; a fallback is noted.
    """
    lines = [line for line in text.splitlines() if line.startswith('"')]
    if len(lines) < 3:
        return ()
    header, _, *rows = list(csv.reader(lines))
    found: list[Counted] = []
    seen: set[str] = set()
    for row in rows:
        values = dict(zip(header, row, strict=False))
        kernel = values.get("Kernel Name", "").split("(")[0]
        if not kernel or kernel in seen:
            continue
        seen.add(kernel)
        found += [_counted(kernel, name, values) for name in COUNTERS]
    return tuple(found)


def _counted(kernel: str, name: str, values: dict[str, str]) -> Counted:
    first = COUNTERS[name][0]
    for spelling in COUNTERS[name]:
        written = values.get(spelling, "").replace(",", "")
        if written.lower() in _ABSENT:
            continue
        note = "" if spelling == first else f"{spelling}, as {first} is not known here"
        return Counted(kernel, name, float(written), note)
    return Counted(kernel, name, None, f"{first} is not known here")
