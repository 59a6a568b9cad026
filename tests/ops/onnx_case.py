"""One ONNX node as a test case: its model, its arrays, the comparison with onnxruntime."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

from unistack_aot.aicf.evaluate import evaluate_graph
from unistack_aot.aicf.op import Array
from unistack_aot.onnx_in.importer import import_model
from unistack_aot.ops.op import Sample
from unistack_aot.ops.samples import as_sample, sample_arrays


@dataclass(frozen=True)
class Case:
    """One node: operator, operand types, opset, fills, constant operands, attributes, domain."""

    op: str
    args: str
    opset: int = 17
    fill: tuple[str, ...] = ()
    constants: tuple[tuple[int, Any], ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    domain: str = ""
    loose: float = 1.0

    def __str__(self) -> str:
        shown = ",".join(f"{k}={v}" for k, v in self.attributes.items())
        return f"{self.op}-{self.opset}-{self.args}-{shown}".replace(" ", "")


def case(op: str, args: str, opset: int = 17, **rest: Any) -> Case:
    """A case; unknown keywords are ONNX attributes."""
    known = {k: rest.pop(k) for k in list(rest) if k in Case.__dataclass_fields__}
    known["constants"] = tuple(known.get("constants", {}).items())
    return Case(op, args, opset, attributes=rest, **known)


def model_of(given: Case, arrays: dict[int, Array]) -> onnx.ModelProto:
    """A model of that one node; constants are initializers, positions without array are omitted."""
    count = max([*arrays, *dict(given.constants), 0]) + 1
    constants = dict(given.constants)
    names = [f"x{k}" if k in arrays or k in constants else "" for k in range(count)]
    outputs = [f"y{k}" for k in range(given.outputs)]
    node = helper.make_node(
        given.op, names, outputs, name="node", domain=given.domain, **given.attributes
    )
    inputs = [
        helper.make_tensor_value_info(
            f"x{k}", helper.np_dtype_to_tensor_dtype(a.dtype), list(a.shape)
        )
        for k, a in arrays.items()
    ]
    weights = [numpy_helper.from_array(np.asarray(v), f"x{k}") for k, v in constants.items()]
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph([node], "one", inputs, results, weights)
    opsets = [helper.make_opsetid("", given.opset)]
    if given.domain:
        opsets.append(helper.make_opsetid(given.domain, 1))
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def check(given: Case) -> None:
    """Compare every output of the case with onnxruntime's."""
    constants = dict(given.constants)
    types = as_sample(Sample((given.args,), (), given.fill))
    positions = [k for k in range(len(types.args) + len(constants)) if k not in constants]
    arrays = dict(zip(positions, sample_arrays(types, {}, seed=1), strict=False))
    model = model_of(given, arrays)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    feeds = {f"x{k}": a for k, a in arrays.items()}
    expected = session.run(None, feeds)
    graph = import_model(model).graph
    actual = evaluate_graph(graph, feeds)
    for k, want in enumerate(expected):
        got = actual[f"y{k}"]
        assert got.dtype == want.dtype, f"output {k}: {got.dtype}, not {want.dtype}"
        assert got.shape == want.shape, f"output {k}: {got.shape}, not {want.shape}"
        if want.dtype.kind == "f":
            tolerance = given.loose * (4e-3 if want.dtype == np.float16 else 2e-5)
            np.testing.assert_allclose(
                got.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=tolerance
            )
        else:
            np.testing.assert_array_equal(got, want)
