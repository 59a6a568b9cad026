"""Contractions that share an operand, joined into one. Not here: affine maps (algebra.py)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unistack_aot.aicf.node import Node
from unistack_aot.ops.contract import Contract
from unistack_aot.ops.core import constant
from unistack_aot.ops.pointwise import Add
from unistack_aot.ops.slices import slice_axis
from unistack_aot.rules.find import Array, NodeJointRule, NodeUsers, add, array_of, known_array
from unistack_aot.rules.linearity import Linear, linear


@dataclass(frozen=True)
class Member:
    """A contraction with constants, and the addition of constants that alone uses it, if any."""

    map: Linear
    root: Node
    bias: Array | None

    @property
    def free(self) -> int | None:
        """The one axis that weight and result have and the data has not; None if more."""
        own = [w for w in self.map.result.values() if w not in self.map.data.values()]
        return own[0] if len(own) == 1 else None

    @property
    def out(self) -> int:
        """The result axis along the free axis."""
        return next(k for k, w in self.map.result.items() if w == self.free)


def _member(node: Node, users: NodeUsers) -> Member | None:
    found = linear(node)
    if found is None or not isinstance(node.op, Contract):
        return None
    member = Member(found, node, None)
    if member.free is None:
        return None
    user = users.only(node)
    if user is None or not isinstance(user.op, Add):
        return member
    other = user.args[1] if user.args[0] is node else user.args[0]
    bias = array_of(other)
    if bias is None or user.type != node.type:
        return member
    shape = (1,) * (node.tensor.rank - bias.ndim) + bias.shape
    only_free = all(d == 1 for k, d in enumerate(shape) if k != member.out)
    full = shape[member.out] == node.tensor.shape[member.out]
    return Member(found, user, bias.reshape(-1)) if only_free and full else member


def _shared_operand(users: NodeUsers) -> dict[Node, Node]:
    """W1 x, W2 x, ... are slices of one contraction with the weights side by side."""
    groups: dict[object, list[Member]] = {}
    for node in users.order:
        member = _member(node, users)
        if member is not None and len(users.of(member.map.weight)) == 1:
            free, weight = member.free, member.map.weight.tensor
            rest = tuple(d for k, d in enumerate(weight.shape) if k != free)
            key = (member.map.source, node.op, member.map.at, rest, member.bias is None)
            groups.setdefault(key, []).append(member)
    replaced: dict[Node, Node] = {}
    for members in groups.values():
        if len({member.map.weight for member in members}) > 1:
            replaced |= _joined(members)
    return replaced


def _joined(members: list[Member]) -> dict[Node, Node]:
    first = members[0]
    free = first.free
    assert free is not None
    weights = [known_array(member.map.weight) for member in members]
    whole = constant(np.concatenate(weights, axis=free))
    value = first.map.with_operands(first.map.source, whole)
    if first.bias is not None:
        biases = [member.bias for member in members if member.bias is not None]
        layout = [1] * value.tensor.rank
        layout[first.out] = -1
        value = add(value, constant(np.concatenate(biases).reshape(layout[first.out :])))
    found: dict[Node, Node] = {}
    start = 0
    for member, weight in zip(members, weights, strict=True):
        size = weight.shape[free]
        found[member.root] = slice_axis(value, first.out, start, size)
        start += size
    return found


PLAIN = 'left="ac" right="cb" out="ab"'
RULES: tuple[NodeJointRule, ...] = (
    NodeJointRule(
        "join-shared-operand",
        _shared_operand,
        needs=("linear",),
        fires=(
            (
                f"contract(%x: f32[2, 3], constant ~1 : f32[3, 4]) {PLAIN};"
                f" contract(%x, constant ~2 : f32[3, 5]) {PLAIN}"
            ),
            (
                "add(constant ~3 : f32[4], contract(%x: f32[1, 2, 3], constant ~1 : f32[3, 4])"
                ' left="abd" right="dc" out="abc"); add(contract(%x, constant ~2 : f32[3, 4])'
                ' left="abd" right="dc" out="abc", constant ~4 : f32[4])'
            ),
        ),
        holds=(
            (
                f"contract(%x: f32[2, 3], constant ~1 : f32[3, 4]) {PLAIN};"
                f" contract(%y: f32[2, 3], constant ~2 : f32[3, 4]) {PLAIN}"
            ),
        ),
    ),
)
