"""Lockstep evaluation of scalars inside a kernel, guarded loads included. Not here: statements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from unistack_aot.base.errors import IRError
from unistack_aot.base.symbolic import (
    Atom,
    Dim,
    FloorDiv,
    Max,
    Min,
    Mod,
    Product,
    Symbol,
    terms,
    text,
)
from unistack_aot.ir.evaluate import Array, convert
from unistack_aot.ir.functions import FUNCTIONS
from unistack_aot.ir.scalar import (
    Call,
    Cast,
    Index,
    IndexEntry,
    Lit,
    Load,
    Name,
    Scalar,
    children,
)


def index_array(dim: Dim, variables: Mapping[str, Array | int]) -> Array:
    """An index expression over arrays of index values; KeyError for a name without a value."""
    const, parts = terms(dim)
    total = np.asarray(const, np.int64)
    for coefficient, atom in parts:
        total = total + coefficient * _atom(atom, variables)
    return np.asarray(total)


def _atom(atom: Atom, variables: Mapping[str, Array | int]) -> Array:
    match atom:
        case Symbol(name):
            return np.asarray(variables[name])
        case Product(factors):
            return reduce(np.multiply, (_atom(f, variables) for f in factors))
        case FloorDiv(numerator, denominator):
            over = index_array(denominator, variables)
            return np.floor_divide(index_array(numerator, variables), over)
        case Mod(value, divisor):
            return np.mod(index_array(value, variables), index_array(divisor, variables))
        case Min(args):
            return reduce(np.minimum, (index_array(a, variables) for a in args))
        case Max(args):
            return reduce(np.maximum, (index_array(a, variables) for a in args))


@dataclass(frozen=True)
class Memory:
    """A buffer or tile; a tile inside lockstep loops has one copy per point: `private` selects."""

    data: Array
    private: tuple[Array, ...] = ()

    def read(self, index: tuple[Array, ...]) -> Array:
        """The elements at `index`; zeros if there are none, which only excluded points may ask for."""
        if not self.data.size:
            return np.zeros(np.broadcast_shapes(*(i.shape for i in index)), self.data.dtype)
        return np.asarray(self.data[index])

    def index(
        self,
        name: str,
        entries: tuple[IndexEntry, ...],
        scope: Scope,
        places: tuple[Array, ...] | None = None,
    ) -> tuple[Array, ...]:
        """Index arrays for logical `entries` (or for given `places`); IRError if one is outside.

        Points that the scope's mask excludes are not checked and read element 0.
        """
        if places is None:
            places = tuple(
                element_value(e, scope)
                if isinstance(e, Scalar)
                else index_array(e, scope.variables)
                for e in entries
            )
        extents = self.data.shape[len(self.private) :]
        if len(places) != len(extents):
            raise IRError(f"{name} has {len(extents)} axes, indexed with {len(places)}")
        checked: list[Array] = []
        for axis, (place, extent) in enumerate(zip(places, extents, strict=True)):
            outside = (place < 0) | (place >= extent)
            if np.any(outside):
                if scope.mask is None or np.any(outside & scope.mask):
                    where = f"the {extent} elements of axis {axis} of {name}"
                    raise IRError(f"index {_shown(entries, axis)} leaves {where}")
                place = np.where(outside, 0, place)
            checked.append(place)
        return (*self.private, *checked)


def _shown(entries: tuple[IndexEntry, ...], axis: int) -> str:
    entry = entries[axis] if entries else None
    return "from data" if entry is None or isinstance(entry, Scalar) else text(entry)


@dataclass(frozen=True)
class Scope:
    """What a statement sees: memories, index values, names, lockstep axes, which points are active.

    `grid` holds the extents of lockstep axes, the innermost first, so that values of outer loops
    broadcast into inner ones as numpy broadcasts. `scattered`: parallel loops run in pieces, in no order.
    """

    memories: dict[str, Memory]
    variables: Mapping[str, Array]
    names: dict[str, Array]
    grid: tuple[int, ...]
    mask: Array | None
    scattered: bool = False

    def bind(self, var: str, value: Array) -> Scope:
        """A scope for a loop body with one more index value."""
        return Scope(
            dict(self.memories),
            {**self.variables, var: value},
            dict(self.names),
            self.grid,
            self.mask,
            self.scattered,
        )

    def push(self, var: str, values: Array) -> Scope:
        """A scope with one more lockstep axis, along which `var` takes `values`."""
        shaped = values.reshape(-1, *(1,) * len(self.grid))
        return replace(self.bind(var, shaped), grid=(len(values), *self.grid))

    def where(self, condition: Array) -> Scope:
        """A scope for the points where `condition` holds as well."""
        mask = condition if self.mask is None else self.mask & condition
        return replace(self, names=dict(self.names), memories=dict(self.memories), mask=mask)


_Task = tuple[Scalar, int]


def element_value(root: Scalar, scope: Scope) -> Array:
    """A scalar expression at all points of a scope; loads under `where` count only where chosen."""
    masks: list[Array | None] = [scope.mask]
    branches: dict[_Task, tuple[int, int]] = {}
    done: dict[_Task, Array] = {}
    stack: list[_Task] = [(root, 0)]
    while stack:
        task = stack[-1]
        if task in done:
            stack.pop()
            continue
        needs = _needs(task, done, masks, branches)
        missing = [need for need in needs if need not in done]
        if missing:
            stack.extend(missing)
            continue
        node, guard = stack.pop()
        at = scope if masks[guard] is scope.mask else replace(scope, mask=masks[guard])
        done[task] = _apply(node, [done[need] for need in needs], at)
    return done[(root, 0)]


def _needs(
    task: _Task,
    done: dict[_Task, Array],
    masks: list[Array | None],
    branches: dict[_Task, tuple[int, int]],
) -> list[_Task]:
    node, guard = task
    if not (isinstance(node, Call) and node.fn == "where"):
        return [(child, guard) for child in children(node)]
    test, yes, no = node.args
    if (test, guard) not in done:
        return [(test, guard)]
    if task not in branches:
        holds, held = done[(test, guard)], masks[guard]
        masks.append(holds if held is None else held & holds)
        masks.append(~holds if held is None else held & ~holds)
        branches[task] = (len(masks) - 2, len(masks) - 1)
    chosen, other = branches[task]
    return [(test, guard), (yes, chosen), (no, other)]


def _apply(node: Scalar, args: list[Array], scope: Scope) -> Array:
    match node:
        case Lit():
            return np.asarray(node.value, node.dtype.numpy)
        case Call():
            return np.asarray(FUNCTIONS[node.fn].evaluate(*args)).astype(
                node.dtype.numpy, copy=False
            )
        case Cast():
            return np.asarray(convert(args[0], node.dtype))
        case Name():
            return scope.names[node.name]
        case Index():
            return index_array(node.dim, scope.variables).astype(np.int64)
        case Load():
            memory = scope.memories[node.buffer]
            rest = iter(args)
            places = tuple(
                next(rest) if isinstance(e, Scalar) else index_array(e, scope.variables)
                for e in node.index
            )
            return memory.read(memory.index(node.buffer, node.index, scope, places))
        case _:
            raise IRError(f"{type(node).__name__} has no value inside a kernel")
