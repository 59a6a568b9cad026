"""Single ONNX nodes: our import and numpy meaning against onnxruntime on the same arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from unistack_aot.aicf.evaluate import evaluate_graph
from unistack_aot.aicf.op import Array
from unistack_aot.base.errors import Unsupported
from unistack_aot.onnx_in.importer import import_model
from unistack_aot.ops.op import Sample
from unistack_aot.ops.samples import as_sample, sample_arrays


@dataclass(frozen=True)
class Case:
    """One node: operator, operand types, opset, fills, constant operands, attributes, domain."""

    op: str
    args: str
    opset: int = 17
    fill: tuple[str, ...] = ()
    constants: tuple[tuple[int, Any], ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    domain: str = ""
    loose: float = 1.0

    def __str__(self) -> str:
        shown = ",".join(f"{k}={v}" for k, v in self.attributes.items())
        return f"{self.op}-{self.opset}-{self.args}-{shown}".replace(" ", "")


def case(op: str, args: str, opset: int = 17, **rest: Any) -> Case:
    """A case; unknown keywords are ONNX attributes."""
    known = {k: rest.pop(k) for k in list(rest) if k in Case.__dataclass_fields__}
    known["constants"] = tuple(known.get("constants", {}).items())
    return Case(op, args, opset, attributes=rest, **known)


def model_of(given: Case, arrays: dict[int, Array]) -> onnx.ModelProto:
    """A model of that one node; constants are initializers, positions without array are omitted."""
    count = max([*arrays, *dict(given.constants), 0]) + 1
    constants = dict(given.constants)
    names = [f"x{k}" if k in arrays or k in constants else "" for k in range(count)]
    outputs = [f"y{k}" for k in range(given.outputs)]
    node = helper.make_node(
        given.op, names, outputs, name="node", domain=given.domain, **given.attributes
    )
    inputs = [
        helper.make_tensor_value_info(
            f"x{k}", helper.np_dtype_to_tensor_dtype(a.dtype), list(a.shape)
        )
        for k, a in arrays.items()
    ]
    weights = [numpy_helper.from_array(np.asarray(v), f"x{k}") for k, v in constants.items()]
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph([node], "one", inputs, results, weights)
    opsets = [helper.make_opsetid("", given.opset)]
    if given.domain:
        opsets.append(helper.make_opsetid(given.domain, 1))
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def check(given: Case) -> None:
    """Compare every output of the case with onnxruntime's."""
    constants = dict(given.constants)
    types = as_sample(Sample((given.args,), (), given.fill))
    positions = [k for k in range(len(types.args) + len(constants)) if k not in constants]
    arrays = dict(zip(positions, sample_arrays(types, {}, seed=1), strict=False))
    model = model_of(given, arrays)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    feeds = {f"x{k}": a for k, a in arrays.items()}
    expected = session.run(None, feeds)
    graph = import_model(model).graph
    actual = evaluate_graph(graph, feeds)
    for k, want in enumerate(expected):
        got = actual[f"y{k}"]
        assert got.dtype == want.dtype, f"output {k}: {got.dtype}, not {want.dtype}"
        assert got.shape == want.shape, f"output {k}: {got.shape}, not {want.shape}"
        if want.dtype.kind == "f":
            tolerance = given.loose * (4e-3 if want.dtype == np.float16 else 2e-5)
            np.testing.assert_allclose(
                got.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=tolerance
            )
        else:
            np.testing.assert_array_equal(got, want)


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

CONTRACT = [
    case("MatMul", "f32[3,4], f32[4,5]", 13),
    case("MatMul", "f32[2,3,4], f32[4,5]", 13),
    case("MatMul", "f32[3,4], f32[2,4,5]", 13),
    case("MatMul", "f32[2,1,3,4], f32[3,4,5]", 13),
    case("MatMul", "f32[1,1,3,4], f32[2,3,4,5]", 13),
    case("MatMul", "f32[1,3,4], f32[1,4,5]", 13),
    case("MatMul", "f32[4], f32[4,5]", 13),
    case("MatMul", "f32[2,3,4], f32[4]", 13),
    case("MatMul", "f32[4], f32[4]", 13),
    case("MatMul", "f32[4], f32[2,4,5]", 13),
    case("MatMul", "i32[3,4], i32[4,5]", 13),
    case("MatMul", "f16[3,4], f16[4,5]", 13),
    case("Gemm", "f32[3,4], f32[4,5], f32[5]", 13),
    case("Gemm", "f32[4,3], f32[5,4], f32[3,1]", 13, transA=1, transB=1, alpha=0.5, beta=2.0),
    case("Gemm", "f32[3,4], f32[5,4]", 13, transB=1),
    case("Gemm", "f32[3,4], f32[4,5], f32[]", 13, beta=0.0),
    case("Einsum", "f32[2,3,4], f32[2,4,5]", 12, equation="bij,bjk->bik"),
    case("Einsum", "f32[2,3,4,5], f32[2,6,4,5]", 12, equation="bihd,bjhd->bhij"),
    case("Einsum", "f32[3,4]", 12, equation="ij->ji"),
    case("Einsum", "f32[3,4]", 12, equation="ij->"),
    case("Einsum", "f32[3,3]", 12, equation="ii->i"),
    case("Einsum", "f32[2,3,3]", 12, equation="...ii->...i"),
    case("Einsum", "f32[2,3,4], f32[4,5]", 12, equation="...ij,jk->...ik"),
    case("Einsum", "f32[2,3], f32[3,4], f32[4,5]", 12, equation="ij,jk,kl->il"),
    case("Einsum", "f32[3,4], f32[4]", 12, equation="ij,j"),
    case("Einsum", "f32[3], f32[4]", 12, equation="i,j->ji"),
]

CONVOLVE = [
    case("Conv", "f32[1,3,8,8], f32[4,3,3,3]", 11),
    case("Conv", "f32[1,3,8,8], f32[4,3,3,3], f32[4]", 11, pads=[1, 1, 1, 1], strides=[2, 2]),
    case("Conv", "f32[2,4,9], f32[6,2,3], f32[6]", 11, group=2, dilations=[2], pads=[2, 1]),
    case("Conv", "f32[1,4,8,8], f32[4,1,3,3]", 11, group=4, pads=[1, 1, 1, 1]),
    case("Conv", "f32[1,4,8,8], f32[8,1,3,3]", 11, group=4, auto_pad="SAME_UPPER"),
    case("Conv", "f32[1,2,7,8], f32[3,2,2,3]", 11, strides=[2, 3], auto_pad="SAME_LOWER"),
    case("Conv", "f32[1,2,7,8], f32[3,2,2,3]", 11, strides=[2, 3], auto_pad="SAME_UPPER"),
    case("Conv", "f32[1,2,7,8], f32[3,2,2,3]", 11, auto_pad="VALID"),
    case("Conv", "f32[1,2,4,5,6], f32[3,2,2,2,2]", 11, pads=[1, 0, 1, 0, 1, 0]),
    case("ConvTranspose", "f32[1,3,4,4], f32[3,2,2,2], f32[2]", 11, strides=[2, 2]),
    case(
        "ConvTranspose",
        "f32[1,3,4,4], f32[3,2,3,3]",
        11,
        strides=[2, 2],
        pads=[1, 1, 1, 1],
        output_padding=[1, 1],
    ),
    case("ConvTranspose", "f32[2,4,5], f32[4,3,3]", 11, group=2, strides=[3], dilations=[2]),
    case("ConvTranspose", "f32[1,2,4,4], f32[2,1,3,3]", 11, strides=[2, 2], output_shape=[8, 8]),
    case("ConvTranspose", "f32[1,2,4,4], f32[2,1,3,3]", 11, strides=[2, 2], auto_pad="SAME_UPPER"),
    case("ConvTranspose", "f32[1,2,4,4], f32[2,1,3,3]", 11, strides=[2, 2], auto_pad="SAME_LOWER"),
]

_SCALE, _ZERO = np.float32(0.05), np.uint8(128)
_HALF = np.float32(0.5)

QUANT = [
    case("QuantizeLinear", "f32[2,9]", 13, constants={1: _SCALE, 2: _ZERO}),
    case("QuantizeLinear", "f32[11]", 13, constants={1: _HALF, 2: np.int8(3)}, fill=("halves",)),
    case("QuantizeLinear", "f32[11]", 13, constants={1: np.float32(1)}, fill=("halves",)),
    case("QuantizeLinear", "f32[9]", 13, constants={1: np.float32(1e-4), 2: np.int8(3)}),
    case(
        "QuantizeLinear",
        "f32[2,3,4]",
        13,
        axis=1,
        constants={1: np.array([0.1, 0.2, 0.3], np.float32), 2: np.array([1, 2, 3], np.uint8)},
    ),
    case("QuantizeLinear", "f32[9]", 21, constants={1: _SCALE, 2: np.int16(7)}),
    case("DequantizeLinear", "u8[2,9]", 13, fill=("full",), constants={1: _SCALE, 2: _ZERO}),
    case("DequantizeLinear", "i8[9]", 13, fill=("full",), constants={1: _SCALE}),
    case("DequantizeLinear", "i32[9]", 13, constants={1: _SCALE}),
    case(
        "DequantizeLinear",
        "i8[3,4]",
        13,
        axis=0,
        fill=("full",),
        constants={1: np.array([0.1, 0.2, 0.3], np.float32), 2: np.array([1, 2, 3], np.int8)},
    ),
    case("DynamicQuantizeLinear", "f32[3,7]", 11, outputs=3),
    # small weights: onnxruntime's AVX2 kernel saturates pairs of full-range products (vpmaddubsw)
    case("MatMulInteger", "u8[3,40], i8[40,5]", 10, fill=("full", "small")),
    case(
        "MatMulInteger",
        "u8[3,40], i8[40,5]",
        10,
        fill=("full", "small"),
        constants={2: np.uint8(9), 3: np.int8(-3)},
    ),
    case(
        "MatMulInteger",
        "u8[3,4], u8[4,5]",
        10,
        fill=("full", "full"),
        constants={2: np.uint8(9), 3: np.arange(5, dtype=np.uint8)},
    ),
    case(
        "ConvInteger",
        "u8[1,3,6,6], u8[2,3,3,3]",
        10,
        fill=("full", "full"),
        pads=[1, 1, 1, 1],
        constants={2: np.uint8(9), 3: np.uint8(3)},
    ),
    case(
        "QLinearConv",
        "u8[1,3,6,6]",
        10,
        fill=("full",),
        pads=[1, 1, 1, 1],
        constants={
            1: _SCALE,
            2: _ZERO,
            3: np.arange(-54, 54, dtype=np.int8).reshape(4, 3, 3, 3),
            4: np.array([0.01, 0.02, 0.03, 0.04], np.float32),
            5: np.zeros(4, np.int8),
            6: _HALF,
            7: np.uint8(10),
            8: np.array([100, -200, 300, 0], np.int32),
        },
    ),
    case(
        "QLinearMatMul",
        "u8[3,4]",
        10,
        fill=("full",),
        constants={
            1: _SCALE,
            2: _ZERO,
            3: np.arange(20, dtype=np.uint8).reshape(4, 5),
            4: np.float32(0.02),
            5: np.uint8(3),
            6: _SCALE,
            7: np.uint8(100),
        },
    ),
    case(
        "QLinearAdd",
        "u8[3,4]",
        domain="com.microsoft",
        fill=("full",),
        constants={
            1: _SCALE,
            2: _ZERO,
            3: np.arange(4, dtype=np.uint8),
            4: np.float32(0.02),
            5: np.uint8(3),
            6: np.float32(0.07),
            7: np.uint8(100),
        },
    ),
    case(
        "QLinearMul",
        "u8[3,4]",
        domain="com.microsoft",
        fill=("full",),
        constants={
            1: _SCALE,
            2: _ZERO,
            3: np.arange(4, dtype=np.uint8),
            4: np.float32(0.02),
            5: np.uint8(3),
            6: np.float32(0.07),
            7: np.uint8(100),
        },
    ),
]

HEADS = [
    case("Attention", "f32[1,2,3,4], f32[1,2,5,4], f32[1,2,5,6]", 23),
    case("Attention", "f32[2,4,3,4], f32[2,2,5,4], f32[2,2,5,4]", 23, scale=0.3),
    case("Attention", "f32[1,2,4,8], f32[1,2,4,8], f32[1,2,4,8]", 23, is_causal=1),
    case("Attention", "f32[1,2,4,8], f32[1,2,4,8], f32[1,2,4,8], f32[4,4]", 23),
    case(
        "Attention",
        "f32[1,2,4,8], f32[1,2,4,8], f32[1,2,4,8]",
        23,
        constants={3: np.tril(np.ones((4, 4), bool))},
    ),
    case("Attention", "f32[2,3,8], f32[2,5,8], f32[2,5,8]", 23, q_num_heads=2, kv_num_heads=2),
    case(
        "Attention",
        "f32[1,2,3,4], f32[1,2,3,4], f32[1,2,3,4], f32[1,2,2,4], f32[1,2,2,4]",
        23,
        constants={3: np.zeros((3, 5), np.float32)},
        outputs=3,
        is_causal=1,
    ),
    case("RotaryEmbedding", "f32[2,3,4,8], f32[2,4,4], f32[2,4,4]", 23),
    case("RotaryEmbedding", "f32[2,3,4,8], f32[2,4,4], f32[2,4,4]", 23, interleaved=1),
    case(
        "RotaryEmbedding",
        "f32[2,3,4,8], f32[9,4], f32[9,4], i64[2,4]",
        23,
        fill=("normal", "normal", "normal", "count"),
    ),
    case(
        "RotaryEmbedding",
        "f32[2,4,24], f32[9,2], f32[9,2], i64[2,4]",
        23,
        fill=("normal", "normal", "normal", "count"),
        num_heads=3,
        rotary_embedding_dim=4,
    ),
]

SIGNAL = [
    case("DFT", "f32[2,8,1]", 17),
    case("DFT", "f32[2,9,2]", 17, inverse=1),
    case("DFT", "f32[2,9,1]", 17, onesided=1),
    case("DFT", "f32[2,4,9,1]", 20, constants={2: np.int64(1)}),
    case("DFT", "f32[2,9,1]", 20, constants={1: np.int64(6)}),
    case("DFT", "f32[2,9,1]", 20, constants={1: np.int64(12)}),
    case(
        "STFT",
        "f32[2,64,1]",
        17,
        constants={1: np.int64(8), 2: np.hanning(16).astype(np.float32), 3: np.int64(16)},
    ),
    case("STFT", "f32[1,40,1]", 17, constants={1: np.int64(5), 3: np.int64(12)}, onesided=0),
    case("HannWindow", "", 17, constants={0: np.int64(9)}),
    case("HammingWindow", "", 17, constants={0: np.int64(9)}, periodic=0),
    case("BlackmanWindow", "", 17, constants={0: np.int64(8)}),
]

ALL = [
    *UNARY,
    *BINARY,
    *ACTIVATION,
    *REDUCE,
    *POOL,
    *NORMAL,
    *CONTRACT,
    *CONVOLVE,
    *QUANT,
    *HEADS,
    *SIGNAL,
]


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
