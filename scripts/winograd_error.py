"""How far 3x3 convolutions in f32 are from float64: the direct sum, F(2x2, 3x3) and F(4x4, 3x3).

The layers are those of ResNet-50; inputs are harmless and adversarial ones. Errors are in units of
eps * sum(|input| * |weight|), the scale that the check's tolerance uses, so that a direct sum of K
terms may be off by about sqrt(K) of them. `--markdown` prints the table of docs/winograd.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Run as a file, this script would not find the package beside it.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from unistack_aot.check.tolerance import MARGIN
from unistack_aot.cli.face import columns

Array = NDArray[Any]
Data = Callable[[np.random.Generator, int, int], tuple[Array, Array]]
EPS = 2.0**-23
TAPS = 3
OUTPUTS = 32  # output channels computed: errors do not depend on their number
LAYERS = ((64, 56), (128, 28), (256, 14), (512, 7))  # channels, side


@dataclass(frozen=True)
class Transform:
    """The matrices of F(m x m, 3 x 3): input B^T, weights G, output A^T."""

    inputs: Array
    weights: Array
    outputs: Array

    @property
    def tile(self) -> int:
        """Output pixels per side of a tile."""
        return len(self.outputs)


F2 = Transform(
    np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]]),
    np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]]),
    np.array([[1, 1, 1, 0], [0, 1, -1, -1]]),
)
F4 = Transform(
    np.array(
        [
            [4, 0, -5, 0, 1, 0],
            [0, -4, -4, 1, 1, 0],
            [0, 4, -4, -1, 1, 0],
            [0, -2, -1, 2, 1, 0],
            [0, 2, -1, -2, 1, 0],
            [0, 4, 0, -5, 0, 1],
        ]
    ),
    np.array(
        [
            [1 / 4, 0, 0],
            [-1 / 6, -1 / 6, -1 / 6],
            [-1 / 6, 1 / 6, -1 / 6],
            [1 / 24, 1 / 12, 1 / 6],
            [1 / 24, -1 / 12, 1 / 6],
            [0, 0, 1],
        ]
    ),
    np.array([[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]]),
)


def normal(random: np.random.Generator, channels: int, side: int) -> tuple[Array, Array]:
    """Standard normal inputs and weights."""
    return random.standard_normal((channels, side, side)), _weights(random, channels)


def rectified(random: np.random.Generator, channels: int, side: int) -> tuple[Array, Array]:
    """Inputs as they come out of a ReLU."""
    x, w = normal(random, channels, side)
    return np.maximum(x, 0), w


def offset(random: np.random.Generator, channels: int, side: int) -> tuple[Array, Array]:
    """Inputs of mean 1000 and deviation 1."""
    x, w = normal(random, channels, side)
    return x + 1000, w


def cancelling(random: np.random.Generator, channels: int, side: int) -> tuple[Array, Array]:
    """The same offset under weights that sum to zero: results are a thousandth of their terms."""
    x, w = offset(random, channels, side)
    return x, w - w.mean((1, 2, 3), keepdims=True)


def spread(random: np.random.Generator, channels: int, side: int) -> tuple[Array, Array]:
    """Magnitudes from 1e-4 to 1e4, pixel by pixel: large neighbours disturb small results."""
    x, w = normal(random, channels, side)
    return x * 10 ** random.uniform(-4, 4, x.shape), w


def _weights(random: np.random.Generator, channels: int) -> Array:
    return random.standard_normal((OUTPUTS, channels, TAPS, TAPS)) / np.sqrt(channels * TAPS**2)


DATA: tuple[Data, ...] = (
    normal,
    rectified,
    offset,
    cancelling,
    spread,
)


def direct(x: Array, w: Array) -> Array:
    """[OC, H, W] as the sum over taps and channels, in the type of the operands."""
    side = x.shape[-1] - 2
    taps = np.stack([x[:, i : i + side, j : j + side] for i in range(TAPS) for j in range(TAPS)], 1)
    return (w.reshape(len(w), -1) @ taps.reshape(-1, side * side)).reshape(len(w), side, side)


def by_tiles(x: Array, w: Array, by: Transform) -> Array:
    """The same through a transform; weights are transformed in float64 as the compiler does."""
    m, side = by.tile, x.shape[-1] - 2
    across = -(-side // m)
    x = np.pad(x, [(0, 0), (0, across * m - side), (0, across * m - side)])
    points = np.einsum("ia,ocab,jb->ijoc", by.weights, w.astype(np.float64), by.weights)
    points = points.astype(np.float32)
    place = np.arange(across)[:, None] * m + np.arange(m + 2)
    tiles = x[:, place][:, :, :, place].transpose(0, 1, 3, 2, 4)  # c, tile row, tile column, 2 taps
    left, right = by.inputs.astype(np.float32), by.outputs.astype(np.float32)
    moved = left @ tiles @ left.T
    moved = moved.transpose(3, 4, 0, 1, 2).reshape(m + 2, m + 2, len(x), -1)
    product = (points @ moved).transpose(2, 3, 0, 1)
    found = right @ product @ right.T
    whole = found.reshape(len(w), across, across, m, m).transpose(0, 1, 3, 2, 4)
    return whole.reshape(len(w), across * m, across * m)[:, :side, :side]


def errors(kind: Data, channels: int, side: int, seed: int) -> tuple[Array, ...]:
    """The errors of all outputs, in units: direct, F(2x2), F(4x4)."""
    data = kind(np.random.default_rng((seed, channels)), channels, side)
    x, w = (a.astype(np.float32) for a in data)
    x = np.pad(x, [(0, 0), (1, 1), (1, 1)])
    truth = direct(x.astype(np.float64), w.astype(np.float64))
    scale = EPS * direct(np.abs(x.astype(np.float64)), np.abs(w.astype(np.float64)))
    found = (direct(x, w), by_tiles(x, w, F2), by_tiles(x, w, F4))
    return tuple(np.abs(y.astype(np.float64) - truth) / scale for y in found)


def study(seeds: int) -> list[tuple[str, ...]]:
    """A row per layer and kind of data: the largest and the mean error of each form, what is allowed."""
    rows: list[tuple[str, ...]] = [
        ("layer", "data", "direct", "F(2x2)", "F(4x4)", "F(4x4) / direct", "allowed")
    ]
    for channels, side in LAYERS:
        for kind in DATA:
            draws = [errors(kind, channels, side, seed) for seed in range(seeds)]
            worst = [max(e.max() for e in form) for form in zip(*draws, strict=True)]
            mean = [np.mean([e.mean() for e in form]) for form in zip(*draws, strict=True)]
            shown = [f"{a:.3g} ({b:.2g})" for a, b in zip(worst, mean, strict=True)]
            limit = MARGIN * np.sqrt(channels * TAPS**2 + 1)
            layer = f"{channels} channels, {side}x{side}"
            ratio = f"{worst[2] / worst[0]:.0f} x"
            rows.append((layer, kind.__name__, *shown, ratio, f"{limit:.0f}"))
    return rows


def main(arguments: list[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="scripts/winograd_error.py", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="how many sets of numbers")
    parser.add_argument("--markdown", action="store_true", help="as the table of docs/winograd.md")
    options = parser.parse_args(arguments)
    rows = study(options.seeds)
    if options.markdown:
        rows.insert(1, ("---",) * len(rows[0]))
        print("\n".join(f"| {' | '.join(row)} |" for row in rows))
    else:
        print("\n".join(columns(rows, right="llrrrrr")))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
