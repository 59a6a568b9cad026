"""Pointwise, folding and normalising ONNX nodes against onnxruntime on the same arrays."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from tests.ops.onnx_case import Case, case, check, model_of
from unistack_aot.base.errors import Unsupported
from unistack_aot.onnx_in.importer import import_model
from unistack_aot.ops.op import Sample
from unistack_aot.ops.samples import as_sample, sample_arrays

UNARY = [
    case(name, args, opset)
    for name, opset in (
        ("Abs", 13),
        ("Neg", 13),
        ("Sign", 13),
        ("Exp", 13),
        ("Reciprocal", 13),
        ("Floor", 13),
        ("Ceil", 13),
        ("Erf", 13),
        ("Sin", 7),
        ("Cos", 7),
        ("Tan", 7),
        ("Atan", 7),
        ("Sinh", 9),
        ("Cosh", 9),
        ("Asinh", 9),
        ("Relu", 14),
        ("Sigmoid", 13),
        ("Tanh", 13),
        ("Softplus", 1),
        ("Softsign", 1),
        ("HardSwish", 14),
        ("Mish", 18),
        ("Identity", 14),
    )
    for args in ("f32[3,5]",)
] + [
    case("Sqrt", "f32[7]", fill=("positive",)),
    case("Log", "f32[7]", fill=("positive",)),
    case("Log", "f32[9]", fill=("special",)),
    case("Sqrt", "f32[9]", fill=("special",)),
    case("Exp", "f32[9]", fill=("special",)),
    case("Relu", "f32[9]", fill=("special",)),
    case("Sigmoid", "f32[9]", fill=("special",)),
    case("Tanh", "f32[9]", fill=("special",)),
    case("Asin", "f32[7]", fill=("unit",)),
    case("Acos", "f32[7]", fill=("unit",)),
    case("Atanh", "f32[7]", fill=("unit",)),
    case("Acosh", "f32[7]", fill=("above_one",)),
    case("Round", "f32[11]", fill=("halves",)),
    case("Abs", "i32[7]"),
    case("Neg", "i64[7]"),
    case("Sign", "i32[7]"),
    case("Not", "bool[7]"),
    case("IsNaN", "f32[9]", fill=("special",)),
    case("IsInf", "f32[9]", fill=("special",)),
    case("IsInf", "f32[9]", fill=("special",), detect_negative=0),
    case("IsInf", "f32[9]", fill=("special",), detect_positive=0),
    case("BitwiseNot", "i32[7]", 18),
    case("Relu", "f16[7]", 14),
]

BINARY = [
    *(case(op, "f32[2,3], f32[3]", 14) for op in ("Add", "Sub", "Mul", "Div")),
    *(case(op, "i32[6], i32[6]", 14, fill=("small", "nonzero")) for op in ("Div", "Add", "Mul")),
    case("Div", "i64[2,6], i64[]", 14, fill=("full", "nonzero")),
    case("Mod", "i32[9], i32[9]", 13, fill=("small", "nonzero")),
    case("Mod", "i32[9], i32[9]", 13, fill=("small", "nonzero"), fmod=1),
    case("Mod", "f32[9], f32[9]", 13, fmod=1),
    case("Mod", "u8[9], u8[9]", 13, fill=("small", "nonzero")),
    case("Pow", "f32[2,3], f32[3]", 15, fill=("positive", "normal")),
    case("Pow", "f32[9], f32[]", 15, fill=("normal", "count")),
    case("Pow", "f32[9], i64[9]", 15, fill=("normal", "small")),
    case("Pow", "i32[9], i32[9]", 15, fill=("small", "count")),
    case("Pow", "i64[9], f32[9]", 15, fill=("small", "count")),
    case("Min", "f32[9], f32[9]", 13, fill=("special", "normal")),
    case("Max", "f32[9], f32[9]", 13, fill=("special", "normal")),
    case("Max", "f32[2,1], f32[3], f32[2,3]", 13),
    case("Min", "i64[2,1], i64[3]", 13),
    case("Sum", "f32[2,1], f32[3], f32[2,3]", 13),
    case("Mean", "f32[2,1], f32[3], f32[2,3]", 13),
    case("PRelu", "f32[2,3,4], f32[3,1]", 16),
    *(case(op, "f32[2,3], f32[3]", 16) for op in ("Less", "Greater", "LessOrEqual")),
    *(case(op, "i64[9], i64[9]", 16) for op in ("Equal", "GreaterOrEqual", "Less")),
    case("Equal", "bool[9], bool[9]"),
    case("Equal", "f32[9], f32[9]", fill=("special", "special")),
    *(case(op, "bool[2,5], bool[5]", 7) for op in ("And", "Or", "Xor")),
    *(case(f"Bitwise{op}", "i32[2,5], i32[5]", 18) for op in ("And", "Or", "Xor")),
    case("BitShift", "u8[5], u8[5]", 11, fill=("count", "count"), direction="LEFT"),
    case("BitShift", "u32[5], u32[5]", 11, fill=("full", "count"), direction="RIGHT"),
    case("Where", "bool[2,3], f32[2,3], f32[3]", 16),
    case("Where", "bool[3], i64[2,1], i64[]", 16),
]

ACTIVATION = [
    case("LeakyRelu", "f32[9]", 16),
    case("LeakyRelu", "f32[9]", 16, alpha=0.25),
    case("Elu", "f32[9]", 6, alpha=0.5),
    case("Celu", "f32[9]", 12, alpha=0.5),
    case("Selu", "f32[9]", 6),
    case("Selu", "f32[9]", 6, alpha=0.5, gamma=2.0),
    case("ThresholdedRelu", "f32[9]", 10, alpha=0.3),
    case("HardSigmoid", "f32[9]", 6),
    case("HardSigmoid", "f32[9]", 6, alpha=1 / 6, beta=0.5),
    case("Shrink", "f32[9]", 9, lambd=0.4, bias=0.1),
    case("Gelu", "f32[9]", 20),
    case("Gelu", "f32[9]", 20, approximate="tanh"),
    case("Gelu", "f32[9]", domain="com.microsoft"),
    case("QuickGelu", "f32[9]", domain="com.microsoft"),
    case("Clip", "f32[9]", 6, min=-0.5, max=0.25),
    case("Clip", "f32[9]", 6, max=0.25),
    case("Clip", "f32[9]", 13, constants={1: np.float32(-0.5), 2: np.float32(0.25)}),
    case("Clip", "f32[9]", 13, constants={2: np.float32(0.25)}),
    case("Clip", "f32[9], f32[]", 13, fill=("normal", "zeros")),
    case("Clip", "f32[9]", 13, fill=("special",), constants={1: np.float32(0), 2: np.float32(6)}),
    case("Clip", "i64[9]", 13, constants={1: np.int64(-1), 2: np.int64(2)}),
    case("Dropout", "f32[9]", 13),
    case("Dropout", "f32[3,3]", 13, outputs=2),
    *(
        case("Cast", f"{source}[9]", 13, to=to)
        for source, to in (
            ("f32", TensorProto.INT64),
            ("f32", TensorProto.FLOAT16),
            ("f16", TensorProto.FLOAT),
            ("f32", TensorProto.BOOL),
            ("bool", TensorProto.FLOAT),
            ("i64", TensorProto.INT32),
            ("i32", TensorProto.UINT8),
            ("f32", TensorProto.DOUBLE),
        )
    ),
    case("CastLike", "f32[9], i32[1]", 15),
]

REDUCE = [
    *(
        case(f"Reduce{kind}", "f32[2,3,4]", 13, axes=[1], fill=("positive",))
        for kind in ("Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")
    ),
    *(
        case(f"Reduce{kind}", "f32[2,3,4]", 18, constants={1: np.array([0, -1])}, keepdims=0)
        for kind in ("Mean", "Max", "Min", "Prod", "L1", "L2", "LogSumExp", "SumSquare")
    ),
    case("ReduceSum", "f32[2,3,4]", 11, axes=[-1]),
    case("ReduceSum", "f32[2,3,4]", 13, constants={1: np.array([2, 0])}),
    case("ReduceSum", "f32[2,3,4]", 13),
    case("ReduceSum", "f32[2,3,4]", 13, noop_with_empty_axes=1),
    case("ReduceMean", "f32[2,3,4]", 18, noop_with_empty_axes=1),
    case("ReduceSum", "i64[2,3]", 13),
    case("ReduceMean", "i32[2,3]", 13, axes=[1]),
    case("ReduceMax", "i64[2,3]", 13, axes=[1]),
    case("ReduceMax", "bool[2,3]", 20, constants={1: np.array([1])}),
    case("ReduceLogSumExp", "f32[2,3]", 13, axes=[1], fill=("special",)),
    case("ArgMax", "f32[3,5]", 13, axis=1),
    case("ArgMin", "f32[3,5]", 13, axis=0, keepdims=0),
    case("ArgMax", "i32[3,9]", 13, axis=1, select_last_index=1),
    case("ArgMin", "i32[3,9]", 13, axis=-1),
    case("Hardmax", "f32[3,5]", 13, axis=0),
    case("Hardmax", "f32[2,3,4]", 11),
]

POOL = [
    case("MaxPool", "f32[1,3,8,8]", 12, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    case("MaxPool", "f32[1,3,8,7]", 12, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
    case("MaxPool", "f32[1,3,7]", 12, kernel_shape=[3], dilations=[2]),
    case("MaxPool", "f32[1,3,7,7]", 12, kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER"),
    case("MaxPool", "f32[1,3,7,8]", 12, kernel_shape=[2, 2], auto_pad="SAME_LOWER"),
    case("MaxPool", "f32[1,3,7,8]", 12, kernel_shape=[2, 2], auto_pad="VALID"),
    case("MaxPool", "f32[1,2,4,5,6]", 12, kernel_shape=[2, 2, 2]),
    case("MaxPool", "i8[1,2,6,6]", 12, kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    case("MaxPool", "f32[1,1,6,6]", 8, kernel_shape=[2, 2]),
    case("AveragePool", "f32[1,3,8,8]", 11, kernel_shape=[3, 3], strides=[2, 2]),
    case("AveragePool", "f32[1,3,8,8]", 11, kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    case("AveragePool", "f32[1,3,8]", 11, kernel_shape=[3], pads=[1, 1], count_include_pad=1),
    case("AveragePool", "f32[1,3,8,7]", 11, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    case(
        "AveragePool",
        "f32[1,2,8,8]",
        19,
        kernel_shape=[3, 3],
        strides=[2, 2],
        pads=[1, 1, 1, 1],
        ceil_mode=1,
        count_include_pad=1,
    ),
    case(
        "AveragePool",
        "f32[1,2,8,9]",
        19,
        kernel_shape=[2, 3],
        strides=[3, 3],
        pads=[1, 0, 0, 1],
        ceil_mode=1,
    ),
    case("AveragePool", "f32[1,2,9]", 19, kernel_shape=[3], dilations=[2], pads=[1, 2]),
    case("AveragePool", "f32[1,2,7,7]", 11, kernel_shape=[3, 3], auto_pad="SAME_UPPER"),
    case("LpPool", "f32[1,2,7,7]", 11, kernel_shape=[3, 3], strides=[2, 2], p=2),
    case("LpPool", "f32[1,2,7]", 11, kernel_shape=[3], pads=[1, 1], p=1),
    case("LpPool", "f32[1,2,7]", 11, kernel_shape=[3], p=3),
    case("GlobalAveragePool", "f32[2,3,4,5]", 1),
    case("GlobalMaxPool", "f32[2,3,4,5]", 1),
    case("GlobalLpPool", "f32[2,3,4,5]", 2, p=2),
]

NORMAL = [
    case("Softmax", "f32[2,3,4]", 13),
    case("Softmax", "f32[2,3,4]", 13, axis=1),
    case("Softmax", "f32[2,3,4]", 11),
    case("Softmax", "f32[2,3,4]", 11, axis=-1),
    case("Softmax", "f32[2,3]", 13, fill=("special",)),
    case("LogSoftmax", "f32[2,3,4]", 13, axis=0),
    case("LogSoftmax", "f32[2,3,4]", 11, axis=2),
    case(
        "BatchNormalization",
        "f32[2,3,4,4], f32[3], f32[3], f32[3], f32[3]",
        15,
        fill=("normal", "normal", "normal", "normal", "positive"),
        epsilon=1e-3,
    ),
    case(
        "BatchNormalization",
        "f32[4,3], f32[3], f32[3], f32[3], f32[3]",
        9,
        fill=("normal", "normal", "normal", "normal", "positive"),
    ),
    case("LayerNormalization", "f32[2,3,8], f32[8], f32[8]", 17),
    case("LayerNormalization", "f32[2,3,8], f32[3,8]", 17, axis=1, outputs=3),
    case("LayerNormalization", "f32[2,8], f32[8], f32[8]", 17, epsilon=1e-2, outputs=2),
    case("InstanceNormalization", "f32[2,3,4,5], f32[3], f32[3]", 6, loose=4),
    case("GroupNormalization", "f32[2,4,3,3], f32[4], f32[4]", 21, num_groups=2),
    case("RMSNormalization", "f32[2,3,8], f32[8]", 23),
    case("SimplifiedLayerNormalization", "f32[2,3,8], f32[8]", 17, axis=-1, epsilon=1e-5),
    case(
        "SkipLayerNormalization",
        "f32[2,3,8], f32[2,3,8], f32[8], f32[8], f32[8]",
        domain="com.microsoft",
        epsilon=1e-5,
    ),
    case(
        "SkipSimplifiedLayerNormalization",
        "f32[2,3,8], f32[2,3,8], f32[8]",
        domain="com.microsoft",
        epsilon=1e-5,
    ),
    case("LpNormalization", "f32[2,3,4]", 1, axis=1, p=1),
    case("LpNormalization", "f32[2,3,4]", 1),
    case("LRN", "f32[2,7,3,3]", 13, size=5, alpha=0.1, beta=0.6, bias=1.5),
    case("LRN", "f32[2,7,3,3]", 13, size=3),
    case("MeanVarianceNormalization", "f32[2,3,4,4]", 13),
    case("MeanVarianceNormalization", "f32[2,3,4]", 13, axes=[2]),
]

ALL = [*UNARY, *BINARY, *ACTIVATION, *REDUCE, *POOL, *NORMAL]


@pytest.mark.parametrize("given", ALL, ids=[f"{k}-{c}" for k, c in enumerate(ALL)])
def test_node_against_onnxruntime(given: Case) -> None:
    check(given)


REFUSED = [
    (case("MaxPool", "f32[1,1,4,4]", 12, kernel_shape=[2, 2], outputs=2), "Indices"),
    (case("Mod", "f32[4], f32[4]", 13), "fmod=0"),
    (
        case(
            "BatchNormalization", "f32[1,2,3], f32[2], f32[2], f32[2], f32[2]", 15, training_mode=1
        ),
        "training mode",
    ),
    (case("Cast", "f32[4]", 13, to=TensorProto.STRING), "element type 8"),
]


@pytest.mark.parametrize(("given", "words"), REFUSED, ids=[str(c) for c, _ in REFUSED])
def test_refused(given: Case, words: str) -> None:
    types = as_sample(Sample((given.args,), (), given.fill))
    model = model_of(given, dict(enumerate(sample_arrays(types, {}))))
    with pytest.raises(Unsupported, match=words):
        import_model(model)
