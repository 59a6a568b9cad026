"""Which accesses of a loop move as one wide access: contiguous in its variable, and aligned.

Not here: how wide loops are made (vectorising.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from unistack_aot.base.symbolic import (
    Dim,
    Ranges,
    divisible,
    linear_split,
    simplify,
    substitute,
    symbol,
    symbols,
)
from unistack_aot.base.verdict import YES, No, Yes
from unistack_aot.ir.scalar import (
    Call,
    IndexEntry,
    Load,
    Scalar,
    children,
    index_symbols,
    loads,
    postorder,
)
from unistack_aot.mcir.nodes import Let, Param, Stmt, Store
from unistack_aot.mcir.transform import scalars, walk


def offset_of(param: Param, index: tuple[IndexEntry, ...], ranges: Ranges) -> Dim:
    """The element offset of an access; an entry that depends on data is an opaque symbol `@axis`."""
    opaque = tuple(
        symbol(f"@{axis}") if isinstance(entry, Scalar) else entry
        for axis, entry in enumerate(index)
    )
    return simplify(param.layout.offset(param.shape, opaque), ranges)


def stride_in(param: Param, index: tuple[IndexEntry, ...], var: str, ranges: Ranges) -> Dim | None:
    """Elements moved per step of `var`; None if the offset is not linear in it or depends on it through data."""
    if any(isinstance(e, Scalar) and var in index_symbols(e) for e in index):
        return None
    offset = offset_of(param, index, ranges)
    if isinstance(offset, int) or var not in symbols(offset):
        return 0
    parts = linear_split(offset, var)
    return None if parts is None else parts[0]


def is_wide(
    param: Param, index: tuple[IndexEntry, ...], var: str, width: int, ranges: Ranges
) -> bool:
    """Whether `width` steps of `var` from 0 on touch one aligned run of elements."""
    if stride_in(param, index, var, ranges) != 1:
        return False
    first = substitute(offset_of(param, index, ranges), {var: 0})
    return divisible(simplify(first, ranges), width)


def always_loaded(value: Scalar) -> tuple[Load, ...]:
    """Loads that happen whichever way the `where`s inside go."""
    seen: dict[Scalar, None] = {}
    stack = [value]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen[node] = None
        if isinstance(node, Call) and node.fn == "where" and any(map(loads, node.args[1:])):
            stack.append(node.args[0])
        else:
            stack.extend(children(node))
    return tuple(node for node in seen if isinstance(node, Load))


def free_loads(body: Iterable[Stmt]) -> tuple[Load, ...]:
    """Unconditional loads of a straight body."""
    found = (load for stmt in body for value in scalars(stmt) for load in always_loaded(value))
    return tuple(dict.fromkeys(found))


def width_of(
    params: Mapping[str, Param],
    body: tuple[Stmt, ...],
    var: str,
    extent: Dim,
    ranges: Ranges,
    most_bytes: int,
) -> int:
    """The largest power-of-two number of steps of `var` that every access takes as one wide access; 1 if none does.

    Loads that do not move with `var` are read once; one that jumps makes the loop narrow, because neighbouring workers
    would lie far apart.
    """
    widest = _widest_dtype(params, body, var, ranges)
    if widest is None:
        return 1
    width = max(1, min(8, most_bytes // widest))
    while width > 1 and not are_wide(params, body, var, extent, width, ranges):
        width //= 2
    return width


def _accesses(
    params: Mapping[str, Param], body: tuple[Stmt, ...]
) -> list[tuple[Param, tuple[IndexEntry, ...], bool]]:
    found = [(params[x.buffer], x.index, False) for x in free_loads(body) if x.buffer in params]
    for stmt in walk(body):
        if isinstance(stmt, Store) and stmt.buffer in params:
            found.append((params[stmt.buffer], stmt.index, stmt.combine == "set"))
    return found


def _widest_dtype(
    params: Mapping[str, Param], body: tuple[Stmt, ...], var: str, ranges: Ranges
) -> int | None:
    """Bytes of the largest element that moves with `var`; None where an access jumps."""
    sizes: list[int] = []
    for param, index, _ in _accesses(params, body):
        stride = stride_in(param, index, var, ranges)
        if stride == 1:
            sizes.append(param.dtype.bytes)
        elif stride != 0 and not _gathers(index):
            return None
    return max(sizes) if sizes else None


def _gathers(index: tuple[IndexEntry, ...]) -> bool:
    return any(isinstance(entry, Scalar) for entry in index)


def are_wide(
    params: Mapping[str, Param],
    body: tuple[Stmt, ...],
    var: str,
    extent: Dim,
    width: int,
    ranges: Ranges,
) -> Yes | No:
    """Whether every access of a body that moves with `var` takes `width` steps of it at once."""
    if not divisible(extent, width):
        return No(f"its steps do not divide into {width}")
    if any(isinstance(s, Store) and s.combine != "set" for s in walk(body)):
        return No("it combines with what its result holds")
    inside = {**ranges, f"{var}_q": (0, None), var: (0, width - 1)}
    env: dict[str, Dim] = {var: symbol(f"{var}_q") * width + symbol(var)}
    for param, index, writes in _accesses(params, body):
        stride = stride_in(param, index, var, ranges)
        if stride == 0 or (stride is None and not writes):
            continue
        moved = tuple(e if isinstance(e, Scalar) else substitute(e, env) for e in index)
        if not is_wide(param, moved, var, width, inside):
            return No(f"{width} elements of {param.name} are not one aligned run")
    return YES


def is_straight(body: Iterable[Stmt]) -> bool:
    """Whether a body holds only values and plain stores."""
    return all(isinstance(stmt, Let | Store) for stmt in body)


def arithmetic(body: Iterable[Stmt]) -> int:
    """Distinct scalar nodes of a body."""
    return len(set(postorder(*(value for stmt in body for value in scalars(stmt)))))
