"""Layers as exporters write them in ONNX: convolution blocks, linear maps, norms, activations."""

from __future__ import annotations

from math import pi, sqrt
from typing import Any, Literal

import numpy as np

from models.builder import GraphBuilder, Value

Activation = Literal["none", "relu", "relu6", "silu", "hard_swish", "leaky"]
# 1 / the root mean square of activation(x) for a standard normal x, so that depth keeps magnitudes;
# the last three by numerical integration.
GAINS: dict[Activation, float] = {
    "none": 1.0,
    "relu": sqrt(2.0),
    "relu6": sqrt(2.0),
    "leaky": sqrt(2.0 / 1.01),
    "silu": 1.676,
    "hard_swish": 1.737,
}
Norm = Literal["op", "decomposed"]


def conv(
    g: GraphBuilder,
    x: Value,
    channels: tuple[int, int],
    kernel: int,
    *,
    stride: int = 1,
    groups: int = 1,
    bias: bool = True,
    gain: float = 1.0,
) -> Value:
    """Convolve x[n, channels[0], h, w] to channels[1] maps with "same" zero padding."""
    source, target = channels
    fan_in = source // groups * kernel * kernel
    inputs = [
        x,
        g.normal("weight", (target, source // groups, kernel, kernel), gain / sqrt(fan_in)),
    ]
    if bias:
        inputs.append(g.near("bias", target, 0.0))
    return g.op(
        "Conv",
        *inputs,
        dilations=[1, 1],
        group=groups,
        kernel_shape=[kernel, kernel],
        pads=[kernel // 2] * 4,
        strides=[stride, stride],
    )


def batch_norm(g: GraphBuilder, x: Value, channels: int, scale: float = 1.0) -> Value:
    """Normalise x[n, channels, ...] by stored statistics, as in inference."""
    parameters = (
        g.near("weight", channels, scale, 0.2 * scale),
        g.near("bias", channels, 0.0),
        g.near("running_mean", channels, 0.0),
        g.near("running_var", channels, 1.0, 0.5),
    )
    return g.op("BatchNormalization", x, *parameters, epsilon=1e-5, momentum=0.9)


def conv_norm(
    g: GraphBuilder,
    x: Value,
    channels: tuple[int, int],
    kernel: int,
    activation: Activation,
    *,
    stride: int = 1,
    groups: int = 1,
    scale: float = 1.0,
) -> Value:
    """Return activation(batch_norm(conv(x))); `scale` is the normalisation's mean weight."""
    with g.scope("conv"):
        x = conv(
            g, x, channels, kernel, stride=stride, groups=groups, bias=False, gain=GAINS[activation]
        )
    with g.scope("norm"):
        x = batch_norm(g, x, channels[1], scale)
    return activate(g, x, activation)


def activate(g: GraphBuilder, x: Value, activation: Activation) -> Value:
    """Apply an elementwise activation in the form that exporters give it."""
    match activation:
        case "none":
            return x
        case "relu":
            return g.op("Relu", x)
        case "relu6":
            return g.op("Clip", x, g.constant(0.0), g.constant(6.0))
        case "silu":
            return g.op("Mul", x, g.op("Sigmoid", x))
        case "hard_swish":
            return g.op("HardSwish", x)
        case "leaky":
            return g.op("LeakyRelu", x, alpha=0.1)


def linear(
    g: GraphBuilder, x: Value, sizes: tuple[int, int], *, bias: bool = True, gain: float = 1.0
) -> Value:
    """Map the last axis of x[..., sizes[0]] to sizes[1]: MatMul, then Add of the bias before it."""
    deviation = gain / sqrt(sizes[0])
    if g.int8_linear:
        y = _matmul_int8(g, x, sizes, deviation)
    else:
        y = g.op("MatMul", x, g.normal("weight", sizes, deviation))
    return g.op("Add", g.near("bias", sizes[1], 0.0), y) if bias else y


def _matmul_int8(g: GraphBuilder, x: Value, sizes: tuple[int, int], deviation: float) -> Value:
    """Multiply by int8 weights, rounding x to uint8 with a range found at run time."""
    stored = np.rint(g.rng.standard_normal(sizes, dtype=np.float32) * 32).clip(-127, 127)
    weight = g.weight("weight_quantized", stored.astype(np.int8))
    scale = g.weight("weight_scale", np.asarray(deviation / 32, np.float32))
    zero = g.weight("weight_zero_point", np.asarray(0, np.int8))
    rounded, x_scale, x_zero = g.multi("DynamicQuantizeLinear", x, outputs=3)
    total = g.cast(g.op("MatMulInteger", rounded, weight, x_zero, zero), "float32")
    return g.op("Mul", total, g.op("Mul", x_scale, scale))


def gemm(g: GraphBuilder, x: Value, sizes: tuple[int, int]) -> Value:
    """Map x[n, sizes[0]] to [n, sizes[1]] by Gemm with a transposed weight."""
    weight = g.normal("weight", (sizes[1], sizes[0]), 1 / sqrt(sizes[0]))
    return g.op("Gemm", x, weight, g.near("bias", sizes[1], 0.0), alpha=1.0, beta=1.0, transB=1)


def reduce_mean(g: GraphBuilder, x: Value, *axes: int) -> Value:
    """Mean over axes, kept as size one; the axes are an input from opset 18 on."""
    if g.opset >= 18:
        return g.op("ReduceMean", x, g.ints(*axes), keepdims=1)
    return g.op("ReduceMean", x, axes=list(axes), keepdims=1)


def equal_parts(g: GraphBuilder, count: int) -> dict[str, Any]:
    """Return Split's attributes for equal parts: their number is written from opset 18 on."""
    return {"num_outputs": count} if g.opset >= 18 else {}


def layer_norm(g: GraphBuilder, x: Value, size: int, form: Norm, epsilon: float = 1e-5) -> Value:
    """Normalise the last axis to zero mean and unit variance, then scale and shift."""
    weight, bias = g.near("weight", size, 1.0), g.near("bias", size, 0.0)
    if form == "op":
        return g.op("LayerNormalization", x, weight, bias, axis=-1, epsilon=epsilon)
    centered = g.op("Sub", x, reduce_mean(g, x, -1))
    variance = reduce_mean(g, g.op("Pow", centered, g.constant(2.0)), -1)
    deviation = g.op("Sqrt", g.op("Add", variance, g.constant(epsilon)))
    return g.op("Add", g.op("Mul", g.op("Div", centered, deviation), weight), bias)


def rms_norm(g: GraphBuilder, x: Value, size: int, epsilon: float = 1e-6) -> Value:
    """Divide the last axis by its root mean square, then scale."""
    mean = reduce_mean(g, g.op("Pow", x, g.constant(2.0)), -1)
    root = g.op("Sqrt", g.op("Add", mean, g.constant(epsilon)))
    scaled = g.op("Mul", x, g.op("Div", g.constant(1.0), root))
    return g.op("Mul", g.near("weight", size, 1.0), scaled)


def gelu_erf(g: GraphBuilder, x: Value) -> Value:
    """x/2 · (1 + erf(x/√2)), as a chain of elementwise nodes."""
    erf = g.op("Erf", g.op("Div", x, g.constant(sqrt(2.0))))
    return g.op("Mul", g.op("Mul", x, g.op("Add", erf, g.constant(1.0))), g.constant(0.5))


def gelu_tanh(g: GraphBuilder, x: Value) -> Value:
    """x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³))), as a chain of elementwise nodes."""
    cube = g.op("Mul", g.op("Pow", x, g.constant(3.0)), g.constant(0.044715))
    inner = g.op("Mul", g.op("Add", x, cube), g.constant(sqrt(2.0 / pi)))
    one_plus = g.op("Add", g.op("Tanh", inner), g.constant(1.0))
    return g.op("Mul", g.op("Mul", x, g.constant(0.5)), one_plus)


def squeeze_excite(g: GraphBuilder, x: Value, channels: int, squeezed: int) -> Value:
    """Scale each map of x[n, channels, h, w] by a gate computed from all maps' means."""
    gate = g.op("GlobalAveragePool", x)
    with g.scope("fc1"):
        gate = g.op("Relu", conv(g, gate, (channels, squeezed), 1))
    with g.scope("fc2"):
        gate = conv(g, gate, (squeezed, channels), 1)
    return g.op("Mul", g.op("HardSigmoid", gate, alpha=1 / 6, beta=0.5), x)


def global_pool_flat(g: GraphBuilder, x: Value) -> Value:
    """Mean over the image: x[n, c, h, w] to [n, c]."""
    return g.op("Flatten", g.op("GlobalAveragePool", x), axis=1)
