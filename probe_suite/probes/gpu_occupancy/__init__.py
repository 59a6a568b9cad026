"""How many resident threads, with how many loads in flight each, does a full memory pipe need?"""

from __future__ import annotations

from probe_suite.gpu.device import Built, Gpu, open_gpu
from probe_suite.gpu.kernel import GpuKernel
from probe_suite.gpu.streaming import Run, check_stream, stream_kernel, time_stream
from probe_suite.probe import Answer, Plot, Probe, Setting
from probe_suite.record import Finding, Seen, Series

LOADS = (1, 2, 4, 8)
KERNELS = tuple(stream_kernel(4, loads) for loads in LOADS)
GROUPS = (1, 2, 4, 6, 8)
_BLOCK, _SIZE = 128, 1 << 30
_ENOUGH = 0.9


def run(setting: Setting) -> Answer:
    """Stream with 1 to 8 loads in flight and 1 to 8 blocks of 128 threads per unit."""
    gpu = open_gpu(setting)
    series: list[Series] = []
    seen: list[Seen] = []
    surface: dict[tuple[int, int], Run] = {}
    for kernel, loads in zip(KERNELS, LOADS, strict=True):
        built = gpu.build(kernel)
        check_stream(gpu, kernel, built)
        if built.seen:
            seen.append(built.seen)
        if gpu.emulated:
            continue
        row = {groups: _point(gpu, kernel, built, groups) for groups in GROUPS}
        surface |= {(loads, groups): run for groups, run in row.items()}
        x, y = tuple(float(g) for g in row), tuple(run.rate for run in row.values())
        series.append(Series(f"{loads} loads of 16 B in flight", x, y, "blocks", "B/s"))
    if gpu.emulated:
        return Answer(())
    return Answer(_fewest_bytes(surface), tuple(series), tuple(seen))


def _point(gpu: Gpu, kernel: GpuKernel, built: Built, groups: int) -> Run:
    """One point: dynamic shared memory pads each block so that just `groups` fit on a unit."""
    units = gpu.attribute("MULTIPROCESSOR_COUNT") or 1
    whole = gpu.attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR") or 0
    most = gpu.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN") or 0
    shared = min(most, whole // groups - 2048) // 128 * 128
    return time_stream(gpu, kernel, built, _SIZE, units * groups, _BLOCK, shared)


def _fewest_bytes(surface: dict[tuple[int, int], Run]) -> tuple[Finding, ...]:
    top = max(run.rate for run in surface.values())
    enough = {
        loads * 16 * groups * _BLOCK: run
        for (loads, groups), run in surface.items()
        if run.rate >= _ENOUGH * top
    }
    fewest = min(enough)
    note = f"fewest bytes under way on one unit that reach {_ENOUGH:.0%} of the best rate"
    found = enough[fewest].found
    return (Finding("dram.in_flight.unit", float(fewest), "B", found.spread, found.count, note),)


PROBE = Probe(
    name="gpu_occupancy",
    kind="gpu",
    question="How many bytes must a unit keep under way to fill the memory pipe?",
    yields=("dram.in_flight.unit",),
    run=run,
    plot=Plot("blocks of 128 threads per unit", "read bandwidth"),
    limit_s=120.0,
    kernels=KERNELS,
)
