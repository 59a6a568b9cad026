"""The inputs and outputs of a variant under one layout: shapes, types, which buffers follow them.

Not here: the signature as callers see it (binding.py), addresses (cpu.py, cuda.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from unistack_aot.artifact.manifest import BufferKind, Variant
from unistack_aot.base.dtypes import parse_dtype
from unistack_aot.runtime.layout import Layout


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output; ``entries`` are (buffer, bytes from its start) for it and its views."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nbytes: int
    alignment: int
    entries: tuple[tuple[int, int], ...]


def ports(variant: Variant, layout: Layout, kind: BufferKind) -> tuple[Port, ...]:
    """All ports of a kind, in the order of the buffers."""
    found: list[Port] = []
    for number, buffer in enumerate(variant.buffers):
        if buffer.kind != kind:
            continue
        entries = tuple(
            (other, layout.shift[other]) for other, root in enumerate(layout.root) if root == number
        )
        found.append(
            Port(
                buffer.key,
                layout.shapes[number],
                parse_dtype(buffer.dtype).numpy,
                layout.nbytes[number],
                buffer.alignment,
                entries,
            )
        )
    return tuple(found)
