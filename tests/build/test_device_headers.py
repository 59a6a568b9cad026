"""Device headers: nvcc compiles them for every generation; tiles and attention match numpy."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.build.emulator_worker import DEVICE_HEADERS, Answer, kernel_file, run

KERNEL_FILES = ("attend.cu", "contract.cu", "elementwise.cu", "reduce.cu")
EXAMPLES = '#include "ua/kernel.cuh"\n' + "\n".join(
    re.findall(r"```cuda\n(.*?)```", (DEVICE_HEADERS / "README.md").read_text(), re.DOTALL)
)
BF16 = ml_dtypes.bfloat16


# ---- compilation


def nvcc() -> str:
    found = shutil.which("nvcc")
    if found is None:
        pytest.skip("no nvcc on PATH")
    return found


SLOW = pytest.mark.slow  # some ten seconds of compiler for each generation


@pytest.mark.parametrize(
    "sm", [75, pytest.param(80, marks=SLOW), 90, pytest.param(120, marks=SLOW)]
)
def test_nvcc_compiles_everything_without_spills(sm: int, tmp_path: Path) -> None:
    texts = [kernel_file(name) for name in KERNEL_FILES]
    if sm >= 80:
        texts.append(EXAMPLES)
    for number, text in enumerate(texts):
        source = tmp_path / f"{number}.cu"
        source.write_text(text)
        command = [nvcc(), "-std=c++17", f"-arch=sm_{sm}", "-cubin", "-Werror=all-warnings"]
        command += ["-Xptxas", "-v", f"-I{DEVICE_HEADERS}", str(source)]
        command += ["-o", str(source.with_suffix(".cubin"))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        spills = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", done.stderr)
        assert spills
        assert set(spills) == {("0", "0")}, done.stderr


# ---- contractions

# kernel: element type, A and B stored k inside, tile m, n, k, threads, tolerance / sqrt(K)
CONTRACTIONS = {
    "f16_inner_outer": (np.float16, True, False, 128, 64, 32, 128, 2e-6),
    "f16_inner_inner": (np.float16, True, True, 64, 64, 64, 128, 2e-6),
    "f16_outer_outer": (np.float16, False, False, 64, 96, 32, 128, 2e-6),
    "f16_odd_pieces": (np.float16, False, True, 16, 24, 16, 32, 2e-6),
    "fma_inner_outer": (np.float32, True, False, 64, 64, 16, 64, 2e-6),
    "fma_outer_outer": (np.float32, False, False, 64, 64, 16, 128, 2e-6),
    "fma_inner_inner": (np.float32, True, True, 64, 64, 16, 128, 2e-6),
    "fma_outer_inner": (np.float32, False, True, 32, 64, 32, 128, 2e-6),
    "f64_inner_outer": (np.float64, True, False, 64, 64, 8, 256, 1e-14),
    "bf16_inner_outer": (BF16, True, False, 128, 64, 32, 128, 2e-6),
    "tf32_inner_outer": (np.float32, True, False, 64, 64, 16, 128, 1.5e-3),
    "tf32_inner_inner": (np.float32, True, True, 64, 64, 32, 128, 1.5e-3),
    "tf32_outer_outer": (np.float32, False, False, 64, 64, 16, 128, 1.5e-3),
    "tf32x3_inner_outer": (np.float32, True, False, 64, 64, 16, 128, 2e-6),
}


def contraction(kernel: str, m: int, n: int, k: int, checked: bool) -> Answer:
    dtype, a_inner, b_inner, tile_m, tile_n, tile_k, threads, tolerance = CONTRACTIONS[kernel]
    rng = np.random.default_rng(7)
    a = rng.standard_normal((m, k)).astype(dtype)
    b = rng.standard_normal((k, n)).astype(dtype)
    out = np.zeros((m, n), np.float64 if dtype is np.float64 else np.float32)
    answer = run(
        kernel_file("contract.cu"),
        kernel,
        np.ascontiguousarray(a if a_inner else a.T),
        np.ascontiguousarray(b.T if b_inner else b),
        out,
        np.int32(m),
        np.int32(n),
        np.int32(k),
        grid=(-(-n // tile_n), -(-m // tile_m), 1),
        block=(threads, 1, 1),
        shared=3 * (tile_m + tile_n) * tile_k * a.itemsize,
        checked=checked,
    )
    expected = a.astype(np.float64) @ b.astype(np.float64)
    error = np.abs(answer.arrays[2] - expected).max()
    assert error <= tolerance * np.sqrt(k) * 4, error
    return answer


@pytest.mark.parametrize("kernel", CONTRACTIONS)
def test_contraction_with_ragged_edges(kernel: str) -> None:
    contraction(kernel, 136, 104, 72, checked=False)


@pytest.mark.parametrize("kernel", CONTRACTIONS)
def test_contraction_moves_data_without_conflicts(kernel: str) -> None:
    """Emulated instruction by instruction: same result, no bank conflict, whole sectors only."""
    dtype, _, _, tile_m, tile_n, *_ = CONTRACTIONS[kernel]
    m, n, k = tile_m * 2, tile_n * 2 if tile_n % 32 == 0 else tile_n * 4, 64
    counters = contraction(kernel, m, n, k, checked=True).counters
    assert counters.conflicts == 0, counters
    assert counters.copy_async.bytes == 4 * k * (tile_m + tile_n) * np.dtype(dtype).itemsize * (
        (m // tile_m) * (n // tile_n) // 4
    )
    assert counters.copy_async.efficiency == 1.0
    assert counters.store.efficiency == 1.0
    assert counters.unique_written == counters.store.bytes
    if "fma" in kernel or "f64" in kernel:
        assert counters.mma == 0
        assert counters.shared_load.requests > 0
    else:
        depth = 8 if "tf32" in kernel else 16
        products = 3 if "x3" in kernel else 1
        assert counters.mma == m * n * k // (16 * 8 * depth) * products


# ---- attention

ATTENTION = {
    "attend_f16": (np.float16, 64, 64, 64, 64, 128, 2e-3),
    "attend_fma": (np.float32, 32, 32, 32, 64, 128, 3e-6),
    "attend_bf16": (BF16, 32, 32, 32, 64, 64, 2e-2),
    "attend_tf32": (np.float32, 64, 32, 32, 32, 128, 2e-3),
    "attend_tf32x3": (np.float32, 32, 32, 64, 32, 64, 3e-6),
}


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kernel", ATTENTION)
def test_attention(kernel: str, causal: bool, checked: bool) -> None:
    dtype, queries, keys, dim, value_dim, threads, tolerance = ATTENTION[kernel]
    rng = np.random.default_rng(3)
    length = 100
    q, k = (rng.standard_normal((length, dim)).astype(dtype) for _ in range(2))
    v = rng.standard_normal((length, value_dim)).astype(dtype)
    shared = (queries * dim + keys * dim + keys * value_dim) * q.itemsize
    if kernel == "attend_fma":
        shared += queries * keys * 4
    answer = run(
        kernel_file("attend.cu"),
        kernel,
        q,
        k,
        v,
        np.zeros((length, value_dim), np.float32),
        *map(np.int32, (length, length, dim, value_dim)),
        np.float32(dim**-0.5),
        np.int32(causal),
        grid=(-(-length // queries), 1, 1),
        block=(threads, 1, 1),
        shared=shared,
        checked=checked,
    )
    scores = q.astype(np.float64) @ k.astype(np.float64).T * dim**-0.5
    if causal:
        scores[np.triu_indices(length, 1)] = -np.inf
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    expected = weights / weights.sum(axis=1, keepdims=True) @ v.astype(np.float64)
    assert np.abs(answer.arrays[3] - expected).max() <= tolerance
    if checked:
        assert answer.counters.conflicts == 0, answer.counters
        assert answer.counters.copy_async.efficiency == 1.0


# ---- the examples of the README


def test_readme_product() -> None:
    rng = np.random.default_rng(1)
    m, n, k = 200, 72, 104
    a = rng.standard_normal((m, k)).astype(np.float16)
    b = rng.standard_normal((k, n)).astype(np.float16)
    answer = run(
        EXAMPLES,
        "product",
        a,
        b,
        np.zeros((m, n), np.float16),
        *map(np.int32, (m, n, k)),
        grid=(2, 2, 1),
        block=(128, 1, 1),
        shared=3 * (128 * 32 + 32 * 64) * 2,
        checked=True,
    )
    expected = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(answer.arrays[2], expected, rtol=1e-3, atol=1e-3)
    assert answer.counters.conflicts == 0


def test_readme_softmax() -> None:
    x = np.random.default_rng(2).standard_normal((5, 1000)).astype(np.float32) * 5
    answer = run(
        EXAMPLES,
        "softmax",
        x,
        np.zeros_like(x),
        np.int32(1000),
        grid=(5, 1, 1),
        block=(128, 1, 1),
        shared=32,
        checked=True,
    )
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(answer.arrays[1], e / e.sum(axis=1, keepdims=True), rtol=2e-6)
    counters = answer.counters
    assert counters.load.bytes == 2 * x.nbytes
    assert counters.unique_read == counters.unique_written == x.nbytes
    assert counters.load.efficiency == counters.store.efficiency == 1.0


def test_readme_transpose() -> None:
    x = np.arange(100 * 68, dtype=np.float32).reshape(100, 68)
    answer = run(
        EXAMPLES,
        "transpose",
        x,
        np.zeros((68, 100), np.float32),
        np.int32(100),
        np.int32(68),
        grid=(3, 4, 1),
        block=(128, 1, 1),
        shared=4096,
        checked=True,
    )
    np.testing.assert_array_equal(answer.arrays[1], x.T)
    assert answer.counters.conflicts == 0
    assert answer.counters.store.efficiency > 0.85  # rows of 100 floats do not start at sectors


def test_readme_attention() -> None:
    rng = np.random.default_rng(4)
    q, k, v = (rng.standard_normal((2, 150, 64)).astype(np.float16) for _ in range(3))
    answer = run(
        EXAMPLES,
        "attention",
        q,
        k,
        v,
        np.zeros((2, 150, 64), np.float32),
        np.int32(150),
        np.float32(0.125),
        grid=(3, 2, 1),
        block=(128, 1, 1),
        shared=3 * 64 * 64 * 2,
        checked=True,
    )
    scores = np.einsum("hqd,hkd->hqk", q.astype(np.float64), k.astype(np.float64)) * 0.125
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    weights /= weights.sum(axis=2, keepdims=True)
    expected = weights @ v.astype(np.float64)
    np.testing.assert_allclose(answer.arrays[3], expected, atol=2e-3)
    assert answer.counters.conflicts == 0
