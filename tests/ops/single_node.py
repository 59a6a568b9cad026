"""One ONNX node as a model: its value by our evaluator and by onnxruntime. Not here: any test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from unistack_aot.aicf.evaluate import evaluate_graph
from unistack_aot.onnx_in import Imported, import_model

Array = NDArray[Any]
IR_VERSIONS = {**dict.fromkeys(range(1, 11), 5), **dict.fromkeys(range(11, 19), 8)}


def node_model(
    op: str,
    inputs: Sequence[Array | None],
    opset: int,
    known: Sequence[int] = (),
    outputs: int = 1,
    dims: Mapping[int, Sequence[str | int]] | None = None,
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one node; inputs at `known` positions are initializers, `dims` renames extents."""
    names = ["" if array is None else f"in{k}" for k, array in enumerate(inputs)]
    weights, values = [], []
    for k, array in enumerate(inputs):
        if array is None:
            continue
        if k in known:
            weights.append(numpy_helper.from_array(np.asarray(array), f"in{k}"))
            continue
        shape = (dims or {}).get(k, np.shape(array))
        kind = helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype)
        values.append(helper.make_tensor_value_info(f"in{k}", kind, shape))
    results = [f"out{k}" for k in range(outputs)]
    node = helper.make_node(op, names, results, name="node", **attributes)
    infos = [onnx.ValueInfoProto(name=name) for name in results]
    graph = helper.make_graph([node], "single", values, infos, weights)
    version = IR_VERSIONS.get(opset, 10)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=version
    )
    inferred = onnx.shape_inference.infer_shapes(model)
    for info in inferred.graph.output:
        if not info.type.HasField("tensor_type"):
            info.type.tensor_type.elem_type = TensorProto.FLOAT
    return inferred


def feeds_of(inputs: Sequence[Array | None], known: Sequence[int]) -> dict[str, Array]:
    """The values of the model's inputs by name."""
    pairs = enumerate(inputs)
    return {f"in{k}": np.asarray(a) for k, a in pairs if a is not None and k not in known}


def expected(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """What onnxruntime computes, without its graph optimisations."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, dict(feeds))


def check_node(
    op: str,
    inputs: Sequence[Array | None],
    opset: int,
    known: Sequence[int] = (),
    outputs: int = 1,
    dims: Mapping[int, Sequence[str | int]] | None = None,
    tolerance: float = 0.0,
    **attributes: Any,
) -> Imported:
    """Assert that our evaluation of the node equals onnxruntime's; give the import."""
    model = node_model(op, inputs, opset, known, outputs, dims, **attributes)
    feeds = feeds_of(inputs, known)
    imported = import_model(model)
    ours = evaluate_graph(imported.graph, feeds)
    for name, theirs in zip(ours, expected(model, feeds), strict=True):
        assert ours[name].dtype == theirs.dtype
        assert ours[name].shape == theirs.shape
        if tolerance:
            np.testing.assert_allclose(ours[name], theirs, tolerance, tolerance)
        else:
            np.testing.assert_array_equal(ours[name], theirs)
    return imported


def draw(*shape: int, dtype: str = "float32", seed: int = 0) -> Array:
    """Seeded normal floats, or integers in [-4, 4)."""
    rng = np.random.default_rng([seed, *shape])
    if np.dtype(dtype).kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(-4, 4, shape).astype(dtype)


def ints(*values: int) -> NDArray[np.int64]:
    """An int64 vector."""
    return np.array(values, np.int64)
