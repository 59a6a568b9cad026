"""Facts about kernels that fusion asks for: size, reductions, how often a result is evaluated.

Not here: bytes and operations of a launch (mcir/counts.py).
"""

from __future__ import annotations

from math import prod

from unistack_aot.base.symbolic import Dim, evaluate, symbols
from unistack_aot.ir.scalar import Call, Load, Scalar, loads, postorder
from unistack_aot.mcir.nodes import Fold, Kernel, Let, Loop, Stmt, Store
from unistack_aot.mcir.program import Launch
from unistack_aot.mcir.transform import scalars, walk

TYPICAL = 64  # what a symbolic extent counts for when two numbers of points are compared


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


def evaluations(reader: Launch, result: str) -> float:
    """How often the reader evaluates each element of `result`: points of the loops around its loads per element.

    Symbolic extents count as `TYPICAL`, since only the ratio matters.
    """
    param = next(p for p, a in zip(reader.kernel.params, reader.args, strict=True) if a == result)
    elements = max(1, _typical(prod(param.shape)))
    return _points(reader.kernel.body, param.name, 1) / elements


def _points(body: tuple[Stmt, ...], buffer: str, around: int) -> int:
    total = 0
    for stmt in body:
        match stmt:
            case Loop():
                total += _points(stmt.body, buffer, around * max(1, _typical(stmt.extent)))
            case Fold():
                inside = around
                for axis in stmt.axes:
                    inside *= max(1, _typical(axis.extent))
                total += _points(stmt.body, buffer, inside)
                total += inside * _sites(stmt.values, buffer)
            case _:
                total += around * _sites(scalars(stmt), buffer)
    return total


def _sites(values: tuple[Scalar, ...], buffer: str) -> int:
    return len({load for v in values for load in loads(v) if load.buffer == buffer})


def _typical(extent: Dim) -> int:
    return evaluate(extent, dict.fromkeys(symbols(extent), TYPICAL))
