"""NaN, infinities and signed zeros in whole models: compiled results as onnxruntime has them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from unistack_aot.aicf.evaluate import evaluate_graph
from unistack_aot.onnx_in import import_model

ROOT = Path(__file__).parents[2]
TARGETS = ["cpu", "emulator:sm_75", "emulator:sm_90"]
Arrays = Mapping[str, np.ndarray]


def model(
    nodes: Sequence[onnx.NodeProto], feeds: Arrays, output: str, weights: Arrays
) -> onnx.ModelProto:
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in feeds.items()
    ]
    result = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
    held = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(list(nodes), "g", inputs, [result], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def ran(proto: onnx.ModelProto, feeds: Arrays, target: str, folder: Path) -> np.ndarray:
    """The only output, computed in a process of its own."""
    if target != "cpu" and find_spec("pycuda") is None:
        pytest.skip("pycuda is not installed (scripts/setup.sh builds it)")
    path, given, found = (folder / name for name in ("m.onnx", "in.npz", "out.npz"))
    onnx.save(proto, str(path))
    np.savez(given, **feeds)  # type: ignore[arg-type]
    worker = [sys.executable, "-m", "tests.models.emulated_run", *map(str, (path, given, found))]
    done = subprocess.run([*worker, target], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    with np.load(found) as outputs:
        return outputs[proto.graph.output[0].name]


def assert_as_onnxruntime(
    proto: onnx.ModelProto, feeds: Arrays, target: str, folder: Path
) -> np.ndarray:
    """The compiled result is onnxruntime's, which is returned: equal_nan, equal infinities."""
    (want,) = ort.InferenceSession(proto.SerializeToString()).run(None, dict(feeds))
    np.testing.assert_allclose(ran(proto, feeds, target, folder), want, rtol=1e-5, atol=1e-5)
    return want


def attention(low: float, rows: int = 40, keys: int = 70) -> tuple[onnx.ModelProto, Arrays]:
    """Every other key is hidden by Where; the hidden ones are NaN or infinite."""
    rng = np.random.default_rng(5)
    q, k, v = (rng.standard_normal((2, 2, n, 8), np.float32) for n in (rows, keys, keys))
    shown = np.broadcast_to(np.arange(keys) % 2 == 0, (2, 1, 1, keys)).copy()
    k[:, :, 1::4] = np.nan
    k[:, :, 3::4, 2] = np.inf
    nodes = [
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "kt"], ["s"]),
        helper.make_node("Mul", ["s", "scale"], ["scaled"]),
        helper.make_node("Where", ["shown", "scaled", "low"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["w"]),
        helper.make_node("MatMul", ["w", "v"], ["y"]),
    ]
    weights = {"scale": np.float32(0.35), "low": np.float32(low)}
    feeds = {"q": q, "k": k, "v": v, "shown": shown}
    return model(nodes, feeds, "y", {n: np.asarray(w) for n, w in weights.items()}), feeds


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("low", [-np.inf, -1e9, -3.0])
def test_scores_that_a_mask_replaces_do_not_leak(target: str, low: float, tmp_path: Path) -> None:
    proto, feeds = attention(low)
    assert np.isfinite(assert_as_onnxruntime(proto, feeds, target, tmp_path)).all()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("kernel", "stride", "pads"), [(2, 2, 0), (3, 2, 1), (4, 2, 1), (3, 1, 1)])
def test_infinities_stay_where_they_are_in_transposed_convolutions(
    target: str, kernel: int, stride: int, pads: int, tmp_path: Path
) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((1, 16, 6, 7), np.float32)
    x[0, 3, 2, 2], x[0, 5, 4, 1] = np.inf, np.nan
    w = rng.standard_normal((16, 24, kernel, kernel), np.float32)
    node = helper.make_node(
        "ConvTranspose", ["x", "w"], ["y"], strides=[stride] * 2, pads=[pads] * 4
    )
    proto = model([node], {"x": x}, "y", {"w": w})
    want = assert_as_onnxruntime(proto, {"x": x}, target, tmp_path)
    assert np.isinf(want).any() and np.isnan(want).any() and np.isfinite(want).any()


@pytest.mark.parametrize("target", ["cpu", "emulator:sm_90"])
def test_adding_zero_makes_negative_zero_positive(target: str, tmp_path: Path) -> None:
    x = np.array([-0.0, 0.0, np.nan, -np.inf, 3.0], np.float32)
    nodes = [
        helper.make_node("Add", ["x", "zero"], ["a"]),
        helper.make_node("Div", ["one", "a"], ["y"]),
    ]
    weights = {"zero": np.zeros((), np.float32), "one": np.ones((), np.float32)}
    proto = model(nodes, {"x": x}, "y", weights)
    want = np.array([np.inf, np.inf, np.nan, -0.0, 1 / 3], np.float32)
    np.testing.assert_array_equal(ran(proto, {"x": x}, target, tmp_path), want)


@pytest.mark.parametrize("target", TARGETS)
def test_moments_of_infinite_values(target: str, tmp_path: Path) -> None:
    """A mean is infinite where one element is; no element has a distance from it."""
    x = np.random.default_rng(6).standard_normal((6, 50)).astype(np.float32)
    x[0, 0] = x[1, 49] = x[2, 33] = np.inf
    x[3, 5] = -np.inf
    x[4, 7], x[4, 40] = np.inf, -np.inf
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[1]),
        helper.make_node("Sub", ["x", "mean"], ["d"]),
        helper.make_node("Mul", ["d", "d"], ["s"]),
        helper.make_node("ReduceMean", ["s"], ["variance"], axes=[1]),
        helper.make_node("Concat", ["mean", "variance"], ["y"], axis=1),
    ]
    want = assert_as_onnxruntime(model(nodes, {"x": x}, "y", {}), {"x": x}, target, tmp_path)
    np.testing.assert_array_equal(want[:4, 0], [np.inf, np.inf, np.inf, -np.inf])
    assert np.isnan(want[:5, 1]).all() and np.isfinite(want[5]).all()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("largest", [0, 1])
def test_top_k_among_nans(largest: int, target: str, tmp_path: Path) -> None:
    """NaN counts as greater than any number, as where numpy sorts; nothing is found twice or invented."""
    x = np.asarray(
        [[3, np.nan, -np.inf, np.inf, np.nan], [np.nan] * 5, [1, 5, 2, 4, 3]], np.float32
    )
    nodes = [
        helper.make_node("TopK", ["x", "k"], ["values", "places"], largest=largest),
        helper.make_node("Cast", ["places"], ["p"], to=TensorProto.FLOAT),
        helper.make_node("Concat", ["values", "p"], ["y"], axis=1),
    ]
    y = ran(model(nodes, {"x": x}, "y", {"k": np.asarray([4])}), {"x": x}, target, tmp_path)
    places = [[1, 4, 3, 0], [0, 1, 2, 3], [1, 3, 4, 2]]
    places = places if largest else [[2, 0, 3, 1], [0, 1, 2, 3], [0, 2, 4, 3]]
    np.testing.assert_array_equal(y[:, 4:], places)
    np.testing.assert_array_equal(y[:, :4], np.take_along_axis(x, np.asarray(places), 1))


@pytest.mark.parametrize("target", TARGETS)
def test_an_infinite_cell_without_peepholes(target: str, tmp_path: Path) -> None:
    """Gates that do not look at the cell stay finite, and so does the output; a check's own evaluation agrees."""
    rng = np.random.default_rng(8)
    x, cell = rng.standard_normal((3, 2, 4), np.float32), np.full((1, 2, 5), -np.inf, np.float32)
    w, r = (rng.standard_normal((1, 20, k), np.float32) for k in (4, 5))
    node = helper.make_node("LSTM", ["x", "w", "r", "", "", "", "c"], ["y"], hidden_size=5)
    feeds = {"x": x, "c": cell}
    proto = model([node], feeds, "y", {"w": w, "r": r})
    want = assert_as_onnxruntime(proto, feeds, target, tmp_path)
    assert np.isfinite(want).all()
    (mine,) = evaluate_graph(import_model(proto).graph, dict(feeds)).values()
    np.testing.assert_allclose(mine, want, rtol=1e-5, atol=1e-5)
