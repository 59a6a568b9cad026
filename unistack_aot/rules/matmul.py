"""Convolutions of one tap as matrix products. Not here: what other contractions become."""

from __future__ import annotations

from unistack_aot.aicf.node import Node
from unistack_aot.base.verdict import No
from unistack_aot.ops.contract import contract
from unistack_aot.ops.convolve import Convolve
from unistack_aot.ops.reindex import reshape
from unistack_aot.rules.find import NodeRule, any_, find


def _one_tap(root: Node, x: Node, w: Node) -> Node | No:
    op = root.op
    assert isinstance(op, Convolve)
    window = op.window
    if any(k != 1 for k in window.kernel) or any(s != 1 for s in window.strides):
        return No("the window has more taps or steps")
    if any(p != 0 for p in (*window.before, *window.after)) or op.groups != 1:
        return No("it pads, or has groups")
    spatial = "pqr"[: len(window.kernel)]
    return contract(x, reshape(w, w.tensor.shape[:2]), f"nc{spatial}", "mc", f"nm{spatial}")


ONE = "window(kernel=[1, 1], strides=[1, 1], dilations=[1, 1], before=[0, 0], after=[0, 0])"
TWO = "window(kernel=[1, 1], strides=[2, 2], dilations=[1, 1], before=[0, 0], after=[0, 0])"

RULES: tuple[NodeRule, ...] = (
    NodeRule(
        "one-tap-convolution",
        find(Convolve, any_("x"), any_("w"), name="root"),
        _one_tap,
        needs=("bilinear",),
        fires=(f"convolve(%x: f32[2, 3, 5, 6], %w: f32[4, 3, 1, 1]) window={ONE}",),
        holds=(
            f"convolve(%x: f32[2, 3, 5, 6], %w: f32[4, 3, 1, 1]) window={TWO}",
            f"convolve(%x: f32[2, 4, 5, 6], %w: f32[4, 2, 1, 1]) window={ONE} groups=2",
        ),
    ),
)
