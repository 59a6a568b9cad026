"""ONNX models as lines of text, for reading. Not here: our own forms (aicf/text, mcir/text)."""

from __future__ import annotations

from collections.abc import Iterator

import onnx


def model_lines(proto: onnx.ModelProto) -> Iterator[str]:
    """One line per input, initializer, node and output of an ONNX model."""
    graph = proto.graph
    opsets = ", ".join(f"{o.domain or 'ai.onnx'} {o.version}" for o in proto.opset_import)
    yield f"model {graph.name}  ir {proto.ir_version}, opset {opsets}"
    weights = {tensor.name for tensor in graph.initializer}
    for value in graph.input:
        if value.name not in weights:
            yield f"input {value.name}: {_kind(value)}"
    for tensor in graph.initializer:
        name = onnx.TensorProto.DataType.Name(tensor.data_type).lower()
        yield f"weight {tensor.name}: {name}{list(tensor.dims)}"
    for number, node in enumerate(graph.node):
        results = ", ".join(node.output)
        label = f"  # {node.name}" if node.name else ""
        attributes = ", ".join(attribute.name for attribute in node.attribute)
        extra = f" [{attributes}]" if attributes else ""
        yield f"{number}: {results} = {node.op_type}({', '.join(node.input)}){extra}{label}"
    for value in graph.output:
        yield f"output {value.name}: {_kind(value)}"


def _kind(value: onnx.ValueInfoProto) -> str:
    tensor = value.type.tensor_type
    sizes = [d.dim_param or str(d.dim_value) for d in tensor.shape.dim]
    name = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
    return f"{name}[{', '.join(sizes)}]"
