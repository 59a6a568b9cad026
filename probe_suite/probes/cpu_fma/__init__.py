"""How fast is a multiply-add on registers, per instruction set level, and how many chains does it
take?
"""

from __future__ import annotations

import ctypes
from pathlib import Path

from probe_suite import cpu_facts, samples, toolchain
from probe_suite.probe import Answer, Plot, Probe, Setting
from probe_suite.record import Finding, Seen, Series

CHAINS = (1, 2, 4, 6, 8, 10, 12)
_ROUNDS = 100_000  # some 0.2 ms: shorter than a scheduler's turn
_WIDTH = {"x86-64-v2": 16, "x86-64-v3": 32, "x86-64-v4": 64, "aarch64": 16}
_PATTERN = {
    ("x86-64-v2", "f32"): r"\bmulps\b",
    ("x86-64-v2", "f64"): r"\bmulpd\b",
    ("x86-64-v3", "f32"): r"\bvfmadd\d+ps\b.*%ymm",
    ("x86-64-v3", "f64"): r"\bvfmadd\d+pd\b.*%ymm",
    ("x86-64-v4", "f32"): r"\bvfmadd\d+ps\b.*%zmm",
    ("x86-64-v4", "f64"): r"\bvfmadd\d+pd\b.*%zmm",
    ("aarch64", "f32"): r"\bfmla\b.*\.4s",
    ("aarch64", "f64"): r"\bfmla\b.*\.2d",
}
_SCALAR = {"f32": ("float", 4), "f64": ("double", 8)}


def run(setting: Setting) -> Answer:
    """Sweep chains on each level this machine has up to the one asked for."""
    findings: list[Finding] = []
    series: list[Series] = []
    seen: list[Seen] = []
    for arch in cpu_facts.isa_levels():
        for dtype in _SCALAR if arch == setting.arch else ("f32",):
            built, proof = _build(setting, arch, dtype)
            seen.append(proof)
            curve, found = _measure(built, arch, dtype, setting)
            series.append(curve)
            findings += found
        if arch == setting.arch:
            break
    return Answer(tuple(findings), tuple(series), tuple(seen))


def _build(setting: Setting, arch: str, dtype: str) -> tuple[ctypes.CDLL, Seen]:
    library = setting.scratch / f"cpu_fma_{arch}_{dtype}.so"
    defines = [f"VECTOR_BYTES={_WIDTH[arch]}", f"SCALAR={_SCALAR[dtype][0]}"]
    built = toolchain.build_cpu(Path(__file__).with_name("kernel.cpp"), library, arch, defines)
    built.burn.restype = ctypes.c_double
    # The symbol of multiply_add<12> carries ILi12E.
    return built, toolchain.see_cpu(library, "multiply_addILi12E", _PATTERN[arch, dtype], 12)


def _measure(
    built: ctypes.CDLL, arch: str, dtype: str, setting: Setting
) -> tuple[Series, list[Finding]]:
    main, budget = arch == setting.arch, 0.1 if setting.quick else 0.6
    lanes, threads = _WIDTH[arch] // _SCALAR[dtype][1], cpu_facts.cores()
    name = dtype if main else f"{arch}.{dtype}"
    one = [_time(built, 1, chains, budget) for chains in CHAINS]
    rates = [2.0 * lanes * c * _ROUNDS / t.best for c, t in zip(CHAINS, one, strict=True)]
    best = max(range(len(CHAINS)), key=lambda index: rates[index])
    every = _time(built, threads, CHAINS[best], budget)
    together = 2.0 * lanes * CHAINS[best] * _ROUNDS * threads / every.best
    note = f"{threads} threads, {CHAINS[best]} chains of {_WIDTH[arch]} B vectors"
    found = [Finding(f"fma.{name}", together, "FLOP/s", every.spread, every.count, note)]
    spread = one[best].spread
    found.append(
        Finding(f"fma.{name}.one", rates[best], "FLOP/s", spread, one[best].count, "one thread")
    )
    if main and dtype == "f32":
        wait, note = one[0].best / _ROUNDS, "one chain: a multiply-add waits for the one before it"
        found.append(Finding("fma.latency", wait, "s", one[0].spread, one[0].count, note))
    x = tuple(float(c) for c in CHAINS)
    return Series(f"{arch} {dtype}, one thread", x, tuple(rates), "chains", "FLOP/s"), found


def _time(built: ctypes.CDLL, threads: int, chains: int, budget: float) -> samples.Samples:
    args = [ctypes.c_int64(value) for value in (threads, chains, _ROUNDS)]
    return samples.repeat(lambda: built.burn(*args), budget_s=budget)


PROBE = Probe(
    name="cpu_fma",
    kind="cpu",
    question="How fast is a multiply-add on registers, and how many chains does it take?",
    yields=("fma.f32", "fma.f32.one", "fma.f64", "fma.f64.one", "fma.latency"),
    run=run,
    plot=Plot("independent chains", "rate"),
)
