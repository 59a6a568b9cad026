"""U-Net (Ronneberger et al. 2015): encoder, growing decoder, skips."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Literal

import onnx

from models import layers
from models.builder import Dim, GraphBuilder, Value
from models.feeds import Feeds, Normal, draw


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes of one U-Net; `dynamic` leaves batch, height and width open (multiples of 2^depth)."""

    width: int = 32
    depth: int = 4
    channels: int = 3
    classes: int = 2
    height: int = 256
    columns: int = 256
    batch: int = 1
    dynamic: bool = False
    upsample: Literal["transposed", "linear"] = "transposed"
    opset: int = 17

    @classmethod
    def small(cls) -> Config:
        """Return a two-level network on 24 x 16 images."""
        return cls(width=4, depth=2, height=24, columns=16)

    @classmethod
    def full(cls) -> Config:
        """Return a four-level network at 256 x 256."""
        return cls()


def build(config: Config) -> onnx.ModelProto:
    """Return image[n, channels, h, w] -> mask[n, classes, h, w], class probabilities per pixel."""
    g = GraphBuilder("unet", config.opset)
    dims: tuple[Dim, Dim, Dim] = (config.batch, config.height, config.columns)
    if config.dynamic:
        dims = ("batch", "height", "width")
    batch, height, columns = dims
    x = g.input("image", (batch, config.channels, height, columns))
    skips: list[Value] = []
    before = config.channels
    for level in range(config.depth):
        after = config.width << level
        x = _double(g, x, f"down{level}", before, after)
        skips.append(x)
        x = g.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
        before = after
    x = _double(g, x, "bottom", before, before * 2)
    for level in reversed(range(config.depth)):
        after = config.width << level
        with g.scope(f"up{level}"):
            if config.upsample == "linear":
                x = _stretch(g, x, skips[level], after * 2, after)
            else:
                x = _double_size(g, x, after * 2, after)
            x = g.op("Concat", skips[level], x, axis=1)
        x = _double(g, x, f"up{level}", after * 2, after)
    with g.scope("head"):
        x = layers.conv(g, x, (config.width, config.classes), 1)
        mask = g.op("Softmax", x, axis=1)
    g.output(mask, "mask", (batch, config.classes, height, columns))
    return g.build()


def feeds(config: Config, seed: int = 0) -> Feeds:
    """Return one seeded image batch."""
    shape = (config.batch, config.channels, config.height, config.columns)
    return draw({"image": Normal(shape)}, seed)


def _double(g: GraphBuilder, x: Value, label: str, before: int, after: int) -> Value:
    """Two 3 x 3 convolutions with normalisation and Relu."""
    for position in range(2):
        with g.scope(f"{label}/{position}"):
            x = layers.conv_norm(g, x, (after if position else before, after), 3, "relu")
    return x


def _double_size(g: GraphBuilder, x: Value, before: int, after: int) -> Value:
    """Upsample by two with a 2 x 2 transposed convolution."""
    weight = g.normal("weight", (before, after, 2, 2), 1 / sqrt(before))
    bias = g.near("bias", after, 0.0)
    return g.op(
        "ConvTranspose",
        x,
        weight,
        bias,
        dilations=[1, 1],
        group=1,
        kernel_shape=[2, 2],
        pads=[0, 0, 0, 0],
        strides=[2, 2],
    )


def _stretch(g: GraphBuilder, x: Value, like: Value, before: int, after: int) -> Value:
    """Upsample to the height and width of `like` by linear interpolation, then mix channels."""
    kept = g.op("Slice", g.op("Shape", x), g.ints(0), g.ints(2), g.ints(0))
    sides = g.op("Slice", g.op("Shape", like), g.ints(2), g.ints(4), g.ints(0))
    x = g.op(
        "Resize",
        x,
        "",
        "",
        g.op("Concat", kept, sides, axis=0),
        mode="linear",
        coordinate_transformation_mode="pytorch_half_pixel",
        cubic_coeff_a=-0.75,
        nearest_mode="floor",
    )
    return layers.conv(g, x, (before, after), 1)
