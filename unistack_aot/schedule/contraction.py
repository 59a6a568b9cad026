"""Recognises contractions: a sum of products inside independent loops, with rows, columns and depth told apart.

Not here: which tile instruction realises them (tiling.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from unistack_aot.base.symbolic import Dim, symbol, symbols
from unistack_aot.base.verdict import No
from unistack_aot.ir.scalar import Call, Cast, Lit, Load, Name, Scalar, index_symbols
from unistack_aot.mcir.nodes import Axis, Fold, Kernel, Let, Role, Stmt, Store
from unistack_aot.mcir.transform import all_loads, perfect_nest


@dataclass(frozen=True, slots=True)
class Factor:
    """One operand of the product: a load, and the condition outside which it counts as zero."""

    load: Load
    within: Scalar | None

    @property
    def names(self) -> frozenset[str]:
        """Index symbols that the operand depends on."""
        return index_symbols(self.load) | (
            frozenset() if self.within is None else index_symbols(self.within)
        )


@dataclass(frozen=True, slots=True)
class Site:
    """A kernel as a contraction. `tail` runs once per result element, with the sum as `Name(acc)`.

    `batch` loops index both operands, `rows` only a, `cols` only b; `depth` is summed over. `rest` are the kernel's
    further statements after the nest (zeroed borders).
    """

    a: Factor
    b: Factor
    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    cols: tuple[Axis, ...]
    depth: tuple[Axis, ...]
    acc: Name
    tail: tuple[Stmt, ...]
    rest: tuple[Stmt, ...] = ()

    def swapped(self) -> Site:
        """The same contraction with the operands' parts exchanged."""
        return replace(self, a=self.b, b=self.a, rows=self.cols, cols=self.rows)


def find_site(kernel: Kernel) -> Site | No:
    """The contraction that a kernel is, or why it is none."""
    loops, body = perfect_nest(kernel.body[:1])
    if not body or not isinstance(body[0], Fold):
        return No("there is no fold directly inside the loops")
    if any(loop.role is not Role.MAP for loop in loops):
        return No("its loops run in order")
    written = {p.name for p in kernel.outputs}
    if any(load.buffer in written for load in all_loads(kernel.body)):
        return No("it reads what it writes")
    fold, tail = body[0], body[1:]
    if fold.monoid != "sum" or fold.body or len(fold.states) != 1:
        return No("the fold is not a plain sum")
    if not tail or not all(isinstance(stmt, Store | Let) for stmt in tail):
        return No("more loops follow the sum")
    factors = factors_of(fold.values[0])
    if factors is None:
        return No("the summed value is not a product of two loads")
    a, b = factors
    axes = tuple(Axis(loop.var, loop.extent) for loop in loops)
    if any(symbols(axis.extent) & {x.var for x in axes} for axis in axes):
        return No("a loop's extent depends on another loop")
    acc = Name(fold.states[0], fold.values[0].dtype)
    site = _classified(a, b, axes, fold.axes, acc, tail)
    return replace(site, rest=kernel.body[1:])


def _classified(
    a: Factor,
    b: Factor,
    axes: tuple[Axis, ...],
    depth: tuple[Axis, ...],
    acc: Name,
    tail: tuple[Stmt, ...],
) -> Site:
    batch = tuple(x for x in axes if x.var in a.names and x.var in b.names)
    cols = tuple(x for x in axes if x.var in b.names and x.var not in a.names)
    rows = tuple(x for x in axes if x not in batch and x not in cols)
    return Site(a, b, batch, rows, cols, depth, acc, tail)


def factors_of(value: Scalar) -> tuple[Factor, Factor] | None:
    """The two operands of a product of loads; None if it is something else."""
    if not (isinstance(value, Call) and value.fn == "mul"):
        return None
    a, b = (_factor(arg) for arg in value.args)
    return None if a is None or b is None else (a, b)


def _factor(value: Scalar) -> Factor | None:
    """A load under casts and at most one `where(condition, load, 0)`."""
    within: Scalar | None = None
    while True:
        match value:
            case Cast():
                value = value.value
            case Call() if value.fn == "where" and within is None and _is_zero(value.args[2]):
                within, value = value.args[0], value.args[1]
            case Load():
                plain = not any(isinstance(e, Scalar) for e in value.index)
                return Factor(value, within) if plain else None
            case _:
                return None


def _is_zero(value: Scalar) -> bool:
    while isinstance(value, Cast):
        value = value.value
    return isinstance(value, Lit) and value.value == 0


def joint(axes: tuple[Axis, ...]) -> Dim:
    """The row-major number of a point of a joint iteration space."""
    result: Dim = 0
    for axis in axes:
        result = result * axis.extent + symbol(axis.var)
    return result


def product(axes: tuple[Axis, ...]) -> Dim:
    """Number of points of a joint iteration space."""
    result: Dim = 1
    for axis in axes:
        result = result * axis.extent
    return result
