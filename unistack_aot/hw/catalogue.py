"""The property maps that ship with the compiler, and which of them stands for a generation or a
device.

Built-in maps hold cited numbers, so that a compilation never depends on the machine it runs on; a
recorded measurement is used only when the user names it (`--map`). Not here: what a map is
(propmap.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import cast

from unistack_aot.hw import propmap
from unistack_aot.hw.consistency import contradictions
from unistack_aot.hw.propmap import BadPropertyMap, PropertyMap

_MAPS = "unistack_aot.hw.maps"


@dataclass(frozen=True, slots=True)
class MapChoice:
    """The map taken for a request; `exact` is False when it describes a neighbour, and `because`
    says so in words.
    """

    map: PropertyMap
    exact: bool
    because: str


@cache
def builtin_maps() -> Mapping[str, PropertyMap]:
    """Return every built-in map by id."""
    files = sorted(resources.files(_MAPS).iterdir(), key=lambda item: item.name)
    found = [
        propmap.parse(json.loads(item.read_text(encoding="utf-8")), item.name)
        for item in files
        if item.name.endswith(".json") and item.name != "defaults.json"
    ]
    return MappingProxyType({each.id: each for each in found})


@cache
def default_ids() -> Mapping[str, str]:
    """Return architecture name -> id of the map that stands for it."""
    text = resources.files(_MAPS).joinpath("defaults.json").read_text(encoding="utf-8")
    return MappingProxyType(cast(dict[str, str], json.loads(text)))


def map_for_arch(arch: str) -> MapChoice:
    """Return the default map of an architecture ("sm_90", "x86-64-v3"), or that of its nearest
    relative, saying so.
    """
    defaults = default_ids()
    if arch in defaults:
        return MapChoice(builtin_maps()[defaults[arch]], True, f"default map of {arch}")
    family, number = _split(arch)
    relatives = sorted(
        (_split(known)[1], known) for known in defaults if family and _split(known)[0] == family
    )
    if not relatives:
        raise BadPropertyMap(
            f"no property map for '{arch}'",
            hint=f"known: {', '.join(sorted(defaults))}; or name a map file with --map",
        )
    # An older relative promises nothing the newer one lacks; only below the oldest must we look
    # upwards.
    older = [known for known_number, known in relatives if known_number <= number]
    nearest = older[-1] if older else relatives[0][1]
    chosen = builtin_maps()[defaults[nearest]]
    return MapChoice(
        chosen, False, f"no map for {arch}; using '{chosen.id}' of the nearest generation {nearest}"
    )


def map_for_device(device: str, arch: str) -> MapChoice:
    """Return the map of a device by the name its driver reports, else the default of its
    generation, saying which.
    """
    wanted = _model_words(device)
    for known in builtin_maps().values():
        if known.arch == arch and wanted & _model_words(known.device):
            return MapChoice(known, True, f"built-in map of {known.device}")
    general = map_for_arch(arch)
    return MapChoice(general.map, False, f"'{device}' has no map of its own; {general.because}")


def by_arch(maps: Sequence[PropertyMap], levels: Collection[str]) -> dict[str, PropertyMap]:
    """Maps that stand for the built-in ones of their architectures, which are among `levels`.

    BadPropertyMap for one that contradicts itself, lacks what is needed, or has nothing to describe.
    """
    found: dict[str, PropertyMap] = {}
    for each in maps:
        if against := contradictions(each):
            raise BadPropertyMap(against[0], at=each.device, hint="correct it, or probe again")
        if each.arch in found:
            raise BadPropertyMap(
                f"two property maps describe {each.arch}",
                at=f"{found[each.arch].id}, {each.id}",
                hint="give one for each architecture",
            )
        if each.arch not in levels:
            raise BadPropertyMap(
                f"the property map '{each.id}' describes {each.arch}",
                at=f"targets of {', '.join(levels)}",
                hint=f"build for {each.arch}, or leave the map out",
            )
        found[each.arch] = each
    return found


def find_map(name: str) -> PropertyMap:
    """Return a map by built-in id, or by file path (has a separator or ends in .json)."""
    if name.endswith(".json") or "/" in name:
        return propmap.load(Path(name))
    found = builtin_maps().get(name)
    if found is None:
        raise BadPropertyMap(
            f"no built-in property map is called '{name}'",
            hint=f"known: {', '.join(builtin_maps())}; or give the path of a .json file",
        )
    return found


def _split(arch: str) -> tuple[str, int]:
    match = re.fullmatch(r"(.*?)(\d+)[a-z]?", arch)
    return (match[1], int(match[2])) if match else ("", 0)


def _model_words(device: str) -> frozenset[str]:
    """Words that tell models apart: those with a digit that are not sizes (H100, T4, 4090)."""
    words = re.findall(r"[a-z]*\d+[a-z]*", device.lower())
    return frozenset(word for word in words if not re.fullmatch(r"sxm\d*|\d{1,3}(gb)?", word))
