"""What one probe found: curves, properties, checked instructions; as JSON. Not here: how it is
found (probes).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

STEADY, LOOSE = 0.2, 0.5  # spreads of a figure that reproduces, and of one that does not
Of = Literal["best", "middle", "low", "high"]
State = Literal["done", "skipped", "failed", "timed out"]


@dataclass(frozen=True, slots=True)
class Series:
    """One curve: `y[i]` in `y_unit` at `x[i]` in `x_unit`, measured, or `fitted` to a measured one."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    x_unit: str
    y_unit: str
    fitted: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """One property a probe yields, in base units: of many times the best, the middle, or an end of the range."""

    name: str
    value: float
    unit: str
    spread: float
    samples: int
    note: str = ""
    of: Of = "best"


@dataclass(frozen=True, slots=True)
class Seen:
    """Proof that the measured instruction is in the machine code: how often `pattern` matched."""

    kernel: str
    pattern: str
    count: int


@dataclass(frozen=True, slots=True)
class Counted:
    """A profiler's counter for one kernel: the value, or why there is none."""

    kernel: str
    counter: str
    value: float | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """The outcome of one probe; `why` explains every state but "done"."""

    probe: str
    question: str
    state: State
    why: str = ""
    seconds: float = 0.0
    findings: tuple[Finding, ...] = ()
    series: tuple[Series, ...] = ()
    seen: tuple[Seen, ...] = ()
    facts: dict[str, str] = field(default_factory=dict[str, str])
    counters: tuple[Counted, ...] = ()


def better(before: Record, after: Record) -> Record:
    """Return `after` with each finding replaced by the earlier one where that was better.

    Interference only ever slows a machine, so of two runs the faster figure is nearer the truth,
    unless its own repeats did not come near it while those of the other did. Of two middles the
    later one stands; a range covers both runs.
    Curves and proofs stay those of the later run unless only the earlier one was done.
    """
    if after.state != "done" or before.state != "done":
        return before if before.state == "done" else after
    old = {each.name: each for each in before.findings}
    kept = tuple(_faster(old.get(each.name, each), each) for each in after.findings)
    names = {each.name for each in kept}
    return replace(after, findings=(*kept, *(f for f in before.findings if f.name not in names)))


def _faster(before: Finding, after: Finding) -> Finding:
    if after.of != "best":
        ends = {"low": min, "high": max}
        widest = ends.get(after.of, lambda old, new, key: new)
        return widest(before, after, key=lambda each: each.value)
    steady, loose = sorted((before, after), key=lambda each: each.spread)
    if steady.spread < STEADY and loose.spread > LOOSE:
        return steady
    if after.unit in ("s", "cycles"):
        return min(before, after, key=lambda each: each.value)
    if after.unit in ("B/s", "FLOP/s", "Hz"):
        return max(before, after, key=lambda each: each.value)
    return after


def save(record: Record, path: Path) -> None:
    """Write one record as JSON."""
    path.write_text(json.dumps(asdict(record), indent=1) + "\n", encoding="utf-8")


def load(path: Path) -> Record:
    """Read one record back."""
    fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    fields["findings"] = tuple(Finding(**each) for each in fields["findings"])
    fields["series"] = tuple(_series(each) for each in fields["series"])
    fields["seen"] = tuple(Seen(**each) for each in fields["seen"])
    fields["counters"] = tuple(Counted(**each) for each in fields.get("counters", ()))
    return Record(**fields)


def _series(fields: dict[str, Any]) -> Series:
    x, y = tuple(fields.pop("x")), tuple(fields.pop("y"))
    return Series(x=x, y=y, **fields)
