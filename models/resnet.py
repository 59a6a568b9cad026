"""ResNet (He et al. 2015) with basic or bottleneck blocks, as exported in eval mode."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from models import layers
from models.builder import Dim, GraphBuilder, Value
from models.feeds import Feeds, Normal, draw


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes of one ResNet; `batch` and `image` are what the feeds use, and the graph's if fixed."""

    blocks: tuple[int, int, int, int] = (2, 2, 2, 2)
    width: int = 64
    bottleneck: bool = False
    classes: int = 1000
    image: int = 224
    batch: int = 1
    dynamic: bool = False
    opset: int = 17

    @classmethod
    def small(cls) -> Config:
        """Return a few-layer variant with both kinds of shortcut."""
        return cls(blocks=(1, 2, 1, 1), width=8, classes=10, image=32)

    @classmethod
    def full(cls) -> Config:
        """Return ResNet-18 at 224 x 224."""
        return cls()

    @classmethod
    def full50(cls) -> Config:
        """Return ResNet-50 at 224 x 224."""
        return cls(blocks=(3, 4, 6, 3), bottleneck=True)

    @property
    def expansion(self) -> int:
        """Return how many times wider a block's output is than its inside."""
        return 4 if self.bottleneck else 1


def build(config: Config) -> onnx.ModelProto:
    """Return image[n, 3, h, w] float32 -> logits[n, classes] float32."""
    g = GraphBuilder("resnet", config.opset)
    batch: Dim = "batch" if config.dynamic else config.batch
    x = g.input("image", (batch, 3, config.image, config.image))
    with g.scope("stem"):
        x = layers.conv_norm(g, x, (3, config.width), 7, "relu", stride=2)
    x = g.op("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])
    channels = config.width
    for stage, count in enumerate(config.blocks):
        inside = config.width << stage
        for position in range(count):
            stride = 2 if stage and not position else 1
            with g.scope(f"layer{stage + 1}/{position}"):
                x = _block(g, x, channels, inside, stride, config)
            channels = inside * config.expansion
    x = layers.global_pool_flat(g, x)
    with g.scope("fc"):
        logits = layers.gemm(g, x, (channels, config.classes))
    g.output(logits, "logits", (batch, config.classes))
    return g.build()


def feeds(config: Config, seed: int = 0) -> Feeds:
    """Return one seeded image batch."""
    return draw({"image": Normal((config.batch, 3, config.image, config.image))}, seed)


def _block(
    g: GraphBuilder, x: Value, source: int, inside: int, stride: int, config: Config
) -> Value:
    """Return relu(shortcut(x) + branch(x)); the branch ends small so that depth does not add up."""
    target = inside * config.expansion
    # (input channels, output channels, kernel, stride) of the branch's convolutions
    plan = [(source, inside, 3, stride), (inside, target, 3, 1)]
    if config.bottleneck:
        plan = [(source, inside, 1, 1), (inside, inside, 3, stride), (inside, target, 1, 1)]
    branch = x
    for position, (before, after, kernel, step) in enumerate(plan):
        last = position == len(plan) - 1
        with g.scope(f"conv{position + 1}"):
            branch = layers.conv_norm(
                g,
                branch,
                (before, after),
                kernel,
                "none" if last else "relu",
                stride=step,
                scale=0.5 if last else 1.0,
            )
    if stride != 1 or source != target:
        with g.scope("downsample"):
            x = layers.conv_norm(g, x, (source, target), 1, "none", stride=stride)
    return g.op("Relu", g.op("Add", branch, x))
