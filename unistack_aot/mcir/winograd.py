"""F(4x4, 3x3), the bilinear algorithm of a 3x3 stride-1 convolution: how its weights are held, and back.

Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", arXiv 1509.09308.
Not here: when it pays (schedule).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

VIA = "winograd.f4x4.panel16"
TILE = 4  # output pixels per side of a tile
TAPS = 3
POINTS = TILE + TAPS - 1

# A polynomial of three coefficients at 0, 1, -1, 2, -2 and infinity, scaled as the inverse transform needs.
_G = np.array(
    [
        [1 / 4, 0, 0],
        [-1 / 6, -1 / 6, -1 / 6],
        [-1 / 6, 1 / 6, -1 / 6],
        [1 / 24, 1 / 12, 1 / 6],
        [1 / 24, -1 / 12, 1 / 6],
        [0, 0, 1],
    ]
)


def transformed(weights: Array) -> Array:
    """Weights [9, ...], taps row by row, as [36, ...] f32: G g G^T in float64, then rounded."""
    taps = weights.astype(np.float64).reshape(TAPS, TAPS, *weights.shape[1:])
    points = np.einsum("ia,jb,ab...->ij...", _G, _G, taps)
    return points.reshape(POINTS * POINTS, *weights.shape[1:]).astype(np.float32)


def recovered(points: Array) -> Array:
    """The weights [9, ...] f64 whose transform is [36, ...]: least squares, exact up to rounding."""
    back = np.linalg.pinv(_G)
    square = points.astype(np.float64).reshape(POINTS, POINTS, *points.shape[1:])
    taps = np.einsum("ai,bj,ij...->ab...", back, back, square)
    return taps.reshape(TAPS * TAPS, *points.shape[1:])
