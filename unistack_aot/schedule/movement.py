"""Inverts the index map of a kernel that only moves elements, so that its producer can store in the moved place."""

from __future__ import annotations

from math import prod

from unistack_aot.base.symbolic import Dim, FloorDiv, Mod, linear_split, symbol, terms
from unistack_aot.base.verdict import No
from unistack_aot.ir.scalar import IndexEntry, Scalar
from unistack_aot.mcir.layout import PLAIN
from unistack_aot.mcir.nodes import Kernel, Loop, Store


def inverse(
    read: tuple[IndexEntry, ...],
    source: tuple[Dim, ...],
    loops: tuple[Loop, ...],
    target: tuple[Dim, ...],
) -> dict[str, Dim] | No:
    """Each loop variable of a reader in terms of the place `w0, w1, ...` of the element it reads.

    `read` is the index into a buffer of shape `source`, the reader stores to shape `target` at its loop variables.
    Handles permutations, an axis read as quotient and remainder, and two axes read as one.
    """
    if prod(source) != prod(target):
        return No("the reader repeats or drops elements")
    extents = {loop.var: loop.extent for loop in loops}
    quotients: dict[tuple[str, Dim], int] = {}
    remainders: dict[tuple[str, Dim], int] = {}
    found: dict[str, Dim] = {}
    for axis, entry in enumerate(read):
        if isinstance(entry, Scalar):
            return No("the reader's index depends on data")
        if source[axis] == 1:
            continue
        problem = _solve(entry, axis, source, extents, found, quotients, remainders)
        if problem is not None:
            return problem
    for (var, size), axis in quotients.items():
        low = remainders.get((var, size))
        if low is None or source[low] != size:
            return No(f"{var} is read in parts that do not fit")
        found[var] = place(axis) * size + place(low)
    missing = [loop.var for loop in loops if loop.var not in found and loop.extent != 1]
    return No(f"{missing[0]} does not follow from the element") if missing else found


def _solve(
    entry: Dim,
    axis: int,
    source: tuple[Dim, ...],
    extents: dict[str, Dim],
    found: dict[str, Dim],
    quotients: dict[tuple[str, Dim], int],
    remainders: dict[tuple[str, Dim], int],
) -> No | None:
    """Note what one index entry says about the loop variables."""
    const, parts = terms(entry)
    if const == 0 and len(parts) == 1 and parts[0][0] == 1:
        atom = parts[0][1]
        match atom:
            case FloorDiv(value, size) if str(value) in extents:
                quotients[(str(value), size)] = axis
                return None
            case Mod(value, size) if str(value) in extents:
                remainders[(str(value), size)] = axis
                return None
            case _:
                pass
    if str(entry) in extents:
        found[str(entry)] = place(axis)
        return None
    for high in extents:
        split = linear_split(entry, high)
        if split is None or split[0] in (0, 1) or str(split[1]) not in extents:
            continue
        size, low = split[0], str(split[1])
        if extents[low] == size:
            found[high], found[low] = place(axis) // size, place(axis) % size
            return None
    return No("the reader's index cannot be inverted")


def stored_places(loops: tuple[Loop, ...], store: Store, kernel: Kernel) -> dict[str, Dim] | No:
    """A map's loop variables by the place `w0, w1, ...` of the element it stores."""
    shape = kernel.param(store.buffer).shape
    at = {str(entry): place(k) for k, entry in enumerate(store.index)}
    if all(loop.var in at for loop in loops):
        return {loop.var: at[loop.var] for loop in loops}
    if any(isinstance(entry, Scalar) for entry in store.index):
        return No("it stores at places that depend on data")
    return inverse(store.index, shape, loops, tuple(loop.extent for loop in loops))


def place(axis: int) -> Dim:
    """The stand-in for the position of an element along an axis of the source."""
    return symbol(f"w{axis}")


def keeps_rows(moved: tuple[Dim, ...], source: tuple[Dim, ...], target: tuple[Dim, ...]) -> bool:
    """Whether neighbours along the source's last axis stay neighbours in the target."""
    last = next((k for k in reversed(range(len(source))) if source[k] != 1), None)
    if last is None:
        return True
    parts = linear_split(PLAIN.offset(target, moved), f"w{last}")
    return parts is not None and parts[0] == 1
