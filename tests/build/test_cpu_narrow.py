"""Models of 16-bit floats on the CPU: the tiles and streams of f32 models, every value rounded as the model says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.build.cpu_graphs import levels_here
from unistack_aot.artifact.reader import open_package
from unistack_aot.check.checker import check
from unistack_aot.pipeline import compile_model

Array = np.ndarray[Any, Any]
TYPES = {"f16": onnx.TensorProto.FLOAT16, "bf16": onnx.TensorProto.BFLOAT16}
WAYS = ("blocks", "algorithm", "attention")


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), outputs.split()[0], **attributes)


class Narrow:
    """Builds a model whose floats are all of one narrow type, with seeded weights."""

    def __init__(self, kind: str) -> None:
        self.kind, self.rng = TYPES[kind], np.random.default_rng(3)

    def value(self, name: str, *shape: int | str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, self.kind, shape)

    def weight(self, name: str, *shape: int) -> onnx.TensorProto:
        array = self.rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        dtype = helper.tensor_dtype_to_np_dtype(self.kind)
        raw = array.astype(dtype).tobytes()
        return helper.make_tensor(name, self.kind, shape, raw, raw=True)

    def model(self, nodes: Any, inputs: Any, outputs: Any, weights: Any = ()) -> onnx.ModelProto:
        graph = helper.make_graph(nodes, "narrow", inputs, outputs, weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def ways(model: onnx.ModelProto, folder: Path) -> list[str]:
    """The kinds of tiles that were chosen for a model, which must compute what it means."""
    package = folder / "narrow.pkg"
    target = f"cpu:{levels_here()[-1]}"
    compile_model(model, package, targets=(target,))
    verdict = check(model, package, "cpu")
    assert verdict, verdict.results
    decisions = open_package(package).document("lock.json")["decisions"][target]
    return sorted(d["what"] for d in decisions if d["what"] in WAYS)


@pytest.mark.parametrize("kind", TYPES)
def test_products_windows_and_attention_run_in_tiles(kind: str, tmp_path: Path) -> None:
    make = Narrow(kind)
    nodes = [
        node("Conv", "image w0", "c0", pads=[1, 1, 1, 1]),
        node("Relu", "c0", "c1"),
        node("Conv", "c1 w1", "c2", pads=[1, 1, 1, 1], group=16),
        node("Conv", "c2 w2", "c3", strides=[2, 2]),
        node("Reshape", "c3 shape", "flat"),
        node("Transpose", "flat", "tokens", perm=[0, 2, 1]),
        node("MatMul", "tokens wq", "q"),
        node("MatMul", "tokens wk", "k"),
        node("Transpose", "k", "kt", perm=[0, 2, 1]),
        node("MatMul", "q kt", "scores"),
        node("Softmax", "scores", "weights", axis=-1),
        node("MatMul", "weights tokens", "y"),
    ]
    weights = [
        make.weight("w0", 16, 8, 3, 3),
        make.weight("w1", 16, 1, 3, 3),
        make.weight("w2", 64, 16, 2, 2),
        make.weight("wq", 64, 20),
        make.weight("wk", 64, 20),
        numpy_helper.from_array(np.array([1, 64, 36], np.int64), "shape"),
    ]
    image, result = make.value("image", 1, 8, 12, 12), make.value("y", 1, 36, 64)
    model = make.model(nodes, [image], [result], weights)
    found = ways(model, tmp_path)
    assert found.count("attention") == 1
    assert len(found) >= 4  # two windows, and queries and keys, apart or as one product


@pytest.mark.parametrize("kind", TYPES)
def test_values_that_loops_carry_keep_their_type(kind: str, tmp_path: Path) -> None:
    """The carried matrix stays narrow: its product reads a copy, made again in each iteration."""
    make = Narrow(kind)
    yes = helper.make_tensor_value_info("go", onnx.TensorProto.BOOL, ())
    again = helper.make_tensor_value_info("again", onnx.TensorProto.BOOL, ())
    number = helper.make_tensor_value_info("number", onnx.TensorProto.INT64, ())
    body = helper.make_graph(
        [
            node("MatMul", "state w", "next"),
            node("Identity", "go", "again"),
        ],
        "body",
        [number, yes, make.value("state", 20, 24)],
        [again, make.value("next", 20, 24)],
    )
    nodes = [
        helper.make_node("Loop", ["trips", "", "x"], ["last"], "loop", body=body),
        node("MatMul", "last x2", "y"),
        node("Add", "y y", "twice"),
    ]
    trips = helper.make_tensor_value_info("trips", onnx.TensorProto.INT64, ())
    model = make.model(
        nodes,
        [trips, make.value("x", 20, 24), make.value("x2", 24, 17)],
        [make.value("y", 20, 17), make.value("twice", 20, 17)],
        [make.weight("w", 24, 24)],
    )
    assert len(ways(model, tmp_path)) >= 2
