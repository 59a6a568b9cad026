"""Loads whose place is a linear function of loop variables. Not here: what is printed for them."""

from __future__ import annotations

from dataclasses import dataclass

from unistack_aot.base.dtypes import f32
from unistack_aot.base.symbolic import Dim, linear_split, substitute
from unistack_aot.codegen.kernel import KernelWriter
from unistack_aot.ir.scalar import Load, Scalar


@dataclass(frozen=True, slots=True)
class Linear:
    """Where a load's elements lie: the offset of the first one, and elements per step of each variable."""

    buffer: str
    first: Dim
    steps: tuple[Dim, ...]


def linear_load(value: Scalar, names: tuple[str, ...], writer: KernelWriter) -> Linear | None:
    """A load of f32 as a linear function of the variables; None if it is something else."""
    if not isinstance(value, Load) or value.dtype is not f32:
        return None
    index = tuple(entry for entry in value.index if not isinstance(entry, Scalar))
    if len(index) != len(value.index):
        return None
    rest = writer.printer.offset(value.buffer, index)
    steps: list[Dim] = []
    for name in names:
        parts = linear_split(rest, name)
        if parts is None:
            return None
        step, rest = parts
        steps.append(step)
    first = substitute(rest, dict.fromkeys(names, 0))
    return Linear(value.buffer, first, tuple(steps))
