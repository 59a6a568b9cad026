"""What does a barrier of a block cost, by the size of the block?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from probe_suite.gpu.device import Built, Gpu, open_gpu
from probe_suite.gpu.kernel import GpuKernel
from probe_suite.gpu.verify import require_count, require_values
from probe_suite.probe import Answer, Plot, Probe, Setting
from probe_suite.record import Finding, Series

KERNEL = GpuKernel(Path(__file__).with_name("kernel.cu"), "meet", r"\bBAR\.SYNC\b", 32)
BLOCKS = (32, 64, 128, 256, 512, 1024)
_ROUNDS, _RUNS = 100, 5


def run(setting: Setting) -> Answer:
    """Time barriers of blocks of 32 to 1024 threads with the unit's cycle counter."""
    gpu = open_gpu(setting)
    built = gpu.build(KERNEL)
    passed, ticks = gpu.put(np.zeros(1024, np.int32)), gpu.put(np.zeros(1, np.int64))
    gpu.launch(built, 1, 256, passed, ticks, 2)
    require_values("barriers passed", gpu.get(passed, 256, np.int32), np.full(256, 64, np.int32))
    if gpu.emulated:
        moved = gpu.traffic(built, 1, 256, passed, ticks, 2)
        require_count("barriers", moved.barriers, 64)
        return Answer(())
    points = [_cycles(gpu, built, block, passed, ticks) for block in BLOCKS]
    best = points[BLOCKS.index(256)]
    note = "a block of 256 threads, alone on its unit"
    found = Finding("barrier", best, "cycles", 0.0, _RUNS, note)
    x = tuple(float(block) for block in BLOCKS)
    curve = Series("barrier", x, tuple(points), "threads", "cycles")
    return Answer((found,), (curve,), (built.seen,) if built.seen else ())


def _cycles(gpu: Gpu, built: Built, block: int, passed: Any, ticks: Any) -> float:
    found: list[float] = []
    for _ in range(_RUNS + 1):
        gpu.launch(built, 1, block, passed, ticks, _ROUNDS)
        found.append(float(gpu.get(ticks, 1, np.int64)[0]) / (32.0 * _ROUNDS))
    return min(found[1:])


PROBE = Probe(
    name="gpu_barrier",
    kind="gpu",
    question="What does a barrier of a block cost?",
    yields=("barrier",),
    run=run,
    plot=Plot("threads of the block", "cycles of one barrier", log_x=True),
    kernels=(KERNEL,),
)
