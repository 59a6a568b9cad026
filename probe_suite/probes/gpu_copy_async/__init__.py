"""How many stages of asynchronous copies does a stream of tiles need?"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from probe_suite.gpu.device import Built, Gpu, open_gpu
from probe_suite.gpu.kernel import GpuKernel
from probe_suite.gpu.verify import random_floats, require_values
from probe_suite.probe import Answer, NotHere, Plot, Probe, Setting
from probe_suite.record import Finding, Seen, Series

_FILE = Path(__file__).with_name("kernel.cu")
DEPTHS = (1, 2, 3, 4, 6, 8)
KERNELS = tuple(
    GpuKernel(_FILE, "staged", r"\bLDGSTS\b[\w.]*\.128", 1, 80, {"DEPTH": depth})
    for depth in DEPTHS
)
_BLOCK, _GROUPS, _TILES, _ENOUGH = 128, 4, 512, 0.97


def run(setting: Setting) -> Answer:
    """Stream tiles of 2 KiB with 1 to 8 stages, four blocks of 128 threads per unit."""
    gpu = open_gpu(setting)
    if not KERNELS[0].offered(gpu.arch):
        raise NotHere(f"{gpu.arch} has no asynchronous copy")
    rates: list[float] = []
    seen: list[Seen] = []
    count = 0
    for kernel, depth in zip(KERNELS, DEPTHS, strict=True):
        built = gpu.build(kernel)
        _check(gpu, built, depth)
        if gpu.emulated:
            continue
        seen += [built.seen] if built.seen else []
        rate, count = _rate(gpu, built, depth)
        rates.append(rate)
    if gpu.emulated:
        return Answer(())
    enough = next(d for d, r in zip(DEPTHS, rates, strict=True) if r >= _ENOUGH * max(rates))
    note = f"fewest stages that reach {_ENOUGH:.0%} of the best rate, tiles of 2 KiB"
    found = Finding("async_copy.depth", float(enough), "1", 0.0, count, note)
    x = tuple(float(depth) for depth in DEPTHS)
    return Answer((found,), (Series("staged read", x, tuple(rates), "stages", "B/s"),), tuple(seen))


def _rate(gpu: Gpu, built: Built, depth: int) -> tuple[float, int]:
    grid = (gpu.attribute("MULTIPROCESSOR_COUNT") or 1) * _GROUPS
    data = gpu.put(random_floats(_TILES * grid * _BLOCK * 4))
    sums = gpu.put(np.zeros(grid * _BLOCK, np.float32))
    shared = depth * _BLOCK * 16
    found = gpu.time(built, grid, _BLOCK, data, sums, _TILES, shared=shared)
    return 16.0 * _TILES * grid * _BLOCK / found.best, found.count


def _check(gpu: Gpu, built: Built, depth: int) -> None:
    grid, tiles = 2, 11
    host = random_floats(tiles * grid * _BLOCK * 4)
    data, sums = gpu.put(host), gpu.put(np.zeros(grid * _BLOCK, np.float32))
    gpu.launch(built, grid, _BLOCK, data, sums, tiles, shared=depth * _BLOCK * 16)
    pieces = host.reshape(tiles, grid, _BLOCK, 4)[:, :, :, 0].sum(axis=0)
    want = np.roll(pieces, -1, axis=1).ravel()
    require_values(f"staged sums, {depth} stages", gpu.get(sums, grid * _BLOCK), want)


PROBE = Probe(
    name="gpu_copy_async",
    kind="gpu",
    question="How many stages of asynchronous copies does a stream of tiles need?",
    yields=("async_copy.depth",),
    run=run,
    plot=Plot("stages", "read bandwidth"),
    kernels=KERNELS,
)
