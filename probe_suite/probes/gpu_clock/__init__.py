"""At what clock do the units run under load, and does it fall while they are kept busy?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from probe_suite import samples
from probe_suite.gpu.device import Built, Gpu, open_gpu
from probe_suite.gpu.kernel import GpuKernel
from probe_suite.gpu.verify import require_values
from probe_suite.probe import Answer, Plot, Probe, Setting
from probe_suite.record import Finding, Series

KERNEL = GpuKernel(Path(__file__).with_name("kernel.cu"), "clock_chain", r"\bFFMA\b", 64)
_ROUNDS, _RUNS = 40_000, 40


def run(setting: Setting) -> Answer:
    """Compare the units' cycle counters with the device's event clock, launch after launch."""
    gpu = open_gpu(setting)
    built = gpu.build(KERNEL)
    _check(gpu, built)
    if gpu.emulated:
        return Answer(())
    units = gpu.attribute("MULTIPROCESSOR_COUNT") or 1
    results = gpu.put(np.zeros(units * 32, np.float32))
    ticks = gpu.put(np.zeros(units, np.int64))
    clocks = [_clock(gpu, built, units, results, ticks) for _ in range(_RUNS)]
    steady = clocks[_RUNS // 2 :]
    low, high = min(steady), max(steady)
    note = f"cycle counter over event time, last {len(steady)} of {_RUNS} launches under load"
    middle = float(np.median(steady))
    spread = min(0.99, (high - low) / middle)
    order = tuple(float(index) for index in range(_RUNS))
    curve = Series("clock under load", order, tuple(clocks), "launch", "Hz")
    finding = Finding("clock", middle, "Hz", spread, len(steady), note)
    seen = (built.seen,) if built.seen else ()
    return Answer((finding,), (curve,), seen)


def _check(gpu: Gpu, built: Built) -> None:
    results, ticks = gpu.put(np.zeros(32, np.float32)), gpu.put(np.zeros(1, np.int64))
    gpu.launch(built, 1, 32, results, ticks, 0.75, 0.25, 2)
    want = np.arange(32, dtype=np.float32)
    for _ in range(128):
        want = (want.astype(np.float64) * 0.75 + 0.25).astype(np.float32)
    require_values("chain of multiply-adds", gpu.get(results, 32), want)


def _clock(gpu: Gpu, built: Built, units: int, results: Any, ticks: Any) -> float:
    found: samples.Samples = gpu.time(built, units, 32, results, ticks, 0.75, 0.25, _ROUNDS)
    return float(np.max(gpu.get(ticks, units, np.int64))) / found.best


PROBE = Probe(
    name="gpu_clock",
    kind="gpu",
    question="At what clock do the units run under load, and does it fall?",
    yields=("clock",),
    run=run,
    plot=Plot("launch", "clock"),
    kernels=(KERNEL,),
)
