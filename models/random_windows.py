"""Random windows over images: convolutions, pooling, resizing.

Not here: contractions, attention, regions (random_blocks.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from models.random_graph import CHANNELS, Builder, Extent, Unfit, Value


def image(b: Builder) -> Value:
    """A value with batch, channels and one to three spatial axes."""

    def fits(v: Value) -> bool:
        return v.dtype == "float32" and 3 <= v.rank <= 5 and isinstance(v.shape[1], int)

    if any(fits(v) for v in b.values) and b.chance(0.8):
        return b.pick(fits)
    space = b.random.choices((1, 2, 3), (1, 5, 1))[0]
    most = {1: 33, 2: 17, 3: 7}[space]
    batch: Extent = "N" if b.symbolic and b.chance(0.5) else b.extent(3)
    channels = b.random.choice(CHANNELS)
    shape: list[Extent] = [batch, channels, *(b.extent(most) for _ in range(space))]
    if b.symbolic and b.chance(0.2):
        shape[2] = "S"
    return b.input("float32", shape)


def window(b: Builder, x: Value) -> dict[str, list[int]]:
    """Kernel, strides, dilations and pads that leave at least one window."""
    space = [d if isinstance(d, int) else 2 for d in x.shape[2:]]
    kernel, strides, dilations, before, after = ([], [], [], [], [])
    for extent in space:
        k = b.random.choice((1, 2, 3, 3, 3, 5))
        d = b.random.choice((1, 1, 1, 2))
        reach = (k - 1) * d + 1
        pads = [b.random.randint(0, max(0, reach - 1)) if b.chance(0.7) else 0 for _ in range(2)]
        if b.chance(0.4):
            pads = [reach // 2, reach // 2]
        if extent + sum(pads) < reach:
            k, d, pads = 1, 1, [0, 0]
        kernel.append(k)
        dilations.append(d)
        strides.append(b.random.choice((1, 1, 1, 2, 3)))
        before.append(pads[0])
        after.append(pads[1])
    return {
        "kernel_shape": kernel,
        "strides": strides,
        "dilations": dilations,
        "pads": before + after,
    }


def conv(b: Builder) -> Value:
    """Conv with groups, depthwise included, and what usually follows it."""
    x = image(b)
    channels = x.shape[1]
    assert isinstance(channels, int)
    sizes = window(b, x)
    divisors = [g for g in range(1, channels + 1) if channels % g == 0]
    groups = b.random.choice((1, 1, 1, channels, b.random.choice(divisors)))
    out = groups * b.random.choice((1, 2)) if groups > 1 else b.random.choice(CHANNELS)
    depth = channels // groups * int(np.prod(sizes["kernel_shape"]))
    w = b.weight("float32", [out, channels // groups, *sizes["kernel_shape"]], depth**-0.5)
    args = [x, w] + ([b.weight("float32", [out])] if b.chance(0.5) else [])
    attributes: dict[str, Any] = {**sizes, "group": groups}
    if b.chance(0.12):
        del attributes["pads"]
        attributes["auto_pad"] = b.random.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
    y = b.node("Conv", args, **attributes)
    if b.chance(0.4):
        y = batchnorm_of(b, y, out)
    if b.chance(0.4):
        y = b.node(b.random.choice(("Relu", "Sigmoid", "HardSwish", "LeakyRelu")), [y])
    if b.chance(0.25) and y.shape == x.shape:
        y = b.node("Add", [y, x] if b.chance(0.5) else [x, y])
    return y


def conv_transpose(b: Builder) -> Value:
    """ConvTranspose with strides, pads, output padding, groups."""
    x = image(b)
    channels = x.shape[1]
    assert isinstance(channels, int)
    space = x.rank - 2
    groups = b.random.choice((1, 1, channels))
    kernel = [b.random.choice((1, 2, 3, 4)) for _ in range(space)]
    strides = [b.random.choice((1, 2, 3)) for _ in range(space)]
    out = b.random.choice((1, 2, 3, 8)) if groups == 1 else 1
    extra = [b.random.randint(0, s - 1) if b.chance(0.3) else 0 for s in strides]
    pads = [b.random.randint(0, min(1, k - 1)) for k in kernel * 2]
    args = [x, b.weight("float32", [channels, out, *kernel])]
    if b.chance(0.5):
        args.append(b.weight("float32", [out * groups]))
    return b.node(
        "ConvTranspose",
        args,
        kernel_shape=kernel,
        strides=strides,
        pads=pads,
        output_padding=extra,
        group=groups,
        dilations=[b.random.choice((1, 1, 2)) for _ in kernel],
    )


def pool(b: Builder) -> Value:
    """Max, average, Lp and global pooling."""
    x = image(b)
    form = b.random.choices((0, 1, 2, 3), (3, 3, 1, 0.5))[0]
    if form == 2:
        return b.node(b.random.choice(("GlobalAveragePool", "GlobalMaxPool")), [x])
    sizes: dict[str, Any] = dict(window(b, x))
    for k, kernel in enumerate(sizes["kernel_shape"]):
        half = len(sizes["kernel_shape"])
        for at in (k, k + half):  # no window may lie in the padding alone: runtimes differ there
            most = 0 if sizes["dilations"][k] > 1 else kernel - 1
            sizes["pads"][at] = min(sizes["pads"][at], most)
        across = x.shape[2 + k]
        extent = across if isinstance(across, int) else 2
        reach = (kernel - 1) * sizes["dilations"][k] + 1
        if extent + sizes["pads"][k] + sizes["pads"][k + half] < reach:
            raise Unfit
    sizes["ceil_mode"] = int(b.chance(0.3))
    if form == 0:
        return b.node("MaxPool", [x], **sizes)
    if form == 3:
        if b.opset < 18:
            del sizes["dilations"], sizes["ceil_mode"]
        return b.node("LpPool", [x], p=2, **sizes)
    if b.opset < 19:
        del sizes["dilations"]
    return b.node("AveragePool", [x], count_include_pad=int(b.chance(0.4)), **sizes)


def batchnorm_of(b: Builder, x: Value, channels: int) -> Value:
    """BatchNormalization with constants."""
    scale, shift, mean = (b.constant(b.numbers_of("float32", [channels])) for _ in range(3))
    variance = b.constant(np.abs(b.numbers_of("float32", [channels])) + np.float32(0.3))
    return b.node("BatchNormalization", [x, scale, shift, mean, variance])


def resize(b: Builder) -> Value:
    """Resize by scales or sizes in several modes."""
    x = image(b)
    if not x.fixed:
        raise Unfit
    mode = b.random.choice(("nearest", "linear", "cubic") if x.rank == 4 else ("nearest", "linear"))
    where = b.random.choice(("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"))
    options: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": where}
    if mode == "nearest":
        options["nearest_mode"] = b.random.choice(("floor", "round_prefer_floor", "ceil"))
    scales = [1.0, 1.0, *(b.random.choice((1.0, 2.0, 0.5, 1.5)) for _ in range(x.rank - 2))]
    if b.opset < 18 or b.chance(0.5):
        return b.node("Resize", [x, None, b.constant(np.asarray(scales, np.float32))], **options)
    lead = [n for n in x.shape[:2] if isinstance(n, int)]
    sizes = [*lead, *(b.extent(9) for _ in range(x.rank - 2))]
    return b.node("Resize", [x, None, None, b.ints(sizes)], **options)
