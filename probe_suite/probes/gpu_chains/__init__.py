"""What are latency and rate of the arithmetic, special, shuffle and shared-memory pipes?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from probe_suite.gpu.device import Built, Gpu, open_gpu
from probe_suite.gpu.kernel import GpuKernel
from probe_suite.gpu.verify import require_values
from probe_suite.probe import Answer, Plot, Probe, Setting
from probe_suite.record import Finding, Seen, Series

_FILE = Path(__file__).with_name("kernel.cu")
# name -> (OP, SASS, operations counted per step and thread)
OPERATIONS = {
    "fma.f32": ("OP_FMA", r"\bFFMA\b", 2.0),
    "integer": ("OP_INTEGER", r"\bIMAD\b", 2.0),
    "special.f32": ("OP_EXP2", r"\bMUFU\.EX2\b", 1.0),
    "special.rsqrt": ("OP_RSQRT", r"\bMUFU\.RSQ\b", 1.0),
    "shuffle": ("OP_SHUFFLE", r"\bSHFL\.BFLY\b", 1.0),
    "shared": ("OP_SHARED", r"\bLDS\b", 1.0),
}
CHAINS = (1, 2, 4, 8)
_RATED = ("fma.f32", "special.f32")
_ROUNDS, _RUNS, _BLOCK = 200, 5, 256


def kernel(name: str, chains: int) -> GpuKernel:
    """Return the kernel with `chains` chains of one operation."""
    op, sass, _ = OPERATIONS[name]
    return GpuKernel(_FILE, "chains", sass, 32 * chains, defines={"OP": op, "CHAINS": chains})


KERNELS = {
    **{(name, 1): kernel(name, 1) for name in OPERATIONS},
    **{(name, chains): kernel(name, chains) for name in _RATED for chains in CHAINS},
}


def run(setting: Setting) -> Answer:
    """Time one chain on one warp for the latency, many chains on all units for the rate."""
    gpu = open_gpu(setting)
    findings: list[Finding] = []
    seen: list[Seen] = []
    series: list[Series] = []
    for name in OPERATIONS:
        built = gpu.build(KERNELS[name, 1])
        _check(gpu, built, name)
        if not gpu.emulated:
            seen += [built.seen] if built.seen else []
            findings.append(_latency(gpu, built, name))
    for name in () if gpu.emulated else _RATED:
        rates: list[float] = []
        for chains in CHAINS:
            built = gpu.build(KERNELS[name, chains])
            rate, found = _rate(gpu, built, name, chains)
            rates.append(rate)
            findings = [each for each in findings if each.name != name or each.value > rate]
            if not any(each.name == name for each in findings):
                findings.append(found)
        x = tuple(float(chains) for chains in CHAINS)
        series.append(Series(name, x, tuple(rates), "chains", "FLOP/s"))
    return Answer(tuple(findings), tuple(series), tuple(seen))


def _buffers(gpu: Gpu, grid: int) -> tuple[Any, Any]:
    results = gpu.put(np.zeros(grid * _BLOCK, np.float32))
    return results, gpu.put(np.zeros(grid, np.int64))


def _latency(gpu: Gpu, built: Built, name: str) -> Finding:
    results, ticks = _buffers(gpu, 1)
    found: list[float] = []
    for _ in range(_RUNS + 1):
        gpu.launch(built, 1, 32, results, ticks, 0.75, 0.25, _ROUNDS, shared=1024)
        found.append(float(gpu.get(ticks, 1, np.int64)[0]) / (32.0 * _ROUNDS))
    best = min(found[1:])
    spread = min(0.99, (float(np.median(found[1:])) - best) / best)
    label = "shared.latency" if name == "shared" else f"{name}.latency"
    note = "one chain on one warp, 32 dependent steps unrolled"
    return Finding(label, best, "cycles", spread, _RUNS, note)


def _rate(gpu: Gpu, built: Built, name: str, chains: int) -> tuple[float, Finding]:
    grid = (gpu.attribute("MULTIPROCESSOR_COUNT") or 1) * 4
    results, ticks = _buffers(gpu, grid)
    found = gpu.time(built, grid, _BLOCK, results, ticks, 0.75, 0.25, _ROUNDS, shared=1024)
    work = OPERATIONS[name][2] * chains * 32.0 * _ROUNDS * grid * _BLOCK
    rate = work / found.best
    note = f"{chains} chains per thread, 1024 threads on every unit"
    return rate, Finding(name, rate, "FLOP/s", found.spread, found.count, note)


def _check(gpu: Gpu, built: Built, name: str) -> None:
    """Require one warp's results after 32 steps."""
    results, ticks = _buffers(gpu, 1)
    gpu.launch(built, 1, 32, results, ticks, 0.75, 0.25, 1, shared=1024)
    value = np.arange(1, 33, dtype=np.float64)
    for _ in range(32):
        value = _step(name, value)
    require_values(name, gpu.get(results, 32), value.astype(np.float32), rtol=1e-4)


def _step(name: str, value: np.ndarray) -> np.ndarray:
    if name == "fma.f32":
        return value * 0.75 + 0.25
    if name == "integer":
        return np.zeros_like(value)  # int(0.75) and int(0.25) are 0
    if name == "special.f32":
        with np.errstate(over="ignore"):
            return np.exp2(value)
    if name == "special.rsqrt":
        return 1.0 / np.sqrt(value)
    if name == "shuffle":
        return value[np.arange(32) ^ 1]
    return (value + 37.0) % 256.0


PROBE = Probe(
    name="gpu_chains",
    kind="gpu",
    question="What are the latency and the rate of the units' pipes?",
    yields=(
        "fma.f32", "special.f32", "shared.latency",
        *(f"{name}.latency" for name in OPERATIONS if name != "shared"),
    ),
    run=run,
    plot=Plot("chains per thread", "rate", log_x=True),
    kernels=tuple(KERNELS.values()),
)  # fmt: skip
