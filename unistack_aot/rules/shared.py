"""Contractions and convolutions that share an operand, joined into one. Not here: affine maps (algebra.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Op
from unistack_aot.ops.core import constant
from unistack_aot.ops.op import Pointwise
from unistack_aot.ops.pointwise import Add
from unistack_aot.ops.slices import slice_axis
from unistack_aot.rules.find import (
    Array,
    NodeJointRule,
    NodeUsers,
    add,
    array_of,
    known_array,
    number_of,
)
from unistack_aot.rules.linearity import Linear, linear


@dataclass(frozen=True)
class Step:
    """A pointwise operation as a function of one value: None in `args` is that value."""

    op: Op
    args: tuple[Step | Node | None, ...]

    def of(self, x: Node) -> Node:
        """The function of another value."""
        args = (x if a is None else a.of(x) if isinstance(a, Step) else a for a in self.args)
        return Node(self.op, tuple(args))


@dataclass(frozen=True)
class Member:
    """A linear map with constants, and what alone uses it: an addition of constants, then maps.

    `biased` is the map with its bias; `maps` are the functions of one value that follow, up to
    `root`.
    """

    map: Linear
    biased: Node
    bias: Array | None
    maps: tuple[Step, ...]
    root: Node

    @property
    def free(self) -> int:
        """The axis of the constant whose parts give parts of the result."""
        return self.map.axes.parts[0]

    @property
    def out(self) -> int:
        """The result axis along the free axis."""
        return next(k for k, w in self.map.result.items() if w == self.free)

    @property
    def last(self) -> bool:
        """Whether that is the last axis, of which whatever uses a part reads its own columns."""
        return self.out == self.root.tensor.rank - 1

    def kind(self) -> object:
        """What joined members have in common."""
        weight = self.map.weight.tensor
        rest = tuple(d for k, d in enumerate(weight.shape) if k != self.free)
        maps = () if self.last else self.maps
        return (self.map.source, self.map.node.op, self.map.at, rest, self.bias is None, maps)


def _member(node: Node, users: NodeUsers) -> Member | None:
    found = linear(node)
    if found is None or len(found.axes.parts) != 1:
        return None
    member = Member(found, node, None, (), node)
    user = users.only(node)
    if user is not None and isinstance(user.op, Add):
        bias = _bias(member, user)
        if bias is not None:
            member = replace(member, biased=user, bias=bias)
    maps, root = list[Step](), member.biased
    while (following := _following(root, users)) is not None:
        step, root = following
        maps.append(step)
    return replace(member, maps=tuple(maps), root=root)


def _following(root: Node, users: NodeUsers) -> tuple[Step, Node] | None:
    """What alone uses a value, if it is f(x), with numbers, or f(x, g(x)) as in x sigmoid(x)."""
    if root in users.results:
        return None
    inner: dict[Node, Step] = {}
    for user in users.of(root):
        step = _step(user, {root: None, **inner})
        if step is None:
            return None
        if len(users.of(root)) == 1 or inner:
            return step, user
        if users.only(user) is None:
            return None
        inner[user] = step
    return None


def _step(node: Node, known: Mapping[Node, Step | None]) -> Step | None:
    """A node as a function of values that are known, and of numbers; None if it is none."""
    same = [arg.type == node.type or number_of(arg) is not None for arg in node.args]
    mine = [arg in known or number_of(arg) is not None for arg in node.args]
    if not isinstance(node.op, Pointwise) or not all(same) or not all(mine):
        return None
    if any(arg not in known and arg.tensor.rank for arg in node.args):
        return None
    return Step(node.op, tuple(known.get(arg, arg) for arg in node.args))


def _bias(member: Member, user: Node) -> Array | None:
    """The constants that `user` adds to a member, if they vary along its free axis alone."""
    node = member.map.node
    other = user.args[1] if user.args[0] is node else user.args[0]
    bias = array_of(other)
    if bias is None or user.type != node.type:
        return None
    shape = (1,) * (node.tensor.rank - bias.ndim) + bias.shape
    only_free = all(d == 1 for k, d in enumerate(shape) if k != member.out)
    full = shape[member.out] == node.tensor.shape[member.out]
    return bias.reshape(-1) if only_free and full else None


def _shared_operand(users: NodeUsers) -> dict[Node, Node]:
    """W1 x, W2 x, ... are slices of one map with the weights side by side, which reads x once."""
    groups: dict[object, list[Member]] = {}
    for node in users.order:
        member = _member(node, users)
        if member is not None and len(users.of(member.map.weight)) == 1:
            groups.setdefault(member.kind(), []).append(member)
    replaced: dict[Node, Node] = {}
    for members in groups.values():
        if len({member.map.weight for member in members}) > 1 and _pays(members, users):
            replaced |= _joined(members)
    return replaced


def _pays(members: list[Member], users: NodeUsers) -> bool:
    """Whether reading the operand once outweighs the copies that slices would be.

    A part of the last axis is read in place by whatever uses it. Another part is copied where it
    is a result of the model; the operations after it are applied before the slices are taken.
    """
    if members[0].last:
        return True
    return not any(member.root in users.results for member in members)


def _joined(members: list[Member]) -> dict[Node, Node]:
    first = members[0]
    weights = [known_array(member.map.weight) for member in members]
    whole = constant(np.concatenate(weights, axis=first.free))
    value = first.map.with_operands(first.map.source, whole)
    if first.bias is not None:
        biases = [member.bias for member in members if member.bias is not None]
        layout = [1] * value.tensor.rank
        layout[first.out] = -1
        value = add(value, constant(np.concatenate(biases).reshape(layout[first.out :])))
    same = len({member.maps for member in members}) == 1
    for step in first.maps if same else ():
        value = step.of(value)
    found: dict[Node, Node] = {}
    start = 0
    for member, weight in zip(members, weights, strict=True):
        size = weight.shape[member.free]
        replaced = member.root if same else member.biased
        found[replaced] = slice_axis(value, member.out, start, size)
        start += size
    return found


THREE = "window=window(kernel=[3], strides=[1], dilations=[1], before=[1], after=[1])"
SUM = 'reduce({}) monoid="sum" axes=[2]'
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
            (
                f"tanh(contract(%x: f32[2, 3], constant ~1 : f32[3, 4]) {PLAIN});"
                f" relu(contract(%x, constant ~2 : f32[3, 5]) {PLAIN})"
            ),
            (
                f"{SUM.format(f'relu(convolve(%x: f32[2, 3, 5], constant ~1 : f32[4, 3, 3]) {THREE})')};"
                f" {SUM.format(f'relu(convolve(%x, constant ~2 : f32[2, 3, 3]) {THREE})')}"
            ),
            (
                f"%a = convolve(%x: f32[2, 3, 5], constant ~1 : f32[4, 3, 3]) {THREE};"
                f" %b = convolve(%x, constant ~2 : f32[2, 3, 3]) {THREE};"
                f" {SUM.format('mul(%a, sigmoid(%a))')}; {SUM.format('mul(%b, sigmoid(%b))')}"
            ),
        ),
        holds=(
            (
                f"contract(%x: f32[2, 3], constant ~1 : f32[3, 4]) {PLAIN};"
                f" contract(%y: f32[2, 3], constant ~2 : f32[3, 4]) {PLAIN}"
            ),
            (
                f"convolve(%x: f32[2, 3, 5], constant ~1 : f32[4, 3, 3]) {THREE};"
                f" convolve(%x, constant ~2 : f32[2, 3, 3]) {THREE}"
            ),
            (
                f"{SUM.format(f'relu(convolve(%x: f32[2, 3, 5], constant ~1 : f32[4, 3, 3]) {THREE})')};"
                f" {SUM.format(f'convolve(%x, constant ~2 : f32[2, 3, 3]) {THREE}')}"
            ),
            (
                f"{SUM.format(f'convolve(%x: f32[2, 4, 5], constant ~1 : f32[4, 2, 3]) groups=2 {THREE}')};"
                f" {SUM.format(f'convolve(%x, constant ~2 : f32[2, 2, 3]) groups=2 {THREE}')}"
            ),
        ),
    ),
)
