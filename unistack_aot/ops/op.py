"""Base classes of the families: what a concrete op must state, and how a map over elements lowers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from unistack_aot.aicf.op import Array, Op, tensor
from unistack_aot.aicf.types import Shape, TensorType, Type
from unistack_aot.base.dtypes import DType, dtype_of, f32, i64
from unistack_aot.base.errors import ExtentsDiffer, IRError
from unistack_aot.base.symbolic import Dim, Sym, symbol
from unistack_aot.ir.dimensions import symbolic_formula
from unistack_aot.ir.evaluate import evaluate
from unistack_aot.ir.scalar import Arg, IndexEntry, Load, Scalar, apply_formula, cast
from unistack_aot.mcir.nodes import Kernel, Loop, Param, Stmt, Store

FACETS = ("infer", "reference", "lower", "samples")


@dataclass(frozen=True, slots=True)
class Sample:
    """One test case: operand types in text ("f32[2,3]"), attributes, and how to fill the operands.

    `fill` names a generator per operand: "normal", "positive", "unit" (inside (-1, 1)),
    "above_one", "halves" (multiples of 0.5), "special" (NaN, infinities, zeros), "index:N"
    (integers in [-N, N)), "bool", "small" (integers in [-4, 4]), "nonzero", "count" (0 to 3),
    "full" (the dtype's range), "one", "zeros". Missing entries mean "normal" for floats, "bool"
    for bool, "small" for integers. Plain symbols in a type take the value 3.
    """

    args: tuple[str, ...]
    attributes: tuple[tuple[str, Any], ...] = ()
    fill: tuple[str, ...] = ()


def sample(*args: str, fill: Sequence[str] = (), **attributes: Any) -> Sample:
    """Shorthand to write a `Sample`."""
    return Sample(args, tuple(sorted(attributes.items())), tuple(fill))


class TensorOp(Op, abstract=True):
    """Base of every op that lowers to one kernel; a concrete subclass must have all four facets."""

    samples: ClassVar[tuple[Sample | str, ...]]

    def __init_subclass__(cls, abstract: bool = False) -> None:
        super().__init_subclass__(abstract=abstract)
        if not abstract:
            missing = [facet for facet in FACETS if not _states(cls, facet)]
            if missing:
                raise TypeError(f"op {cls.__name__} lacks {', '.join(missing)}")

    def lower(self, args: tuple[Param, ...], results: tuple[Param, ...]) -> Kernel:
        """The naive kernel that computes `results` from `args`: what each element is, no decision how."""
        raise IRError(f"{self.name} has no lowering")

    def symbolic(self, *values: Array) -> Array | None:
        """The result for known integer operands, given as object arrays of ints and Syms; None if it cannot be told.

        Ops that only move elements may return `self.reference(*values)`.
        """
        return None


def _states(cls: type, facet: str) -> bool:
    return any(facet in vars(base) for base in cls.__mro__ if base not in (TensorOp, Op, object))


@dataclass(frozen=True, slots=True)
class Operand:
    """An argument of a lowering: `x(i, j)` is the scalar at that logical index."""

    param: Param

    @property
    def shape(self) -> Shape:
        """Logical shape."""
        return self.param.shape

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.param.dtype

    def __call__(self, *index: IndexEntry) -> Scalar:
        return Load(self.param.name, tuple(index), self.param.dtype)


def axes_of(shape: Shape, prefix: str = "i") -> tuple[Sym, ...]:
    """One fresh index symbol per axis."""
    return tuple(symbol(f"{prefix}{k}") for k in range(len(shape)))


def nest(shape: Shape, index: tuple[Sym, ...], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Independent loops over `shape` around `body`, outermost first."""
    for extent, var in zip(reversed(shape), reversed(index), strict=True):
        body = (Loop(str(var), extent, body),)
    return body


class MapOp(TensorOp, abstract=True):
    """An op whose every result element is one scalar expression of operand elements."""

    def element(
        self, operands: tuple[Operand, ...], index: tuple[Dim, ...], result: Param
    ) -> Scalar:
        """The result element at `index`."""
        raise IRError(f"{self.name} has no element formula")

    def lower(self, args: tuple[Param, ...], results: tuple[Param, ...]) -> Kernel:
        """One independent loop per result axis around one store."""
        (result,) = results
        index = axes_of(result.shape)
        value = self.element(tuple(Operand(p) for p in args), index, result)
        store = Store(result.name, index, value)
        return Kernel((*args, *results), nest(result.shape, index, (store,)))


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """The common shape of numpy broadcasting; IRError if two extents differ and neither is 1."""
    rank = max((len(s) for s in shapes), default=0)
    result: list[Dim] = []
    for axis in range(-rank, 0):
        extents = {s[axis] for s in shapes if len(s) >= -axis} - {1}
        if len(extents) > 1:
            first, second, *_ = sorted(extents, key=str)
            what = f"extents {first}, {second} do not broadcast"
            raise ExtentsDiffer(what, first, second, stretches=True)
        result.append(extents.pop() if extents else 1)
    return tuple(result)


def agree(left: Sequence[Dim], right: Sequence[Dim], what: str) -> None:
    """ExtentsDiffer unless both lists have equal extents; IRError if they are not equally long."""
    if len(left) != len(right):
        raise IRError(what)
    for a, b in zip(left, right, strict=True):
        if a != b:
            raise ExtentsDiffer(what, a, b)


def broadcast_index(shape: Shape, index: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Where an operand of `shape` is read for a broadcast result's `index`."""
    tail = index[len(index) - len(shape) :]
    return tuple(0 if extent == 1 else i for extent, i in zip(shape, tail, strict=True))


class Pointwise(MapOp, abstract=True):
    """A scalar formula over broadcast operands: `scalar` gives the type rule, the meaning and the loop nest.

    Narrow floats (f16, bf16) are computed in f32 and rounded once.
    """

    family = "pointwise"

    def scalar(self, *x: Scalar) -> Scalar:
        """The formula."""
        raise IRError(f"{self.name} has no formula")

    def formula(self, dtypes: Sequence[DType]) -> Scalar:
        """The formula traced over operands of these dtypes."""
        args = [Arg(k, d) for k, d in enumerate(dtypes)]
        wide = [cast(f32, a) if a.dtype.is_narrow else a for a in args]
        value = self.scalar(*wide)
        narrow = next((d for d in dtypes if d.is_narrow), None)
        if narrow is not None and value.dtype is f32 and all(d is not f32 for d in dtypes):
            return cast(narrow, value)
        return value

    def infer(self, *types: Type) -> Type:
        """Broadcast shape; dtype of the formula."""
        operands = [tensor(t, self.name) for t in types]
        dtype = _result_dtype(self, tuple(t.dtype for t in operands))
        return TensorType(dtype, broadcast([t.shape for t in operands]))

    def reference(self, *arrays: Array) -> Array:
        """The formula over numpy arrays."""
        dtypes = [dtype_of(a.dtype) for a in arrays]
        return np.asarray(evaluate(self.formula(dtypes), args=arrays))

    def symbolic(self, *values: Array) -> Array | None:
        """The formula over dimensions, where every function in it has an exact meaning on them."""
        try:
            return symbolic_formula(self.formula([i64] * len(values)), values)
        except (IRError, TypeError):
            return None

    def element(
        self, operands: tuple[Operand, ...], index: tuple[Dim, ...], result: Param
    ) -> Scalar:
        """The formula over the operands' elements."""
        values = tuple(x(*broadcast_index(x.shape, index)) for x in operands)
        return apply_formula(self.formula([x.dtype for x in operands]), values)


@lru_cache(1 << 14)
def _result_dtype(op: Pointwise, dtypes: tuple[DType, ...]) -> DType:
    """The formula's dtype; tracing a formula costs more than all else in building a node."""
    return op.formula(dtypes).dtype
