"""Speech encoders (Whisper, Radford et al. 2022): strided 1-D convolutions, then a transformer."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
import onnx

from models import attention, layers
from models.attention import Form
from models.builder import Array, Dim, GraphBuilder, Value
from models.encoder import Block, pre_norm_layer
from models.feeds import Feeds, Normal, draw
from models.layers import Norm

FORM = Form("both", "add", "separate")


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes and written form of one encoder; `dynamic` leaves the batch open."""

    depth: int = 4
    hidden: int = 384
    heads: int = 6
    bands: int = 80
    frames: int = 3000
    batch: int = 1
    dynamic: bool = False
    norm: Norm = "op"
    form: Form = FORM
    opset: int = 17

    @classmethod
    def small(cls) -> Config:
        """Return a two-layer encoder over 26 frames."""
        return cls(2, 24, 3, 8, 26, batch=2)

    @classmethod
    def full(cls) -> Config:
        """Return an encoder with the sizes of Whisper-tiny, for 30 seconds."""
        return cls()


def build(config: Config) -> onnx.ModelProto:
    """Return mel[n, bands, frames] float32 -> states[n, frames / 2, hidden] float32."""
    g = GraphBuilder("speech", config.opset)
    batch: Dim = "batch" if config.dynamic else config.batch
    length = config.frames // 2
    x = g.input("mel", (batch, config.bands, config.frames))
    with g.scope("conv1"):
        x = layers.gelu_erf(g, _conv(g, x, config.bands, config.hidden, 1))
    with g.scope("conv2"):
        x = layers.gelu_erf(g, _conv(g, x, config.hidden, config.hidden, 2))
    x = g.op("Transpose", x, perm=[0, 2, 1])
    x = g.op("Add", x, g.weight("positions", _waves(length, config.hidden)))
    rows = attention.rows_of(g, x, None if config.dynamic else config.batch, length)
    block = Block(config.hidden, config.heads, config.norm, config.form)
    for position in range(config.depth):
        with g.scope(f"blocks.{position}"):
            x = pre_norm_layer(g, x, rows, block)
    with g.scope("ln_post"):
        x = layers.layer_norm(g, x, config.hidden, config.norm)
    g.output(x, "states", (batch, length, config.hidden))
    return g.build()


def feeds(config: Config, seed: int = 0) -> Feeds:
    """Return one seeded batch of log-mel frames."""
    return draw({"mel": Normal((config.batch, config.bands, config.frames), 0.5)}, seed)


def _conv(g: GraphBuilder, x: Value, source: int, target: int, stride: int) -> Value:
    """Convolve x[n, source, frames] with a kernel of three frames."""
    weight = g.normal("weight", (target, source, 3), sqrt(2.0 / (3 * source)))
    return g.op(
        "Conv",
        x,
        weight,
        g.near("bias", target, 0.0),
        dilations=[1],
        group=1,
        kernel_shape=[3],
        pads=[1, 1],
        strides=[stride],
    )


def _waves(length: int, size: int) -> Array:
    """Return float32 [length, size] of sines, then cosines, from period 2 pi to 20,000 pi."""
    rates = np.exp(-np.log(10000.0) / (size // 2 - 1) * np.arange(size // 2))
    angles = np.arange(length)[:, None] * rates[None, :]
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)
