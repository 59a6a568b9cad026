"""What ONNX's own schemas demand of a node: inputs, attributes and their types; what extents may be.

Not here: what operators mean (ops/).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import prod
from typing import Any

import onnx
import onnx.defs
from onnx import AttributeProto

from unistack_aot.aicf.types import TensorType, Type
from unistack_aot.base.errors import BadModel
from unistack_aot.onnx_in.dims import LARGEST
from unistack_aot.ops.onnx import OnnxCall, Subgraph

LEGACY = ("consumed_inputs", "output_sequence")
"""Attributes of the first opsets that say how to run, not what."""
MOST_BYTES = 1 << 60
"""Bytes of one value beyond which addresses could overflow."""
_KINDS: dict[int, str] = {
    AttributeProto.FLOAT: "a float",
    AttributeProto.INT: "an int",
    AttributeProto.STRING: "a string",
    AttributeProto.TENSOR: "a tensor",
    AttributeProto.GRAPH: "a graph",
    AttributeProto.FLOATS: "floats",
    AttributeProto.INTS: "ints",
    AttributeProto.STRINGS: "strings",
}
_MALFORMED = "the model is malformed; export it again"


def check_node(domain: str, proto: onnx.NodeProto, version: int, label: str) -> None:
    """BadModel if a node has other inputs or attributes than its operator takes."""
    schema = _schema(domain, proto.op_type, version)
    if schema is None:
        return
    what = f"{proto.op_type}({version})"
    given, least, most = len(proto.input), schema.min_input, schema.max_input
    if not least <= given <= most:
        wanted = f"{least}" if least == most else f"{least} to {most}"
        raise BadModel(f"{what} with {given} inputs, it takes {wanted}", label, _MALFORMED)
    present = {attribute.name: attribute for attribute in proto.attribute}
    for name in sorted(present.keys() - schema.attributes.keys()):
        raise BadModel(f"{what} with attribute {name}, which it does not have", label, _MALFORMED)
    for name, declared in schema.attributes.items():
        if name not in present:
            if declared.required:
                raise BadModel(f"{what} without its attribute {name}", label, _MALFORMED)
            continue
        kind, wanted_kind = int(present[name].type), int(declared.type)  # type: ignore[arg-type]
        if kind != wanted_kind and not present[name].ref_attr_name:
            raise BadModel(
                f"{what} with attribute {name} as {_KINDS.get(kind, kind)}, "
                f"it takes {_KINDS.get(wanted_kind, wanted_kind)}",
                label,
                _MALFORMED,
            )


def refuse_unread(domain: str, call: OnnxCall, unread: Mapping[str, Any]) -> None:
    """Unsupported if a node has an attribute that its importer knows nothing of.

    What the attribute is by default means nothing; of operators without a schema, that is zero.
    A region that is not read is a branch never taken.
    """
    schema = _schema(domain, call.op_type, call.opset)
    for name, value in unread.items():
        if isinstance(value, Subgraph) or name in LEGACY:
            continue
        usual: Any = None
        if schema is not None and schema.attributes[name].default_value.type:
            usual = onnx.helper.get_attribute_value(schema.attributes[name].default_value)
            usual = usual.decode() if isinstance(usual, bytes) else usual
        if value != usual and (schema is not None or value):
            raise call.refuse(f"with {name} = {value}", f"export without {name}")


@lru_cache(1 << 12)
def _schema(domain: str, op_type: str, version: int) -> onnx.defs.OpSchema | None:
    try:
        return onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return None


def too_large(kind: Type) -> str | None:
    """Why no kernel can address a value of this type; None if one can."""
    for each in (kind,) if isinstance(kind, TensorType) else kind.items:
        fixed = [extent for extent in each.shape if isinstance(extent, int)]
        longest = max(fixed, default=0)
        if longest > LARGEST:
            return f"an extent of {longest}, the largest is {LARGEST}"
        if 0 not in fixed and prod(fixed) * each.dtype.bytes > MOST_BYTES:
            return f"{prod(fixed)} elements, too many to address"
    return None
