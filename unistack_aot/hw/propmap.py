"""A property map: the JSON document of measured quantities of one machine, read, checked, written
and compared.

The document (schema 1) is one object:

    schema        1
    id            short name, also the file's stem: "h100-sxm"
    device        what a person would call it
    kind          "gpu" | "cpu"
    arch          the instruction set or generation the compiler builds for: "sm_90", "x86-64-v3"
    date          when the numbers were taken or collected (ISO)
    driver        driver or kernel version of a probed machine, "" for cited maps
    levels        the scheduler's spaces to this machine's memories: {"far": "dram", "near":
    "shared", ...} capabilities  what the machine can do: {"async_copy": ["far", "near"],
    "matrix.bf16": []} sources       key -> citation (title and address) or probe description
    properties    name -> {value, unit, mark, source, [spread], [samples], [note]}

All values are in base units: B, B/s, s, Hz, FLOP/s, cycles, 1. Not here: what the numbers mean for
a schedule (machine.py), whether they agree with each other (consistency.py), which map belongs to a
device (catalogue.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from unistack_aot.base.errors import BadInput
from unistack_aot.hw.property import MARKS, Mark, Property

SCHEMA = 1
KINDS = ("gpu", "cpu")

# Anything outside these ranges is a unit mistake (GB for B, MHz for Hz), not a machine.
PLAUSIBLE: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "B": (1, 1e14),
        "B/s": (1e7, 1e15),
        "s": (1e-11, 1.0),
        "Hz": (1e7, 2e10),
        "FLOP/s": (1e8, 1e17),
        "cycles": (0.25, 1e5),
        "fma/cycle": (0.5, 1e5),
        "1": (0, 1e9),
    }
)


class BadPropertyMap(BadInput):
    """A property map is missing a value, has one that no machine can have, or is not a property
    map.
    """


@dataclass(frozen=True, slots=True)
class PropertyMap:
    """Property quantities of one machine, immutable; `properties` are keyed by dotted names."""

    id: str
    device: str
    kind: str
    arch: str
    date: str
    driver: str
    levels: Mapping[str, str]
    capabilities: Mapping[str, tuple[str, ...]]
    sources: Mapping[str, str]
    properties: Mapping[str, Property]

    def get(self, name: str) -> Property | None:
        """Return the quantity called `name`, or None when this map lacks it."""
        return self.properties.get(name)

    def need(self, name: str) -> Property:
        """Return the quantity called `name`; BadPropertyMap names the map and the missing entry."""
        found = self.properties.get(name)
        if found is None:
            raise BadPropertyMap(
                f"property map '{self.id}' has no '{name}'",
                at=self.device,
                hint="probe the machine, or add the entry with its source to the map",
            )
        return found


def parse(document: object, where: str) -> PropertyMap:
    """Return the map in a decoded JSON `document`; every fault is refused by name (`where` says
    which file).
    """
    if not isinstance(document, dict):
        raise BadPropertyMap(
            "a property map is one JSON object",
            at=where,
            hint="see unistack_aot/hw/maps for examples",
        )
    fields = cast(dict[str, Any], document)
    if fields.get("schema") != SCHEMA:
        raise BadPropertyMap(
            f"property map has schema {fields.get('schema')!r}, this version reads {SCHEMA}",
            at=where,
            hint="probe the machine again with this version",
        )
    texts = {
        key: _text(fields, key, where) for key in ("id", "device", "kind", "arch", "date", "driver")
    }
    if texts["kind"] not in KINDS:
        raise BadPropertyMap(
            f"kind is {texts['kind']!r}, expected one of {', '.join(KINDS)}", at=where
        )
    sources = _mapping(fields, "sources", where)
    entries = _mapping(fields, "properties", where)
    return PropertyMap(
        **texts,
        levels=MappingProxyType(
            {str(k): str(v) for k, v in _mapping(fields, "levels", where).items()}
        ),
        capabilities=MappingProxyType(
            {
                name: tuple(str(x) for x in spaces)
                for name, spaces in _mapping(fields, "capabilities", where).items()
            }
        ),
        sources=MappingProxyType({key: str(text) for key, text in sources.items()}),
        properties=MappingProxyType(
            {name: _entry(name, e, sources, where) for name, e in sorted(entries.items())}
        ),
    )


def load(path: Path) -> PropertyMap:
    """Read and validate one map file; BadPropertyMap for anything that is not a valid map."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadPropertyMap(f"cannot read property map: {error.strerror}", at=path) from error
    except ValueError as error:
        raise BadPropertyMap(f"property map is not JSON: {error}", at=path) from error
    return parse(document, str(path))


def to_document(found: PropertyMap) -> dict[str, object]:
    """Return the JSON object of a map; parse(to_document(m)) equals m."""
    return {
        "schema": SCHEMA,
        "id": found.id,
        "device": found.device,
        "kind": found.kind,
        "arch": found.arch,
        "date": found.date,
        "driver": found.driver,
        "levels": dict(found.levels),
        "capabilities": {name: list(spaces) for name, spaces in sorted(found.capabilities.items())},
        "sources": dict(sorted(found.sources.items())),
        "properties": {name: _entry_document(q) for name, q in sorted(found.properties.items())},
    }


def text(found: PropertyMap) -> str:
    """Return the file text of a map: stable order, a property a line, so that maps diff well."""
    document = to_document(found)
    properties = cast(dict[str, object], document.pop("properties"))
    head = json.dumps(document, indent=2, ensure_ascii=False)[:-2]
    lines = [
        f"    {json.dumps(name)}: {json.dumps(entry, ensure_ascii=False)}"
        for name, entry in properties.items()
    ]
    return head + ',\n  "properties": {\n' + ",\n".join(lines) + "\n  }\n}\n"


def save(found: PropertyMap, path: Path) -> None:
    """Write a map after validating it once more (a map that would not load is never written)."""
    parse(to_document(found), str(path))
    path.write_text(text(found), encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Difference:
    """One property that two maps do not share or do not agree on; `ratio` is after / before when
    both have it.
    """

    name: str
    before: Property | None
    after: Property | None

    @property
    def ratio(self) -> float | None:
        """after / before, or None when one side is missing or zero."""
        if self.before is None or self.after is None or self.before.value == 0:
            return None
        return self.after.value / self.before.value


def diff(before: PropertyMap, after: PropertyMap, tolerance: float = 0.0) -> tuple[Difference, ...]:
    """Return the properties that differ by more than `tolerance` (relative) or exist on one side
    only.
    """
    names = sorted(set(before.properties) | set(after.properties))
    found = (Difference(name, before.get(name), after.get(name)) for name in names)
    return tuple(d for d in found if d.ratio is None or abs(d.ratio - 1.0) > tolerance)


def _text(fields: Mapping[str, Any], key: str, where: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str):
        raise BadPropertyMap(f"property map lacks the text '{key}'", at=where)
    return value


def _mapping(fields: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    value = fields.get(key)
    if not isinstance(value, dict):
        raise BadPropertyMap(f"property map lacks the object '{key}'", at=where)
    return cast(dict[str, Any], value)


def _entry(name: str, entry: object, sources: Mapping[str, Any], where: str) -> Property:
    if not isinstance(entry, dict):
        raise BadPropertyMap(
            f"'{name}' is not an object with value, unit, mark and source", at=where
        )
    fields = cast(dict[str, Any], entry)
    for key in ("value", "unit", "mark", "source"):
        if key not in fields:
            raise BadPropertyMap(f"'{name}' has no {key}", at=where)
    value, unit, mark, source = fields["value"], fields["unit"], fields["mark"], fields["source"]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadPropertyMap(f"'{name}' is {value!r}, not a number", at=where)
    if unit not in PLAUSIBLE:
        raise BadPropertyMap(
            f"'{name}' has unit {unit!r}, expected one of {', '.join(PLAUSIBLE)}", at=where
        )
    low, high = PLAUSIBLE[unit]
    if not low <= value <= high:  # also refuses NaN
        raise BadPropertyMap(
            f"'{name}' is {value:g} {unit}, outside {low:g} .. {high:g} {unit}",
            at=where,
            hint="values are in base units (B, B/s, s, Hz, FLOP/s); check the factor",
        )
    if mark not in MARKS:
        raise BadPropertyMap(
            f"'{name}' has mark {mark!r}, expected one of {', '.join(MARKS)}", at=where
        )
    if source not in sources:
        raise BadPropertyMap(f"'{name}' cites {source!r}, which is not among the sources", at=where)
    spread, samples = float(fields.get("spread", 0.0)), int(fields.get("samples", 0))
    if not 0.0 <= spread < 1.0:
        raise BadPropertyMap(
            f"'{name}' has spread {spread:g}; a usable measurement has 0 .. 1", at=where
        )
    note = str(fields.get("note", ""))
    spread = spread if samples else None
    return Property(
        float(value), unit, str(source), spread,
        name=name, mark=cast(Mark, mark), samples=samples, note=note,
    )  # fmt: skip


def _entry_document(quantity: Property) -> dict[str, object]:
    value = (
        int(quantity.value)
        if quantity.value.is_integer() and abs(quantity.value) < 1e6
        else quantity.value
    )
    entry: dict[str, object] = {
        "value": value,
        "unit": quantity.unit,
        "mark": quantity.mark,
        "source": quantity.source,
    }
    if quantity.samples:
        entry |= {"spread": round(quantity.spread or 0.0, 4), "samples": quantity.samples}
    if quantity.note:
        entry["note"] = quantity.note
    return entry
