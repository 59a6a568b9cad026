"""F(m x m, 3x3), bilinear algorithms of a 3x3 stride-1 convolution: how their weights are held, and back.

Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", arXiv 1509.09308.
Not here: when they pay and when their rounding is allowed (schedule).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

TAPS = 3


@dataclass(frozen=True, slots=True)
class Form:
    """One algorithm: output pixels per side of a tile, and the matrix G of the weights by rows."""

    tile: int
    weights: tuple[tuple[float, float, float], ...]

    @property
    def points(self) -> int:
        """Products per side of a tile."""
        return self.tile + TAPS - 1

    @property
    def via(self) -> str:
        """The name of the tile instruction."""
        return f"winograd.f{self.tile}x{self.tile}.panel16"

    @property
    def name(self) -> str:
        """As it is written in decisions."""
        return f"F({self.tile}x{self.tile}, 3x3)"


# A polynomial of three coefficients at 0, 1, -1 and infinity, scaled as the inverse transform needs.
F2 = Form(2, ((1, 0, 0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0, 0, 1)))
# The same at 0, 1, -1, 2, -2 and infinity.
F4 = Form(
    4,
    (
        (1 / 4, 0, 0),
        (-1 / 6, -1 / 6, -1 / 6),
        (-1 / 6, 1 / 6, -1 / 6),
        (1 / 24, 1 / 12, 1 / 6),
        (1 / 24, -1 / 12, 1 / 6),
        (0, 0, 1),
    ),
)
FORMS = {form.via: form for form in (F2, F4)}


def transformed(weights: Array, form: Form) -> Array:
    """Weights [9, ...], taps row by row, as [points^2, ...] f32: G g G^T in float64, then rounded."""
    g = np.array(form.weights)
    taps = weights.astype(np.float64).reshape(TAPS, TAPS, *weights.shape[1:])
    points = np.einsum("ia,jb,ab...->ij...", g, g, taps)
    return points.reshape(form.points**2, *weights.shape[1:]).astype(np.float32)


def recovered(points: Array, form: Form) -> Array:
    """The weights [9, ...] f64 whose transform is this one: least squares, exact up to rounding."""
    back = np.linalg.pinv(np.array(form.weights))
    square = points.astype(np.float64).reshape(form.points, form.points, *points.shape[1:])
    taps = np.einsum("ai,bj,ij...->ab...", back, back, square)
    return taps.reshape(TAPS * TAPS, *points.shape[1:])
