"""Contractions with a constant operand as linear maps: which axes run along which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from unistack_aot.aicf.node import Node
from unistack_aot.base.verdict import No
from unistack_aot.ops.contract import Contract
from unistack_aot.ops.convolve import Convolve, ConvolveTranspose
from unistack_aot.rules.find import Array, aligned, is_constant, known_array, rounded

LINEAR = (Contract, Convolve, ConvolveTranspose)  # bilinear in their two operands


@dataclass(frozen=True)
class Linear:
    """A node that is linear in a constant operand.

    `result` maps result axes, `data` maps axes of the other operand, to axes of the constant that
    run along with them: scaling there is scaling the constant there.
    """

    node: Node
    at: int
    result: Mapping[int, int]
    data: Mapping[int, int]

    @property
    def weight(self) -> Node:
        """The constant operand."""
        return self.node.args[self.at]

    @property
    def source(self) -> Node:
        """The other operand."""
        return self.node.args[1 - self.at]

    def with_operands(self, source: Node, weight: Node) -> Node:
        """The same map of other operands."""
        args = (weight, source) if self.at == 0 else (source, weight)
        return Node(self.node.op, args)


def linear(node: Node) -> Linear | None:
    """The node as a linear map with constant coefficients; None where it is none."""
    if not isinstance(node.op, LINEAR) or not node.tensor.dtype.is_float:
        return None
    constant = [k for k, arg in enumerate(node.args) if is_constant(arg)]
    if len(constant) != 1:
        return None
    (at,) = constant
    op = node.op
    if isinstance(op, Contract):
        mine, other = (op.left, op.right) if at == 0 else (op.right, op.left)
        if len(set(mine)) < len(mine) or len(set(other)) < len(other):
            return None
        result = {k: mine.index(c) for k, c in enumerate(op.out) if c in mine}
        data = {k: mine.index(c) for k, c in enumerate(other) if c in mine}
        return Linear(node, at, result, data)
    if at != 1:
        return None
    if isinstance(op, ConvolveTranspose):
        return Linear(node, 1, {1: 1}, {1: 0}) if op.groups == 1 else None
    depthwise = op.groups == node.args[0].tensor.shape[1] == node.args[1].tensor.shape[0]
    data = {1: 1} if op.groups == 1 else {1: 0} if depthwise else {}
    return Linear(node, 1, {1: 0}, data)


def along(factor: Array, rank: int, axes: Mapping[int, int], weight: Node) -> Array | No:
    """`factor`, which broadcasts over `rank` axes, laid out to broadcast over `weight` instead."""
    shape = aligned(factor.shape, rank)
    if len(shape) > rank:
        return No("the factor has more axes than the result")
    target = known_array(weight)
    used = [axis for axis, extent in enumerate(shape) if extent != 1]
    places: list[int] = []
    for axis in used:
        if axis not in axes or target.shape[axes[axis]] != shape[axis]:
            return No(f"the factor varies along axis {axis}, the constant operand does not")
        places.append(axes[axis])
    order = sorted(range(len(used)), key=lambda k: places[k])
    core = np.asarray(factor).squeeze().transpose(order)
    layout = [1] * target.ndim
    for k in order:
        layout[places[k]] = int(str(shape[used[k]]))
    return core.reshape(layout)


def scaled_weight(weight: Node, factor: Array) -> Node | No:
    """The constant times a factor, computed in f64 and rounded once; No if it is not finite."""
    if not np.isfinite(factor).all():
        return No("the factor is not finite")
    product = np.asarray(known_array(weight), np.float64) * factor
    return rounded(product, weight.tensor.dtype)
