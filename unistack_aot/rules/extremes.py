"""Monotone maps moved past maxima, minima and padding. Not here: affine maps (algebra.py)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unistack_aot.aicf.node import Node
from unistack_aot.aicf.properties import direction, formula_of, total, zero_preserving
from unistack_aot.base.symbolic import Ranges, bounds
from unistack_aot.base.verdict import No
from unistack_aot.ir.evaluate import evaluate
from unistack_aot.ir.pattern import Uses
from unistack_aot.ir.scalar import Arg, Scalar, apply_formula, literal
from unistack_aot.ops.convolve import Convolve
from unistack_aot.ops.core import constant
from unistack_aot.ops.fold import Reduce, identity_of
from unistack_aot.ops.op import Pointwise
from unistack_aot.ops.pad import Pad
from unistack_aot.ops.pointwise import Maximum, Minimum
from unistack_aot.ops.window import Window, WindowFold
from unistack_aot.rules.find import NodeRule, any_, find, known_array, number_of
from unistack_aot.rules.reindex import into_window, zero_padding
from unistack_aot.rules.signs import unsigned

FLIPPED = {"max": "min", "min": "max"}


@dataclass(frozen=True)
class Map:
    """A pointwise node as a function of one operand, everything else in it being numbers."""

    node: Node
    at: int
    formula: Scalar

    @property
    def inner(self) -> Node:
        """The operand."""
        return self.node.args[self.at]

    def of(self, x: Node) -> Node:
        """The same function of another node."""
        numbers = [constant(known_array(a).reshape(-1)[0]) for a in self.others]
        numbers.insert(self.at, x)
        return Node(self.node.op, tuple(numbers))

    @property
    def others(self) -> tuple[Node, ...]:
        """The numbers."""
        return self.node.args[: self.at] + self.node.args[self.at + 1 :]

    def value(self, x: float) -> float:
        """The function's value."""
        dtype = self.inner.tensor.dtype.numpy
        return float(np.asarray(evaluate(self.formula, (np.asarray(x, dtype),)), np.float64))


def map_of(node: Node) -> Map | None:
    """The node as a function of one operand of its own type; None where it is none."""
    if not isinstance(node.op, Pointwise) or not node.tensor.dtype.is_float:
        return None
    moving = [k for k, arg in enumerate(node.args) if number_of(arg) is None]
    if len(moving) != 1 or node.args[moving[0]].type != node.type:
        return None
    formula = formula_of(node)
    if formula is None:
        return None
    values = tuple(
        Arg(0, arg.tensor.dtype) if number is None else literal(number, arg.tensor.dtype)
        for arg, number in zip(node.args, map(number_of, node.args), strict=True)
    )
    return Map(node, moving[0], apply_formula(formula, values))


def _monotone(node: Node) -> tuple[Map, int] | No:
    """A map that an extreme of values passes, and its direction."""
    found = map_of(node)
    way = 0 if found is None else direction(found.formula)
    if found is None or not way:
        return No("it is not known to be monotone in one operand")
    if not total(found.formula):
        return No("it is not NaN exactly where its operand is")
    return found, way


def _after_fold(root: Node, x: Node, ranges: Ranges) -> Node | No:
    """max(f(x), f(y), ...) = f(max(x, y, ...)), and f(min) where f decreases."""
    op = root.op
    assert isinstance(op, Reduce | WindowFold)
    if op.monoid not in FLIPPED:
        return No(f"it folds by {op.monoid}")
    if isinstance(op, WindowFold) and all(s == 1 for s in op.window.strides):
        return No("the result has no fewer elements")
    found = _monotone(x)
    if isinstance(found, No):
        return found
    each, way = found
    monoid = op.monoid if way > 0 else FLIPPED[op.monoid]
    dtype = x.tensor.dtype
    if each.value(identity_of(monoid, dtype)) != identity_of(op.monoid, dtype):
        reason = _may_be_empty(op, x, ranges)
        if reason:
            return No(reason)
    return each.of(Node(replace(op, monoid=monoid), (each.inner,)))


def _may_be_empty(op: Reduce | WindowFold, x: Node, ranges: Ranges) -> str:
    """Why a fold may have no element, so that its value is the identity."""
    for axis in op.axes:
        low, _ = bounds(x.tensor.shape[axis], ranges)
        if low is None or low < 1:
            return f"axis {axis} may be empty"
    return "" if isinstance(op, Reduce) or _touches(op.window) else "a window may hold only padding"


def _touches(window: Window) -> bool:
    """Whether every window holds an element of any operand that is not empty."""
    if any(d != 1 for d in window.dilations):
        return False
    sides = zip(window.kernel, window.before, window.after, strict=True)
    return all(isinstance(b, int) and isinstance(a, int) and max(b, a) < k for k, b, a in sides)


def _after_pair(root: Node, a: Node, b: Node) -> Node | No:
    """max(f(x), f(y)) = f(max(x, y)): one map in place of two."""
    one, two = _monotone(a), _monotone(b)
    if isinstance(one, No):
        return one
    if isinstance(two, No):
        return two
    if a.op != b.op or (one[0].at, one[0].formula) != (two[0].at, two[0].formula):
        return No("the two maps differ")
    if a is b or not a.type == b.type == root.type:
        return No("one of them is broadcast")
    flipped = Minimum() if isinstance(root.op, Maximum) else Maximum()
    op = root.op if one[1] > 0 else flipped
    return one[0].of(Node(op, (one[0].inner, two[0].inner)))


def _before_padding(root: Node, f: Node, w: Node) -> Node | No:
    """f(pad(x)) = pad(f(x)) where f(0) = 0, and the convolution pads itself."""
    found = map_of(f)
    pad = None if found is None else found.inner
    if found is None or pad is None or not isinstance(pad.op, Pad) or pad.op.mode != "constant":
        return No("it is no map of a padded operand")
    x, fill = pad.args
    if number_of(fill) != 0 or not zero_preserving(found.formula):
        return No("the padding is not zero before and after the map")
    zero = found.value(0.0)
    if zero != 0 or np.signbit(zero) or np.signbit(number_of(fill) or 0.0):
        return No("the map does not keep +0")
    moved = Node(pad.op, (found.of(x), fill))
    return zero_padding(Node(root.op, (moved, w)))


def _into_pool(root: Node, p: Node, uses: Uses, ranges: Ranges) -> Node | No:
    """A window fold pads with the identity of its monoid itself; beside unsigned values 0 is as good."""
    op, x, fill = root.op, p.args[0], number_of(p.args[-1])
    assert isinstance(op, WindowFold)
    if fill is None or not x.tensor.dtype.is_float:
        return No("it does not pad with a float number")
    if uses(p) > 1:
        return No("the padded operand is used elsewhere")
    merged = into_window(op.window, p, op.axes)
    if isinstance(merged, No):
        return merged
    same = fill == identity_of(op.monoid, x.tensor.dtype)
    fold = replace(op, window=merged)
    if not same and not (op.monoid == "max" and fill == 0 and unsigned(x)):
        return No(f"{fill} is not neutral for {op.monoid}")
    reason = "" if same else _may_be_empty(fold, x, ranges)
    return No(reason) if reason else Node(fold, (x,))


EVERY_SECOND = (
    "window=window(kernel=[3, 3], strides=[2, 2], dilations=[1, 1], before=[1, 1], after=[1, 1])"
)
EVERY = EVERY_SECOND.replace("strides=[2, 2]", "strides=[1, 1]")
LONE = EVERY_SECOND.replace("before=[1, 1]", "before=[3, 3]")
POOL = f'monoid="max" axes=[2, 3] {EVERY_SECOND}'
CONV = "window=window(kernel=[3], strides=[1], dilations=[1], before=[0], after=[1])"
PADDED = "pad(%x: f32[1, 2, 7], constant 0.0 : f32[]) before=[0, 0, 2] after=[0, 0, 1]"
BARE = "window=window(kernel=[2], strides=[2], dilations=[1], before=[0], after=[0])"


def _fold_rule(ranges: Ranges) -> NodeRule:
    return NodeRule(
        "map-after-fold",
        find((Reduce, WindowFold), find(Pointwise, name="x", once=True), name="root"),
        lambda root, x: _after_fold(root, x, ranges),
        needs=("increasing", "decreasing", "total"),
        fires=(
            f"window_fold(relu(%x: f32[1, 2, 7, 7])) {POOL}",
            f"window_fold(sigmoid(%x: f16[1, 2, 7, 7])) {POOL}",
            f"window_fold(neg(%x: f32[1, 2, 7, 7])) {POOL}",
            (
                "reduce(minimum(maximum(%x: f32[3, 9], constant -1.0 : f32[]),"
                ' constant 1.5 : f32[9])) monoid="max" axes=[1]'
            ),
            'reduce(exp(%x: f32[3, 9])) monoid="min" axes=[0] keepdims=false',
            'reduce(sub(constant 1.0 : f32[], %x: f32[3, N + 1])) monoid="max" axes=[1]',
            'reduce(mul(%x: f32[3, N], constant -2.0 : f32[])) monoid="max" axes=[1]',
        ),
        holds=(
            f"window_fold(abs(%x: f32[1, 2, 7, 7])) {POOL}",
            f"window_fold(log(%x: f32[1, 2, 7, 7])) {POOL}",
            f'window_fold(relu(%x: f32[1, 2, 7, 7])) monoid="max" axes=[2, 3] {EVERY}',
            f'window_fold(relu(%x: f32[1, 2, 7, 7])) monoid="max" axes=[2, 3] {LONE}',
            f'window_fold(relu(%x: f32[1, 2, 7, 7])) monoid="sum" axes=[2, 3] {EVERY_SECOND}',
            'reduce(relu(%x: f32[3, N])) monoid="max" axes=[1]',
            'reduce(mul(%x: f32[3, 9], constant ~1 : f32[9])) monoid="max" axes=[1]',
            'reduce(mul(%x: f32[3, 9], constant 0.0 : f32[])) monoid="max" axes=[1]',
            'reduce(relu(%x: i32[3, 9])) monoid="max" axes=[1]',
            '%r = relu(%x: f32[3, 9]); %r; reduce(%r) monoid="max" axes=[1]',
        ),
    )


def _pool_rule(ranges: Ranges) -> NodeRule:
    return NodeRule(
        "padding-into-pool",
        find(WindowFold, find(Pad, name="p"), name="root"),
        lambda root, p, uses: _into_pool(root, p, uses, ranges),
        counts=True,
        needs=("zero-preserving",),
        fires=(
            f'window_fold({PADDED}) monoid="sum" axes=[2] {BARE}',
            f'window_fold({PADDED.replace("0.0", "-inf")}) monoid="max" axes=[2] {BARE}',
            (
                "window_fold(pad(exp(%x: f32[1, 2, 7]), constant 0.0 : f32[])"
                f' before=[0, 0, 1] after=[0, 0, 1]) monoid="max" axes=[2] {BARE}'
            ),
        ),
        holds=(
            f'window_fold({PADDED}) monoid="max" axes=[2] {BARE}',
            (
                "window_fold(pad(exp(%x: f32[1, 2, 7]), constant 0.0 : f32[])"
                f' before=[0, 0, 2] after=[0, 0, 2]) monoid="max" axes=[2] {BARE}'
            ),
            (
                "window_fold(pad(%x: f32[1, 2, 7], constant 0.0 : f32[])"
                f' before=[0, 1, 1] after=[0, 0, 1]) monoid="sum" axes=[2] {BARE}'
            ),
        ),
    )


RULES: tuple[NodeRule, ...] = (
    NodeRule(
        "map-after-pair",
        find(
            (Maximum, Minimum),
            find(Pointwise, name="a", once=True),
            find(Pointwise, name="b", once=True),
            name="root",
        ),
        _after_pair,
        needs=("increasing", "decreasing", "total"),
        fires=(
            "maximum(tanh(%x: f32[3]), tanh(%y: f32[3]))",
            (
                "maximum(sub(constant 1.0 : f32[], %x: f32[3]),"
                " sub(constant 1.0 : f32[], %y: f32[3]))"
            ),
        ),
        holds=(
            "maximum(tanh(%x: f32[3]), sigmoid(%y: f32[3]))",
            "maximum(tanh(%x: f32[3]), tanh(%y: f32[2, 3]))",
            "maximum(sqrt(%x: f32[3]), sqrt(%y: f32[3]))",
            (
                "minimum(mul(constant 2.0 : f32[], %x: f32[3]),"
                " mul(constant 3.0 : f32[], %y: f32[3]))"
            ),
        ),
    ),
    NodeRule(
        "map-before-padding",
        find(Convolve, find(Pointwise, name="f", once=True), any_("w"), name="root"),
        _before_padding,
        needs=("zero-preserving", "pointwise"),
        fires=(
            f"convolve(relu({PADDED}), %w: f32[4, 2, 3]) {CONV}",
            f"convolve(tanh({PADDED}), %w: f32[4, 2, 3]) {CONV}",
        ),
        holds=(
            f"convolve(neg({PADDED}), %w: f32[4, 2, 3]) {CONV}",
            f"convolve(sigmoid({PADDED}), %w: f32[4, 2, 3]) {CONV}",
            (
                "convolve(relu(pad(%x: f32[1, 2, 7], constant 1.0 : f32[])"
                f" before=[0, 0, 2] after=[0, 0, 1]), %w: f32[4, 2, 3]) {CONV}"
            ),
            (
                "convolve(relu(pad(%x: f32[1, 1, 7], constant 0.0 : f32[])"
                f" before=[0, 1, 2] after=[0, 0, 1]), %w: f32[4, 2, 3]) {CONV}"
            ),
            f"convolve(mul({PADDED}, %y: f32[1, 2, 10]), %w: f32[4, 2, 3]) {CONV}",
        ),
    ),
)


def rules(ranges: Ranges) -> tuple[NodeRule, ...]:
    """The rules for symbolic dimensions in these ranges."""
    return (_fold_rule(ranges), *RULES, _pool_rule(ranges))
