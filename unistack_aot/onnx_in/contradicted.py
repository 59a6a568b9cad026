"""What a model declares of its values against what its graph gives: types are refused, shapes are told.

Not here: the types of inputs, which only a declaration can give (dims.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx

from unistack_aot.aicf.node import Node
from unistack_aot.aicf.types import TensorType
from unistack_aot.base.errors import BadModel, Unsupported
from unistack_aot.base.symbolic import text
from unistack_aot.onnx_in.tensors import element_type


def contradicted(proto: onnx.GraphProto, values: Mapping[str, Node | None]) -> Iterator[str]:
    """Sentences on outputs whose declared shapes are others; BadModel for another declared type of any value."""
    outputs = {value.name for value in proto.output}
    for value in (*proto.output, *proto.value_info):
        node = values.get(value.name)
        if node is None or not isinstance(node.type, TensorType):
            continue
        _same_type(value, node.type)
        shape = value.type.tensor_type.shape
        if value.name in outputs and not _agree(shape, node.type):
            yield (
                f"output {value.name} is declared as {_written(shape)}, "
                f"but the graph gives [{', '.join(text(d) for d in node.type.shape)}]"
            )


def _same_type(value: onnx.ValueInfoProto, given: TensorType) -> None:
    kind = value.type.tensor_type.elem_type
    if not kind:
        return
    try:
        declared = element_type(kind, value.name)
    except Unsupported:
        return
    if declared != given.dtype:
        raise BadModel(
            f"{value.name!r} is declared as {declared}, but the graph gives {given.dtype}",
            at=value.name,
            hint="export the model again, or correct the declared type",
        )


def _agree(shape: onnx.TensorShapeProto, given: TensorType) -> bool:
    """Whether the declaration, of which any part may be absent, has no other rank and no other number."""
    if not shape.dim:
        return True
    return len(shape.dim) == len(given.shape) and all(
        not dim.HasField("dim_value") or not isinstance(size, int) or dim.dim_value == size
        for dim, size in zip(shape.dim, given.shape, strict=True)
    )


def _written(shape: onnx.TensorShapeProto) -> str:
    words = (
        d.dim_param or (str(d.dim_value) if d.HasField("dim_value") else "?") for d in shape.dim
    )
    return f"[{', '.join(words)}]"
