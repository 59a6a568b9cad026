"""How far a correct result may be from the exact one, from element types and reduction lengths.

Not here: comparing (compare.py), conditioning, which is measured (oracles.py).

A fold of K terms rounds K times; as a random walk its relative error is eps * sqrt(K) [Higham &
Mary, A new approach to probabilistic rounding error analysis, SIAM J. Sci. Comput. 41 (2019)].
Errors of successive operations add as variances, so along a path the relative error is

    sqrt(sum over operations of  K * eps(accumulator)^2 + eps(result)^2)

and what is allowed is `MARGIN` times that for the worst path into an output. Operations that only
move elements add nothing; a pointwise formula counts as `FORMULA` roundings. Contractions in a
narrower precision add both operands' rounding, 2 eps^2, whatever their length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any

import numpy as np

from unistack_aot.aicf.graph import Graph
from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Array, Op
from unistack_aot.aicf.types import TensorType
from unistack_aot.base.dtypes import DType, f32
from unistack_aot.base.options import Convolution
from unistack_aot.ops.attention import Attention
from unistack_aot.ops.contract import Contract
from unistack_aot.ops.control import If, Loop, Scan
from unistack_aot.ops.convolve import ConvolutionFamily
from unistack_aot.ops.fold import LogSumExp, Moments, Reduce
from unistack_aot.ops.recurrent import Recurrence
from unistack_aot.ops.resize import Resize
from unistack_aot.ops.scan import CumSum
from unistack_aot.ops.scatter import Scatter
from unistack_aot.ops.softmax import SoftmaxFamily
from unistack_aot.ops.window import WindowFold

MARGIN = 8.0
"""Standard deviations allowed: the largest of 10^9 normal errors is below 6.5, and the reference
itself may be off by as much."""
FORMULA = 4
"""Roundings of a pointwise formula: a few operations, or one function good to a few ulps."""
UNKNOWN_TRIPS = 16
"""Iterations assumed of a loop whose number depends on data."""

_MANTISSA = {"f64": 52, "f32": 23, "tf32": 10, "f16": 10, "bf16": 7}


@dataclass(frozen=True, slots=True)
class Rounding:
    """How a package computes: the precision of contractions' f32 operands, the form of convolutions."""

    contraction: str = "f32"
    convolution: Convolution = "fast"

    @property
    def operand_variance(self) -> float:
        """Squared relative error that narrowing both operands of a product adds."""
        return 0.0 if self.contraction == "f32" else 2 * eps(self.contraction) ** 2


def eps(dtype: DType | str) -> float:
    """The relative spacing of a float type at 1 (an ulp); 0 for integers and bools."""
    name = dtype if isinstance(dtype, str) else dtype.name
    return 2.0 ** -_MANTISSA[name] if name in _MANTISSA else 0.0


def allowed(graph: Graph, rounding: Rounding) -> dict[str, float]:
    """Per output of a graph without symbolic dimensions: the relative error that is tolerated."""
    variance = variances(graph, rounding)
    return {name: MARGIN * sqrt(variance[node]) for name, node in graph.outputs}


def variances(graph: Graph, rounding: Rounding) -> dict[Node, float]:
    """Per node: squared relative rounding error of the worst path into it."""
    found: dict[Node, float] = {}
    for node in graph.nodes():
        before = max((found[arg] for arg in node.args), default=0.0)
        found[node] = before + own_variance(node, rounding)
    return found


def own_variance(node: Node, rounding: Rounding) -> float:
    """Squared relative error that one operation adds."""
    kinds = (node.type,) if isinstance(node.type, TensorType) else node.type.items
    result = max((eps(kind.dtype) for kind in kinds), default=0.0)
    if isinstance(node.op, If | Loop | Scan):
        return _region_variance(node, rounding)
    terms = roundings(node)
    if not result or not terms:
        return 0.0
    if node.op.family == "pointwise":
        return terms * result**2
    narrow = rounding.operand_variance if node.op.family == "contract" else 0.0
    return terms * min(result, eps(f32)) ** 2 + result**2 + narrow


def roundings(node: Node) -> int:
    """How many roundings go into one element of the result; 0 for operations that only move."""
    op: Op = node.op
    shapes = [_extents(arg.type) for arg in node.args]
    match op:
        case Contract():
            sizes: dict[str, int] = {}
            for labels, shape in zip((op.left, op.right), shapes, strict=True):
                sizes.update(zip(labels, shape, strict=True))
            return prod(size for label, size in sizes.items() if label not in op.out)
        case ConvolutionFamily():
            return prod(shapes[1][1:])
        case Attention():
            return shapes[1][2] + shapes[0][3] + FORMULA
        case Reduce() | LogSumExp() | Moments():
            return prod(shapes[0][axis] for axis in op.axes)
        case WindowFold():
            return prod(op.window.kernel)
        case SoftmaxFamily():
            return shapes[0][op.axis] + FORMULA
        case CumSum():
            return shapes[0][op.axis]
        case Recurrence():
            return shapes[0][0] * (shapes[1][1] + FORMULA)
        case Resize() | Scatter():
            return FORMULA
        case _:
            return FORMULA if op.family == "pointwise" else 0


def _extents(kind: object) -> tuple[int, ...]:
    """The shape, with 1 for an extent known only while running."""
    if not isinstance(kind, TensorType):
        return ()
    return tuple(d if isinstance(d, int) else 1 for d in kind.shape)


def _region_variance(node: Node, rounding: Rounding) -> float:
    match node.op:
        case If():
            bodies, trips = (node.op.then, node.op.otherwise), 1
        case Loop():
            known = node.op.trips
            bodies, trips = (node.op.body,), known if isinstance(known, int) else UNKNOWN_TRIPS
        case Scan():
            bodies, trips = (node.op.body,), _extents(node.args[node.op.carried].type)[0]
        case _:
            raise AssertionError(node.op.name)
    return trips * max(
        variance for body in bodies for variance in (*variances(body, rounding).values(), 0.0)
    )


@dataclass(frozen=True, slots=True)
class Bound:
    """What one output may be off: `relative` to max(|element|, rms); `ulp` is the unit shown."""

    relative: float
    ulp: float

    @property
    def ulps(self) -> float:
        """The tolerance in units of the output's own spacing."""
        return self.relative / self.ulp if self.ulp else 0.0


def bounds(graph: Graph, rounding: Rounding) -> dict[str, Bound]:
    """The tolerance of every output; integers and bools must be exact."""
    relative = allowed(graph, rounding)
    return {
        name: Bound(max(relative[name], eps(node.tensor.dtype)), eps(node.tensor.dtype))
        for name, node in graph.outputs
    }


def magnitudes(array: Array) -> np.ndarray[Any, Any]:
    """Per element what its error is measured against: max(|x|, root mean square), in f64."""
    wide = np.abs(array.astype(np.float64))
    finite = wide[np.isfinite(wide)]
    rms = sqrt(float(np.mean(finite * finite))) if finite.size else 0.0
    return np.maximum(wide, rms)


Bounds = Mapping[str, Bound]
