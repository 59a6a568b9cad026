"""MobileNet V2 and V3-large (Howard et al.): depthwise blocks, Relu6 or HardSwish and gates."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from models import layers
from models.builder import Dim, GraphBuilder, Value
from models.feeds import Feeds, Normal, draw
from models.layers import Activation

Row = tuple[int, int, int, int, Activation, int]


@dataclass(frozen=True, slots=True)
class Block:
    """One inverted residual block; channels grow to `expanded`, then shrink to `target`."""

    kernel: int
    expanded: int
    target: int
    gated: bool
    activation: Activation
    stride: int


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes of one MobileNet: the stem, the blocks, the channels before pooling, and the head."""

    stem: int
    blocks: tuple[Block, ...]
    top: int
    hidden: int
    activation: Activation
    classes: int = 1000
    image: int = 224
    batch: int = 1
    dynamic: bool = False
    opset: int = 17

    @classmethod
    def small(cls) -> Config:
        """Return a four-block V3 network on 32 x 32 images."""
        rows: tuple[Row, ...] = (
            (3, 16, 8, 1, "relu", 2),
            (3, 32, 12, 0, "relu", 2),
            (5, 36, 12, 1, "hard_swish", 1),
        )
        return cls(8, _blocks(rows), 36, 40, "hard_swish", classes=10, image=32)

    @classmethod
    def small_v2(cls) -> Config:
        """Return a three-block V2 network on 32 x 32 images."""
        return cls(8, _v2_blocks(8, ((1, 8, 1, 1), (6, 12, 2, 2))), 40, 0, "relu6", 10, 32)

    @classmethod
    def full(cls) -> Config:
        """Return MobileNetV3-large at 224 x 224."""
        return cls(16, _blocks(V3_LARGE), 960, 1280, "hard_swish")

    @classmethod
    def full_v2(cls) -> Config:
        """Return MobileNetV2 at 224 x 224."""
        return cls(32, _v2_blocks(32, V2), 1280, 0, "relu6")


# Table 2 of the V2 paper: expansion, output channels, repeats, first stride.
V2 = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
# Table 1 of the V3 paper: kernel, expanded channels, output channels, gate, activation, stride.
V3_LARGE: tuple[Row, ...] = (
    (3, 16, 16, 0, "relu", 1),
    (3, 64, 24, 0, "relu", 2),
    (3, 72, 24, 0, "relu", 1),
    (5, 72, 40, 1, "relu", 2),
    (5, 120, 40, 1, "relu", 1),
    (5, 120, 40, 1, "relu", 1),
    (3, 240, 80, 0, "hard_swish", 2),
    (3, 200, 80, 0, "hard_swish", 1),
    (3, 184, 80, 0, "hard_swish", 1),
    (3, 184, 80, 0, "hard_swish", 1),
    (3, 480, 112, 1, "hard_swish", 1),
    (3, 672, 112, 1, "hard_swish", 1),
    (5, 672, 160, 1, "hard_swish", 2),
    (5, 960, 160, 1, "hard_swish", 1),
    (5, 960, 160, 1, "hard_swish", 1),
)


def build(config: Config) -> onnx.ModelProto:
    """Return image[n, 3, h, w] float32 -> logits[n, classes] float32."""
    g = GraphBuilder("mobilenet", config.opset)
    batch: Dim = "batch" if config.dynamic else config.batch
    x = g.input("image", (batch, 3, config.image, config.image))
    with g.scope("features/0"):
        x = layers.conv_norm(g, x, (3, config.stem), 3, config.activation, stride=2)
    channels = config.stem
    for position, block in enumerate(config.blocks, 1):
        with g.scope(f"features/{position}"):
            x = _inverted_residual(g, x, channels, block)
        channels = block.target
    with g.scope("features/top"):
        x = layers.conv_norm(g, x, (channels, config.top), 1, config.activation)
    x, channels = layers.global_pool_flat(g, x), config.top
    if config.hidden:
        with g.scope("classifier/0"):
            x = layers.activate(g, layers.gemm(g, x, (channels, config.hidden)), config.activation)
        channels = config.hidden
    with g.scope("classifier"):
        logits = layers.gemm(g, x, (channels, config.classes))
    g.output(logits, "logits", (batch, config.classes))
    return g.build()


def feeds(config: Config, seed: int = 0) -> Feeds:
    """Return one seeded image batch."""
    return draw({"image": Normal((config.batch, 3, config.image, config.image))}, seed)


def _inverted_residual(g: GraphBuilder, x: Value, source: int, block: Block) -> Value:
    """Expand, filter each map, gate, project; add the input where shapes allow."""
    y = x
    if block.expanded != source:
        with g.scope("expand"):
            y = layers.conv_norm(g, y, (source, block.expanded), 1, block.activation)
    with g.scope("depthwise"):
        y = layers.conv_norm(
            g,
            y,
            (block.expanded, block.expanded),
            block.kernel,
            block.activation,
            stride=block.stride,
            groups=block.expanded,
        )
    if block.gated:
        squeezed = max(8, (block.expanded // 4 + 4) // 8 * 8)
        with g.scope("gate"):
            y = layers.squeeze_excite(g, y, block.expanded, squeezed)
    with g.scope("project"):
        y = layers.conv_norm(g, y, (block.expanded, block.target), 1, "none", scale=0.7)
    return g.op("Add", x, y) if block.stride == 1 and source == block.target else y


def _blocks(rows: tuple[Row, ...]) -> tuple[Block, ...]:
    return tuple(Block(k, e, t, bool(gated), act, s) for k, e, t, gated, act, s in rows)


def _v2_blocks(stem: int, rows: tuple[tuple[int, int, int, int], ...]) -> tuple[Block, ...]:
    blocks: list[Block] = []
    source = stem
    for expansion, target, repeats, stride in rows:
        for position in range(repeats):
            step = stride if position == 0 else 1
            blocks.append(Block(3, source * expansion, target, False, "relu6", step))
            source = target
    return tuple(blocks)
