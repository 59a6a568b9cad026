"""ONNX signal operators as contractions with constant tables: DFT, STFT, window functions."""

from __future__ import annotations

import numpy as np

from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Array
from unistack_aot.base.dtypes import DType
from unistack_aot.ops.contract import contract
from unistack_aot.ops.convert import element_type
from unistack_aot.ops.convolve import Convolve
from unistack_aot.ops.core import constant
from unistack_aot.ops.onnx import OnnxCall, onnx
from unistack_aot.ops.pointwise import Mul
from unistack_aot.ops.reindex import axis_of, reshape, transpose
from unistack_aot.ops.window import sliding

LARGEST_TABLE = 1 << 24  # elements; a longer transform needs a fast algorithm, not a table


def fourier_table(rows: int, parts: int, length: int, bins: int, sign: float) -> Array:
    """W[n, c, k, r]: part r of bin k from part c of element n of a transform.

    exp(sign 2 pi i n k / length) as the 2x2 matrix of a complex product; rows from `length` on
    are 0.
    """
    n, k = np.arange(rows), np.arange(bins)
    angle = 2 * np.pi / length * (np.outer(n, k) % length)
    cos, sin = np.cos(angle), sign * np.sin(angle)
    table = np.stack([np.stack([cos, sin], -1), np.stack([-sin, cos], -1)], 1)[:, :parts]
    table[length:] = 0
    return table


@onnx("DFT", since=17)
def import_dft(call: OnnxCall) -> Node:
    """Discrete Fourier transform along the axis of an attribute."""
    return _dft(call, call.attr("axis", 1))


@onnx("DFT", since=20)
def import_dft_axis_input(call: OnnxCall) -> Node:
    """Discrete Fourier transform along the axis of an input."""
    given = None if call.optional(2) is None else call.require_constant(2, "axis")
    return _dft(call, -2 if given is None else int(given))


def _dft(call: OnnxCall, axis: int) -> Node:
    x = call.arg(0)
    rank = x.tensor.rank
    axis = axis_of(axis, rank, call)
    rows, parts = x.tensor.shape[axis], _parts(call, x)
    given = None if call.optional(1) is None else call.require_constant(1, "dft_length")
    length = rows if given is None else int(given)
    if not isinstance(rows, int) or not isinstance(length, int):
        raise call.refuse(f"of {x.tensor}", "fix the transformed dimension")
    inverse, onesided = call.attr("inverse", 0), call.attr("onesided", 0)
    if inverse and onesided:
        raise call.refuse("inverse and onesided", "transform all bins")
    bins = length // 2 + 1 if onesided else length
    table = fourier_table(rows, parts, length, bins, 1.0 if inverse else -1.0)
    if inverse:
        table = table / length
    _check_size(call, table)
    labels = [chr(ord("a") + k) for k in range(rank - 1)]
    left = "".join(labels) + "Y"
    right = f"{labels[axis]}YKZ"
    labels[axis] = "K"
    weights = constant(table.astype(x.tensor.dtype.numpy))
    return contract(x, weights, left, right, "".join(labels) + "Z")


@onnx("STFT", since=17)
def import_stft(call: OnnxCall) -> Node:
    """Short-time Fourier transform: a strided convolution with windowed waves."""
    signal, window = call.arg(0), call.optional(2)
    step = int(call.require_constant(1, "frame_step"))
    length, parts = _frame_length(call, window), _parts(call, signal)
    bins = length // 2 + 1 if call.attr("onesided", 1) else length
    table = fourier_table(length, parts, length, bins, -1.0)
    _check_size(call, table)
    waves = table.transpose(2, 3, 1, 0).reshape(bins * 2, parts, length)
    weights = constant(waves.astype(signal.tensor.dtype.numpy))
    if window is not None:
        weights = Node(Mul(), (weights, window))
    op = Convolve(sliding((length,), (step,)))
    found = Node(op, (transpose(signal, (0, 2, 1)), weights))
    batch, _, frames = found.tensor.shape
    return transpose(reshape(found, (batch, bins, 2, frames)), (0, 3, 1, 2))


def _parts(call: OnnxCall, x: Node) -> int:
    """1 for real elements, 2 for complex ones: the extent of the last axis."""
    found = x.tensor.shape[-1]
    if not isinstance(found, int) or found not in (1, 2):
        raise call.refuse(f"of {x.tensor}", "end with an axis of 1 or 2 parts")
    return found


def _frame_length(call: OnnxCall, window: Node | None) -> int:
    if call.optional(3) is not None:
        return int(call.require_constant(3, "frame_length"))
    extent = None if window is None else window.tensor.shape[0]
    if not isinstance(extent, int):
        raise call.refuse("with neither frame_length nor window", "give one as a constant")
    return extent


def _check_size(call: OnnxCall, table: Array) -> None:
    if table.size > LARGEST_TABLE:
        raise call.refuse(f"with a table of {table.size} elements", "use shorter frames")


def _raised_cosine(call: OnnxCall, *weights: float) -> Node:
    """sum over k of weights[k] cos(2 pi k n / N): N is the size, or one less if not periodic."""
    size = int(call.require_constant(0, "size"))
    to: DType = element_type(call, "output_datatype", 1)
    period = size if call.attr("periodic", 1) else size - 1
    angle = 2 * np.pi * np.arange(size) / max(period, 1)
    values = np.sum([w * np.cos(k * angle) for k, w in enumerate(weights)], axis=0)
    return constant(values.astype(to.numpy))


@onnx("HannWindow", since=17)
def import_hann_window(call: OnnxCall) -> Node:
    """Hann window."""
    return _raised_cosine(call, 0.5, -0.5)


@onnx("HammingWindow", since=17)
def import_hamming_window(call: OnnxCall) -> Node:
    """Hamming window with the coefficients of the ONNX specification."""
    return _raised_cosine(call, 25 / 46, -21 / 46)


@onnx("BlackmanWindow", since=17)
def import_blackman_window(call: OnnxCall) -> Node:
    """Blackman window."""
    return _raised_cosine(call, 0.42, -0.5, 0.08)
