"""Seeded weights for models that ship placeholders, such that activations stay normal."""

from __future__ import annotations

from math import sqrt

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, numpy_helper

from models.builder import Array, tensor

NORM_SLOTS = {1: (1.0, 0.2), 2: (0.0, 0.1), 3: (0.0, 0.1), 4: (1.0, 0.3)}


def seeded(model: ModelProto, seed: int = 0) -> ModelProto:
    """Return a copy in which the weights of convolutions, norms and dense layers are seeded.

    Meant for files that ship ConstantOfShape nodes in place of weights: those nodes are dropped.
    """
    made = ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    rng = np.random.default_rng(seed)
    shapes = _weight_shapes(graph)
    replaced: dict[str, Array] = {}
    for node in graph.node:
        for name, shape in _slots(node, shapes):
            replaced[name] = _draw(rng, graph, node, name, shape)
    kept = [node for node in graph.node if not set(node.output) & set(replaced)]
    stored = [item for item in graph.initializer if item.name not in replaced]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(kept)
    graph.initializer.extend(stored)
    graph.initializer.extend(tensor(name, array) for name, array in replaced.items())
    _drop_unused(graph)
    made.ir_version = max(made.ir_version, 4)  # from 4 on a weight need not be an input too
    return made


def _weight_shapes(graph: GraphProto) -> dict[str, tuple[int, ...]]:
    """Return the shapes of float weights, stored or filled by ConstantOfShape."""
    stored = {item.name: item for item in graph.initializer}
    shapes = {
        name: tuple(item.dims)
        for name, item in stored.items()
        if item.data_type == onnx.TensorProto.FLOAT
    }
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in stored:
            sizes = numpy_helper.to_array(stored[node.input[0]])
            shapes[node.output[0]] = tuple(int(size) for size in sizes)
    return shapes


def _slots(
    node: NodeProto, shapes: dict[str, tuple[int, ...]]
) -> list[tuple[str, tuple[int, ...]]]:
    """Return the weights that a node reads: all but data inputs, where their shapes are known."""
    if node.op_type not in ("Conv", "Gemm", "BatchNormalization", "Unsqueeze", "Reshape"):
        return []
    first = 0 if node.op_type in ("Unsqueeze", "Reshape") else 1
    return [(name, shapes[name]) for name in node.input[first:] if name in shapes]


def _draw(
    rng: np.random.Generator, graph: GraphProto, node: NodeProto, name: str, shape: tuple[int, ...]
) -> Array:
    """Return values for one weight by the part it plays in its node."""
    slot = list(node.input).index(name)
    user = next((other for other in graph.node if node.output[0] in other.input), node)
    if node.op_type == "BatchNormalization":
        center, spread = NORM_SLOTS[slot]
        if slot == 1 and user.op_type == "Sum":
            center, spread = 0.4, 0.1  # residual branches end small, so that depth does not add up
        return rng.uniform(center - spread, center + spread, shape).astype(np.float32)
    if node.op_type == "Unsqueeze":
        center = 1.0 if user.op_type == "Mul" else 0.0
        return rng.uniform(center - 0.2, center + 0.2, shape).astype(np.float32)
    if len(shape) == 1:
        return rng.uniform(-0.1, 0.1, shape).astype(np.float32)
    fan_in = int(np.prod(shape[1:]))
    # A depthwise convolution has no Relu before or after it that would halve the power.
    gain = 1.0 if len(shape) == 4 and shape[1] == 1 else 2.0
    return rng.standard_normal(shape, np.float32) * np.float32(sqrt(gain / fan_in))


def _drop_unused(graph: GraphProto) -> None:
    """Remove stored tensors that no node reads, and inputs that only named a stored tensor."""
    read = {name for node in graph.node for name in node.input}
    fed = [value for value in graph.input if value.name in read]
    stored = [item for item in graph.initializer if item.name in read]
    names = {item.name for item in stored}
    del graph.input[:], graph.initializer[:]
    graph.input.extend(value for value in fed if value.name not in names)
    graph.initializer.extend(stored)
