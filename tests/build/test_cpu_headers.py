"""The headers of generated C++, compiled for several instruction sets, against numpy (ctypes)."""

from __future__ import annotations

import ctypes
import importlib.util
import math
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.build.foreign import ForeignLibrary
from tests.build.header_library import (
    FLAGS,
    INCLUDE,
    ISAS,
    SOURCE,
    Array,
    aligned,
    f32,
    loaded,
    ptr,
)
from unistack_aot.targets.cpu.build import LEVELS, level_flags
from unistack_aot.targets.toolchain import probe_tool

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on this machine")
pytestmark = needs_compiler


@pytest.fixture(scope="module", params=ISAS)
def lib(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    yield from loaded(request.param, tmp_path_factory.mktemp("cpu_headers"))


def ulps(got: Array, want: Array) -> Array:
    """Distance of f32 results from float64 ones in ulp; infinite where one is finite only."""
    with np.errstate(all="ignore"):
        near = want.astype(np.float32)
        spacing = np.spacing(np.maximum(np.abs(near), np.float32(1e-45))).astype(np.float64)
        distance = np.abs(got.astype(np.float64) - want) / spacing
    same = (got == near) | (np.isnan(got) & np.isnan(near))
    return np.where(same, 0, np.where(np.isfinite(near) & np.isfinite(got), distance, np.inf))


def arguments() -> Array:
    rng = np.random.default_rng(0)
    parts = [rng.standard_normal(20000) * s for s in (1e-3, 0.1, 1, 5, 40)]
    wide = np.exp2(rng.uniform(-149, 128, 20000))
    special = [0.0, -0.0, math.inf, -math.inf, math.nan, 88.7, 88.8, 89.1, -87.4, -103.9, -104.1]
    return np.concatenate([*parts, wide, -wide, special]).astype(np.float32)


REFERENCE = {
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "sigmoid": lambda x: np.where(x >= 0, 1 / (1 + np.exp(-x)), np.exp(x) / (1 + np.exp(x))),
    "tanh": np.tanh,
    "erf": np.vectorize(math.erf),
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round_even": np.rint,
    "sign": np.sign,
    "abs": np.abs,
    "clip": lambda x: np.minimum(np.maximum(x, 0), 6),
    "sin": np.sin,
    "cos": np.cos,
}


@pytest.mark.parametrize("name", sorted(REFERENCE))
def test_unary_within_4_ulp(lib: ctypes.CDLL, name: str) -> None:
    x = arguments()
    y = np.empty_like(x)
    getattr(lib, f"{name}_f32")(ptr(x), ptr(y), ctypes.c_int64(x.size))
    with np.errstate(all="ignore"):
        error = ulps(y, REFERENCE[name](x.astype(np.float64)))
    worst = int(error.argmax())
    assert error[worst] <= 4, f"{name}({x[worst]!r}) = {y[worst]!r} is {error[worst]:.1f} ulp off"


def test_pow_follows_c99(lib: ctypes.CDLL) -> None:
    rng = np.random.default_rng(1)
    special = np.array(
        [0, -0.0, 1, -1, 2, -2, 3, 0.5, -0.5, np.inf, -np.inf, np.nan, 1e-40, 2**24 + 2], "f4"
    )
    a, b = (m.ravel() for m in np.meshgrid(special, special))
    a = np.concatenate([a, np.abs(rng.standard_normal(20000) * 3)]).astype(np.float32)
    b = np.concatenate([b, rng.standard_normal(20000) * 8]).astype(np.float32)
    y = np.empty_like(a)
    lib.pow_f32(ptr(a), ptr(b), ptr(y), ctypes.c_int64(a.size))
    with np.errstate(all="ignore"):
        want = np.power(a.astype(np.float64), b.astype(np.float64))
    assert ulps(y, want).max() <= 4


@pytest.mark.parametrize(
    "name, reference", [("maximum", np.maximum), ("minimum", np.minimum), ("fmod", np.fmod)]
)
def test_binary_as_numpy(lib: ctypes.CDLL, name: str, reference: Any) -> None:
    special = np.array([0, 1, -1, 2.5, np.inf, -np.inf, np.nan, 1e-40], np.float32)
    a, b = (np.ascontiguousarray(m.ravel()) for m in np.meshgrid(special, special))
    y = np.empty_like(a)
    getattr(lib, f"{name}_f32")(ptr(a), ptr(b), ptr(y), ctypes.c_int64(a.size))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(y, reference(a, b))


@pytest.mark.parametrize("name, kind", [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_half_conversions_are_exact(lib: ctypes.CDLL, name: str, kind: Any) -> None:
    raw = np.arange(65536, dtype=np.uint16)
    wide = np.empty(raw.size, np.float32)
    getattr(lib, f"from_{name}")(ptr(raw), ptr(wide), ctypes.c_int64(raw.size))
    np.testing.assert_array_equal(wide, raw.view(kind).astype(np.float32))
    with np.errstate(all="ignore"):
        edges = np.array([65519.9, 65520, 6.1e-5], np.float32)
        x = np.concatenate([arguments(), wide * np.float32(1.0009765625), edges])
        want = x.astype(kind)
    back = np.empty(x.size, np.uint16)
    getattr(lib, f"to_{name}")(ptr(x), ptr(back), ctypes.c_int64(x.size))
    numbers = ~np.isnan(x)
    np.testing.assert_array_equal(back[numbers], want.view(np.uint16)[numbers])
    assert np.isnan(back.view(kind)[~numbers].astype(np.float32)).all()
    near = np.empty(x.size, np.float32)
    getattr(lib, f"rounded_{name}")(ptr(x), ptr(near), ctypes.c_int64(x.size))
    signed = near.view(np.uint32)[numbers]
    np.testing.assert_array_equal(signed, want.astype(np.float32).view(np.uint32)[numbers])
    assert np.isnan(near[~numbers]).all()


MATMULS = [
    # m, n, k, transposed, k_block, row_block, panel_group, threads
    (1, 16, 8, 0, 0, 64, 1, 1),
    (1, 150, 70, 0, 32, 64, 64, 2),
    (2, 150, 70, 1, 0, 64, 9, 1),
    (7, 33, 50, 0, 16, 64, 2, 1),
    (49, 48, 100, 1, 32, 20, 2, 2),
    (128, 80, 257, 0, 128, 96, 64, 2),
    (6, 100, 64, 1, 0, 512, 3, 1),
    (130, 64, 96, 0, 48, 512, 4, 3),
]


@pytest.mark.parametrize("m, n, k, transposed, k_block, row_block, panel_group, threads", MATMULS)
def test_matmul(
    lib: ctypes.CDLL,
    m: int,
    n: int,
    k: int,
    transposed: int,
    k_block: int,
    row_block: int,
    panel_group: int,
    threads: int,
) -> None:
    a, b, bias = f32(m, k), f32(k, n, seed=1), f32(n, seed=2)
    c = np.full((m, n), np.nan, np.float32)
    given = np.ascontiguousarray(b.T) if transposed else b
    lib.matmul(
        ptr(a),
        ptr(given),
        ptr(bias),
        ptr(c),
        m,
        n,
        k,
        transposed,
        k_block,
        row_block,
        panel_group,
        threads,
    )
    want = a.astype(np.float64) @ b + bias
    np.testing.assert_allclose(c, want, rtol=1e-5, atol=1e-5 * math.sqrt(k))


def blocked(x: Array) -> Array:
    """[C][H][W] -> [C/16][H][W][16]."""
    c, h, w = x.shape
    return aligned(x.reshape(c // 16, 16, h, w).transpose(0, 2, 3, 1))


def correlate(x: Array, weights: Array, stride: int, dilation: int) -> Array:
    """Convolution without padding in float64: x [C][H][W], weights [OC][C][KH][KW]."""
    kh, kw = weights.shape[2:]
    oh = (x.shape[1] - dilation * (kh - 1) - 1) // stride + 1
    ow = (x.shape[2] - dilation * (kw - 1) - 1) // stride + 1
    out = np.zeros((weights.shape[0], oh, ow))
    for i in range(kh):
        for j in range(kw):
            rows = slice(i * dilation, i * dilation + (oh - 1) * stride + 1, stride)
            columns = slice(j * dilation, j * dilation + (ow - 1) * stride + 1, stride)
            out += np.einsum(
                "oc,chw->ohw", weights[:, :, i, j], x[:, rows, columns].astype(np.float64)
            )
    return out


CONVOLUTIONS = [
    # ic, oc, h, w, k, stride, dilation, k_block, row_block
    (16, 16, 9, 11, 1, 1, 1, 0, 64),
    (32, 48, 9, 9, 3, 1, 1, 144, 64),
    (32, 32, 15, 13, 3, 2, 1, 0, 16),
    (16, 16, 12, 14, 3, 1, 2, 32, 512),
]


@pytest.mark.parametrize("ic, oc, h, w, k, stride, dilation, k_block, row_block", CONVOLUTIONS)
def test_blocked_convolution(
    lib: ctypes.CDLL,
    ic: int,
    oc: int,
    h: int,
    w: int,
    k: int,
    stride: int,
    dilation: int,
    k_block: int,
    row_block: int,
) -> None:
    x, weights = f32(ic, h, w), f32(oc, ic, k, k, seed=1)
    want = correlate(x, weights, stride, dilation)
    oh, ow = want.shape[1:]
    packed = aligned(weights.reshape(oc // 16, 16, ic // 16, 16, k, k).transpose(0, 2, 4, 5, 3, 1))
    out = aligned(np.zeros((oc // 16, oh, ow, 16), np.float32))
    lib.convolve(
        ptr(blocked(x)),
        ptr(packed),
        ptr(out),
        0,
        ic,
        oc,
        h,
        w,
        k,
        k,
        oh,
        ow,
        stride,
        dilation,
        k_block,
        row_block,
    )
    np.testing.assert_allclose(out, blocked(want.astype(np.float32)), rtol=1e-4, atol=1e-4)


def test_first_layer_reads_plain_rows(lib: ctypes.CDLL) -> None:
    x, weights = f32(3, 21, 24), f32(32, 3, 7, 7, seed=1)
    want = correlate(x, weights, 2, 1)
    oh, ow = want.shape[1:]
    packed = aligned(weights.reshape(2, 16, 3, 7, 7).transpose(0, 2, 3, 4, 1))
    out = aligned(np.zeros((2, oh, ow, 16), np.float32))
    lib.convolve(ptr(x), ptr(packed), ptr(out), 1, 3, 32, 21, 24, 7, 7, oh, ow, 2, 1, 0, 64)
    np.testing.assert_allclose(out, blocked(want.astype(np.float32)), rtol=1e-4, atol=1e-4)


def winograd_weights(weights: Array, side: int) -> Array:
    """G g G^T in float64, packed [positions][OC/16][IC][16]; Lavin and Gray (2015)."""
    if side == 2:
        g = np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]]) / 2
    else:
        g = np.array([[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]]) / 24
    oc, ic = weights.shape[:2]
    u = np.einsum("ip,ocpq,jq->ijoc", g, weights.astype(np.float64), g)
    return aligned(u.reshape(-1, oc // 16, 16, ic).transpose(0, 1, 3, 2).astype(np.float32))


@pytest.mark.parametrize("ic, oc, h, w", [(16, 16, 4, 4), (32, 48, 14, 11), (48, 32, 29, 30)])
@pytest.mark.parametrize("side", [2, 4])
def test_winograd(lib: ctypes.CDLL, side: int, ic: int, oc: int, h: int, w: int) -> None:
    x, weights = f32(ic, h, w), f32(oc, ic, 3, 3, seed=1)
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    want = correlate(padded, weights, 1, 1)
    out = aligned(np.zeros((oc // 16, h, w, 16), np.float32))
    run = lib.winograd2 if side == 2 else lib.winograd4
    run(ptr(blocked(padded)), ptr(winograd_weights(weights, side)), ptr(out), ic, oc, h, w)
    error = np.abs(out - blocked(want.astype(np.float32))).max() / np.abs(want).max()
    assert error < 1e-5


@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise(lib: ctypes.CDLL, stride: int) -> None:
    x, weights = f32(32, 17, 29), f32(32, 3, 3, seed=1)
    want = np.concatenate(
        [correlate(x[c : c + 1], weights[c : c + 1, None], stride, 1) for c in range(32)]
    )
    oh, ow = want.shape[1:]
    packed = aligned(weights.reshape(2, 16, 9).transpose(0, 2, 1))
    out = aligned(np.zeros((2, oh, ow, 16), np.float32))
    lib.depthwise(ptr(blocked(x)), ptr(packed), ptr(out), 32, 17, 29, 3, oh, ow, stride)
    np.testing.assert_allclose(out, blocked(want.astype(np.float32)), rtol=1e-4, atol=1e-5)


def only_in_this_process(lib: Any) -> None:
    if isinstance(lib, ForeignLibrary):
        pytest.skip("threads and forks of this process are not those of the emulated one")


def test_pool_runs_each_task_once(lib: ctypes.CDLL) -> None:
    lib.count_tasks.restype = ctypes.c_int64
    for threads, tasks in ((1, 5), (2, 1), (2, 7), (3, 100), (4, 2)):
        assert lib.count_tasks(threads, ctypes.c_int64(tasks), 20) == 20 * tasks * (tasks + 1) // 2


def test_pool_serves_several_callers(lib: ctypes.CDLL) -> None:
    only_in_this_process(lib)
    lib.count_tasks.restype = ctypes.c_int64
    totals: list[int] = []
    callers = [
        threading.Thread(target=lambda: totals.append(lib.count_tasks(2, ctypes.c_int64(50), 100)))
        for _ in range(4)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert totals == [100 * 1275] * 4


def test_pool_survives_fork(lib: ctypes.CDLL) -> None:
    only_in_this_process(lib)
    lib.count_tasks.restype = ctypes.c_int64
    assert lib.count_tasks(2, ctypes.c_int64(4), 3) == 30
    child = os.fork()
    if child == 0:
        os._exit(0 if lib.count_tasks(2, ctypes.c_int64(4), 3) == 30 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("isa", LEVELS)
def test_compiles_with_zig(isa: str, tmp_path: Path) -> None:
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("no ziglang package in this environment")
    level = LEVELS[isa]
    triple = f"{level.architecture}-linux-gnu"
    tool = probe_tool((sys.executable, "-m", "ziglang", "c++", "-target", triple))
    assert tool is not None
    flags = [f for f in FLAGS if f != "-O3"]
    out = tmp_path / f"{isa}.o"
    command = [
        *tool.command,
        "-O1",
        *flags,
        *level_flags(tool, level),
        f"-I{INCLUDE}",
        "-c",
        str(SOURCE),
    ]
    done = subprocess.run([*command, "-o", str(out)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert out.stat().st_size > 0
