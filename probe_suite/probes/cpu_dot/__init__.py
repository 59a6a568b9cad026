"""How fast are dot products of narrow types: by vector instructions (VNNI, BF16), by tiles (AMX)?"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

from probe_suite import cpu_facts, samples, toolchain
from probe_suite.probe import Answer, NotHere, Plot, Probe, Setting
from probe_suite.record import Finding, Seen, Series


@dataclass(frozen=True, slots=True)
class Engine:
    """One kind of dot product: the feature flag it needs, how it is built, operations of an instruction."""

    name: str
    needs: str
    macro: str
    flags: tuple[str, ...]
    code: str
    function: str
    operations: int
    chains: tuple[int, ...]
    rounds: int


SOURCE = Path(__file__).with_name("kernel.cpp")
_VECTOR, _TILE = (1, 2, 4, 8, 12), (1, 2, 4)
_AMX = ("-mamx-tile", "-mamx-int8", "-mamx-bf16")
ENGINES = (
    Engine(
        "dot.i8", "avx512_vnni", "DOT_I8", ("-mavx512vnni",),
        r"\bvpdpbusd\b.*%zmm", "dot_productsILi12E", 2 * 64, _VECTOR, 100_000,
    ),
    Engine(
        "dot.bf16", "avx512_bf16", "DOT_BF16", ("-mavx512bf16",),
        r"\bvdpbf16ps\b.*%zmm", "dot_productsILi12E", 2 * 32, _VECTOR, 50_000,
    ),
    Engine(
        "amx.i8", "amx_int8", "TILE_I8", _AMX,
        r"\btdpbusd\b", "tile_productsILi4E", 2 * 16 * 16 * 64, _TILE, 4_000,
    ),
    Engine(
        "amx.bf16", "amx_bf16", "TILE_BF16", _AMX,
        r"\btdpbf16ps\b", "tile_productsILi4E", 2 * 16 * 16 * 32, _TILE, 4_000,
    ),
)  # fmt: skip


def engines_here(setting: Setting) -> tuple[Engine, ...]:
    """The engines that this processor has; NotHere names what it lacks if it has none."""
    have = cpu_facts.flags()
    engines = tuple(each for each in ENGINES if each.needs in have)
    if not setting.arch.startswith("x86-64-v4") or not engines:
        lacking = ", ".join(each.needs for each in ENGINES)
        raise NotHere(f"this processor has none of {lacking}")
    return engines


def run(setting: Setting) -> Answer:
    """Sweep chains of every engine this machine has; the record's facts name the others."""
    findings: list[Finding] = []
    series: list[Series] = []
    seen: list[Seen] = []
    engines = engines_here(setting)
    absent = {each.name: f"this processor lacks {each.needs}" for each in ENGINES}
    for engine in engines:
        built, proof = _build(setting, engine)
        if built.allow() != 0:
            absent[engine.name] = f"the system keeps {engine.needs} registers from this process"
            continue
        del absent[engine.name]
        seen.append(proof)
        curve, found = _measure(built, engine, 0.1 if setting.quick else 0.6)
        series.append(curve)
        findings += found
    facts = {f"{name} not measured": why for name, why in absent.items()}
    return Answer(tuple(findings), tuple(series), tuple(seen), facts)


def _build(setting: Setting, engine: Engine) -> tuple[ctypes.CDLL, Seen]:
    library = setting.scratch / f"cpu_dot_{engine.macro}.so"
    built = toolchain.build_cpu(SOURCE, library, setting.arch, [engine.macro], engine.flags)
    built.burn.restype = ctypes.c_double
    least = max(engine.chains)
    return built, toolchain.see_cpu(library, engine.function, engine.code, least)


def _measure(
    built: ctypes.CDLL, engine: Engine, budget: float
) -> tuple[Series, tuple[Finding, ...]]:
    one = [_time(built, engine, 1, chains, budget) for chains in engine.chains]
    rates = [
        float(engine.operations) * chains * engine.rounds / found.best
        for chains, found in zip(engine.chains, one, strict=True)
    ]
    best = max(range(len(rates)), key=lambda index: rates[index])
    threads, chains = cpu_facts.cores(), engine.chains[best]
    every = _time(built, engine, threads, chains, budget)
    together = float(engine.operations) * chains * engine.rounds * threads / every.best
    note = f"{threads} threads, {chains} chains"
    alone = one[best]
    found = (
        Finding(engine.name, together, "FLOP/s", every.spread, every.count, note),
        Finding(
            f"{engine.name}.one", rates[best], "FLOP/s", alone.spread, alone.count, "one thread"
        ),
    )
    x = tuple(float(each) for each in engine.chains)
    return Series(f"{engine.name}, one thread", x, tuple(rates), "chains", "FLOP/s"), found


def _time(
    built: ctypes.CDLL, engine: Engine, threads: int, chains: int, budget: float
) -> samples.Samples:
    args = [ctypes.c_int64(value) for value in (threads, chains, engine.rounds)]
    return samples.repeat(lambda: built.burn(*args), budget_s=budget)


PROBE = Probe(
    name="cpu_dot",
    kind="cpu",
    question="How fast are dot products of 8-bit and bfloat16 numbers, by vectors and by tiles?",
    yields=tuple(name for each in ENGINES for name in (each.name, f"{each.name}.one")),
    run=run,
    plot=Plot("independent chains", "rate"),
)
