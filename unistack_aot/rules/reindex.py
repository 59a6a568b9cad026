"""Reindexing: composed, cancelled through pointwise maps, absorbed into contractions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from unistack_aot.aicf.node import Node
from unistack_aot.base.errors import IRError
from unistack_aot.base.symbolic import Dim
from unistack_aot.base.verdict import No
from unistack_aot.ops.contract import Contract, contract
from unistack_aot.ops.convolve import Convolve
from unistack_aot.ops.op import Pointwise
from unistack_aot.ops.pad import Pad
from unistack_aot.ops.reindex import Expand, Reshape, Tile, Transpose, reshape, transpose
from unistack_aot.ops.slices import Concat, Slice
from unistack_aot.ops.window import Window
from unistack_aot.rules.find import NodeRule, any_, find, is_constant, number_of


def perm_of(node: Node) -> tuple[int, ...]:
    """The axis order of a Transpose."""
    assert isinstance(node.op, Transpose)
    return node.op.perm


def inverse(perm: Sequence[int]) -> tuple[int, ...]:
    """The order that undoes `perm`."""
    return tuple(perm.index(k) for k in range(len(perm)))


def _transposed_twice(root: Node, mid: Node, x: Node) -> Node:
    return transpose(x, [perm_of(mid)[k] for k in perm_of(root)])


def _only_units_move(root: Node, x: Node) -> Node | No:
    """Axes of extent 1 may go anywhere: such an order is a reshape."""
    kept = [k for k in perm_of(root) if x.tensor.shape[k] != 1]
    if kept != sorted(kept):
        return No("axes longer than 1 change places")
    return reshape(x, root.tensor.shape)


def _no_change(root: Node, x: Node) -> Node | No:
    """Ops that copy everything."""
    op = root.op
    if x.type != root.type:
        return No("the shape changes")
    if isinstance(op, Slice) and any(s != 1 for s in op.steps):
        return No("the order changes")
    if isinstance(op, Transpose) and list(op.perm) != sorted(op.perm):
        return No("the order changes")
    return x


def _sliced_twice(root: Node, mid: Node, x: Node) -> Node | No:
    outer, inner = root.op, mid.op
    assert isinstance(outer, Slice) and isinstance(inner, Slice)
    starts = tuple(
        b + a * step for a, b, step in zip(outer.starts, inner.starts, inner.steps, strict=True)
    )
    steps = tuple(a * b for a, b in zip(outer.steps, inner.steps, strict=True))
    return Node(Slice(starts, steps, outer.sizes), (x,))


def _slice_of_concat(root: Node, mid: Node) -> Node | No:
    """A slice that stays inside one part of a concatenation is a slice of that part."""
    cut, joined = root.op, mid.op
    assert isinstance(cut, Slice) and isinstance(joined, Concat)
    axis, start = joined.axis, cut.starts[joined.axis]
    size = cut.sizes[axis]
    if cut.steps[axis] != 1 or not isinstance(start, int) or not isinstance(size, int):
        return No("the slice is strided or symbolic")
    offset = 0
    for part in mid.args:
        extent = part.tensor.shape[axis]
        if not isinstance(extent, int):
            return No("a part has a symbolic extent")
        if offset <= start and start + size <= offset + extent:
            starts = tuple(start - offset if k == axis else s for k, s in enumerate(cut.starts))
            return Node(Slice(starts, cut.steps, cut.sizes), (part,))
        offset += extent
    return No("the slice takes from several parts")


def _concat_of_slices(root: Node) -> Node | No:
    """Adjacent slices of one node, side by side again, are one slice."""
    op = root.op
    assert isinstance(op, Concat)
    cuts = [arg.op for arg in root.args]
    first = cuts[0]
    if len({arg.args for arg in root.args}) > 1 or not isinstance(first, Slice):
        return No("the parts are not slices of one node")
    (x,) = root.args[0].args
    at: Dim = first.starts[op.axis]
    for cut in cuts:
        if not isinstance(cut, Slice) or cut.steps[op.axis] != 1 or cut.starts[op.axis] != at:
            return No("the slices are not adjacent")
        same = [
            k == op.axis or (cut.starts[k], cut.steps[k]) == (first.starts[k], first.steps[k])
            for k in range(len(cut.starts))
        ]
        if not all(same):
            return No("the slices differ along another axis")
        at = at + cut.sizes[op.axis]
    whole = Slice(first.starts, first.steps, root.tensor.shape)
    return Node(whole, (x,))


def _flat_concat(root: Node) -> Node | No:
    """A concatenation inside a concatenation along the same axis."""
    op = root.op
    parts: list[Node] = []
    for arg in root.args:
        parts += arg.args if arg.op == op else (arg,)
    return Node(op, tuple(parts)) if len(parts) > len(root.args) else No("no part is one")


def _transpose_through(root: Node, x: Node) -> Node | No:
    """Transpose commutes with every pointwise map; it pays where it meets its inverse."""
    perm = perm_of(root)
    back = inverse(perm)
    if not any(isinstance(a.op, Transpose) and perm_of(a) == back for a in x.args):
        return No("no operand is transposed the other way")
    args: list[Node] = []
    for arg in x.args:
        if arg.tensor.rank == 0:
            args.append(arg)
        elif (
            isinstance(arg.op, Transpose) and arg.tensor.rank == len(perm) and perm_of(arg) == back
        ):
            args.append(arg.args[0])
        elif is_constant(arg):
            shape = (1,) * (len(perm) - arg.tensor.rank) + arg.tensor.shape
            args.append(transpose(reshape(arg, shape), perm))
        else:
            return No("another operand would have to be transposed")
    return Node(x.op, tuple(args))


def _reshape_through(root: Node, x: Node) -> Node | No:
    """Reshape commutes with a map of equal shapes; it pays where it meets its inverse."""
    shape = root.tensor.shape
    if not any(isinstance(a.op, Reshape) and a.args[0].tensor.shape == shape for a in x.args):
        return No("no operand was reshaped from this shape")
    args: list[Node] = []
    for arg in x.args:
        if arg.tensor.rank == 0 or all(d == 1 for d in arg.tensor.shape):
            args.append(reshape(arg, ()))
        elif isinstance(arg.op, Reshape) and arg.args[0].tensor.shape == shape:
            args.append(arg.args[0])
        else:
            return No("another operand would have to be reshaped")
    return Node(x.op, tuple(args))


def _into_labels(root: Node) -> Node | No:
    """A contraction names its axes, so an operand's axis order is only a matter of names."""
    op = root.op
    assert isinstance(op, Contract)
    args, labels = list(root.args), [op.left, op.right]
    for k, arg in enumerate(args):
        if isinstance(arg.op, Transpose):
            args[k] = arg.args[0]
            labels[k] = "".join(labels[k][place] for place in inverse(arg.op.perm))
    return contract(args[0], args[1], labels[0], labels[1], op.out)


def into_window(window: Window, padded: Node, axes: Sequence[int]) -> Window | No:
    """A window over the axes of a padded operand as one that pads as much itself."""
    pad = padded.op
    assert isinstance(pad, Pad)
    if pad.mode != "constant":
        return No("it does not pad with a number")
    others = [k for k in range(padded.tensor.rank) if k not in axes]
    if any(pad.before[k] != 0 or pad.after[k] != 0 for k in others):
        return No("an axis that no window slides over is padded")
    if window.rounding != "floor":
        return No("the number of windows does not follow from the padded extent")
    before = zip(window.before, axes, strict=True)
    after = zip(window.after, axes, strict=True)
    return replace(
        window,
        before=tuple(own + pad.before[k] for own, k in before),
        after=tuple(own + pad.after[k] for own, k in after),
    )


def zero_padding(root: Node) -> Node | No:
    """A convolution of a padded operand as one that pads itself."""
    op, (padded, weight) = root.op, root.args
    assert isinstance(op, Convolve)
    if not isinstance(padded.op, Pad):
        return No("the weight is padded")
    x, fill = padded.args[0], padded.args[-1]
    if number_of(fill) != 0:
        return No("it does not pad with zeros")
    window = into_window(op.window, padded, range(2, padded.tensor.rank))
    if isinstance(window, No):
        return window
    try:
        return Node(replace(op, window=window), (x, weight))
    except IRError as fault:
        return No(fault.what)


WINDOW = "window(kernel=[3], strides=[1], dilations=[1], before=[0], after=[1])"
BACKWARDS = "slice(%x: f32[9]) starts=[8] steps=[-2] sizes=[4]"
SIDES = "concat(%x: f32[2, 3], %y: f32[2, 4]) axis=1"
EQUATION = 'left="ac" right="cb" out="ab"'
RULES: tuple[NodeRule, ...] = (
    NodeRule(
        "transpose-twice",
        find(Transpose, find(Transpose, any_("x"), name="mid"), name="root"),
        _transposed_twice,
        needs=("moves-elements",),
        fires=(
            "transpose(transpose(%x: f32[2, 3, 4]) perm=[1, 2, 0]) perm=[2, 0, 1]",
            "transpose(transpose(%x: f32[2, 3, 4]) perm=[1, 0, 2]) perm=[2, 0, 1]",
        ),
        holds=("transpose(neg(transpose(%x: f32[2, 3]) perm=[1, 0])) perm=[0, 1]",),
    ),
    NodeRule(
        "reshape-twice",
        find(Reshape, find(Reshape, any_("x")), name="root"),
        lambda root, x: reshape(x, root.tensor.shape),
        needs=("moves-elements",),
        fires=(
            "reshape(reshape(%x: f32[2, 6]) shape=[3, 4]) shape=[12]",
            "reshape(reshape(%x: f32[2, N]) shape=[2*N]) shape=[2, N]",
        ),
        holds=("reshape(%x: f32[2, 6]) shape=[3, 4]",),
    ),
    NodeRule(
        "reindex-nothing",
        find((Reshape, Transpose, Slice, Expand, Tile), any_("x"), name="root"),
        _no_change,
        needs=("moves-elements",),
        fires=("reshape(%x: f32[2, 6]) shape=[2, 6]", "tile(%x: f32[2, 6]) repeats=[1, 1]"),
        holds=(
            "transpose(%x: f32[2, 2]) perm=[1, 0]",
            "slice(%x: f32[3]) starts=[2] steps=[-1] sizes=[3]",
        ),
    ),
    NodeRule(
        "transpose-of-units",
        find(Transpose, any_("x"), name="root"),
        _only_units_move,
        needs=("moves-elements",),
        fires=("transpose(%x: f32[2, 1, 3]) perm=[1, 0, 2]",),
        holds=("transpose(%x: f32[2, 1, 3]) perm=[2, 1, 0]",),
    ),
    NodeRule(
        "slice-twice",
        find(Slice, find(Slice, any_("x"), name="mid"), name="root"),
        _sliced_twice,
        needs=("moves-elements",),
        fires=(f"slice({BACKWARDS}) starts=[1] steps=[1] sizes=[2]",),
        holds=(BACKWARDS,),
    ),
    NodeRule(
        "slice-of-concat",
        find(Slice, find(Concat, name="mid"), name="root"),
        _slice_of_concat,
        needs=("moves-elements",),
        fires=(f"slice({SIDES}) starts=[0, 4] steps=[1, 1] sizes=[2, 3]",),
        holds=(f"slice({SIDES}) starts=[0, 2] steps=[1, 1] sizes=[2, 3]",),
    ),
    NodeRule(
        "concat-of-slices",
        find(Concat, name="root", test=lambda n: all(isinstance(a.op, Slice) for a in n.args)),
        _concat_of_slices,
        needs=("moves-elements",),
        fires=(
            (
                "concat(slice(%x: f32[2, 7]) starts=[0, 0] steps=[1, 1] sizes=[2, 3],"
                " slice(%x) starts=[0, 3] steps=[1, 1] sizes=[2, 4]) axis=1"
            ),
        ),
        holds=(
            (
                "concat(slice(%x: f32[2, 7]) starts=[0, 3] steps=[1, 1] sizes=[2, 4],"
                " slice(%x) starts=[0, 0] steps=[1, 1] sizes=[2, 3]) axis=1"
            ),
        ),
    ),
    NodeRule(
        "concat-of-concat",
        find(Concat, name="root", test=lambda n: any(a.op == n.op for a in n.args)),
        _flat_concat,
        needs=("associative",),
        fires=("concat(concat(%x: f32[2], %y: f32[3]) axis=0, %x) axis=0",),
        holds=("concat(concat(%x: f32[2, 2], %y: f32[2, 2]) axis=0, %z: f32[4, 2]) axis=1",),
    ),
    NodeRule(
        "transpose-cancels",
        find(Transpose, find(Pointwise, name="x", once=True), name="root"),
        _transpose_through,
        needs=("pointwise", "moves-elements"),
        fires=(
            "transpose(relu(transpose(%x: f32[2, 3, 4]) perm=[1, 2, 0])) perm=[2, 0, 1]",
            (
                "transpose(sub(transpose(%x: f32[2, 3]) perm=[1, 0], constant ~1 : f32[2]))"
                " perm=[1, 0]"
            ),
        ),
        holds=("transpose(add(transpose(%x: f32[2, 3]) perm=[1, 0], %y: f32[3, 2])) perm=[1, 0]",),
    ),
    NodeRule(
        "reshape-cancels",
        find(Reshape, find(Pointwise, name="x", once=True), name="root"),
        _reshape_through,
        needs=("pointwise", "moves-elements"),
        fires=(
            "reshape(mul(reshape(%x: f32[2, 6]) shape=[12], constant 2.0 : f32[])) shape=[2, 6]",
        ),
        holds=("reshape(mul(reshape(%x: f32[2, 6]) shape=[12], %y: f32[12])) shape=[2, 6]",),
    ),
    NodeRule(
        "order-into-labels",
        find(
            Contract, name="root", test=lambda n: any(isinstance(a.op, Transpose) for a in n.args)
        ),
        _into_labels,
        needs=("moves-elements", "bilinear"),
        fires=(f"contract(%x: f32[2, 3], transpose(%y: f32[4, 3]) perm=[1, 0]) {EQUATION}",),
        holds=(f"contract(reshape(%x: f32[2, 1, 3]) shape=[2, 3], %y: f32[3, 4]) {EQUATION}",),
    ),
    NodeRule(
        "zero-padding",
        find(Convolve, find(Pad), any_("w"), name="root"),
        lambda root, w: zero_padding(root),
        needs=("zero-preserving",),
        fires=(
            (
                "convolve(pad(%x: f32[1, 2, 7], constant 0.0 : f32[])"
                " before=[0, 0, 2] after=[0, 0, 1],"
                f" %w: f32[4, 2, 3]) window={WINDOW}"
            ),
        ),
        holds=(
            (
                "convolve(pad(%x: f32[1, 2, 7], constant 1.0 : f32[])"
                " before=[0, 0, 2] after=[0, 0, 1],"
                f" %w: f32[4, 2, 3]) window={WINDOW}"
            ),
        ),
    ),
)
