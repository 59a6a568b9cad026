"""Operations with a constant operand as linear maps. Not here: which are (Op.along, beside each)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Along
from unistack_aot.aicf.types import TensorType
from unistack_aot.base.verdict import No
from unistack_aot.rules.find import Array, aligned, is_constant, known_array, rounded


@dataclass(frozen=True)
class Linear:
    """A node that is linear in a constant operand, and how axes run along with that operand's."""

    node: Node
    at: int
    axes: Along

    @property
    def result(self) -> Mapping[int, int]:
        """Result axes to axes of the constant."""
        return self.axes.result

    @property
    def data(self) -> Mapping[int, int]:
        """Axes of the other operand to axes of the constant."""
        return self.axes.data

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
    if len(node.args) != 2 or not isinstance(node.type, TensorType):
        return None
    constant = [k for k, arg in enumerate(node.args) if is_constant(arg)]
    if len(constant) != 1 or not node.tensor.dtype.is_float:
        return None
    axes = node.op.along(constant[0], *(arg.type for arg in node.args))
    return None if axes is None else Linear(node, constant[0], axes)


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
    for k, extent in zip(order, core.shape, strict=True):
        layout[places[k]] = extent
    return core.reshape(layout)


def scaled_weight(weight: Node, factor: Array) -> Node | No:
    """The constant times a factor, computed in f64 and rounded once; No if it is not finite."""
    if not np.isfinite(factor).all():
        return No("the factor is not finite")
    product = np.asarray(known_array(weight), np.float64) * factor
    return rounded(product, weight.tensor.dtype)
