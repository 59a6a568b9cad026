"""Ops that order elements: TopK. Not here: the place of the greatest element (a fold).

NonZero, Unique and NonMaxSuppression have results whose extent depends on data; no op here
describes such a shape.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Array, tensor
from unistack_aot.aicf.types import TensorType, TupleType, Type
from unistack_aot.base.dtypes import i64
from unistack_aot.base.errors import IRError
from unistack_aot.base.symbolic import Dim, bounds, symbol, text
from unistack_aot.ir.formula import equal
from unistack_aot.ir.scalar import Load, Name, Scalar, all_of, index_value, literal, true, where
from unistack_aot.ir.scalar import call as scalar_call
from unistack_aot.mcir.monoids import highest, lowest
from unistack_aot.mcir.nodes import Axis, Fold, Kernel, Loop, Param, Role, Stmt, Store
from unistack_aot.ops.core import item
from unistack_aot.ops.onnx import OnnxCall, onnx
from unistack_aot.ops.op import TensorOp, axes_of, sample
from unistack_aot.ops.reindex import axis_of, static

_LATER = 1 << 61  # added to the position of what comes after all numbers
_NOWHERE = 1 << 62  # the position of the identity of argmax and argmin


@dataclass(frozen=True)
class TopK(TensorOp):
    """The `count` greatest (or smallest) elements along `axis` in order, and their positions (i64).

    Equal elements keep their order. NaN counts as greater than any number, as where numpy sorts.
    """

    count: Dim
    axis: int
    largest: bool = True

    family = "order"
    samples = (
        sample("f32[2,7]", count=3, axis=1),
        sample("f32[5,2]", count=5, axis=0, largest=False),
        sample("i64[9]", count=4, axis=0),
    )

    def infer(self, *types: Type) -> Type:
        """Values and positions."""
        (x,) = (tensor(t, self.name) for t in types)
        low = bounds(self.count - x.shape[self.axis], {})[0]
        if low is not None and low > 0:
            raise IRError(f"the {text(self.count)} greatest of {text(x.shape[self.axis])}")
        shape = (*x.shape[: self.axis], self.count, *x.shape[self.axis + 1 :])
        return TupleType((x.with_shape(shape), TensorType(i64, shape)))

    def reference(self, *arrays: Array) -> tuple[Array, ...]:
        """A stable sort, NaNs last."""
        x = np.moveaxis(arrays[0], self.axis, -1)
        (count,) = static((self.count,), "count")
        if self.largest:
            order = x.shape[-1] - 1 - np.argsort(x[..., ::-1], -1, kind="stable")[..., ::-1]
        else:
            order = np.argsort(x, -1, kind="stable")
        order = order[..., :count]
        values = np.take_along_axis(x, order, -1)
        return np.moveaxis(values, -1, self.axis), np.moveaxis(order, -1, self.axis)

    def lower(self, args: tuple[Param, ...], results: tuple[Param, ...]) -> Kernel:
        """Per row, one after another: the best element among those behind the one found before."""
        (x,) = args
        values, places = results
        index = axes_of(x.shape)
        rank, at = symbol("r0"), symbol("k0")
        found = (*index[: self.axis], rank, *index[self.axis + 1 :])
        before = (*index[: self.axis], rank - 1, *index[self.axis + 1 :])
        source = (*index[: self.axis], at, *index[self.axis + 1 :])
        here = Load(x.name, source, x.dtype)
        last = Load(values.name, before, x.dtype)
        last_place = Load(places.name, before, i64)
        follows = self._follows(here, last, last_place, index_value(at))
        open_ = where(equal(index_value(rank), 0), true(), follows)
        worst = lowest(x.dtype) if self.largest else highest(x.dtype)
        offered, place = self._offered(here, index_value(at))
        fold = Fold(
            ("best", "place"),
            "argmax" if self.largest else "argmin",
            (Axis("k0", x.shape[self.axis]),),
            (where(open_, offered, worst), where(open_, place, literal(_NOWHERE, i64))),
        )
        best, chosen = self._chosen(Name("best", x.dtype), Name("place", i64))
        body: tuple[Stmt, ...] = (
            fold,
            Store(values.name, found, best),
            Store(places.name, found, chosen),
        )
        body = (Loop("r0", self.count, body, Role.SEQ),)
        for axis in reversed(range(len(x.shape))):
            if axis != self.axis:
                body = (Loop(str(index[axis]), x.shape[axis], body),)
        return Kernel((*args, *results), body)

    def _follows(self, here: Scalar, last: Scalar, last_place: Scalar, place: Scalar) -> Scalar:
        worse = here < last if self.largest else last < here
        tie = equal(here, last)
        if here.dtype.is_float:
            fresh, held = scalar_call("isnan", here), scalar_call("isnan", last)
            less, more = (fresh, held) if self.largest else (held, fresh)
            worse = scalar_call("or", worse, all_of(more, scalar_call("not", less)))
            tie = scalar_call("or", tie, all_of(fresh, held))
        return scalar_call("or", worse, all_of(tie, last_place < place))

    def _offered(self, here: Scalar, place: Scalar) -> tuple[Scalar, Scalar]:
        """What the fold compares. NaN wins in any fold: among the smallest it comes as infinity, in a later place."""
        if self.largest or not here.dtype.is_float:
            return here, place
        hidden = scalar_call("isnan", here)
        return where(hidden, highest(here.dtype), here), where(hidden, place + _LATER, place)

    def _chosen(self, best: Scalar, place: Scalar) -> tuple[Scalar, Scalar]:
        """What the fold found, with NaN as itself again."""
        if self.largest or not best.dtype.is_float:
            return best, place
        hidden = literal(_LATER, i64) <= place
        return where(hidden, literal(math.nan, best.dtype), best), where(
            hidden, place - _LATER, place
        )


@onnx("TopK", since=1)
def import_top_k(call: OnnxCall) -> list[Node]:
    """TopK; K is an attribute before opset 10; unsorted results come sorted."""
    x = call.arg(0)
    call.ignore("sorted")
    axis = axis_of(call.attr("axis", -1), x.tensor.rank, call)
    count: Dim = (
        int(call.attributes["k"]) if "k" in call.attributes else call.require_dims(1, "K")[0]
    )
    call.at_least(x.tensor.shape[axis], count, f"takes {text(count)} of them")
    both = Node(TopK(count, axis, bool(call.attr("largest", 1))), (x,))
    return [item(both, 0), item(both, 1)]
