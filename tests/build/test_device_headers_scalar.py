"""Device headers: scalar functions, casts, reductions and wide accesses match numpy."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from tests.build.emulator_worker import kernel_file, run

BF16 = ml_dtypes.bfloat16

# ---- scalar mathematics

UNARY = (
    "exp",
    "log",
    "tanh",
    "erf",
    "sigmoid",
    "sqrt",
    "rsqrt",
    "floor",
    "ceil",
    "rint",
    "abs",
    "sign",
    "sin",
    "cos",
    "tan",
    "arcsin",
    "arccos",
    "arctan",
    "sinh",
    "cosh",
    "arcsinh",
    "arccosh",
    "arctanh",
    "log1p",
    "expm1",
    "reciprocal",
)


def exact(name: str, x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.longdouble)
    match name:
        case "erf":
            return np.array([math.erf(float(v)) for v in x])
        case "sigmoid":
            return 1 / (1 + np.exp(-wide))
        case "rsqrt":
            return 1 / np.sqrt(wide)
        case "reciprocal":
            return 1 / wide
        case _:
            return getattr(np, name)(wide)


def elementwise(kernel: str, *arguments: object) -> np.ndarray:
    first = arguments[0]
    assert isinstance(first, np.ndarray)
    text = kernel_file("elementwise.cu")
    grid = (-(-first.size // 256), 1, 1)
    return run(text, kernel, *arguments, grid=grid, block=(256, 1, 1)).arrays[-1]


@pytest.mark.parametrize("kernel, dtype, ulps", [("unary_f32", "f4", 4), ("unary_f64", "f8", 8)])
def test_unary_functions_agree_with_numpy(kernel: str, dtype: str, ulps: int) -> None:
    special = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 1e-30, 30.0, -30.0, np.inf, -np.inf]
    spread = np.concatenate(
        [np.linspace(-9, 9, 601), np.geomspace(1e-6, 1e6, 200), special, [np.nan]]
    )
    x = spread.astype(dtype)
    for number, name in enumerate(UNARY):
        y = elementwise(kernel, x, np.zeros_like(x), np.int32(x.size), np.int32(number))
        with np.errstate(all="ignore"):
            want = exact(name, x)
            limit = want.astype(dtype)
            unit = np.spacing(np.abs(limit)).astype(np.float64)
            off = np.abs(y.astype(np.longdouble) - want) / unit
        same = (y == limit) | (np.isnan(y) & np.isnan(limit))
        assert np.all(same | (off <= ulps)), (
            name,
            x[~same & ~(off <= ulps)],
            np.nanmax(off[~same]),
        )


@pytest.mark.parametrize("kernel, dtype", [("binary_f32", "f4"), ("binary_f64", "f8")])
def test_binary_functions_follow_numpy(kernel: str, dtype: str) -> None:
    values = np.array([0.0, 1.0, -1.0, 2.5, -2.5, 7.0, -7.0, 3.0, np.nan, np.inf], dtype)
    x, y = (grid.ravel() for grid in np.meshgrid(values, values))
    functions = (np.minimum, np.maximum, np.mod, np.fmod, np.power, np.divide)
    for number, function in enumerate(functions):
        z = elementwise(kernel, x, y, np.zeros_like(x), np.int32(x.size), np.int32(number))
        keep = np.ones(x.size, bool)
        if (
            function is np.mod
        ):  # numpy's own answers for infinities and zero divisors are not ONNX's
            keep = np.isfinite(x) & np.isfinite(y) & (y != 0)
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(
                z[keep], function(x, y)[keep], rtol=4e-7, err_msg=str(function)
            )


@pytest.mark.parametrize("kernel, dtype", [("binary_i32", "i4"), ("binary_i64", "i8")])
def test_integer_functions_follow_numpy(kernel: str, dtype: str) -> None:
    smallest = np.iinfo(dtype).min
    values = np.array([0, 1, -1, 2, 3, -3, 7, -7, 10, smallest], dtype)
    x, y = (grid.ravel() for grid in np.meshgrid(values, values))

    def truncated(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        quotient = np.abs(a.astype(object)) // np.where(b == 0, 1, np.abs(b.astype(object)))
        signed = np.where((a < 0) != (b < 0), -quotient, quotient)
        bits = 8 * a.itemsize
        wrapped = (signed + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
        return np.where(b == 0, 0, wrapped).astype(a.dtype)

    for number, function in enumerate((np.minimum, np.maximum, np.mod, np.fmod, None, truncated)):
        if function is None:
            continue
        z = elementwise(kernel, x, y, np.zeros_like(x), np.int32(x.size), np.int32(number))
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(z, function(x, y), err_msg=str(function))
    power = np.array([[3, 4], [-2, 5], [2, -1], [1, -3], [-1, -3], [7, 0], [0, 0]], dtype)
    base, exponent = np.ascontiguousarray(power.T)
    z = elementwise(kernel, base, exponent, np.zeros_like(base), np.int32(7), np.int32(4))
    assert z.tolist() == [81, -32, 0, 1, -1, 1, 1]


def test_casts_between_floats_round_to_nearest_even() -> None:
    rng = np.random.default_rng(5)
    raw = rng.integers(0, 2**32, 4000, dtype=np.uint32).view(np.float32)
    x = np.concatenate([raw, rng.standard_normal(4000).astype(np.float32), [65519.9, 65520, 6e-8]])
    x = x.astype(np.float32)
    n = np.int32(x.size)
    with np.errstate(all="ignore"):
        for kernel, source, target in (
            ("cast_f32_f16", x, np.float16),
            ("cast_f64_f16", x.astype(np.float64) * (1 + 2.0**-40), np.float16),
            ("cast_f32_bf16", x, BF16),
        ):
            y = elementwise(kernel, source, np.zeros(x.size, target), n)
            want = source.astype(target)
            same = (y.view(np.uint16) == want.view(np.uint16)) | (np.isnan(y) & np.isnan(want))
            assert np.all(same), (kernel, source[~same])
    every = np.arange(65536, dtype=np.uint32).astype(np.uint16)
    for kernel, dtype in (("cast_f16_f32", np.float16), ("cast_bf16_f32", BF16)):
        source = every.view(dtype)
        y = elementwise(kernel, source, np.zeros(65536, np.float32), np.int32(65536))
        np.testing.assert_array_equal(y, source.astype(np.float32))


def test_casts_to_integers_truncate_and_wrap_as_x86_does() -> None:
    x = np.array(
        [
            0,
            1.9,
            -1.9,
            127.5,
            128,
            255.5,
            256,
            300,
            -129,
            -1,
            2147483647,
            2147483648,
            3e9,
            5e9,
            -3e9,
        ]
    )
    for kernel, source, target in (
        ("cast_f32_i8", np.float32, np.int8),
        ("cast_f32_u8", np.float32, np.uint8),
        ("cast_f32_i32", np.float32, np.int32),
        ("cast_f32_u32", np.float32, np.uint32),
        ("cast_f32_i64", np.float32, np.int64),
        ("cast_f64_i64", np.float64, np.int64),
        ("cast_f64_u64", np.float64, np.uint64),
    ):
        given = x.astype(source)
        y = elementwise(kernel, given, np.zeros(x.size, target), np.int32(x.size))
        wide = [int(v) for v in given]
        narrow = np.dtype(target).itemsize < 4 or target is np.int32
        if narrow:
            wide = [v if -(2**31) <= v < 2**31 else -(2**31) for v in wide]
        bits = 8 * np.dtype(target).itemsize
        want = [v % 2**bits for v in wide]
        assert [int(v) % 2**bits for v in y] == want, kernel
    odd = np.array([np.nan, np.inf, -np.inf, 1e30], np.float32)
    assert (
        elementwise("cast_f32_i32", odd, np.zeros(4, np.int32), np.int32(4)).tolist()
        == [-(2**31)] * 4
    )
    assert (
        elementwise("cast_f32_i64", odd, np.zeros(4, np.int64), np.int32(4)).tolist()
        == [-(2**63)] * 4
    )
    flags = np.array([0.0, -0.0, 1e-40, np.nan, -3], np.float32)
    y = elementwise("cast_f32_bool", flags, np.zeros(5, bool), np.int32(5))
    assert y.tolist() == [False, False, True, True, True]
    ints = np.array([2**32 + 5, -1, 2**31], np.int64)
    y = elementwise("cast_i64_i32", ints, np.zeros(3, np.int32), np.int32(3))
    assert y.tolist() == [5, -1, -(2**31)]


# ---- reductions and wide accesses


@pytest.mark.parametrize("checked", [False, True])
def test_block_reductions(checked: bool) -> None:
    x = np.random.default_rng(6).standard_normal((9, 1000)).astype(np.float32) + 3
    x[0, [17, 400]] = 50.0  # a tie: the first wins
    x[1] = -np.inf
    answer = run(
        kernel_file("reduce.cu"),
        "rows",
        x,
        np.zeros(9, np.int32),
        np.zeros((9, 4), np.float32),
        np.int32(1000),
        grid=(9, 1, 1),
        block=(256, 1, 1),
        shared=96,
        checked=checked,
    )
    _, place, statistics = answer.arrays
    assert place.tolist() == x.argmax(axis=1).tolist()
    wide = x.astype(np.float64)
    keep = np.arange(9) != 1
    np.testing.assert_array_equal(statistics[:, 0], x.max(axis=1))
    total = np.exp(wide[keep] - wide[keep].max(axis=1, keepdims=True)).sum(axis=1)
    np.testing.assert_allclose(statistics[keep, 1], total, rtol=3e-6)
    np.testing.assert_allclose(statistics[keep, 2], wide[keep].mean(axis=1), rtol=1e-6)
    np.testing.assert_allclose(statistics[keep, 3], wide[keep].var(axis=1) * 1000, rtol=1e-5)
    assert statistics[1, 1] == 1000  # a row of -inf counts its elements, and nothing is NaN


@pytest.mark.parametrize("checked", [False, True])
def test_group_reductions_keep_the_order_of_threads(checked: bool) -> None:
    x = np.random.default_rng(8).uniform(0.5, 1.5, (256, 2))
    text = kernel_file("reduce.cu")
    launch = {"grid": (1, 1, 1), "block": (256, 1, 1), "shared": 128}
    y = run(text, "groups", x, np.zeros((256, 3)), checked=checked, **launch).arrays[1]
    for column, width in enumerate((8, 32, 128)):
        for start in range(0, 256, width):
            offset = 0.0
            for scale, shift in x[start : start + width]:
                offset = scale * offset + shift
            np.testing.assert_allclose(y[start : start + width, column], offset, rtol=1e-12)


@pytest.mark.parametrize("checked", [False, True])
def test_wide_accesses(checked: bool) -> None:
    rng = np.random.default_rng(9)
    a, c = (
        rng.standard_normal((1024, 8)).astype(np.float16),
        rng.standard_normal((1024, 8)).astype(np.float32),
    )
    answer = run(
        kernel_file("reduce.cu"),
        "wide",
        a,
        np.zeros_like(a),
        c,
        np.zeros_like(c),
        grid=(4, 1, 1),
        block=(256, 1, 1),
        checked=checked,
    )
    np.testing.assert_array_equal(answer.arrays[1], a)
    lanes = np.arange(1024)
    expected = c + 2 * c[lanes ^ 1] + 3 * c[lanes & ~31]
    np.testing.assert_allclose(answer.arrays[3], expected, rtol=1e-5, atol=1e-5)
    if checked:
        counters = answer.counters
        assert counters.load.requests == counters.store.requests == 32 * 3  # 16 bytes a lane each
        assert counters.load.bytes == counters.store.bytes == a.nbytes + c.nbytes


@pytest.mark.parametrize("sm", [75, 80])
def test_tile_copies_fill_with_zeros(sm: int) -> None:
    x = np.random.default_rng(10).standard_normal((16, 32)).astype(np.float32)
    answer = run(
        kernel_file("reduce.cu"),
        "copies",
        x,
        np.zeros((5, 16, 32), np.float32),
        np.int32(13),
        np.int32(27),
        grid=(1, 1, 1),
        block=(128, 1, 1),
        shared=3 * 16 * 32 * 4 + 32 * 32 * 4,
        checked=True,
        sm=sm,
    )
    expected = np.zeros_like(x)
    expected[:13, :27] = x[:13, :27]
    for part in range(4):
        np.testing.assert_array_equal(answer.arrays[1][part], expected)
    rows, cols = np.indices((16, 32))
    np.testing.assert_array_equal(answer.arrays[1][4], rows * 100 + cols)
    assert answer.counters.shared_copy.conflicts == 0


# ---- index arithmetic


def test_quotients_of_wide_indices() -> None:
    """Exact for every pair of 64-bit integers that are not negative: the fast path, the slow one, and their border."""
    text = """#include <ua/kernel.cuh>
extern "C" __global__ void divide(const int64_t* a, const int64_t* b, int64_t* quotient, int64_t* remainder, int n) {
  const int i = blockIdx.x * 128 + threadIdx.x;
  if (i < n) {
    quotient[i] = ua::quotient(a[i], b[i]);
    remainder[i] = ua::remainder(a[i], b[i]);
  }
}
UA_KERNEL(divide)
"""
    edges = [0, 1, 2, 3, 7, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 32) + 1]
    edges += [1 << 53, (1 << 62) + 5, (1 << 63) - 1]
    rng = np.random.default_rng(11)
    drawn = [
        int(x) >> int(s)
        for x, s in zip(rng.integers(0, 2**63, 300), rng.integers(0, 62, 300), strict=True)
    ]
    pairs = [(a, b) for a in (*edges, *drawn[:40]) for b in (*edges, *drawn[40:]) if b > 0]
    a, b = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
    found = np.zeros_like(a), np.zeros_like(a)
    blocks = (-(-len(a) // 128), 1, 1)
    answer = run(text, "divide", a, b, *found, np.int32(len(a)), grid=blocks, block=(128, 1, 1))
    np.testing.assert_array_equal(answer.arrays[2], a // b)
    np.testing.assert_array_equal(answer.arrays[3], a % b)
