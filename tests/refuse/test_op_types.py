"""Operands that do not fit an op are an IRError that names what is wrong."""

from __future__ import annotations

import pytest

from unistack_aot.aicf.op import Op
from unistack_aot.base.errors import IRError
from unistack_aot.ops.attention import Attention
from unistack_aot.ops.contract import Contract
from unistack_aot.ops.convolve import Convolve, ConvolveTranspose
from unistack_aot.ops.fold import ArgExtreme, LogSumExp, Moments, Reduce
from unistack_aot.ops.pointwise import Add, BitwiseAnd, Exp
from unistack_aot.ops.samples import parse_type
from unistack_aot.ops.softmax import Softmax
from unistack_aot.ops.window import WindowFold, sliding

CASES = [
    (Add(), ("f32[2,3]", "f32[4]"), "extents 3, 4 do not broadcast"),
    (Add(), ("f32[N]", "f32[M]"), "extents M, N do not broadcast"),
    (Add(), ("f32[2]", "i64[2]"), "add is not defined for f32, i64"),
    (Exp(), ("i32[2]",), "exp is not defined for i32"),
    (BitwiseAnd(), ("f32[2]", "f32[2]"), "bit_and is not defined for f32, f32"),
    (Reduce("sum", (2,)), ("f32[2,3]",), r"reduce over axes \(2,\) of f32\[2, 3\]"),
    (Reduce("sum", (1, 0)), ("f32[2,3]",), r"reduce over axes \(1, 0\)"),
    (Reduce("all", (0,)), ("f32[2]",), r"all of f32\[2\]"),
    (Reduce("sum", (0,)), ("bool[2]",), r"sum of bool\[2\]"),
    (Reduce("softmax", (0,)), ("f32[2]",), "softmax is not a monoid of one value"),
    (LogSumExp((0,)), ("i32[2]",), r"log_sum_exp takes floats, got i32\[2\]"),
    (Moments((0,)), ("i32[2]",), "moments takes floats"),
    (ArgExtreme(1), ("f32[2]",), r"arg_extreme over axes \(1,\)"),
    (Softmax(-1), ("f32[2,3]",), r"softmax over axes \(-1,\)"),
    (Contract("ac", "cb", "ab"), ("f32[2,3]", "f32[4,5]"), "axis c of .* has extents 3 and 4"),
    (Contract("ac", "cb", "ab"), ("f32[2]", "f32[4,5]"), "labels 'ac' for 1 axes"),
    (Contract("ac", "cb", "abd"), ("f32[2,3]", "f32[3,5]"), "repeat or come from nowhere"),
    (Contract("a", "a", ""), ("f32[2]", "f16[2]"), "contract of f32 and f16"),
    (Contract("a", "a", ""), ("bool[2]", "bool[2]"), "contract of bool and bool"),
    (Convolve(sliding((3, 3))), ("f32[1,2,8]", "f32[4,2,3]"), "with 2 spatial axes"),
    (Convolve(sliding((3,))), ("f32[1,3,8]", "f32[4,2,3]"), "in 1 groups"),
    (Convolve(sliding((3,)), 3), ("f32[1,6,8]", "f32[4,2,3]"), "4 channels .* in 3 groups"),
    (Convolve(sliding((5,))), ("f32[1,2,4]", "f32[4,2,5]"), "window of 5 does not fit"),
    (ConvolveTranspose(sliding((3,))), ("f32[1,3,8]", "f32[4,2,3]"), "convolve_transpose of"),
    (WindowFold("max", (1,), sliding((5,))), ("f32[2,4]",), "does not fit an extent of 4"),
    (
        Attention(1.0),
        ("f32[1,3,2,4]", "f32[1,2,2,4]", "f32[1,2,2,4]"),
        "3 query heads do not share 2 key heads evenly",
    ),
    (
        Attention(1.0),
        ("f32[1,2,2,4]", "f32[1,2,2,5]", "f32[1,2,2,4]"),
        "extents do not fit",
    ),
    (
        Attention(1.0),
        ("f32[1,2,2,4]", "f32[1,2,2,4]", "f32[1,2,2,4]", "f32[3]"),
        "mask does not broadcast",
    ),
    (
        Attention(1.0),
        ("f32[1,2,2,4]", "f32[1,2,2,4]", "f32[1,2,2,4]", "bool[2]", "f32[2]"),
        "a mask of floats, then one of bools",
    ),
]


@pytest.mark.parametrize(
    ("op", "types", "words"), CASES, ids=[f"{k}-{op.name}" for k, (op, _, _) in enumerate(CASES)]
)
def test_refused(op: Op, types: tuple[str, ...], words: str) -> None:
    with pytest.raises(IRError, match=words):
        op.infer(*(parse_type(t) for t in types))
