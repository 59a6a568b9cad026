"""What does one more kernel in a stream cost the device, when the host is far ahead?"""

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

_FILE = Path(__file__).with_name("kernel.cu")
NOTHING = GpuKernel(_FILE, "nothing", r"\bEXIT\b", 1)
BUSY = GpuKernel(_FILE, "busy", r"\bFFMA\b", 1)
GRIDS = (1, 32, 256, 2048)
_BUSY_ROUNDS, _LAUNCHES = 4_000_000, 200


def run(setting: Setting) -> Answer:
    """Queue empty kernels behind a long one, so that the host's own cost stays out of the time."""
    gpu = open_gpu(setting)
    nothing, busy = gpu.build(NOTHING), gpu.build(BUSY)
    flags = gpu.put(np.zeros(32, np.int32))
    gpu.launch(nothing, 1, 32, flags, 5)
    require_values("flags", gpu.get(flags, 32, np.int32), np.full(32, 5, np.int32))
    if gpu.emulated:
        return Answer(())
    results = gpu.put(np.zeros(32, np.float32))
    curve = [_time(gpu, nothing, busy, flags, results, grid) for grid in GRIDS]
    best = curve[0]
    note = f"{_LAUNCHES} empty kernels queued behind a long one, between two events"
    finding = Finding("launch", best.best, "s", best.spread, best.count, note)
    x, y = tuple(float(g) for g in GRIDS), tuple(each.best for each in curve)
    seen = tuple(each.seen for each in (nothing, busy) if each.seen)
    return Answer((finding,), (Series("empty kernel", x, y, "blocks", "s"),), seen)


def _time(
    gpu: Gpu, nothing: Built, busy: Built, flags: Any, results: Any, grid: int
) -> samples.Samples:
    start, end = gpu.cuda.Event(), gpu.cuda.Event()

    def once() -> float:
        gpu.launch(busy, 1, 32, results, 0.75, _BUSY_ROUNDS)
        start.record()
        for _ in range(_LAUNCHES):
            gpu.launch(nothing, grid, 128, flags, 0)
        end.record()
        end.synchronize()
        return start.time_till(end) * 1e-3 / _LAUNCHES

    once()
    return samples.repeat(once, budget_s=1.0)


PROBE = Probe(
    name="gpu_launch",
    kind="gpu",
    question="What does one more kernel in a stream cost the device?",
    yields=("launch",),
    run=run,
    plot=Plot("blocks", "time of one launch", log_x=True),
    kernels=(NOTHING, BUSY),
)
