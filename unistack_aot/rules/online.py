"""Decomposed folds brought together: softmax, mean with variance. Not here: attention."""

from __future__ import annotations

from math import prod

from unistack_aot.aicf.node import Node
from unistack_aot.base.symbolic import Dim
from unistack_aot.base.verdict import No
from unistack_aot.ops.core import item
from unistack_aot.ops.fold import Moments, Reduce
from unistack_aot.ops.pointwise import Div, Exp, Log, Mul, Pow, Reciprocal, Rsqrt, Sqrt, Sub
from unistack_aot.ops.softmax import LogSoftmax, Softmax
from unistack_aot.rules.find import (
    NodeJointRule,
    NodeRule,
    NodeUsers,
    any_,
    find,
    known,
    multiply,
    number_of,
)


def _reduce(node: Node, monoid: str) -> Reduce | None:
    return node.op if isinstance(node.op, Reduce) and node.op.monoid == monoid else None


def _softmax(root: Node, x: Node, total: Node) -> Node | No:
    """exp(x) / sum(exp(x)), where x has its maximum subtracted: otherwise it may overflow."""
    fold = _reduce(total, "sum")
    if fold is None or len(fold.axes) != 1 or not fold.keepdims:
        return No("the divisor is no sum along one kept axis")
    if not _below_maximum(x, fold.axes[0]):
        return No(OVERFLOWS)
    return Node(Softmax(fold.axes[0]), (x,))


OVERFLOWS = "exp(x) may overflow to infinity, which softmax does not: no maximum is subtracted"


def _below_maximum(x: Node, axis: int) -> bool:
    """Whether x is some y - max(y) along an axis."""
    if not isinstance(x.op, Sub):
        return False
    y, top = x.args
    fold = _reduce(top, "max")
    return fold is not None and top.args[0] is y and fold.axes == (axis,) and fold.keepdims


def _shift_invariant(root: Node, inner: Node, x: Node, c: Node) -> Node | No:
    """Softmax subtracts the maximum itself; another shift might round x away, or be infinite."""
    op = root.op
    assert isinstance(op, Softmax | LogSoftmax)
    if not _below_maximum(inner, op.axis):
        return No("what is subtracted is not the maximum along the axis")
    return Node(op, (x,))


def _log_softmax(root: Node, s: Node) -> Node | No:
    assert isinstance(s.op, Softmax)
    return Node(LogSoftmax(s.op.axis), s.args)


def _log_softmax_parts(root: Node, x: Node, total: Node) -> Node | No:
    """x - log(sum(exp(x)))."""
    fold = _reduce(total, "sum")
    if fold is None or len(fold.axes) != 1 or not fold.keepdims:
        return No("it is no sum along one kept axis")
    if not _below_maximum(x, fold.axes[0]):
        return No(OVERFLOWS)
    return Node(LogSoftmax(fold.axes[0]), (x,))


def _count(shape: tuple[Dim, ...], axes: tuple[int, ...]) -> Dim:
    return prod((shape[a] for a in axes), start=1)


def _mean(node: Node) -> tuple[Node, Reduce] | None:
    """What a node is the mean of, and its fold; None if it is no mean."""
    if not isinstance(node.op, Div):
        return None
    total, count = node.args
    fold, number = _reduce(total, "sum"), number_of(count)
    if fold is None or number is None or number != _count(total.args[0].tensor.shape, fold.axes):
        return None
    return total.args[0], fold


def _square_of(node: Node) -> Node | None:
    if isinstance(node.op, Mul) and node.args[0] is node.args[1]:
        return node.args[0]
    if isinstance(node.op, Pow) and number_of(node.args[1]) == 2:
        return node.args[0]
    return None


def _variance(root: Node) -> Node | No:
    """mean((x - mean(x))^2) is the second moment that one pass over x gives."""
    outer = _mean(root)
    square = None if outer is None else _square_of(outer[0])
    if outer is None or square is None or not isinstance(square.op, Sub):
        return No("it is no mean of squared differences")
    x, centre = square.args
    inner = _mean(centre)
    if (
        inner is None
        or inner[0] is not x
        or not inner[1].keepdims
        or inner[1].axes != outer[1].axes
    ):
        return No("the differences are not from the mean over the same axes")
    return item(Node(Moments(outer[1].axes, outer[1].keepdims), (x,)), 1)


def _mean_beside_variance(users: NodeUsers) -> dict[Node, Node]:
    """Where x has moments, its mean over the same axes is one of them."""
    replaced: dict[Node, Node] = {}
    moments = {(n.args[0], n.op): n for n in users.order if isinstance(n.op, Moments)}
    for node in users.order:
        found = _mean(node)
        if found is None:
            continue
        both = moments.get((found[0], Moments(found[1].axes, found[1].keepdims)))
        if both is not None:
            replaced[node] = item(both, 0)
    return replaced


def _by_root(root: Node, x: Node, y: Node) -> Node | No:
    """x / sqrt(y) = x * rsqrt(y): the division is done once per y, and y is smaller."""
    if y.tensor.rank == root.tensor.rank and y.tensor.shape == root.tensor.shape:
        return No("the root is as large as the result")
    scale = Node(Rsqrt(), (y,))
    return scale if number_of(x) == 1 and scale.type == root.type else multiply(x, scale)


def _inverse_root(root: Node, x: Node, y: Node) -> Node | No:
    scale = Node(Rsqrt(), (y,))
    if number_of(x) != 1 or scale.type != root.type:
        return No("the dividend is not 1")
    return scale


BELOW = '%d = sub(%x: f32[2, 3], reduce(%x) monoid="max" axes=[1])'
MEAN = 'reduce(%x: f32[2, 4]) monoid="sum" axes=[1]'

RULES: tuple[NodeRule | NodeJointRule, ...] = (
    NodeRule(
        "softmax",
        find(
            Div, find(Exp, any_("x"), name="e"), find(Reduce, any_("e"), name="total"), name="root"
        ),
        lambda root, x, e, total: _softmax(root, x, total),
        needs=("homomorphism", "distributive"),
        fires=(f'{BELOW}; %e = exp(%d); div(%e, reduce(%e) monoid="sum" axes=[1])',),
        holds=(
            '%e = exp(%x: f32[2, 3]); div(%e, reduce(%e) monoid="sum" axes=[1])',
            f'{BELOW}; %e = exp(%d); div(%e, reduce(%e) monoid="sum" axes=[0])',
            f'{BELOW}; %e = exp(%d); div(%e, reduce(%e) monoid="max" axes=[1])',
            f'{BELOW}; %e = exp(%d); div(%e, reduce(%e) monoid="sum" axes=[0, 1])',
        ),
    ),
    NodeRule(
        "softmax-shift",
        find((Softmax, LogSoftmax), find(Sub, any_("x"), any_("c"), name="inner"), name="root"),
        _shift_invariant,
        needs=("shift-invariant",),
        fires=('softmax(sub(%x: f32[2, 3], reduce(%x) monoid="max" axes=[1])) axis=1',),
        holds=(
            'softmax(sub(%x: f32[2, 3], reduce(%x) monoid="max" axes=[0])) axis=1',
            "softmax(sub(%x: f32[2, 3], %c: f32[2, 1])) axis=1",
        ),
    ),
    NodeRule(
        "log-of-softmax",
        find(Log, find(Softmax, name="s"), name="root"),
        _log_softmax,
        needs=("homomorphism",),
        fires=("log(softmax(%x: f32[2, 3]) axis=1)",),
        holds=("exp(softmax(%x: f32[2, 3]) axis=1)",),
    ),
    NodeRule(
        "log-softmax",
        find(
            Sub,
            any_("x"),
            find(Log, find(Reduce, find(Exp, any_("x")), name="total")),
            name="root",
        ),
        _log_softmax_parts,
        needs=("homomorphism", "distributive"),
        fires=(f'{BELOW}; sub(%d, log(reduce(exp(%d)) monoid="sum" axes=[1]))',),
        holds=(
            'sub(%x: f32[2, 3], log(reduce(exp(%x)) monoid="sum" axes=[1]))',
            f'{BELOW}; sub(%d, log(reduce(exp(%d)) monoid="max" axes=[1]))',
        ),
    ),
    NodeRule(
        "variance",
        find(Div, find(Reduce), known("n"), name="root"),
        lambda root, n: _variance(root),
        needs=("associative",),
        fires=(
            (
                f"%d = sub(%x: f32[2, 4], div({MEAN}, constant 4.0 : f32[]));"
                ' div(reduce(mul(%d, %d)) monoid="sum" axes=[1], constant 4.0 : f32[])'
            ),
            (
                f"%d = sub(%x: f32[2, 4], div({MEAN}, constant 4.0 : f32[]));"
                " div(reduce(pow(%d, constant 2.0 : f32[]))"
                ' monoid="sum" axes=[1] keepdims=false, constant 4.0 : f32[])'
            ),
        ),
        holds=(
            (
                f"%d = sub(%x: f32[2, 4], div({MEAN}, constant 4.0 : f32[]));"
                ' div(reduce(mul(%d, %d)) monoid="sum" axes=[1], constant 3.0 : f32[])'
            ),
            'div(reduce(mul(%x: f32[2, 4], %x)) monoid="sum" axes=[1], constant 4.0 : f32[])',
        ),
    ),
    NodeJointRule(
        "mean-beside-variance",
        _mean_beside_variance,
        needs=("associative",),
        fires=(f"div({MEAN}, constant 4.0 : f32[]); item(moments(%x) axes=[1]) k=1",),
        holds=(f"div({MEAN}, constant 4.0 : f32[]); item(moments(%x) axes=[0]) k=1",),
    ),
    NodeRule(
        "divide-by-root",
        find(Div, any_("x"), find(Sqrt, any_("y")), name="root"),
        _by_root,
        fires=("div(%x: f32[2, 4], sqrt(abs(%y: f32[2, 1])))",),
        holds=("div(%x: f32[2, 4], sqrt(abs(%y: f32[2, 4])))",),
    ),
    NodeRule(
        "inverse-root",
        find(Div, known("x"), find(Sqrt, any_("y")), name="root"),
        _inverse_root,
        fires=("div(constant 1.0 : f32[], sqrt(abs(%y: f32[2, 1])))",),
        holds=("div(constant 2.0 : f32[], sqrt(abs(%y: f32[2, 1])))",),
    ),
    NodeRule(
        "reciprocal-root",
        find(Reciprocal, find(Sqrt, any_("y")), name="root"),
        lambda root, y: Node(Rsqrt(), (y,)),
        fires=("reciprocal(sqrt(abs(%y: f32[2, 1])))",),
        holds=("reciprocal(%y: f32[2, 1])",),
    ),
)
