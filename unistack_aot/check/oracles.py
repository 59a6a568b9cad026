"""Who knows the right answer: onnxruntime as it comes, and a float64 evaluation of AICF.

Not here: judging (checker.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from unistack_aot.aicf.bind import bind_graph, dims_of
from unistack_aot.aicf.evaluate import Value, evaluate_nodes
from unistack_aot.aicf.graph import Graph
from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Array, Constant, Input
from unistack_aot.base.errors import BadInput
from unistack_aot.check.tolerance import Rounding, magnitudes, own_variance
from unistack_aot.onnx_in.read import Model

try:
    import onnxruntime
except ImportError:  # an optional judge: the float64 evaluation is asked instead
    onnxruntime = None

Feeds = Mapping[str, Array]


class Runtime:
    """onnxruntime on the CPU, its graph optimisations off; `absent` says why it cannot answer."""

    def __init__(self, model: Model, threads: int) -> None:
        self.absent = ""
        self._session: Any = None
        if onnxruntime is None:
            self.absent = "onnxruntime is not installed"
            return
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = threads
        options.log_severity_level = 4
        source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else model
        try:
            self._session = onnxruntime.InferenceSession(
                str(source) if isinstance(source, Path) else source,
                options,
                providers=["CPUExecutionProvider"],
            )
        except Exception as refusal:  # its exceptions have no common base but this
            self.absent = f"onnxruntime refuses the model: {_sentence(refusal)}"

    def run(self, feeds: Feeds) -> dict[str, Array] | str:
        """Outputs by name, or why there are none."""
        if self._session is None:
            return self.absent
        names = [output.name for output in self._session.get_outputs()]
        wanted = {value.name for value in self._session.get_inputs()}
        try:
            found = self._session.run(None, {k: v for k, v in feeds.items() if k in wanted})
        except Exception as refusal:
            return f"onnxruntime fails: {_sentence(refusal)}"
        return dict(zip(names, found, strict=True))


def _sentence(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 160 else f"{text[:157]}..."


def bound(graph: Graph, feeds: Feeds) -> Graph:
    """The graph with its symbolic dimensions replaced by the feeds' extents."""
    labels = [node.op.label for node in graph.inputs if isinstance(node.op, Input)]
    missing = [label for label in labels if label not in feeds]
    if missing:
        raise BadInput(f"input {missing[0]!r} is missing", hint=f"give {', '.join(labels)}")
    dims = dims_of(graph, {label: feeds[label].shape for label in labels})
    return bind_graph(graph, dims) if dims else graph


def exact(graph: Graph, feeds: Feeds) -> dict[str, Array]:
    """The outputs of a bound graph with every float kept in f64."""
    return _outputs(graph, wide_values(graph, feeds, graph.results))


class Disturbance:
    """Rounding errors as they might have happened: each result is changed at random.

    Every operation's own relative error (tolerance.py) is drawn as a normal error: per element for
    pointwise operations, against max(|x|, rms) for folds and contractions. Whole numbers that a
    pointwise operation gives are exact: a mask of ones stays one. What happens to the outputs is
    the model's conditioning at these inputs, measured.
    """

    def __init__(self, rounding: Rounding, seed: int, amplitude: float = 1.0) -> None:
        self._rounding = rounding
        self._random = np.random.default_rng(seed)
        self._amplitude = amplitude

    def __call__(self, node: Node, given: Value) -> Value:
        """The value a node would have had."""
        sigma = self._amplitude * sqrt(own_variance(node, self._rounding))
        if not sigma or isinstance(given, tuple) or given.dtype.kind != "f" or not given.size:
            return given
        noise = self._random.standard_normal(given.shape) * sigma
        with np.errstate(all="ignore"):
            if node.op.family == "pointwise":
                size = np.where(np.rint(given) == given, 0.0, np.abs(given))
            else:
                size = magnitudes(given)
            return np.where(np.isfinite(given), given + noise * size, given)


def wide_values(
    graph: Graph, feeds: Feeds, kept: Iterable[Node], disturbance: Disturbance | None = None
) -> dict[Node, Value]:
    """f64 values of the chosen nodes of a bound graph, optionally under disturbance."""
    wanted = set(kept)
    values: dict[Node, Value] = {}
    for node in graph.inputs:
        if isinstance(node.op, Input):
            given = feeds[node.op.label]
            floating = given.dtype.kind == "f" or given.dtype.name == "bfloat16"
            values[node] = given.astype(np.float64) if floating else given
    found = {node: value for node, value in values.items() if node in wanted}
    for node, value in evaluate_nodes(graph, values, wide=True):
        final = value
        if disturbance is not None and not isinstance(node.op, Constant):
            final = values[node] = disturbance(node, value)
        if node in wanted:
            found[node] = final
    return found


def disturbed(graph: Graph, feeds: Feeds, disturbance: Disturbance) -> dict[str, Array]:
    """The outputs of a bound graph as rounding might have left them."""
    return _outputs(graph, wide_values(graph, feeds, graph.results, disturbance))


def _outputs(graph: Graph, values: Mapping[Node, Value]) -> dict[str, Array]:
    found: dict[str, Array] = {}
    for name, node in graph.outputs:
        value = values[node]
        assert not isinstance(value, tuple)
        found[name] = value
    return found
