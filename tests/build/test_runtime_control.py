"""Control steps on the CPU: If, Loop with carried and scanned values, Fill, measured dimensions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.build.runtime_packages import (
    HEAD,
    buffer,
    compile_library,
    kernel,
    launch_table,
    manifest_of,
    package,
    variant_of,
)
from unistack_aot.artifact import manifest as m
from unistack_aot.base.errors import BadInput, UnistackError
from unistack_aot.runtime.session import Session, load

F = "#define F(i) ((float*)b[i])\n#define I(i) ((int64_t*)b[i])\n#define B(i) ((bool*)b[i])\n"
N = m.Dim("n", low=0, high=100, typical=4)


def session(folder: Path, calls: list[str], manifest: m.Manifest) -> Session:
    code = compile_library(folder, HEAD + F + launch_table(calls))
    return load(package(folder / "m.pkg", code, manifest), "cpu")


def test_if_runs_one_side(tmp_path: Path) -> None:
    buffers = [
        buffer("c", (), "input", dtype="bool"),
        buffer("x", ("n",), "input"),
        buffer("y", ("n",), "output"),
    ]
    variant = variant_of(
        buffers,
        [kernel("negate", 2)],
        [m.If(0, then=(m.Launch(0, (1, 2)),), otherwise=(m.Copy(1, 2),))],
    )
    call = "for (int64_t i = 0; i < d[0]; ++i) F(2)[i] = -F(1)[i]"
    made = session(tmp_path, [call], manifest_of(variant, N))
    x = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(made.run({"c": np.array(True), "x": x})["y"], -x)
    np.testing.assert_array_equal(made.run({"c": np.array(False), "x": x})["y"], x)


def test_a_step_may_refuse(tmp_path: Path) -> None:
    buffers = [
        buffer("c", (), "input", dtype="bool"),
        buffer("x", ("n",), "input"),
        buffer("y", ("n",), "output"),
    ]
    steps = [m.If(0, then=(m.Copy(1, 2),), otherwise=(m.Refuse(2, "no branch for this"),))]
    variant = variant_of(buffers, [kernel("unused", 2)], steps)
    made = session(tmp_path, [";"], manifest_of(variant, N))
    x = np.arange(5, dtype=np.float32)
    for _ in range(2):  # a run that was refused leaves the session usable
        np.testing.assert_array_equal(made.run({"c": np.array(True), "x": x})["y"], x)
        with pytest.raises(BadInput, match=r"no branch for this\n  do: feed what"):
            made.run({"c": np.array(False), "x": x})


def loop_variant(axis: int, reverse: bool) -> m.Variant:
    """state' = state + slice * (i + 1), out slice = state'; stops once the state is large."""
    stacked = ("n", "3") if axis == 0 else ("3", "n")
    buffers = [
        buffer("xs", stacked, "input"),
        buffer("start", ("3",), "input"),
        buffer("trips", (), "input", dtype="i64"),
        buffer("go", (), "input", dtype="bool"),
        buffer("end", ("3",), "output"),
        buffer("ys", stacked, "output"),
        buffer("count", (), "output", dtype="i64"),
        buffer("state", ("3",), first=0, last=9),
        buffer("next", ("3",), first=0, last=9),
        buffer("x", ("3",), first=0, last=9),
        buffer("i", (), dtype="i64", first=0, last=9),
        buffer("again", (), dtype="bool", first=0, last=9),
    ]
    loop = m.Loop(
        body=(m.Launch(0, (7, 8, 9, 10, 11)),),
        trips=2,
        condition=3,
        iteration=10,
        condition_out=11,
        count=6,
        carried=(m.Carried(1, 7, 8, 4),),
        scan_inputs=(m.Scanned(0, 9, axis, reverse),),
        scan_outputs=(m.Scanned(5, 8, axis, reverse),),
        limit="n",
    )
    return variant_of(buffers, [kernel("body", 5)], [loop])


LOOP_CALL = (
    "for (int j = 0; j < 3; ++j) F(8)[j] = F(7)[j] + F(9)[j] * (*I(10) + 1); *B(11) = F(8)[0] < 50"
)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("reverse", [False, True])
def test_loop(tmp_path: Path, axis: int, reverse: bool) -> None:
    made = session(tmp_path, [LOOP_CALL], manifest_of(loop_variant(axis, reverse), N))
    rng = np.random.default_rng(3)
    for rows, trips, go in ((4, 4, True), (4, 2, True), (6, 99, True), (4, 4, False), (0, 5, True)):
        xs = rng.integers(1, 9, (rows, 3)).astype(np.float32)
        order = xs[::-1] if reverse else xs
        state = start = np.zeros(3, np.float32)
        done, ran, ys = go, 0, []
        while done and ran < min(trips, rows):
            state = state + order[ran] * (ran + 1)
            ys.append(state)
            ran += 1
            done = state[0] < 50
        got = made.run(
            {
                "xs": xs if axis == 0 else np.ascontiguousarray(xs.T),
                "start": start,
                "trips": np.array(trips),
                "go": np.array(go),
            }
        )
        np.testing.assert_array_equal(got["end"], state)
        assert got["count"] == ran
        stacked = got["ys"] if axis == 0 else got["ys"].T
        stacked = stacked[::-1] if reverse else stacked
        np.testing.assert_array_equal(stacked[:ran], np.reshape(ys, (ran, 3)))


def test_loop_beyond_its_room(tmp_path: Path) -> None:
    buffers = [
        buffer("x", ("n",), "input"),
        buffer("ys", ("2", "n"), "output"),
    ]
    loop = m.Loop(body=(), limit="3", scan_outputs=(m.Scanned(1, 0),))
    made = session(tmp_path, [], manifest_of(variant_of(buffers, [], [loop]), N))
    with pytest.raises(UnistackError, match="ran more than the 2 iterations"):
        made.run({"x": np.ones(2, np.float32)})


def test_measured_dimension_cuts_the_output(tmp_path: Path) -> None:
    buffers = [
        buffer("x", ("n",), "input"),
        buffer("where", ("n",), "output", dtype="i64"),
        buffer("k", (), dtype="i64", last=1),
    ]
    variant = variant_of(
        buffers, [kernel("nonzero", 3)], [m.Launch(0, (0, 1, 2))], measured=(m.Measured("k", 2),)
    )
    call = "int64_t& k = *I(2); k = 0;for (int64_t i = 0; i < d[0]; ++i) if (F(0)[i]) I(1)[k++] = i"
    manifest = manifest_of(variant, N, outputs=(m.Tensor("where", "i64", ("k",)),))
    made = session(tmp_path, [call], manifest)
    x = np.array([0, 3, 0, 5, 1], np.float32)
    np.testing.assert_array_equal(made.run({"x": x})["where"], [1, 3, 4])
    assert made.run({"x": x * 0})["where"].shape == (0,)


def test_fill_once_survives_runs_and_other_shapes(tmp_path: Path) -> None:
    """A zero halo around x is written once per plan; the kernel itself only writes the middle."""
    buffers = [
        buffer("x", ("n",), "input"),
        buffer("y", ("n + 2",), "output"),
        buffer("padded", ("n + 2",), first=1, last=2),
        buffer("other", ("n + 2",), first=3, last=3),
    ]
    steps = [m.Fill(2, once=True), m.Launch(0, (0, 2)), m.Copy(2, 1), m.Launch(1, (3,))]
    variant = variant_of(buffers, [kernel("middle", 2), kernel("dirty", 1)], steps)
    calls = [
        "for (int64_t i = 0; i < d[0]; ++i) F(2)[i + 1] = F(0)[i]",
        "for (int64_t i = 0; i < d[0] + 2; ++i) F(3)[i] = 7",
    ]
    made = session(tmp_path, calls, manifest_of(variant, N))
    for rows in (3, 3, 50, 3, 50, 100, 3):
        x = np.arange(1, rows + 1, dtype=np.float32)
        np.testing.assert_array_equal(made.run({"x": x})["y"], np.pad(x, 1))


def test_fill_each_run(tmp_path: Path) -> None:
    buffers = [buffer("x", ("n",), "input"), buffer("y", ("n",), "output")]
    call = "for (int64_t i = 0; i < d[0]; i += 2) F(1)[i] += F(0)[i]"
    variant = variant_of(buffers, [kernel("add", 2)], [m.Fill(1), m.Launch(0, (0, 1))])
    made = session(tmp_path, [call], manifest_of(variant, N))
    x = np.arange(1, 6, dtype=np.float32)
    for _ in range(3):
        np.testing.assert_array_equal(made.run({"x": x})["y"], [1, 0, 3, 0, 5])
