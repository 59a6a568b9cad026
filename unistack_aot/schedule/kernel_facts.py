"""Facts about kernels that fusion asks for: size, reductions, usual extents, how often a result is evaluated.

Not here: bytes and operations of a launch (mcir/counts.py).
"""

from __future__ import annotations

from math import prod

from unistack_aot.base.symbolic import Dim, Ranges, evaluate, symbols
from unistack_aot.ir.scalar import Call, Load, Scalar, loads, postorder
from unistack_aot.mcir.nodes import Fold, Kernel, Let, Loop, Stmt, Store
from unistack_aot.mcir.program import Launch
from unistack_aot.mcir.transform import scalars, walk

TYPICAL = 64  # what an open extent counts for when numbers of points or bytes are compared


def size(kernel: Kernel) -> int:
    """Distinct scalar nodes of a kernel."""
    seen: set[Scalar] = set()
    for stmt in walk(kernel.body):
        match stmt:
            case Store() | Let():
                seen.update(postorder(stmt.value))
            case Fold():
                seen.update(postorder(*stmt.values))
            case _:
                pass
    return len(seen)


def folds(kernel: Kernel) -> bool:
    """Whether the kernel reduces."""
    return any(isinstance(s, Fold) for s in walk(kernel.body))


def contracts(kernel: Kernel) -> bool:
    """Whether the kernel sums products of two loads: a candidate for a tile instruction."""
    return any(
        isinstance(s, Fold) and s.monoid == "sum" and any(_product(v) for v in s.values)
        for s in walk(kernel.body)
    )


def _product(value: Scalar) -> bool:
    if not isinstance(value, Call) or value.fn != "mul":
        return False
    a, b = value.args
    return a is not b and all(any(isinstance(n, Load) for n in postorder(x)) for x in (a, b))


def constant_like(value: Scalar) -> bool:
    """Whether a scalar reads nothing."""
    return not any(isinstance(n, Load) for n in postorder(value))


def evaluations(reader: Launch, result: str, ranges: Ranges | None = None) -> float:
    """How often the reader evaluates each element of `result`: points of the loops around its loads per element."""
    param = next(p for p, a in zip(reader.kernel.params, reader.args, strict=True) if a == result)
    known = ranges or {}
    elements = max(1, usual(prod(param.shape), known))
    return _points(reader.kernel.body, param.name, 1, known) / elements


def usual(value: Dim, ranges: Ranges) -> int:
    """An extent where each dimension is as near to `TYPICAL` as its range allows."""
    return evaluate(value, {name: _size(name, ranges) for name in symbols(value)})


def _points(body: tuple[Stmt, ...], buffer: str, around: int, ranges: Ranges) -> int:
    total = 0
    for stmt in body:
        match stmt:
            case Loop():
                inside = around * max(1, usual(stmt.extent, ranges))
                total += _points(stmt.body, buffer, inside, ranges)
            case Fold():
                inside = around
                for axis in stmt.axes:
                    inside *= max(1, usual(axis.extent, ranges))
                total += _points(stmt.body, buffer, inside, ranges)
                total += inside * _sites(stmt.values, buffer)
            case _:
                total += around * _sites(scalars(stmt), buffer)
    return total


def _sites(values: tuple[Scalar, ...], buffer: str) -> int:
    return len({load for v in values for load in loads(v) if load.buffer == buffer})


def _size(name: str, ranges: Ranges) -> int:
    low, high = ranges.get(name, (None, None))
    size = min(TYPICAL, high) if isinstance(high, int) else TYPICAL
    return max(size, low) if isinstance(low, int) else size
