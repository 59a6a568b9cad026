"""How fast are the synchronous matrix instructions, by operand type and accumulators per warp?"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from probe_suite.gpu.device import Built, Gpu, open_gpu
from probe_suite.gpu.kernel import GpuKernel
from probe_suite.gpu.verify import require_values
from probe_suite.probe import Answer, NotHere, Plot, Probe, Setting
from probe_suite.record import Finding, Seen, Series

_FILE = Path(__file__).with_name("kernel.cu")
# operand type -> (C++ type, SASS, depth of one multiply() call, first generation)
TYPES = {
    "f16": ("ua::f16", r"\bHMMA\.(?:16816|1688)\.F32\b(?!\.BF16|\.TF32)", 16, 75),
    "bf16": ("ua::bf16", r"\bHMMA\.16816\.F32\.BF16\b", 16, 80),
    "tf32": ("ua::tf32", r"\bHMMA\.1688\.F32\.TF32\b", 8, 80),
}
CHAINS = (1, 2, 4, 8)
_ROUNDS, _BLOCK, _CALLS = 500, 256, 4


def kernel(name: str, chains: int) -> GpuKernel:
    """Return the kernel with `chains` accumulators of one operand type."""
    cpp, sass, _, since = TYPES[name]
    return GpuKernel(_FILE, "matrix", sass, _CALLS * chains, since, {"TYPE": cpp, "CHAINS": chains})


KERNELS = {(name, chains): kernel(name, chains) for name in TYPES for chains in CHAINS}


def run(setting: Setting) -> Answer:
    """Sweep accumulators per warp with 8 warps per block and two blocks per unit."""
    gpu = open_gpu(setting)
    findings: list[Finding] = []
    series: list[Series] = []
    seen: list[Seen] = []
    for name in TYPES:
        if not KERNELS[name, 1].offered(gpu.arch):
            continue
        points: list[Finding] = []
        for chains in CHAINS[:1] if gpu.emulated else CHAINS:
            built = gpu.build(KERNELS[name, chains])
            _check(gpu, built, name, chains)
            if gpu.emulated:
                continue
            seen += [built.seen] if built.seen else []
            points.append(_rate(gpu, built, name, chains))
        if points:
            findings.append(max(points, key=lambda each: each.value))
            x = tuple(float(chains) for chains in CHAINS)
            y = tuple(each.value for each in points)
            series.append(Series(name, x, y, "accumulators", "FLOP/s"))
    if not findings and not gpu.emulated:
        raise NotHere(f"{gpu.arch} has none of these instructions")
    return Answer(tuple(findings), tuple(series), tuple(seen))


def _rate(gpu: Gpu, built: Built, name: str, chains: int) -> Finding:
    grid = (gpu.attribute("MULTIPROCESSOR_COUNT") or 1) * 2
    results = gpu.put(np.zeros(grid * _BLOCK, np.float32))
    ticks = gpu.put(np.zeros(grid, np.int64))
    found = gpu.time(built, grid, _BLOCK, results, ticks, 0.53, 0.71, _ROUNDS)
    depth = TYPES[name][2]
    per_warp = 2.0 * 16 * 8 * depth * chains * _CALLS * _ROUNDS
    rate = per_warp * grid * (_BLOCK / 32) / found.best
    note = f"{chains} accumulators per warp, 16 warps on every unit, operands in registers"
    return Finding(f"mma.{name}", rate, "FLOP/s", found.spread, found.count, note)


def _check(gpu: Gpu, built: Built, name: str, chains: int) -> None:
    """Require the sum of two elements per accumulator: products are all alike and exact."""
    results, ticks = gpu.put(np.zeros(32, np.float32)), gpu.put(np.zeros(1, np.int64))
    gpu.launch(built, 1, 32, results, ticks, 0.5, 0.25, 3)
    each = 0.5 * 0.25 * TYPES[name][2] * _CALLS * 3
    want = np.full(32, 2.0 * each * chains, np.float32)
    require_values(f"matrix instruction on {name}", gpu.get(results, 32), want)


PROBE = Probe(
    name="gpu_mma",
    kind="gpu",
    question="How fast are the synchronous matrix instructions?",
    yields=tuple(f"mma.{name}" for name in TYPES),
    run=run,
    plot=Plot("accumulators per warp", "rate", log_x=True),
    limit_s=120.0,
    kernels=tuple(KERNELS.values()),
)
