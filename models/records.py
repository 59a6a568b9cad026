"""What was found out about the catalogue, kept from run to run, and the page that shows it.

A record holds for the very model and inputs it was made with, and for the compiler's sources; a
later run redoes what differs. Not here: compiling and judging (judged.py).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from onnx import ModelProto

from models.catalogue import CATALOGUE, NOT_JUDGED, Entry
from models.judged import Judged
from models.summary import summarize
from unistack_aot import __version__
from unistack_aot.cli.face import size

SOURCES = Path(__file__).resolve().parents[1] / "unistack_aot"
HEADINGS = {
    "small": "Small configurations of real architectures",
    "full": "Real sizes",
    "file": "Published files",
}
DEVICES: Mapping[str, tuple[str, ...]] = {
    "small": ("cpu", "emulator"),
    "full": ("cpu",),
    "file": ("cpu", "emulator"),
}
"""Where the models of each kind are judged; the emulator is too slow for all of the real sizes."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict, and what it holds for: the day, this project's version, and its sources."""

    found: Judged
    day: str
    version: str
    compiler: str


@dataclass(frozen=True, slots=True)
class Record:
    """One model: a digest of itself and its inputs, and a finding for each device."""

    content: str
    nodes: int
    operators: int
    findings: Mapping[str, Finding] = field(default_factory=dict[str, Finding])


def content(item: Entry, model: ModelProto) -> str:
    """A digest of the model and the inputs of all its cases."""
    digest = hashlib.sha256(model.SerializeToString(deterministic=True))
    for case in item.cases:
        for name, array in item.feeds(case).items():
            digest.update(f"{case} {name} {array.dtype} {array.shape}".encode())
            digest.update(array.tobytes())
    return digest.hexdigest()[:16]


def compiler() -> str:
    """A digest of the sources that decide what is compiled, and how it is judged."""
    digest = hashlib.sha256()
    for path in sorted(SOURCES.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts and "cli" not in path.parts:
            digest.update(str(path.relative_to(SOURCES)).encode() + path.read_bytes())
    return digest.hexdigest()[:8]


def fresh(item: Entry, model: ModelProto) -> Record:
    """A record without findings."""
    summary = summarize(model)
    return Record(content(item, model), summary.nodes, len(summary.ops))


def dated(found: Judged) -> Finding:
    """A verdict of today, by these sources."""
    return Finding(found, datetime.now(UTC).date().isoformat(), __version__, compiler())


def read(path: Path) -> dict[str, Record]:
    """The records in a file; none where there is no file."""
    if not path.exists():
        return {}
    stored = json.loads(path.read_text(encoding="utf-8"))
    return {name: _record(values) for name, values in stored.items()}


def _record(values: Mapping[str, Any]) -> Record:
    findings = {
        device: Finding(Judged(**entry["found"]), entry["day"], entry["version"], entry["compiler"])
        for device, entry in values["findings"].items()
    }
    return Record(values["content"], values["nodes"], values["operators"], findings)


def write(path: Path, records: Mapping[str, Record]) -> None:
    """Write records in the order of the catalogue; names that left it are dropped."""
    kept = {item.name: asdict(records[item.name]) for item in CATALOGUE if item.name in records}
    path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def wanted(item: Entry, device: str) -> bool:
    """Whether a model is judged on a device."""
    return device in DEVICES[item.kind] and (item.name, device) not in NOT_JUDGED


def missing(records: Mapping[str, Record]) -> list[tuple[str, str]]:
    """The models that lack a verdict they should have, each with the device."""
    return [
        (item.name, device)
        for item in CATALOGUE
        for device in DEVICES[item.kind]
        if wanted(item, device)
        and (item.name not in records or device not in records[item.name].findings)
    ]


def page(records: Mapping[str, Record]) -> str:
    """The records as a page."""
    findings = [f for record in records.values() for f in record.findings.values()]
    days = sorted({finding.day for finding in findings})
    states = [finding.found.state for finding in findings]
    period = days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    versions = ", ".join(sorted({finding.version for finding in findings}))
    lines = [
        "# Models",
        "",
        f"Version {versions}, {period}: {len(CATALOGUE)} models, {len(states)} verdicts: "
        + ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states), key=_order))
        + ".",
        "",
        *TEXT,
    ]
    for kind, heading in HEADINGS.items():
        items = [item for item in CATALOGUE if item.kind == kind]
        lines += ["", f"## {heading}", "", *_table(items, records)]
    return "\n".join(lines) + "\n"


TEXT = (
    "Every model of the catalogue (`scripts/models.py list`) is listed. Those that have a verdict were",
    "compiled and judged; the others say so. Every one of a model's cases is",
    "judged against onnxruntime, or a float64 evaluation where that is in doubt. Errors are in",
    "ulp-scaled units: the worst one, of what the derived tolerance allows ([check](cli.md)).",
    "Small models and published files are judged on the CPU and, as CUDA kernels of sm_90, on the",
    "emulator; real sizes on the CPU. Kernels, seconds (processor time of compiling and of recording the",
    "self-test, over all cores, nothing cached) and arena bytes (largest case; the lower bound in",
    "parentheses where it is less) are those of the CPU target. Weights of recipes are seeded.",
    "",
    "Written by `scripts/models.py page` from `models.json`, which",
    "`scripts/models.py check --record docs/models.json` fills; it redoes what changed.",
)


def _order(state: str) -> int:
    return ("right", "refused", "wrong", "failed").index(state)


def _table(items: Sequence[Entry], records: Mapping[str, Record]) -> list[str]:
    lines = [
        "| model | what it is | nodes | operators | kernels | cpu | emulator | processor seconds | arena |",
        "|---|---|---:|---:|---:|---|---|---:|---:|",
    ]
    for item in items:
        cells = _cells(item, records.get(item.name))
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return lines


def _cells(item: Entry, record: Record | None) -> tuple[str, ...]:
    verdicts = [_verdict(item, device, record) for device in ("cpu", "emulator")]
    if record is None:
        return (item.name, item.about, "", "", "", *verdicts, "", "")
    cpu = record.findings.get("cpu")
    built = cpu is not None and cpu.found.kernels > 0
    numbers = ("", "", "")
    if cpu is not None and built:
        memory = size(cpu.found.arena)
        if cpu.found.arena_bound < cpu.found.arena:
            memory += f" ({size(cpu.found.arena_bound)})"
        seconds = f"{cpu.found.seconds:.1f}" if cpu.found.seconds else ""  # not measured
        numbers = (str(cpu.found.kernels), seconds, memory)
    return (
        item.name,
        item.about,
        str(record.nodes),
        str(record.operators),
        numbers[0],
        *verdicts,
        numbers[1],
        numbers[2],
    )


def _verdict(item: Entry, device: str, record: Record | None) -> str:
    finding = record.findings.get(device) if record else None
    if finding is None:
        reason = NOT_JUDGED.get((item.name, device), "not judged yet")
        return reason if device in DEVICES[item.kind] else ""
    found = finding.found
    if found.state == "right":
        each = f", a package for each of {found.packages} cases" if found.packages > 1 else ""
        return f"{found.error} of {found.allowed}{each}"
    return f"**{found.state}**: {found.problem}"
