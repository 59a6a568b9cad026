"""Constant operands of tiled contractions, rearranged at compile time so that a tile is copied 16 bytes at a time.

Not here: panels of the host's tile instruction (panels.py).
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unistack_aot.base.dtypes import DType
from unistack_aot.base.symbolic import Ranges, divisible, linear_split, simplify, symbol
from unistack_aot.ir.scalar import Load, Scalar
from unistack_aot.mcir.elements import index_array
from unistack_aot.mcir.nodes import Axis, Kernel, Param
from unistack_aot.schedule.contraction import Factor, Site, joint
from unistack_aot.schedule.operands import joint_index, site_ranges

Array = NDArray[Any]
COPY_BYTES = 16


def suits(
    kernel: Kernel, site: Site, factor: Factor, outer: tuple[Axis, ...], inner: bool, element: DType,
    ranges: Ranges,
) -> bool:  # fmt: skip
    """Whether an operand already is a matrix of `element` in the wanted order with rows at multiples of 16 bytes."""
    param = kernel.param(factor.load.buffer)
    if param.dtype is not element or factor.within is not None:
        return False
    index = joint_index(factor, outer, site.depth, "o", "k", site, ranges)
    offset = simplify(param.layout.offset(param.shape, index), site_ranges(site, ranges))
    fast, slow = ("k", "o") if inner else ("o", "k")
    along = linear_split(offset, fast)
    down = None if along is None else linear_split(along[1], slow)
    if along is None or down is None or along[0] != 1:
        return False
    step = COPY_BYTES // element.bytes
    return divisible(down[0], step) and divisible(down[1], step)


def packed(
    site: Site, factor: Factor, outer: tuple[Axis, ...], inner: bool, element: DType, array: Array
) -> Array | None:
    """[batch..., outer, depth] (`inner`) or [batch..., depth, outer], rows padded to 16 bytes.

    None if an extent is symbolic or the operand guarded.
    """
    axes = (*_batch(site, factor), *outer, *site.depth)
    sizes = [axis.extent for axis in axes if isinstance(axis.extent, int)]
    if factor.within is not None or len(sizes) < len(axes):
        return None
    variables = {
        axis.var: np.arange(size).reshape(-1, *(1,) * (len(axes) - 1 - place))
        for place, (axis, size) in enumerate(zip(axes, sizes, strict=True))
    }
    entries = tuple(
        index_array(entry, variables)
        for entry in factor.load.index
        if not isinstance(entry, Scalar)
    )
    whole = np.broadcast_to(array[entries], sizes)
    held = len(_batch(site, factor))
    batch, rows = sizes[:held], prod(sizes[held : held + len(outer)])
    matrix = whole.reshape(*batch, rows, -1)
    matrix = matrix if inner else np.swapaxes(matrix, -1, -2)
    step = COPY_BYTES // element.bytes
    pad = [(0, 0)] * (matrix.ndim - 1) + [(0, -matrix.shape[-1] % step)]
    return np.ascontiguousarray(np.pad(matrix, pad).astype(element.numpy))


def repacked(
    site: Site, factor: Factor, outer: tuple[Axis, ...], inner: bool, element: DType, name: str
) -> Factor:
    """The operand read from its packed form."""
    pair = (joint(outer), joint(site.depth))
    index = (
        *(symbol(axis.var) for axis in _batch(site, factor)),
        *(pair if inner else reversed(pair)),
    )
    return replace(factor, load=Load(name, index, element))


def packed_param(name: str, array: Array, element: DType) -> Param:
    """The packed operand as a kernel's parameter."""
    return Param(name, element, tuple(int(n) for n in array.shape))


def _batch(site: Site, factor: Factor) -> tuple[Axis, ...]:
    return tuple(axis for axis in site.batch if axis.var in factor.names)
