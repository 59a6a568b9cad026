"""From records to a property map. Not here: the map's own rules (unistack_aot/hw)."""

from __future__ import annotations

import datetime
import re
from types import MappingProxyType

from probe_suite import cpu_facts
from probe_suite.record import Finding, Record
from unistack_aot.base.measured import quantity
from unistack_aot.hw.catalogue import MapChoice, map_for_arch, map_for_device
from unistack_aot.hw.consistency import REQUIRED
from unistack_aot.hw.property import Property
from unistack_aot.hw.propmap import PropertyMap


def to_map(records: tuple[Record, ...], device: str, arch: str) -> tuple[PropertyMap, str]:
    """Return the map of what was measured, and which built-in map lent the rest.

    A required entry that no probe found comes from the built-in map of the device or, if it has
    none, of its nearest relative, with its own mark and source, and a note that it was not measured
    here.
    """
    facts = {key: text for record in records for key, text in record.facts.items()}
    choice = base_map(facts.get("model", ""), arch)
    base = choice.map
    measured = {
        found.name: _property(found, record.probe)
        for record in records
        for found in record.findings
    }
    name = facts.get("model") or base.device
    units = measured.get("units.count")
    if units is not None and base.kind == "cpu":
        name = f"{name}, {units.value:g} processors"
    lacking = [entry for entry in REQUIRED[base.kind] if entry not in measured]
    lent = {entry: _lent(base.need(entry), base.id) for entry in lacking}
    properties = {**lent, **measured}
    sources = {record.probe: record.question for record in records if record.findings}
    sources |= {entry.source: base.sources[entry.source] for entry in lent.values()}
    made = PropertyMap(
        id=re.sub(r"[^a-z0-9]+", "-", f"{name} {arch}".lower()).strip("-"),
        device=name,
        kind=base.kind,
        arch=arch,
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        driver=facts.get("system", "" if device != "cpu" else cpu_facts.kernel()),
        levels=base.levels,
        capabilities=base.capabilities,
        sources=MappingProxyType(dict(sorted(sources.items()))),
        properties=MappingProxyType(dict(sorted(properties.items()))),
    )
    return made, choice.because


def base_map(model: str, arch: str) -> MapChoice:
    """The built-in map nearest to a device: its own by the name it reports, else its generation's."""
    return map_for_device(model, arch) if model and arch.startswith("sm_") else map_for_arch(arch)


def shown(found: Finding) -> str:
    """Return one finding for people: name, value, spread."""
    text = f"{found.name} {quantity(found.value, found.unit)}"
    return f"{text} +-{found.spread:.1%}" if found.spread else text


def _property(found: Finding, probe: str) -> Property:
    return Property(
        float(found.value), found.unit, probe, found.spread,
        name=found.name, mark="probe", samples=found.samples, note=found.note,
    )  # fmt: skip


def _lent(entry: Property, origin: str) -> Property:
    note = f"not measured here; from the built-in map {origin}"
    note = f"{note}: {entry.note}" if entry.note else note
    return Property(
        entry.value, entry.unit, entry.source, entry.spread,
        name=entry.name, mark=entry.mark, samples=entry.samples, note=note,
    )  # fmt: skip
