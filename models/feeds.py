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


Draw = Normal | Ids | Mask | Fixed


def draw(inputs: Mapping[str, Draw], seed: int) -> Feeds:
    """Return one array per input, in the order of `inputs`, from one seeded generator."""
    rng = np.random.default_rng(seed)
    return {name: spec.draw(rng) for name, spec in inputs.items()}
