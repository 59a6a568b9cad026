"""Input arrays for models: seeded, of the right shape, dtype and range."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Feeds = dict[str, Array]


@dataclass(frozen=True, slots=True)
class Normal:
    """Zero-mean float32 values with the given standard deviation."""

    shape: tuple[int, ...]
    scale: float = 1.0

    def draw(self, rng: np.random.Generator) -> Array:
        """Return a float32 array of `shape`."""
        return (rng.standard_normal(self.shape, dtype=np.float32) * np.float32(self.scale)).astype(
            np.float32
        )


@dataclass(frozen=True, slots=True)
class Page:
    """Images of dark strokes in lines on light paper, in -1..1: what a text detector looks for."""

    shape: tuple[int, int, int, int]
    line: int = 32

    def draw(self, rng: np.random.Generator) -> Array:
        """Return a float32 array of `shape` [n, channels, height, width]."""
        count, channels, height, width = self.shape
        # One stroke or gap per three pixels; the lower third of each line stays paper.
        strokes = rng.random((count, 1, -(-height // 4), -(-width // 3))) < 0.5
        ink = strokes.repeat(4, axis=2).repeat(3, axis=3)[:, :, :height, :width]
        ink &= (np.arange(height) % self.line < self.line * 2 // 3)[:, None]
        image = np.where(ink, -0.8, 0.9) + rng.normal(0.0, 0.05, self.shape)
        assert image.shape[1] == channels
        return image.astype(np.float32)


@dataclass(frozen=True, slots=True)
class Ids:
    """Integers from `low` to `high - 1`."""

    shape: tuple[int, ...]
    high: int
    low: int = 0
    dtype: Literal["int32", "int64"] = "int64"

    def draw(self, rng: np.random.Generator) -> Array:
        """Return an integer array of `shape`."""
        return rng.integers(self.low, self.high, self.shape).astype(self.dtype)


@dataclass(frozen=True, slots=True)
class Mask:
    """Int64 rows of ones followed by zeros: padding masks with a different length in each row."""

    shape: tuple[int, int]

    def draw(self, rng: np.random.Generator) -> Array:
        """Return an int64 array of `shape`; each row keeps at least half of its positions."""
        rows, length = self.shape
        kept = rng.integers((length + 1) // 2, length + 1, (rows, 1))
        return (np.arange(length)[None, :] < kept).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Fixed:
    """One fixed scalar, for inputs such as a sampling rate."""

    value: int
    dtype: Literal["int32", "int64"] = "int64"

    def draw(self, rng: np.random.Generator) -> Array:
        """Return a zero-dimensional integer array; the generator is not used."""
        del rng
        return np.asarray(self.value, dtype=self.dtype)


Draw = Normal | Page | Ids | Mask | Fixed


def draw(inputs: Mapping[str, Draw], seed: int) -> Feeds:
    """Return one array per input, in the order of `inputs`, from one seeded generator."""
    rng = np.random.default_rng(seed)
    return {name: spec.draw(rng) for name, spec in inputs.items()}
