"""Cases of the CUDA runtime, run on the emulator in a process of their own; prints JSON verdicts.

Not here: what is asserted about the verdicts (test_runtime_cuda.py). A process has one driver, and
the emulator's must be loaded before pycuda is.
"""

from __future__ import annotations

import gc
import json
import sys
import traceback
import weakref
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from tests.build.runtime_packages import WEIGHTS, buffer, manifest_of, package
from unistack_aot.artifact import manifest as m
from unistack_aot.base.errors import BadInput, UnistackError
from unistack_aot.emulator.build import compile_kernels
from unistack_aot.runtime.session import Session, load

ROOT = Path(__file__).parents[2]
HEADERS = ROOT / "unistack_aot/targets/cuda/include"
IMAGE = "emulator/sm_80.so"
N = m.Dim("n", low=0, high=1000, typical=8)
TEXT = """
#include "ua/platform.cuh"
#define I (blockIdx.x * (long long)blockDim.x + threadIdx.x)
extern "C" __global__ void twice(const float* x, float* y, long long n) {
  if (I < 3*n) y[I] = x[I]*2;
}
UA_KERNEL(twice)
extern "C" __global__ void shift(const float* x, const float* w, float* y, int n) {
  UA_DYNAMIC_SHARED(raw);
  float* near = (float*)raw;
  near[threadIdx.x] = I < 3*n ? x[I] : 0;
  __syncthreads();
  if (I < 3*n) y[I] = near[threadIdx.x] + w[I % 3];
}
UA_KERNEL(shift)
extern "C" __global__ void body(
    const float* s, float* next, const float* x, const long long* i, bool* more) {
  next[threadIdx.x] = s[threadIdx.x] + x[threadIdx.x] * (*i + 1);
  if (threadIdx.x == 0) *more = next[0] < 50;
}
UA_KERNEL(body)
extern "C" __global__ void middle(const float* x, float* y, long long n) {
  if (I < n) y[I + 1] = x[I];
}
UA_KERNEL(middle)
extern "C" __global__ void wild(float* y, long long n) { y[I + (1ll << 40)] = n; }
UA_KERNEL(wild)
"""
BLOCKS = ("(3*n + 31)//32", "1", "1")


def kernel(symbol: str, *params: m.Param, **more: object) -> m.Kernel:
    """A kernel with blocks of 32 threads over 3n elements."""
    made = m.Kernel(symbol, params, BLOCKS, ("32", "1", "1"), origins=(f"/{symbol}/Node",))
    return replace(made, **more)  # type: ignore[arg-type]


def pointers(*kinds: m.ParamKind) -> tuple[m.Param, ...]:
    """Pointer parameters of these kinds."""
    return tuple(m.Param(f"p{number}", kind) for number, kind in enumerate(kinds))


TWICE = kernel("twice", *pointers("in", "out"), m.Param("n", "dim64"))
SHIFT = kernel("shift", *pointers("in", "in", "out"), m.Param("n", "dim32"), shared_bytes="128")
BODY = kernel(
    "body",
    *pointers("in", "out", "in", "in", "out"),
    grid=("1", "1", "1"),
    block=("3", "1", "1"),
)
MIDDLE = kernel("middle", *pointers("in", "out"), m.Param("n", "dim64"))
WILD = kernel("wild", *pointers("out"), m.Param("n", "dim64"))


class Cases:
    """One method per case; all share the compiled image."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.code = compile_kernels(TEXT, folder / "k.so", 80, [HEADERS]).read_bytes()

    def session(self, variant: m.Variant, weights: dict[str, np.ndarray] | None = None) -> Session:
        """A session on the emulator."""
        path = package(self.folder / "m.pkg", self.code, manifest_of(variant, N), weights)
        return load(path, "emulator")

    def chain(self) -> Session:
        """y = 2 * (2x + w), and the last rows of it through a view."""
        buffers = [
            buffer("x", ("n", "3"), "input"),
            buffer("y", ("n", "3"), "output", first=3, last=3),
            buffer("t", ("n", "3"), last=1),
            buffer("w", ("3",), "constant"),
            buffer("u", ("n", "3"), first=1, last=2),
            buffer("v", ("n", "3"), first=2, last=3),
        ]
        steps = (
            m.Launch(0, (0, 2)),
            m.Launch(1, (2, 3, 4)),
            m.Launch(0, (4, 5)),
            m.Copy(5, 1),
        )
        variant = m.Variant(
            "emulator:sm_80", IMAGE, tuple(buffers), (TWICE, SHIFT), steps, weights=(WEIGHTS,)
        )
        return self.session(variant, {"w": np.array([1, 2, 3], np.float32)})

    def test_shapes(self) -> None:
        """Right numbers for every shape, empty ones included; the arena grows and is kept."""
        made = self.chain()
        assert made.device == "emulator"
        for rows in (2, 100, 2, 0, 1000, 7):
            x = np.random.default_rng(rows).standard_normal((rows, 3)).astype(np.float32)
            want = 2 * (2 * x + np.array([1, 2, 3], np.float32))
            np.testing.assert_allclose(made.run({"x": x})["y"], want, rtol=1e-6)
        np.testing.assert_allclose(made.run({"x": x.T.copy().T})["y"], want, rtol=1e-6)

    def test_profile(self) -> None:
        """One time per launch."""
        times = self.chain().profile({"x": np.ones((5, 3), np.float32)})
        assert [t.kernel.symbol for t in times] == ["twice", "shift", "twice"]
        assert all(t.seconds > 0 for t in times)

    def test_profile_by_a_clock(self) -> None:
        """A clock of the host replaces the events."""
        ticks = iter(range(100))
        times = self.chain().profile({"x": np.ones((5, 3), np.float32)}, lambda: float(next(ticks)))
        assert [t.seconds for t in times] == [1.0, 1.0, 1.0]

    def test_memory_is_freed_with_the_session(self) -> None:
        """At once, where it was used: a later collection may run in a thread without the context."""
        made = self.chain()
        made.profile({"x": np.ones((5, 3), np.float32)})
        program = weakref.ref(made._program)
        gc.disable()
        try:
            del made
            assert program() is None
        finally:
            gc.enable()

    def test_device_input(self) -> None:
        """Arrays on the device are accepted."""
        made = self.chain()
        x = np.ones((4, 3), np.float32)
        want = made.run({"x": x})["y"]
        gpuarray = import_module("pycuda.gpuarray")
        with made._program.active():
            given = gpuarray.to_gpu(x)
        np.testing.assert_array_equal(made.run({"x": given})["y"], want)
        with made._program.active():
            strided = gpuarray.to_gpu(np.ones((4, 6), np.float32))[:, :3]
        with pytest.raises(BadInput, match="input 'x' is a strided array on the GPU"):
            made.run({"x": strided})
        with made._program.active():
            del given, strided

    def test_if(self) -> None:
        """A branch on a device scalar."""
        buffers = (
            buffer("c", (), "input", dtype="bool"),
            buffer("x", ("n", "3"), "input"),
            buffer("y", ("n", "3"), "output"),
        )
        steps = (m.If(0, (m.Launch(0, (1, 2)),), (m.Copy(1, 2),)),)
        made = self.session(m.Variant("emulator:sm_80", IMAGE, buffers, (TWICE,), steps))
        x = np.arange(12, dtype=np.float32).reshape(4, 3)
        for flag in (True, False):
            got = made.run({"c": np.array(flag), "x": x})["y"]
            np.testing.assert_array_equal(got, 2 * x if flag else x)

    def test_loop(self) -> None:
        """Carried state, slices along both axes, both directions, an early end."""
        for axis in (0, 1):
            for reverse in (False, True):
                self._loop(axis, reverse)

    def _loop(self, axis: int, reverse: bool) -> None:
        stacked = ("n", "3") if axis == 0 else ("3", "n")
        buffers = (
            buffer("xs", stacked, "input"),
            buffer("start", ("3",), "input"),
            buffer("end", ("3",), "output"),
            buffer("ys", stacked, "output"),
            buffer("count", (), "output", dtype="i64"),
            buffer("state", ("3",), last=9),
            buffer("next", ("3",), last=9),
            buffer("x", ("3",), last=9),
            buffer("i", (), dtype="i64", last=9),
            buffer("more", (), dtype="bool", last=9),
        )
        loop = m.Loop(
            body=(m.Launch(0, (5, 6, 7, 8, 9)),),
            iteration=8,
            condition_out=9,
            count=4,
            carried=(m.Carried(1, 5, 6, 2),),
            scan_inputs=(m.Scanned(0, 7, axis, reverse),),
            scan_outputs=(m.Scanned(3, 6, axis, reverse),),
            limit="n",
        )
        made = self.session(m.Variant("emulator:sm_80", IMAGE, buffers, (BODY,), (loop,)))
        xs = np.random.default_rng(3).integers(1, 9, (8, 3)).astype(np.float32)
        state, ran, want = np.zeros(3, np.float32), 0, []
        for row in xs[::-1] if reverse else xs:
            state = state + row * (ran + 1)
            want.append(state)
            ran += 1
            if state[0] >= 50:
                break
        feeds = {"xs": xs if axis == 0 else xs.T.copy(), "start": np.zeros(3, np.float32)}
        got = made.run(feeds)
        np.testing.assert_array_equal(got["end"], state)
        assert got["count"] == ran
        ys = got["ys"] if axis == 0 else got["ys"].T
        np.testing.assert_array_equal((ys[::-1] if reverse else ys)[:ran], want)

    def test_fill_once(self) -> None:
        """A halo zeroed once per plan stays zero."""
        buffers = (
            buffer("x", ("n",), "input"),
            buffer("y", ("n + 2",), "output"),
            buffer("padded", ("n + 2",), first=1, last=2),
        )
        steps = (m.Fill(2, once=True), m.Launch(0, (0, 2)), m.Copy(2, 1))
        made = self.session(m.Variant("emulator:sm_80", IMAGE, buffers, (MIDDLE,), steps))
        for rows in (3, 3, 50, 3, 900, 3):
            x = np.arange(1, rows + 1, dtype=np.float32)
            np.testing.assert_array_equal(made.run({"x": x})["y"], np.pad(x, 1))

    def test_wild(self) -> None:
        """An error of the GPU names the kernel and its nodes."""
        buffers = (buffer("y", ("n",), "output"), buffer("x", ("n",), "input"))
        steps = (m.Launch(0, (0,)),)
        made = self.session(m.Variant("emulator:sm_80", IMAGE, buffers, (WILD,), steps))
        with pytest.raises(UnistackError) as caught:
            made.run({"x": np.ones(4, np.float32)})
        assert caught.value.what.startswith("kernel wild of emulator:sm_80 failed")
        assert caught.value.at == "/wild/Node"


NAMES = tuple(name for name in vars(Cases) if name.startswith("test_"))


def main(folder: Path) -> None:
    """Run all cases; the one that breaks the context is last."""
    cases = Cases(folder)
    verdicts: dict[str, str] = {}
    for name in NAMES:
        case: Callable[[], None] = getattr(cases, name)
        try:
            case()
            verdicts[name] = "ok"
        except Exception:  # any failure becomes that case's verdict
            verdicts[name] = traceback.format_exc()
    json.dump(verdicts, sys.stdout)
