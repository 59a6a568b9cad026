"""The CPU runtime with hand-written code: shapes, arena, views, branches, loops, measured sizes."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.build.runtime_packages import (
    GOLDEN,
    HEAD,
    WEIGHTS,
    buffer,
    compile_library,
    kernel,
    launch_table,
    manifest_of,
    package,
    variant_of,
)
from unistack_aot.artifact import manifest as m
from unistack_aot.base.errors import BadPackage, UnistackError
from unistack_aot.runtime.session import Session, load

CHAIN_KERNELS = """
#define F(i) ((float*)b[i])
static void twice(const float* x, float* y, int64_t n) { for (int64_t i=0;i<n;++i) y[i] = x[i]*2; }
static void shift(const float* x, const float* w, float* y, int64_t n) {
  for (int64_t i=0;i<n;++i) for (int j=0;j<3;++j) y[3*i+j] = x[3*i+j] + w[j];
}
static void mul(const float* x, const float* z, float* y, int64_t n) {
  for (int64_t i=0;i<n;++i) y[i] = x[i]*z[i];
}
"""
CHAIN_CALLS = (
    "twice(F(0), F(2), 3*d[0])",
    "shift(F(2), F(3), F(4), d[0])",
    "twice(F(4), F(5), 3*d[0])",
    "mul(F(5), F(6), F(1), 3*d[0]-3)",
)
CHAIN_W = np.array([1, 2, 3], np.float32)
N = m.Dim("n", low=1, high=1000, typical=8)


def chain_variant() -> m.Variant:
    """y[:-1] = 2u * u[1:] for u = 2x + w, with rows of u read through a view."""
    rows = ("n", "3")
    buffers = [
        buffer("x", rows, "input", first=0, last=0),
        buffer("y", ("n - 1", "3"), "output", first=3, last=3),
        buffer("t", rows, first=0, last=1),
        buffer("w", ("3",), "constant"),
        buffer("u", rows, first=1, last=2),
        buffer("v", rows, first=2, last=3),
        buffer("u1", ("n - 1", "3"), alias_of=4, offset="12", first=3, last=3),
    ]
    kernels = [kernel("twice", 2, "/a/Mul"), kernel("shift", 3), kernel("mul", 3, "/b/Mul")]
    steps = [
        m.Launch(0, (0, 2)),
        m.Launch(1, (2, 3, 4)),
        m.Launch(0, (4, 5)),
        m.Launch(2, (5, 6, 1)),
    ]
    return variant_of(buffers, kernels, steps, weights=(WEIGHTS,))


def chain_expected(x: np.ndarray) -> np.ndarray:
    u = 2 * x + CHAIN_W
    return (2 * u)[:-1] * u[1:]


@pytest.fixture(scope="module")
def chain_code(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    text = HEAD + CHAIN_KERNELS + launch_table(CHAIN_CALLS)
    return compile_library(tmp_path_factory.mktemp("chain"), text)


@pytest.fixture(scope="module")
def chain_path(chain_code: bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    x = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    golden = {"seed0/input/x": x, "seed0/output/y": chain_expected(x)}
    verdict = m.Golden("seed0", GOLDEN, (m.Tolerance("y", 1e-6, 1e-6),))
    manifest = manifest_of(chain_variant(), N, golden=(verdict,))
    path = tmp_path_factory.mktemp("package") / "chain.pkg"
    return package(path, chain_code, manifest, {"w": CHAIN_W}, golden)


@pytest.fixture
def chain(chain_path: Path) -> Session:
    return load(chain_path, "cpu")


def test_every_shape_gives_the_right_numbers(chain: Session) -> None:
    rng = np.random.default_rng(1)
    for rows in (2, 7, 1000, 2, 1):
        x = rng.standard_normal((rows, 3)).astype(np.float32)
        y = chain.run({"x": x})["y"]
        np.testing.assert_allclose(y, chain_expected(x), rtol=1e-6)
        assert y.shape == (rows - 1, 3)


def test_outputs_are_fresh_arrays(chain: Session) -> None:
    x = np.ones((4, 3), np.float32)
    first = chain.run({"x": x})["y"]
    kept = first.copy()
    second = chain.run({"x": x * 2})["y"]
    assert not np.shares_memory(first, second)
    np.testing.assert_array_equal(first, kept)


def test_strided_and_misaligned_inputs(chain: Session) -> None:
    x = np.random.default_rng(2).standard_normal((3, 6)).astype(np.float32)
    want = chain_expected(np.ascontiguousarray(x.T[:, :3]))
    np.testing.assert_allclose(chain.run({"x": x.T[:, :3]})["y"], want, rtol=1e-6)
    raw = np.zeros(6 * 12 + 1, np.uint8)[1:].view(np.float32).reshape(6, 3)
    raw[...] = x.T[:, :3]
    np.testing.assert_allclose(chain.run({"x": raw})["y"], want, rtol=1e-6)


def test_arrays_of_other_libraries_come_through_dlpack(chain: Session) -> None:
    class Foreign:
        def __init__(self, array: np.ndarray) -> None:
            self._array = array

        def __dlpack__(self, **options: object) -> object:
            return self._array.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    x = np.ones((4, 3), np.float32)
    np.testing.assert_allclose(chain.run({"x": Foreign(x)})["y"], chain_expected(x))


def test_certificate_is_exact(chain: Session) -> None:
    plan = chain.plan({"n": 1000})
    assert plan.dims == (m.DimValue("n", 1000),)
    # t (steps 0-1), u (1-3, through its view) and v (2-3): two of 12000 bytes at once.
    assert plan.peak == plan.lower_bound == 2 * 12032
    assert plan.far_bytes == 4 * 12000
    assert chain.plan().dims == (m.DimValue("n", 8),)


def test_selftest_and_profile(chain: Session, chain_path: Path) -> None:
    (verdict,) = chain.selftest()
    assert verdict.passed
    assert verdict.worst <= 1
    times = chain.profile({"x": np.ones((9, 3), np.float32)})
    assert [t.kernel.symbol for t in times] == ["twice", "shift", "twice", "mul"]
    assert all(t.seconds > 0 and t.runs == 1 for t in times)
    np.testing.assert_allclose(
        chain.run({"x": np.ones((4, 3), np.float32)})["y"],
        chain_expected(np.ones((4, 3), np.float32)),
    )


def test_selftest_sees_a_wrong_result(chain_code: bytes, tmp_path: Path) -> None:
    x = np.ones((3, 3), np.float32)
    golden = {"g/input/x": x, "g/output/y": chain_expected(x) * 1.01}
    verdict = m.Golden("g", GOLDEN, (m.Tolerance("y", 1e-6, 1e-6),))
    manifest = manifest_of(chain_variant(), N, golden=(verdict,))
    path = package(tmp_path / "m.pkg", chain_code, manifest, {"w": CHAIN_W}, golden)
    (found,) = load(path, "cpu").selftest()
    assert not found.passed
    assert found.worst > 1000


def test_threads_share_a_session(chain: Session) -> None:
    wrong: list[int] = []

    def work(rows: int) -> None:
        x = np.full((rows, 3), rows, np.float32)
        for _ in range(50):
            if not np.allclose(chain.run({"x": x})["y"], chain_expected(x)):
                wrong.append(rows)

    workers = [threading.Thread(target=work, args=(rows,)) for rows in (2, 30, 500)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of forks with threads
def test_a_forked_child_waits_for_no_thread_of_its_parent(chain: Session) -> None:
    """Another thread is inside a run when the process forks; the child has no such thread."""
    inside, leave = threading.Event(), threading.Event()

    def work() -> None:
        with chain._lock:  # as in a run that takes long
            inside.set()
            leave.wait()

    worker = threading.Thread(target=work)
    worker.start()
    inside.wait()
    x = np.ones((4, 3), np.float32)
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # ends a child that waits
        os._exit(int(not np.allclose(chain.run({"x": x})["y"], chain_expected(x))))
    leave.set()
    worker.join()
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_allclose(chain.run({"x": x})["y"], chain_expected(x))


def test_large_weights_live_on_huge_pages(chain_code: bytes, tmp_path: Path) -> None:
    weights = {"w": CHAIN_W, "unused": np.arange(1 << 20, dtype=np.int32)}
    manifest = manifest_of(chain_variant(), N)
    session = load(package(tmp_path / "m.pkg", chain_code, manifest, weights), "cpu")
    x = np.ones((4, 3), np.float32)
    np.testing.assert_allclose(session.run({"x": x})["y"], chain_expected(x))


def test_missing_constant(chain_code: bytes, tmp_path: Path) -> None:
    manifest = manifest_of(chain_variant(), N)
    path = package(tmp_path / "m.pkg", chain_code, manifest, {"other": CHAIN_W})
    with pytest.raises(BadPackage, match="constant 'w' is not in the weights"):
        load(path, "cpu").run({"x": np.ones((4, 3), np.float32)})


def test_failure_code_names_the_nodes(chain_code: bytes, tmp_path: Path) -> None:
    variant = chain_variant()
    extra = (*variant.steps, m.Launch(2, (5, 6, 1)))  # the library has only four launches
    manifest = manifest_of(replace(variant, steps=extra), N)
    session = load(package(tmp_path / "m.pkg", chain_code, manifest, {"w": CHAIN_W}), "cpu")
    with pytest.raises(UnistackError, match=r"reported failure 1\n  at: .*/a/Mul, shift, /b/Mul"):
        session.run({"x": np.ones((4, 3), np.float32)})


def test_other_abi_is_refused(tmp_path: Path) -> None:
    text = HEAD.replace("return 1", "return 7") + launch_table(())
    path = package(
        tmp_path / "m.pkg",
        compile_library(tmp_path, text),
        manifest_of(chain_variant(), N),
        {"w": CHAIN_W},
    )
    with pytest.raises(BadPackage, match="speaks ABI 7, this runtime speaks 1"):
        load(path, "cpu")


def test_code_that_is_no_library(tmp_path: Path) -> None:
    path = package(tmp_path / "m.pkg", b"not ELF", manifest_of(chain_variant(), N), {"w": CHAIN_W})
    with pytest.raises(UnistackError, match="machine code of cpu:x86-64-v2 cannot be loaded"):
        load(path, "cpu")
