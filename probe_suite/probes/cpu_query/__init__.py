"""What does the operating system say about this CPU? No kernel: facts only, to be contradicted by
the other probes.
"""

from __future__ import annotations

from probe_suite import cpu_facts
from probe_suite.probe import Answer, Probe, Setting
from probe_suite.record import Finding

_REGISTERS = {
    "x86-64-v2": (16, 16),
    "x86-64-v3": (32, 16),
    "x86-64-v4": (64, 32),
    "aarch64": (16, 32),
}


def run(setting: Setting) -> Answer:
    """Return sizes and counts that need no timing."""
    vector_bytes, registers = _REGISTERS[setting.arch]
    facts = {
        "units.count": (cpu_facts.cores(), "1"),
        "lanes": (vector_bytes // 4, "1"),
        "vector.bytes": (vector_bytes, "B"),
        "vector.registers": (registers, "1"),
        "l1.line": (cpu_facts.line_bytes(), "B"),
        "l1.sector": (cpu_facts.line_bytes(), "B"),
        "dram.capacity": (cpu_facts.memory_bytes(), "B"),
        "page.bytes": (4096, "B"),
    }
    facts |= {f"l{n}.capacity": (cpu_facts.cache_bytes(n), "B") for n in (1, 2, 3)}
    note = "reported by the operating system"
    findings = [
        Finding(name, value, unit, 0.0, 1, note) for name, (value, unit) in facts.items() if value
    ]
    return Answer(tuple(findings), facts={"model": cpu_facts.model(), "system": cpu_facts.kernel()})


PROBE = Probe(
    name="cpu_query",
    kind="cpu",
    question="What does the operating system say about this CPU?",
    yields=(
        "units.count", "lanes", "vector.bytes", "vector.registers", "l1.line", "l1.sector",
        "l1.capacity", "l2.capacity", "l3.capacity", "dram.capacity", "page.bytes",
    ),
    run=run,
)  # fmt: skip
