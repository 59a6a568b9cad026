"""A YOLO-style detector: CSP backbone, SPPF, path-aggregation neck, decoded head.

The decode part is in the graph, as in exported YOLOv5 and YOLOv8: anchor-free boxes in pixels,
class scores in 0..1, all levels joined. By option the graph also suppresses overlapping boxes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from models import layers
from models.builder import Dim, GraphBuilder, Value
from models.feeds import Feeds, Normal, draw


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes of one detector; `width` is the stem's channels, `depth` the bottlenecks per stage."""

    width: int = 16
    depth: int = 1
    classes: int = 80
    image: int = 640
    batch: int = 1
    dynamic: bool = False
    suppress: bool = False
    opset: int = 17

    @classmethod
    def small(cls) -> Config:
        """Return a narrow detector on 64 x 64 images."""
        return cls(width=4, classes=3, image=64)

    @classmethod
    def full(cls) -> Config:
        """Return a detector of YOLOv8-nano size at 640 x 640."""
        return cls()


STRIDES = (8, 16, 32)


def build(config: Config) -> onnx.ModelProto:
    """Return image[n, 3, h, w] -> predictions[n, 4 + classes, cells]: x, y, w, h, class scores.

    With `suppress`: -> picked[found, 3] int64 (image, class, cell), boxes[found, 4], scores[found].
    """
    g = GraphBuilder("detector", config.opset)
    batch: Dim = "batch" if config.dynamic else config.batch
    x = g.input("image", (batch, 3, config.image, config.image))
    levels = _neck(g, _backbone(g, x, config), config)
    boxes: list[Value] = []
    scores: list[Value] = []
    for position, (level, channels) in enumerate(levels):
        with g.scope(f"head/{position}"):
            box, score = _head(g, level, channels, config, STRIDES[position])
        boxes.append(box)
        scores.append(score)
    box = _pixels(g, g.op("Concat", *boxes, axis=2), config)
    score = g.op("Sigmoid", g.op("Concat", *scores, axis=2))
    cells = sum((config.image // stride) ** 2 for stride in STRIDES)
    if config.suppress:
        _suppress(g, box, score)
        return g.build()
    found = g.op("Concat", box, score, axis=1)
    g.output(found, "predictions", (batch, 4 + config.classes, cells))
    return g.build()


def feeds(config: Config, seed: int = 0) -> Feeds:
    """Return one seeded image batch."""
    return draw({"image": Normal((config.batch, 3, config.image, config.image), 0.5)}, seed)


Level = tuple[Value, int]


def _backbone(g: GraphBuilder, x: Value, config: Config) -> list[Level]:
    """Return the maps at strides 8, 16 and 32 with their channels."""
    with g.scope("stem"):
        x = layers.conv_norm(g, x, (3, config.width), 3, "silu", stride=2)
    channels, levels = config.width, list[Level]()
    for stage in range(4):
        with g.scope(f"stage{stage}/down"):
            x = layers.conv_norm(g, x, (channels, channels * 2), 3, "silu", stride=2)
        channels *= 2
        with g.scope(f"stage{stage}/csp"):
            x = _csp(g, x, (channels, channels), config.depth, shortcut=True)
        levels.append((x, channels))
    with g.scope("sppf"):
        levels[-1] = (_pyramid_pool(g, x, channels), channels)
    return levels[1:]


def _csp(
    g: GraphBuilder, x: Value, channels: tuple[int, int], depth: int, *, shortcut: bool
) -> Value:
    """Split the channels, run bottlenecks on one half, join every intermediate result."""
    half = channels[1] // 2
    with g.scope("in"):
        x = layers.conv_norm(g, x, (channels[0], 2 * half), 1, "silu")
    parts = list(g.multi("Split", x, g.ints(half, half), outputs=2, axis=1))
    for position in range(depth):
        y = parts[-1]
        for step in range(2):
            with g.scope(f"m{position}/{step}"):
                y = layers.conv_norm(g, y, (half, half), 3, "silu", scale=0.7)
        parts.append(g.op("Add", parts[-1], y) if shortcut else y)
    joined = g.op("Concat", *parts, axis=1)
    with g.scope("out"):
        return layers.conv_norm(g, joined, ((2 + depth) * half, channels[1]), 1, "silu")


def _pyramid_pool(g: GraphBuilder, x: Value, channels: int) -> Value:
    """Join a map with three chained 5 x 5 max pools of it."""
    with g.scope("in"):
        x = layers.conv_norm(g, x, (channels, channels // 2), 1, "silu")
    parts = [x]
    for _ in range(3):
        pooled = g.op(
            "MaxPool", parts[-1], kernel_shape=[5, 5], pads=[2] * 4, strides=[1, 1], ceil_mode=0
        )
        parts.append(pooled)
    with g.scope("out"):
        joined = g.op("Concat", *parts, axis=1)
        return layers.conv_norm(g, joined, (channels * 2, channels), 1, "silu")


def _neck(g: GraphBuilder, levels: list[Level], config: Config) -> list[Level]:
    """Pass context down to finer maps, then back up; channels per level stay the same."""
    x, above = levels[-1]
    finer: list[Level] = [levels[-1]]
    for position in (1, 0):
        side, channels = levels[position]
        x = g.op(
            "Resize",
            x,
            "",
            g.constant([1.0, 1.0, 2.0, 2.0]),
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
            cubic_coeff_a=-0.75,
        )
        with g.scope(f"neck/down{position}"):
            joined = g.op("Concat", x, side, axis=1)
            x = _csp(g, joined, (above + channels, channels), config.depth, shortcut=False)
        finer.append((x, channels))
        above = channels
    finer.reverse()
    result = [finer[0]]
    for position in (1, 2):
        side, channels = finer[position]
        with g.scope(f"neck/up{position}"):
            x = layers.conv_norm(g, x, (above, above), 3, "silu", stride=2)
            joined = g.op("Concat", x, side, axis=1)
            x = _csp(g, joined, (above + channels, channels), config.depth, shortcut=False)
        result.append((x, channels))
        above = channels
    return result


def _head(
    g: GraphBuilder, x: Value, channels: int, config: Config, stride: int
) -> tuple[Value, Value]:
    """Return raw box[n, 4, cells] and score[n, classes, cells] of one level."""
    parts = 4 + config.classes
    with g.scope("conv"):
        x = layers.conv_norm(g, x, (channels, channels), 3, "silu")
    x = layers.conv(g, x, (channels, parts), 1, gain=8.0)  # scores from near 0 to near 1
    flat = g.op("Reshape", x, g.ints(0, parts, (config.image // stride) ** 2))
    box, score = g.multi("Split", flat, g.ints(4, config.classes), outputs=2, axis=1)
    return box, score


def _pixels(g: GraphBuilder, box: Value, config: Config) -> Value:
    """Turn raw offsets and log-free sizes into centre and size in pixels, in YOLOv5's way."""
    centers, strides = _cells(config.image)
    place, size = g.multi("Split", g.op("Sigmoid", box), g.ints(2, 2), outputs=2, axis=1)
    offset = g.op("Sub", g.op("Mul", place, g.constant(2.0)), g.constant(0.5))
    place = g.op("Mul", g.op("Add", offset, g.constant(centers)), g.constant(strides))
    squared = g.op("Pow", g.op("Mul", size, g.constant(2.0)), g.constant(2.0))
    size = g.op("Mul", squared, g.constant(strides * 4))
    return g.op("Concat", place, size, axis=1)


def _suppress(g: GraphBuilder, box: Value, score: Value) -> None:
    """Declare the outputs that remain after non-maximum suppression of box[n, 4, cells]."""
    rows = g.op("Transpose", box, perm=[0, 2, 1])
    limits = (g.constant([20], "int64"), g.constant([0.45]), g.constant([0.7]))
    picked = g.op("NonMaxSuppression", rows, score, *limits, center_point_box=1)
    columns = (g.op("Gather", picked, g.constant(index, "int64"), axis=1) for index in range(3))
    image, label, cell = (g.op("Unsqueeze", column, g.ints(1)) for column in columns)
    place = g.op("Concat", image, cell, axis=1)
    g.output(picked, "picked", ("found", 3), "int64")
    g.output(g.op("GatherND", rows, place), "boxes", ("found", 4))
    full = g.op("Concat", image, label, cell, axis=1)
    g.output(g.op("GatherND", score, full), "scores", ("found",))


def _cells(image: int) -> tuple[np.ndarray, np.ndarray]:
    """Return corners[1, 2, cells] in cells and strides[1, 1, cells] in pixels, by level."""
    corners: list[np.ndarray] = []
    sizes: list[np.ndarray] = []
    for stride in STRIDES:
        side = image // stride
        rows, columns = np.divmod(np.arange(side * side), side)
        corners.append(np.stack([columns, rows]))
        sizes.append(np.full((1, side * side), stride))
    joined = (np.concatenate(part, axis=1)[None].astype(np.float32) for part in (corners, sizes))
    return next(joined), next(joined)
