"""Where only numpy and protobuf are installed: loading, running, and the verbs for packages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import unistack_aot as ua
from unistack_aot.base.errors import BadPackage, CheckFailed

BARE = """
import sys

class Bare:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and top not in ("numpy", "google", "unistack_aot"):
            raise ModuleNotFoundError(f"not installed here: {name}", name=top)

sys.meta_path.insert(0, Bare())
try:
    import onnx
except ModuleNotFoundError:
    pass
else:
    raise AssertionError("this environment is not bare")
"""
USE = """
import numpy
import unistack_aot as ua
from unistack_aot.cli.main import main

package = sys.argv[1]
session = ua.load(package, device="cpu", selftest=True)
outputs = session.run({"x": numpy.ones((2, 4), numpy.float32)})
assert outputs["y"].tolist() == [[4.0] * 4] * 2, outputs
for words in (["run", "--device", "cpu"], ["run", "--device", "cpu", "--selftest"], ["show"], ["explain"]):
    code = main([words[0], package, *words[1:], "--json"])
    assert code == 0, words
print("all of it ran")
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """y = x @ ones."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "fc")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])],
        [numpy_helper.from_array(np.ones((4, 4), np.float32), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    place = tmp_path_factory.mktemp("bare") / "m.pkg"
    ua.compile_model(model, place, targets=("cpu:x86-64-v3",))
    return place


def test_only_numpy_and_protobuf(package: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BARE + USE, str(package)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("all of it ran\n")


def test_loading_replays_recorded_runs_on_request(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session whose outputs are wrong is refused; so is a package that recorded nothing."""
    assert ua.load(package, device="cpu", selftest=True).device == "cpu"
    run = type(ua.load(package, device="cpu")).run
    monkeypatch.setattr(
        "unistack_aot.runtime.session.Session.run",
        lambda self, feeds: {name: array + 1 for name, array in run(self, feeds).items()},
    )
    with pytest.raises(CheckFailed, match=r"output 'y' of run0 is .* off as is allowed on cpu"):
        ua.load(package, device="cpu", selftest=True)
    monkeypatch.undo()
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Identity", ["x"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=9,
    )
    ua.compile_model(model, tmp_path / "n.pkg", targets=("cpu:x86-64-v3",), golden=False)
    with pytest.raises(BadPackage, match="carries no recorded run"):
        ua.load(tmp_path / "n.pkg", device="cpu", selftest=True)
