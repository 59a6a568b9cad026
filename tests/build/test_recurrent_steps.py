"""A recurrence of one row, from ONNX to the runtime: a launch per step, as many as there are at run time."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from unistack_aot.artifact.manifest import Kernel
from unistack_aot.artifact.reader import open_package
from unistack_aot.pipeline import compile_model

ROOT = Path(__file__).parents[2]
TARGET = "emulator:sm_80-checked"
pytestmark = pytest.mark.skipif(
    find_spec("pycuda") is None, reason="pycuda is not installed (scripts/setup.sh builds it)"
)


def recurrent(op: str, gates: int, units: int, **attributes: int) -> onnx.ModelProto:
    """One layer over a sequence of any length."""
    rng = np.random.default_rng(3)
    shapes = {
        "w": (1, gates * units, 8),
        "r": (1, gates * units, units),
        "b": (1, 2 * gates * units),
    }
    weights = [
        numpy_helper.from_array((0.1 * rng.standard_normal(shape)).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    node = helper.make_node(
        op, ["x", "w", "r", "b"], ["y"], name="layer", hidden_size=units, **attributes
    )
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("time", 1, 8))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ("time", 1, 1, units))
    graph = helper.make_graph([node], "recurrent", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def stepping(package: Path) -> list[Kernel]:
    """The kernels that run in steps."""
    (variant,) = open_package(package).manifest.variants
    return [kernel for kernel in variant.kernels if kernel.steps]


@pytest.mark.parametrize(
    ("op", "gates", "units", "attributes"),
    [
        ("LSTM", 4, 128, {}),
        ("GRU", 3, 160, {"linear_before_reset": 1}),
        ("RNN", 1, 320, {}),
        ("RNN", 1, 64, {}),
        ("GRU", 3, 160, {}),
    ],
    ids=["lstm", "gru", "rnn", "little work", "two parts"],
)
def test_the_sequence_decides_how_many(
    tmp_path: Path, op: str, gates: int, units: int, attributes: dict[str, int]
) -> None:
    model, package = tmp_path / "m.onnx", tmp_path / "m.pkg"
    onnx.save(recurrent(op, gates, units, **attributes), model)
    compile_model(str(model), package, (TARGET,), {"time": (1, 2, 9)})
    steps = stepping(package)
    in_two = op == "GRU" and not attributes
    assert len(steps) == (0 if units == 64 else 1)
    for kernel in steps:
        assert kernel.steps == ("2*time" if in_two else "time")
        assert int(kernel.grid[0]) == units // 4
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "unistack_aot",
            "check",
            str(model),
            str(package),
            "--device",
            "emulator",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with ZipFile(package) as members:
        decided = json.loads(members.read("lock.json"))["decisions"][TARGET]
    found = [each for each in decided if each["what"] == "steps"]
    assert all(each["kernel"] for each in found), "explain shows it beside the kernel"
    words = f"{'2 launches' if in_two else 'a launch'} per step"
    chosen, other = (words, "one group per row") if steps else ("one group per row", words)
    assert [each["chosen"] for each in found] == [chosen]
    assert all(each["tried"][0].startswith(f"{other} ") for each in found)
