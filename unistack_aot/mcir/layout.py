"""How a logical tensor lies in memory: axis order, blocks and halo. Not here: who chooses it (schedule/layout.py)."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from unistack_aot.base.symbolic import Dim, ceildiv


@dataclass(frozen=True, slots=True)
class Layout:
    """A buffer's physical arrangement; the default is dense row-major.

    `block` = (axis, size): that axis is split and its inner part becomes the innermost physical axis (NCHW with
    block (1, 8) is NCHW8c). The blocked extent is rounded up; the padding elements are zero.
    `halo` gives per axis (before, after) physical elements around the logical ones, always zero.
    """

    block: tuple[int, int] | None = None
    halo: tuple[tuple[int, int], ...] = ()

    @property
    def plain(self) -> bool:
        """Dense row-major without blocks or halo."""
        return self.block is None and not any(a or b for a, b in self.halo)

    def physical_shape(self, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """Extents in memory order for a logical `shape`."""
        halo = self.halo or ((0, 0),) * len(shape)
        padded = [
            extent + before + after for extent, (before, after) in zip(shape, halo, strict=True)
        ]
        if self.block is None:
            return tuple(padded)
        axis, size = self.block
        padded[axis] = ceildiv(padded[axis], size)
        return (*padded, size)

    def elements(self, shape: tuple[Dim, ...]) -> Dim:
        """Number of elements in memory, padding included."""
        return prod(self.physical_shape(shape))

    def offset(self, shape: tuple[Dim, ...], index: tuple[Dim, ...]) -> Dim:
        """Element offset of a logical index."""
        halo = self.halo or ((0, 0),) * len(shape)
        position = [i + before for i, (before, _) in zip(index, halo, strict=True)]
        if self.block is not None:
            axis, size = self.block
            inner = position[axis] % size
            position[axis] = position[axis] // size
            position.append(inner)
        result: Dim = 0
        for extent, i in zip(self.physical_shape(shape), position, strict=True):
            result = result * extent + i
        return result


PLAIN = Layout()
