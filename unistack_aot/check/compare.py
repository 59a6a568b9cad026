"""The error of one output against a reference, in ulp-scaled units. Not here: tolerances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from unistack_aot.aicf.op import Array
from unistack_aot.base.dtypes import dtype_of
from unistack_aot.check.tolerance import eps, magnitudes


@dataclass(frozen=True, slots=True)
class Difference:
    """The largest error in ulp-scaled units (integers: how many differ), and where it is."""

    error: float
    at: tuple[int, ...] = ()
    remark: str = ""


def difference(got: Array, want: Array, scale: Array | None = None) -> Difference:
    """Compare arrays of one float type with a reference (of any float type), or integers exactly.

    NaN equals NaN, an infinity equals itself; anything else non-finite is infinitely wrong. The
    unit of an error is eps(type) * `scale`, by default max(|reference|, rms of the reference).
    """
    if got.shape != want.shape:
        return Difference(np.inf, remark=f"shape {list(got.shape)} instead of {list(want.shape)}")
    if not got.size:
        return Difference(0.0)
    unit = eps(dtype_of(got.dtype))
    if not unit:
        return _exact(got, want)
    mine, reference = got.astype(np.float64), want.astype(np.float64)
    if unit > eps("f64"):  # what is beyond the type's range is an infinity in it
        with np.errstate(over="ignore"):
            narrow = reference.astype(got.dtype).astype(np.float64)
        reference = np.where(np.isinf(narrow), narrow, reference)
    with np.errstate(all="ignore"):
        errors = np.abs(mine - reference) / (
            unit * (magnitudes(reference) if scale is None else scale)
        )
    same = (mine == reference) | (np.isnan(mine) & np.isnan(reference))
    errors = np.where(same, 0.0, np.nan_to_num(errors, nan=np.inf, posinf=np.inf))
    at = place(errors)
    return Difference(float(errors[at]), at)


def _exact(got: Array, want: Array) -> Difference:
    wrong = differing(got, want)
    count = int(np.count_nonzero(wrong))
    return Difference(float(count), place(wrong) if count else ())


def differing(got: Array, want: Array) -> np.ndarray[Any, Any]:
    """Which elements of two arrays of one shape differ."""
    return np.asarray(got != want)


def place(errors: np.ndarray[Any, Any]) -> tuple[int, ...]:
    """The index of the largest element."""
    return tuple(int(k) for k in np.unravel_index(int(np.argmax(errors)), errors.shape))
