"""What does an atomic addition cost: all to one word, each to its own, in shared memory?"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from probe_suite.gpu.device import Built, Gpu, open_gpu
from probe_suite.gpu.kernel import GpuKernel
from probe_suite.gpu.verify import require_count, require_values
from probe_suite.probe import Answer, Plot, Probe, Setting
from probe_suite.record import Finding, Seen, Series

_FILE = Path(__file__).with_name("kernel.cu")
GLOBAL = GpuKernel(_FILE, "count", r"\b(?:RED|REDG|ATOM|ATOMG)\b", 1, defines={"SHARED": 0})
SHARED = GpuKernel(_FILE, "count", r"\bATOMS\b", 1, defines={"SHARED": 1})
# property -> (kernel, spread)
WAYS = {
    "atomic.same": (GLOBAL, 0),
    "atomic.spread": (GLOBAL, 1),
    "atomic.shared.same": (SHARED, 0),
    "atomic.shared.spread": (SHARED, 1),
}
_BLOCK, _ROUNDS = 256, 64


def run(setting: Setting) -> Answer:
    """Count with all units in four ways."""
    gpu = open_gpu(setting)
    findings: list[Finding] = []
    seen: list[Seen] = []
    built = {kernel.label: gpu.build(kernel) for kernel in (GLOBAL, SHARED)}
    for name, (kernel, spread) in WAYS.items():
        _check(gpu, built[kernel.label], name, spread)
        if not gpu.emulated:
            findings.append(_time(gpu, built[kernel.label], name, spread))
    seen += [each.seen for each in built.values() if each.seen]
    if gpu.emulated:
        return Answer(())
    x = tuple(float(index) for index in range(len(findings)))
    y = tuple(each.value for each in findings)
    curve = Series("same, spread, shared same, shared spread", x, y, "way", "s")
    return Answer(tuple(findings), (curve,), tuple(seen))


def _time(gpu: Gpu, built: Built, name: str, spread: int) -> Finding:
    grid = (gpu.attribute("MULTIPROCESSOR_COUNT") or 1) * 2
    counters = gpu.put(np.zeros(grid * _BLOCK, np.int32))
    found = gpu.time(built, grid, _BLOCK, counters, spread, _ROUNDS, shared=_BLOCK * 4)
    each = found.best / (float(grid) * _BLOCK * _ROUNDS)
    note = "time per addition with all units adding; the throughput cost, not a latency"
    return Finding(name, max(each, 1e-11), "s", found.spread, found.count, note)


def _check(gpu: Gpu, built: Built, name: str, spread: int) -> None:
    grid, rounds = 3, 5
    counters = gpu.put(np.zeros(grid * _BLOCK, np.int32))
    gpu.launch(built, grid, _BLOCK, counters, spread, rounds, shared=_BLOCK * 4)
    got = gpu.get(counters, grid * _BLOCK, np.int32)
    require_count(f"{name}: total", float(got.sum()), float(grid * _BLOCK * rounds))
    if spread:
        require_values(name, got, np.full(grid * _BLOCK, rounds, np.int32))


PROBE = Probe(
    name="gpu_atomics",
    kind="gpu",
    question="What does an atomic addition cost?",
    yields=tuple(WAYS),
    run=run,
    plot=Plot("way", "time of one addition", log_y=True),
    kernels=(GLOBAL, SHARED),
)
