"""Products, convolutions, quantised and signal ONNX nodes against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.onnx_case import Case, case, check

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

ALL = [*CONTRACT, *CONVOLVE, *QUANT, *HEADS, *SIGNAL]


@pytest.mark.parametrize("given", ALL, ids=[f"{k}-{c}" for k, c in enumerate(ALL)])
def test_node_against_onnxruntime(given: Case) -> None:
    check(given)
