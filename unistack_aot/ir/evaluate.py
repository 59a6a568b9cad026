"""Numpy evaluation of scalar expressions, elementwise over arrays. Not here: loops (mcir/evaluate.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unistack_aot.base.dtypes import DType
from unistack_aot.base.errors import IRError
from unistack_aot.base.symbolic import Dim
from unistack_aot.ir.functions import FUNCTIONS
from unistack_aot.ir.scalar import (
    Arg,
    Call,
    Cast,
    Index,
    Lit,
    Load,
    Name,
    Scalar,
    children,
    postorder,
)

Array = NDArray[Any]


def evaluate(
    value: Scalar,
    args: tuple[Array, ...] = (),
    names: Mapping[str, Array] | None = None,
    load: Callable[[Load, tuple[Array | None, ...]], Array] | None = None,
    index: Callable[[Dim], Array] | None = None,
) -> Array:
    """The value of an expression; operands may be arrays of any mutually broadcastable shapes.

    `load(node, entries)` reads a buffer, where `entries` holds the values of the data-dependent index entries (None
    for the others); `index(dim)` evaluates an index expression. Both may be omitted for pure formulas.
    """
    done: dict[Scalar, Array] = {}
    with np.errstate(all="ignore"):
        for node in postorder(value):
            done[node] = _value(node, done, args, names or {}, load, index)
    return done[value]


def _value(
    node: Scalar,
    done: dict[Scalar, Array],
    args: tuple[Array, ...],
    names: Mapping[str, Array],
    load: Callable[[Load, tuple[Array | None, ...]], Array] | None,
    index: Callable[[Dim], Array] | None,
) -> Array:
    match node:
        case Arg():
            return args[node.index]
        case Lit():
            return np.asarray(node.value, node.dtype.numpy)
        case Call():
            function = FUNCTIONS[node.fn]
            result = function.evaluate(*(done[a] for a in children(node)))
            return np.asarray(result).astype(_result_dtype(node, done), copy=False)
        case Cast():
            return convert(done[node.value], node.dtype)
        case Name():
            return names[node.name]
        case Index() if index is not None:
            return np.asarray(index(node.dim), np.int64)
        case Load() if load is not None:
            return load(
                node, tuple(done.get(e) if isinstance(e, Scalar) else None for e in node.index)
            )
        case _:
            raise IRError(f"{type(node).__name__} cannot be evaluated here")


def _result_dtype(node: Call, done: dict[Scalar, Array]) -> np.dtype[Any]:
    """The declared dtype, except that f64 operands (the float64 evaluation of an f32 formula) stay f64."""
    wide = any(done[a].dtype == np.float64 for a in node.args)
    return np.dtype(np.float64) if wide and node.dtype.is_float else node.dtype.numpy


def convert(value: Array, dtype: DType) -> Array:
    """ONNX Cast: floats to integers truncate towards zero, anything to bool tests for non-zero."""
    with np.errstate(all="ignore"):
        if dtype.is_float and value.dtype == np.float64 and dtype.bits < 64:
            return value.astype(dtype.numpy)
        return value.astype(dtype.numpy)
