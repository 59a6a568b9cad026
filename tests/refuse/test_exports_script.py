"""scripts/exports.py where there is nothing to do it with, or nothing to do."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "exports.py"


def run(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.skipif(find_spec("torch") is not None, reason="PyTorch is here")
def test_without_pytorch(tmp_path: Path) -> None:
    done = run("export", "bert", "--cache", tmp_path)
    assert done.returncode == 2 and not done.stdout
    assert "do: pip install torch torchvision transformers onnxscript" in done.stderr


def test_what_differs_from_pytorch_is_wrong(tmp_path: Path) -> None:
    """Two files as `export` leaves them: one with PyTorch's output, one with another."""
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])
    graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["y"])],
        "g",
        [value],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    x = np.array([[1, -2, 3], [4, 5, -6]], np.float32)
    for name, y in (("good", -x), ("bad", -x + np.float32(0.1))):
        onnx.save(model, tmp_path / f"{name}.traced-free.onnx")
        np.savez(str(tmp_path / f"{name}.traced-free.npz"), x=x, y=y)
    done = run("check", "--cache", tmp_path)
    bad, good, total = done.stdout.splitlines()
    assert bad.split()[:2] == ["bad.traced-free", "wrong"], done.stderr
    assert good.split()[:2] == ["good.traced-free", "right"] and total == "1 wrong, 1 right"
    assert done.returncode == 1
    assert run("check", "--cache", tmp_path, "--form", "dynamo").stdout == "no files\n"
