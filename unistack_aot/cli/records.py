"""Reading a package's records in words: decisions and provenance. Not here: what is printed (explain.py)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from unistack_aot.artifact.manifest import Variant
from unistack_aot.artifact.reader import Package
from unistack_aot.base.errors import UnistackError
from unistack_aot.cli.face import plural, size
from unistack_aot.runtime.layout import value

Record = dict[str, Any]
FUSIONS = {
    "fuse-inline": "computed by the reader",
    "fuse-epilogue": "applied before the store",
    "fuse-row": "kept in registers for the row",
    "recompute": "computed again by each reader",
}
_SAVES = re.compile(r"saves (.+) far bytes")
_TIME = re.compile(r"(\d[\d.]*) (ns|us|ms|s)\b")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


def decisions_of(package: Package, variant: Variant) -> dict[str, list[Record]]:
    """Decision records of the lock file by kernel symbol; none where there is no lock file."""
    found: dict[str, list[Record]] = {}
    lock = _document(package, "lock.json")
    for record in lock.get("decisions", {}).get(variant.target, []):
        found.setdefault(str(record.get("kernel", "")), []).append(record)
    return found


def nodes_of(package: Package) -> dict[str, Record]:
    """The model's nodes by name, as the package records them."""
    return dict(_document(package, "provenance.json").get("nodes", {}))


def _document(package: Package, name: str) -> dict[str, Any]:
    held = {member.name for member in package.manifest.members}
    return dict(package.document(name)) if name in held else {}


def grouped(names: Iterable[str]) -> str:
    """Names with their common folder said once: "/layer.0/attention: MatMul, Softmax; /pool: Add"."""
    folders: dict[str, list[str]] = {}
    for name in names:
        folder, slash, last = name.rpartition("/")
        last = last if folder else f"{slash}{last}"
        folders.setdefault(folder, []).append(last)
    parts = [
        f"{folder}: {', '.join(last)}" if folder else ", ".join(last)
        for folder, last in folders.items()
    ]
    return "; ".join(parts)


def is_fusion(record: Record) -> bool:
    """Whether a record says that a value went into another kernel."""
    return record["what"] in FUSIONS


def fused(records: Iterable[Record], sizes: Mapping[str, int]) -> list[str]:
    """Why a kernel is one: how many values each kind of fusion did away with, and the bytes saved."""
    counts, saved = Counter[str](), Counter[str]()
    for record in records:
        if is_fusion(record):
            counts[record["what"]] += 1
            saved[record["what"]] += _saved(record, sizes)
    return [
        f"{plural(counts[kind], 'value')} {FUSIONS[kind]}: {size(saved[kind])} far saved"
        for kind in FUSIONS
        if counts[kind]
    ]


def saved_bytes(records: Iterable[Record], sizes: Mapping[str, int]) -> int:
    """Far bytes that fusion saved, all records together."""
    return sum(_saved(record, sizes) for record in records if is_fusion(record))


def _saved(record: Record, sizes: Mapping[str, int]) -> int:
    found = _SAVES.search(str(record["because"]))
    if found is None:
        return 0
    try:
        return value(found[1], sizes)
    except UnistackError:
        return 0


def choice(record: Record, full: bool) -> str:
    """A choice, why, and the next best candidate; in `full` all that was tried."""
    tried = [str(each) for each in record["tried"]]
    parts = [f"{record['chosen']}  {record['because']}".strip()]
    if tried:
        parts.append(f"{len(tried) + 1} tried; next best {_beside(record, tried)}")
    if full and len(tried) > 1:
        parts.append(f"then {', '.join(tried[1:])}")
    return "; ".join(parts)


def _beside(record: Record, tried: list[str]) -> str:
    """The best other candidate; with its predicted time in percent, where both have one."""
    mine, other = _seconds(str(record["because"])), _seconds(tried[0])
    if mine is None or other is None:
        return tried[0]
    name = _TIME.sub("", tried[0]).strip()
    return f"{name}: {(other / mine - 1) * 100:+.0f} % predicted"


def _seconds(text: str) -> float | None:
    found = _TIME.search(text)
    return float(found[1]) * _SECONDS[found[2]] if found and float(found[1]) else None
