"""Before a kernel is timed it must compute what it claims. Not here: what it should compute."""

from __future__ import annotations

import numpy as np

from unistack_aot.base.errors import CheckFailed


class WrongResult(CheckFailed):
    """A probe's kernel computed something else than its definition, or moved other traffic than
    predicted.
    """


def require_values(what: str, got: np.ndarray, want: np.ndarray, rtol: float = 1e-5) -> None:
    """Require the results of a kernel; WrongResult names the first that differs."""
    bad = np.flatnonzero(~np.isclose(got, want, rtol=rtol, atol=0.0))
    if bad.size:
        first = int(bad[0])
        raise WrongResult(
            f"{what}: element {first} is {got.flat[first]!r}, should be {want.flat[first]!r}",
            at=f"{bad.size} of {got.size} differ",
            hint="the probe's figures would be meaningless; look at its kernel",
        )


def require_count(what: str, got: float, want: float) -> None:
    """Require a counted number exactly."""
    if got != want:
        raise WrongResult(f"{what}: counted {got:g}, predicted {want:g}")


def random_floats(count: int, seed: int = 1) -> np.ndarray:
    """Return random f32 data in [0.5, 1.5): on zeros a machine runs faster than it does."""
    return np.random.default_rng(seed).random(count, dtype=np.float32) + np.float32(0.5)
