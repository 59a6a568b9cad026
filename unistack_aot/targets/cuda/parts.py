"""A translation unit in parts that are built by themselves: what is built again is the part that changed.

A part's text depends on its own kernels only, whatever stands around them: line information names a file per kernel.
Not here: the compiler (build.py), parts of the emulator's images (emulator/build.py).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from unistack_aot.targets.cuda.build import PLACE

MOST = 12
"""Kernels of a part: one run of nvcc costs 0.3 s before the first, and about 0.05 s for each small one."""
_BEGIN = re.compile(r'(?m)^(?://.*\n)*extern "C" __global__')
_END = re.compile(r"(?m)^UA_KERNEL\((\w+)\)\n?")
_STRUCT = re.compile(r"(?ms)^struct (\w+) \{\n.*?^\};\n?")


@dataclass(frozen=True, slots=True)
class Piece:
    """The text of one kernel, and its first line's number in the unit."""

    symbol: str
    text: str
    line: int

    @property
    def file(self) -> str:
        """The name of the kernel's text in line information."""
        return f"{self.symbol}.cu"


def pieces(unit: str) -> tuple[str, tuple[Piece, ...]]:
    """What stands before all kernels of a unit, and the kernels."""
    begin = _BEGIN.search(unit)
    if begin is None:
        return unit, ()
    found: list[Piece] = []
    place = begin.start()
    for end in _END.finditer(unit):
        line = unit.count("\n", 0, place) + 1
        found.append(Piece(end[1], unit[place : end.end()], line))
        place = end.end()
    return unit[: begin.start()], tuple(found)


def parts(unit: str, apart: Collection[str] = ()) -> tuple[str, ...]:
    """The unit as texts of up to `MOST` kernels; the kernels `apart` in one of their own, so that the others stay."""
    head, kernels = pieces(unit)
    if not kernels:
        return (unit,)
    groups = [
        tuple(piece for piece in kernels[first : first + MOST] if piece.symbol not in apart)
        for first in range(0, len(kernels), MOST)
    ]
    groups.append(tuple(piece for piece in kernels if piece.symbol in apart))
    return tuple("".join(_part(head, group)) for group in groups if group)


def _part(head: str, group: tuple[Piece, ...]) -> Iterator[str]:
    """A text of its own: of the structs before all kernels, those that these use."""
    bodies = "".join(piece.text for piece in group)
    used = set(re.findall(r"\w+", bodies))
    yield _STRUCT.sub(lambda found: found[0] if found[1] in used else "", head)
    for piece in group:
        yield f'#line 1 "{PLACE}/{piece.file}"\n{piece.text.rstrip()}\n'
