"""Vision transformers (Dosovitskiy et al. 2020): patches by convolution, pre-norm encoder."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from models import attention, layers
from models.attention import Form, Rows
from models.builder import Dim, GraphBuilder, Value
from models.encoder import Block, pre_norm_layer
from models.feeds import Feeds, Normal, draw
from models.layers import Norm

FORM = Form("mul", "add", "gather")


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes and written form of one vision transformer; `dynamic` leaves the batch open."""

    depth: int = 12
    hidden: int = 768
    heads: int = 12
    patch: int = 16
    image: int = 224
    classes: int = 1000
    batch: int = 1
    dynamic: bool = False
    norm: Norm = "op"
    form: Form = FORM
    opset: int = 17

    @classmethod
    def small(cls) -> Config:
        """Return a two-layer network over 16 patches."""
        return cls(2, 32, 4, 4, 16, classes=10)

    @classmethod
    def full(cls) -> Config:
        """Return ViT-B/16 at 224 x 224."""
        return cls()


def build(config: Config) -> onnx.ModelProto:
    """Return image[n, 3, h, w] float32 -> logits[n, classes] float32."""
    g = GraphBuilder("vit", config.opset)
    batch: Dim = "batch" if config.dynamic else config.batch
    image = g.input("image", (batch, 3, config.image, config.image))
    count = attention.dim(g, image, 0) if config.dynamic else config.batch
    patches = (config.image // config.patch) ** 2
    with g.scope("patch_embed"):
        x = _patches(g, image, patches, count, config)
    with g.scope("cls"):
        token = g.normal("token", (1, 1, config.hidden), 0.5)
        token = g.op("Expand", token, attention.shape(g, count, 1, config.hidden))
    x = g.op("Concat", token, x, axis=1)
    x = g.op("Add", x, g.normal("pos_embed", (1, patches + 1, config.hidden), 0.2))
    block = Block(config.hidden, config.heads, config.norm, config.form, epsilon=1e-6)
    for position in range(config.depth):
        with g.scope(f"blocks.{position}"):
            x = pre_norm_layer(g, x, Rows(count, patches + 1), block)
    with g.scope("norm"):
        x = layers.layer_norm(g, x, config.hidden, config.norm, 1e-6)
    with g.scope("head"):
        first = g.op("Gather", x, g.constant(0, "int64"), axis=1)
        logits = layers.gemm(g, first, (config.hidden, config.classes))
    g.output(logits, "logits", (batch, config.classes))
    return g.build()


def feeds(config: Config, seed: int = 0) -> Feeds:
    """Return one seeded image batch."""
    return draw({"image": Normal((config.batch, 3, config.image, config.image))}, seed)


def _patches(
    g: GraphBuilder, image: Value, patches: int, count: attention.Size, config: Config
) -> Value:
    """Cut the image into patches by a strided convolution: [n, patches, hidden]."""
    side = config.patch
    fan_in = 3 * side * side
    x = g.op(
        "Conv",
        image,
        g.normal("weight", (config.hidden, 3, side, side), fan_in**-0.5),
        g.near("bias", config.hidden, 0.0),
        dilations=[1, 1],
        group=1,
        kernel_shape=[side, side],
        pads=[0, 0, 0, 0],
        strides=[side, side],
    )
    x = g.op("Reshape", x, attention.shape(g, count, config.hidden, patches))
    return g.op("Transpose", x, perm=[0, 2, 1])
