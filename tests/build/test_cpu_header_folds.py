"""Folds of rows and attention of the headers of generated C++, on several instruction sets, against numpy (ctypes)."""

from __future__ import annotations

import ctypes
import math
import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.build.header_library import ISAS, Array, f32, loaded, ptr

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on this machine")


@pytest.fixture(scope="module", params=ISAS)
def lib(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    yield from loaded(request.param, tmp_path_factory.mktemp("cpu_folds"))


@pytest.mark.parametrize("n", [1, 2, 15, 16, 31, 64, 100, 1000, 4099])
def test_folds(lib: ctypes.CDLL, n: int) -> None:
    x = f32(n, seed=n)
    x[n // 2] = x.max()  # a tie for the extremes
    out = np.empty(12)
    lib.folds_f32(ptr(x), ctypes.c_int64(n), ptr(out))
    wide = x.astype(np.float64)
    top = wide.max()
    total = np.exp(wide - top).sum()
    want: list[Any] = [
        wide.sum(),
        wide.prod(),
        top,
        wide.min(),
        x.argmax(),
        x.argmin(),
        n - 1 - x[::-1].argmax(),
    ]
    want += [top, total, wide.mean(), wide.var(), top + math.log(total)]
    np.testing.assert_allclose(out, want, rtol=3e-5, atol=3e-5)
    for lanes in (16, 48, 64):
        rows, sums = f32(n, lanes), f32(lanes)
        lib.lane_sums(ptr(rows), ptr(x), ctypes.c_int64(n), lanes, ptr(sums))
        np.testing.assert_allclose(sums, wide @ rows, rtol=3e-5, atol=3e-4)


def test_folds_propagate_nan_and_infinity(lib: ctypes.CDLL) -> None:
    x = f32(200)
    x[70] = np.nan
    x[130] = np.nan
    out = np.empty(12)
    lib.folds_f32(ptr(x), ctypes.c_int64(x.size), ptr(out))
    assert np.isnan(out[[0, 1, 2, 3, 7, 8, 9, 10, 11]]).all()
    assert list(out[4:7]) == [70, 70, 70]
    x = np.full(200, -np.inf, np.float32)
    x[3] = 1.5
    lib.folds_f32(ptr(x), ctypes.c_int64(x.size), ptr(out))
    assert (out[7], out[8]) == (1.5, 1.0)


def test_integer_sum_is_exact(lib: ctypes.CDLL) -> None:
    x = np.random.default_rng(0).integers(-(2**60), 2**60, 1001)
    lib.sum_i64.restype = ctypes.c_int64
    assert lib.sum_i64(ptr(x), ctypes.c_int64(x.size)) == x.sum()


def attended(lib: ctypes.CDLL, q: Array, k: Array, v: Array, mask: Array) -> Array:
    """softmax(q k' / 8 + mask) v."""
    out = np.empty((len(q), v.shape[1]), np.float32)
    sizes = (len(q), len(k), q.shape[1], v.shape[1])
    lib.attention(*map(ptr, (q, k, v, mask, out)), *sizes, ctypes.c_float(0.125))
    return out


@pytest.mark.parametrize(
    "queries, keys, depth, depth_v",
    [(1, 1, 16, 16), (7, 40, 20, 24), (150, 600, 64, 64), (530, 300, 24, 40)],
)
@pytest.mark.parametrize("causal", [False, True])
def test_attention(
    lib: ctypes.CDLL, queries: int, keys: int, depth: int, depth_v: int, causal: bool
) -> None:
    q, k, v = f32(queries, depth), f32(keys, depth, seed=1), f32(keys, depth_v, seed=2)
    mask = f32(queries, keys, seed=3)
    if causal:
        mask[np.arange(keys)[None, :] > np.arange(queries)[:, None] + keys - queries] = -np.inf
        mask[
            : queries // 2, : keys // 2
        ] = -np.inf  # whole first key tiles are hidden from some rows
        mask[:, -1] = 0.5
    out = attended(lib, q, k, v, mask)
    scores = q.astype(np.float64) @ k.T * 0.125 + mask
    weights = np.exp(scores - scores.max(1, keepdims=True))
    want = (weights / weights.sum(1, keepdims=True)) @ v
    np.testing.assert_allclose(out, want, rtol=2e-5, atol=2e-5)


def test_attention_of_values_that_are_no_numbers(lib: ctypes.CDLL) -> None:
    """As the formula: NaN and an infinite score reach their row alone; a hidden key weighs nothing."""
    q, k, v = f32(20, 16), f32(300, 16, seed=1), f32(300, 16, seed=2)
    mask = np.zeros((20, 300), np.float32)
    mask[1, 280] = np.nan  # in the second block of keys
    mask[2, 3] = np.inf
    mask[3] = -np.inf
    mask[4, :299] = -np.inf
    mask[5, 1:] = -np.inf
    mask[6, ::2] = -1e30
    mask[7, 17] = 3e38
    mask[8] = -3e38
    out = attended(lib, q, k, v, mask)
    scores = (q.astype(np.float64) @ k.T * 0.125).astype(np.float32) + mask
    with np.errstate(all="ignore"):
        weights = np.exp(scores.astype(np.float64) - scores.max(1, keepdims=True))
        want = (weights / weights.sum(1, keepdims=True)) @ v
    assert np.isnan(out[1:4]).all() and np.isnan(want[1:4]).all()
    np.testing.assert_array_equal(out[4], v[299])
    np.testing.assert_array_equal(out[5], v[0])
    np.testing.assert_array_equal(out[7], v[17])
    np.testing.assert_allclose(out[6:], want[6:], rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(out[0], want[0], rtol=2e-5, atol=2e-5)
