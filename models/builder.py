"""A small ONNX graph builder: named values, scoped node names, seeded weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

Value = str
Real = Literal["float32", "float16"]
Dim = int | str
Array = NDArray[Any]

# The IR version that came with each opset, so that a model loads wherever its opset does.
IR_VERSIONS = {11: 6, 12: 7, 13: 7, 14: 7, 15: 8, 16: 8, 17: 8, 18: 8, 19: 9, 20: 9, 21: 10, 22: 10}


def tensor(name: str, array: Array) -> TensorProto:
    """Return a TensorProto holding the array's bytes; one copy, no per-element work."""
    made = TensorProto()
    _fill(made, name, array)
    return made


class GraphBuilder:
    """Collects nodes, weights, inputs and outputs of one graph; `build` returns the model.

    `real` is the dtype of weights and of constants without one of their own. `int8_linear`
    makes linear maps multiply int8 weights with inputs that are rounded at run time.
    """

    def __init__(
        self,
        name: str,
        opset: int = 17,
        seed: int = 0,
        real: Real = "float32",
        int8_linear: bool = False,
    ) -> None:
        self.real: Real = real
        self.int8_linear = int8_linear
        self.opset = opset
        self.rng = np.random.default_rng(seed)
        self._scopes: list[str] = []
        self._names: Counter[str] = Counter()
        self._nodes: list[onnx.NodeProto] = []
        self._model = onnx.ModelProto(
            ir_version=IR_VERSIONS[opset],
            producer_name="unistack_aot models",
            opset_import=[helper.make_opsetid("", opset)],
            graph=onnx.GraphProto(name=name),
        )
        self._constants: dict[tuple[str, tuple[int, ...], bytes], Value] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._made: set[Value] = set()
        self._renamed: dict[Value, Value] = {}

    @contextmanager
    def scope(self, label: str) -> Generator[None]:
        """Prefix the names of nodes and weights made inside with `label`."""
        self._scopes.append(label)
        try:
            yield
        finally:
            self._scopes.pop()

    def input(self, name: str, shape: Sequence[Dim], dtype: str = "float32") -> Value:
        """Declare a graph input; strings in the shape are symbolic dimensions."""
        self._inputs.append(_value_info(name, shape, dtype))
        return name

    def output(self, value: Value, name: str, shape: Sequence[Dim], dtype: str = "float32") -> None:
        """Declare a value that some node made as the graph output `name`."""
        if value in self._renamed or value not in self._made:
            value = self.op("Identity", value)
        self._renamed[value] = name
        self._outputs.append(_value_info(name, shape, dtype))

    def weight(self, label: str, array: Array) -> Value:
        """Add an initializer named after the current scope, in the dtype of its array."""
        name = self._unique(".".join([*self._scopes, label]))
        # Filled in place: appending a finished tensor would copy hundreds of megabytes once more.
        _fill(self._model.graph.initializer.add(), name, array)
        return name

    def normal(self, label: str, shape: Sequence[int], scale: float) -> Value:
        """Add an initializer of seeded zero-mean values with standard deviation `scale`."""
        values = self.rng.standard_normal(tuple(shape), dtype=np.float32)
        values *= np.float32(scale)
        return self.weight(label, values.astype(self.real, copy=False))

    def near(self, label: str, size: int, center: float, spread: float = 0.1) -> Value:
        """Add a vector of seeded values uniform in center ± spread."""
        values = self.rng.uniform(center - spread, center + spread, size)
        return self.weight(label, values.astype(self.real))

    def constant(self, value: Any, dtype: str | None = None) -> Value:
        """Return a Constant node's value, by default real; equal constants share one node."""
        array = np.asarray(value, dtype=dtype or self.real)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self.op("Constant", value=tensor("value", array))
        return self._constants[key]

    def ints(self, *values: int) -> Value:
        """Return an int64 vector constant."""
        return self.constant(list(values), "int64")

    def op(self, op_type: str, *inputs: Value, domain: str = "", **attributes: Any) -> Value:
        """Add a node with one output; "" skips an optional input."""
        return self.multi(op_type, *inputs, outputs=1, domain=domain, **attributes)[0]

    def multi(
        self, op_type: str, *inputs: Value, outputs: int, domain: str = "", **attributes: Any
    ) -> tuple[Value, ...]:
        """Add a node with several outputs and return them all."""
        name = self._unique("/" + "/".join([*self._scopes, op_type]))
        made = tuple(f"{name}_output_{position}" for position in range(outputs))
        node = helper.make_node(
            op_type, list(inputs), list(made), name, domain=domain, **attributes
        )
        self._nodes.append(node)
        self._made.update(made)
        return made

    def cast(self, value: Value, dtype: str) -> Value:
        """Convert a value to another dtype."""
        return self.op("Cast", value, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def body(self, name: str) -> GraphBuilder:
        """Return a builder for a Loop or Scan body; names stay unique and outer values usable.

        The body's graph is `body.build().graph`.
        """
        made = GraphBuilder(name, self.opset, real=self.real, int8_linear=self.int8_linear)
        made.rng, made._names, made._scopes = self.rng, self._names, [*self._scopes, name]
        return made

    def build(self) -> onnx.ModelProto:
        """Return the model, once; nodes are in the order in which they were added."""
        for node in self._nodes:
            for names in (node.input, node.output):
                for position, name in enumerate(names):
                    names[position] = self._renamed.get(name, name)
        graph = self._model.graph
        graph.node.extend(self._nodes)
        graph.input.extend(self._inputs)
        graph.output.extend(self._outputs)
        return self._model

    def _unique(self, name: str) -> str:
        self._names[name] += 1
        count = self._names[name]
        return name if count == 1 else f"{name}_{count - 1}"


def _fill(target: TensorProto, name: str, array: Array) -> None:
    target.name = name
    target.data_type = helper.np_dtype_to_tensor_dtype(array.dtype)
    target.dims.extend(array.shape)
    target.raw_data = array.tobytes()


def _value_info(name: str, shape: Sequence[Dim], dtype: str) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return helper.make_tensor_value_info(name, kind, list(shape))
