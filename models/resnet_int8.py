"""ResNet-18 in the QDQ form: uint8 activations, int8 weights with a scale per channel."""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot, sqrt

import numpy as np
import onnx

from models.builder import Dim, GraphBuilder, Value
from models.feeds import Feeds, Normal, draw


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes of one quantised ResNet of basic blocks; `dynamic` leaves the batch open."""

    blocks: tuple[int, int, int, int] = (2, 2, 2, 2)
    width: int = 64
    classes: int = 1000
    image: int = 224
    batch: int = 1
    dynamic: bool = False
    opset: int = 17

    @classmethod
    def small(cls) -> Config:
        """Return a five-block variant on 32 x 32 images."""
        return cls(blocks=(1, 2, 1, 1), width=8, classes=10, image=32)

    @classmethod
    def full(cls) -> Config:
        """Return ResNet-18 at 224 x 224."""
        return cls()


@dataclass(frozen=True, slots=True)
class Quantized:
    """A dequantised activation, the scale of its uint8 form, and its typical magnitude."""

    value: Value
    scale: float
    spread: float


STEP = 40  # weights are round(40 · normal): int8 with three standard deviations inside the range


def build(config: Config) -> onnx.ModelProto:
    """Return image[n, 3, h, w] float32 -> logits[n, classes] float32."""
    g = GraphBuilder("resnet_int8", config.opset)
    batch: Dim = "batch" if config.dynamic else config.batch
    image = g.input("image", (batch, 3, config.image, config.image))
    x = _quantize(g, image, 1.0, signed=True)
    with g.scope("stem"):
        x = _relu(g, *_conv(g, x, (3, config.width), 7, 2, sqrt(2.0)))
    pooled = g.op("MaxPool", x.value, kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2])
    x = Quantized(pooled, x.scale, x.spread)
    channels = config.width
    for stage, count in enumerate(config.blocks):
        target = config.width << stage
        for position in range(count):
            with g.scope(f"layer{stage + 1}/{position}"):
                x = _block(g, x, channels, target, 2 if stage and not position else 1)
            channels = target
    flat = g.op("Flatten", g.op("GlobalAveragePool", x.value), axis=1)
    x = _quantize(g, flat, x.spread, signed=False)
    with g.scope("fc"):
        weight, bias = _weights(g, (config.classes, channels), x.scale, channels**-0.5)
        logits = g.op("Gemm", x.value, weight, bias, alpha=1.0, beta=1.0, transB=1)
    logits = _quantize(g, logits, x.spread, signed=True).value
    g.output(logits, "logits", (batch, config.classes))
    return g.build()


def feeds(config: Config, seed: int = 0) -> Feeds:
    """Return one seeded image batch."""
    return draw({"image": Normal((config.batch, 3, config.image, config.image))}, seed)


def _block(g: GraphBuilder, x: Quantized, source: int, target: int, stride: int) -> Quantized:
    """Return relu(shortcut(x) + branch(x)) with every tensor quantised in between."""
    with g.scope("conv1"):
        y = _relu(g, *_conv(g, x, (source, target), 3, stride, sqrt(2.0)))
    with g.scope("conv2"):
        value, spread = _conv(g, y, (target, target), 3, 1, 0.5)
        y = _quantize(g, value, spread, signed=True)
    if stride != 1 or source != target:
        with g.scope("downsample"):
            value, spread = _conv(g, x, (source, target), 1, stride, 1.0)
            x = _quantize(g, value, spread, signed=True)
    total = g.op("Add", y.value, x.value)
    return _relu(g, total, hypot(x.spread, y.spread))


def _relu(g: GraphBuilder, x: Value, spread: float) -> Quantized:
    return _quantize(g, g.op("Relu", x), spread, signed=False)


def _quantize(g: GraphBuilder, x: Value, spread: float, *, signed: bool) -> Quantized:
    """Round x to uint8 and back; the range holds four times the typical magnitude."""
    scale = 4 * spread * (2 if signed else 1) / 255
    parameters = (g.constant(scale), g.constant(128 if signed else 0, "uint8"))
    stored = g.op("QuantizeLinear", x, *parameters)
    return Quantized(g.op("DequantizeLinear", stored, *parameters), scale, spread)


def _conv(
    g: GraphBuilder, x: Quantized, channels: tuple[int, int], kernel: int, stride: int, gain: float
) -> tuple[Value, float]:
    """Convolve with dequantised weights; return the result and its typical magnitude."""
    source, target = channels
    shape = (target, source, kernel, kernel)
    weight, bias = _weights(g, shape, x.scale, gain / sqrt(source * kernel * kernel))
    y = g.op(
        "Conv",
        x.value,
        weight,
        bias,
        dilations=[1, 1],
        group=1,
        kernel_shape=[kernel, kernel],
        pads=[kernel // 2] * 4,
        strides=[stride, stride],
    )
    return y, gain * x.spread / sqrt(2.0) if stride == 1 else gain * x.spread


def _weights(
    g: GraphBuilder, shape: tuple[int, ...], input_scale: float, deviation: float
) -> tuple[Value, Value]:
    """Return a dequantised int8 weight with a scale per first axis, and its int32 bias."""
    values = g.rng.standard_normal(shape, dtype=np.float32) * STEP
    stored = np.clip(np.rint(values), -127, 127).astype(np.int8)
    scales = g.rng.uniform(0.8, 1.2, shape[0]).astype(np.float32) * np.float32(deviation / STEP)
    zeros = np.zeros(shape[0], np.int8)
    weight = g.op(
        "DequantizeLinear",
        g.weight("weight_quantized", stored),
        g.weight("weight_scale", scales),
        g.weight("weight_zero_point", zeros),
        axis=0,
    )
    # A bias is stored in units of input scale times weight scale, the accumulator's own unit.
    unit = scales * np.float32(input_scale)
    amounts = np.rint(g.rng.uniform(-0.1, 0.1, shape[0]) / unit).astype(np.int32)
    bias = g.op(
        "DequantizeLinear",
        g.weight("bias_quantized", amounts),
        g.weight("bias_scale", unit),
        axis=0,
    )
    return weight, bias
