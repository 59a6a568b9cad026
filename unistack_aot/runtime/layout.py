"""Where every buffer of a variant lies for one binding of its dimensions.

Not here: how offsets are chosen (arena.py), real addresses (cpu.py, cuda.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from unistack_aot.artifact.manifest import (
    Certificate,
    DimValue,
    Fill,
    Launch,
    Variant,
    walk,
)
from unistack_aot.base.errors import BadPackage
from unistack_aot.base.symbolic import Dim, evaluate, parse
from unistack_aot.runtime.arena import ArenaPlan, Interval, plan_arena


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes in bytes and places: buffer n starts ``shift[n]`` bytes after buffer ``root[n]``.

    ``offset[n]`` is the arena offset of a root that lies in the arena, -1 for any other buffer.
    """

    dims: Mapping[str, int]
    shapes: tuple[tuple[int, ...], ...]
    nbytes: tuple[int, ...]
    root: tuple[int, ...]
    shift: tuple[int, ...]
    offset: tuple[int, ...]
    arena: ArenaPlan


def value(text: str, dims: Mapping[str, int]) -> int:
    """The value of a dimension expression; `BadPackage` if it uses an unknown dimension."""
    if text.isdecimal():
        return int(text)
    try:
        return evaluate(_parsed(text), dims)
    except KeyError as error:
        raise BadPackage(
            f"the expression {text!r} uses the unknown dimension {error}", hint="compile it again"
        ) from error


def lay_out(variant: Variant, dims: Mapping[str, int]) -> Layout:
    """Evaluate all sizes for the binding and plan the arena."""
    buffers = variant.buffers
    nbytes = tuple(value(buffer.nbytes, dims) for buffer in buffers)
    shapes = tuple(tuple(value(size, dims) for size in buffer.shape) for buffer in buffers)
    root = tuple(
        number if buffer.alias_of is None else buffer.alias_of
        for number, buffer in enumerate(buffers)
    )
    shift = tuple(value(buffer.offset, dims) for buffer in buffers)
    for number, buffer in enumerate(buffers):
        if not 0 <= shift[number] <= shift[number] + nbytes[number] <= nbytes[root[number]]:
            raise BadPackage(
                f"buffer {buffer.name!r} ({nbytes[number]} bytes at {shift[number]}) lies outside "
                f"{buffers[root[number]].name!r} ({nbytes[root[number]]} bytes)",
                at=variant.target,
                hint="compile the model again",
            )
    members = [n for n, b in enumerate(buffers) if b.kind == "arena" and b.alias_of is None]
    plan = plan_arena(_intervals(variant, nbytes, members))
    offset = [-1] * len(buffers)
    for number, place in zip(members, plan.offsets, strict=True):
        offset[number] = place
    return Layout(dict(dims), shapes, nbytes, root, shift, tuple(offset), plan)


def certify(variant: Variant, dims: Mapping[str, int]) -> Certificate:
    """Exact arena bytes of a binding, their lower bound, the far traffic of its launches."""
    arena = lay_out(variant, dims).arena
    kernels = variant.kernels
    far = sum(
        value(kernels[step.kernel].far_bytes, dims)
        for step in walk(variant.steps)
        if isinstance(step, Launch)
    )
    bound = tuple(DimValue(name, dims[name]) for name in sorted(dims))
    return Certificate(bound, arena.peak, arena.lower_bound, far)


def _intervals(variant: Variant, nbytes: tuple[int, ...], members: list[int]) -> list[Interval]:
    """Lifetimes of the roots: joined with those of their views, everlasting after a Fill(once)."""
    first = [buffer.first for buffer in variant.buffers]
    last = [buffer.last for buffer in variant.buffers]
    steps = tuple(walk(variant.steps))
    for step in steps:
        if isinstance(step, Fill) and step.once:
            first[step.buffer], last[step.buffer] = 0, len(steps)
    for number, buffer in enumerate(variant.buffers):
        if buffer.alias_of is not None:
            first[buffer.alias_of] = min(first[buffer.alias_of], first[number])
            last[buffer.alias_of] = max(last[buffer.alias_of], last[number])
    return [Interval(nbytes[n], first[n], last[n], variant.buffers[n].alignment) for n in members]


@lru_cache(maxsize=1 << 16)
def _parsed(text: str) -> Dim:
    try:
        return parse(text)
    except ValueError as error:
        raise BadPackage(
            f"the expression {text!r} is not readable ({error})", hint="compile it again"
        ) from error
