"""Element type conversion, and tensors like another one. Not here: quantisation (quant.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Array
from unistack_aot.base import dtypes
from unistack_aot.base.dtypes import DType
from unistack_aot.ir.scalar import Arg, Scalar, cast, literal
from unistack_aot.ops.onnx import OnnxCall, onnx
from unistack_aot.ops.op import Pointwise, sample

# TensorProto.DataType (onnx.proto); strings, complex and narrower types have no counterpart here
ELEMENT_TYPES: dict[int, DType] = {
    1: dtypes.f32,
    2: dtypes.u8,
    3: dtypes.i8,
    4: dtypes.u16,
    5: dtypes.i16,
    6: dtypes.i32,
    7: dtypes.i64,
    9: dtypes.bool_,
    10: dtypes.f16,
    11: dtypes.f64,
    12: dtypes.u32,
    13: dtypes.u64,
    16: dtypes.bf16,
}


def element_type(call: OnnxCall, attribute: str, default: int) -> DType:
    """The dtype an attribute names by its TensorProto number, or a refusal."""
    number = int(call.attr(attribute, default))
    found = ELEMENT_TYPES.get(number)
    if found is None:
        raise call.refuse(f"to element type {number}", "use a float, integer or bool type")
    return found


@dataclass(frozen=True)
class Convert(Pointwise):
    """x in another element type (ONNX Cast)."""

    to: DType

    samples = (
        sample("f32[5]", to=dtypes.i64),
        sample("i64[5]", to=dtypes.f16),
        sample("f16[5]", to=dtypes.f32),
        sample("f32[5]", to=dtypes.f16),
        sample("f32[5]", to=dtypes.bf16),
        sample("f32[5]", to=dtypes.bool_),
        sample("bool[5]", to=dtypes.f32),
        sample("i32[5]", to=dtypes.u8),
    )

    def scalar(self, x: Scalar) -> Scalar:
        """x converted."""
        return cast(self.to, x)

    def formula(self, dtypes: Sequence[DType]) -> Scalar:
        """One conversion: narrow floats must not pass through f32 and back."""
        return cast(self.to, Arg(0, dtypes[0]))


def converted(node: Node, to: DType) -> Node:
    """`node` in dtype `to`; itself if it has that dtype."""
    return node if node.tensor.dtype is to else Node(Convert(to), (node,))


@onnx("Cast", since=6)
def import_cast(call: OnnxCall) -> Node:
    """Cast to the type its attribute names."""
    call.ignore("saturate", "round_mode")  # of 8-bit floats
    return converted(call.arg(0), element_type(call, "to", 0))


@onnx("CastLike", since=15)
def import_cast_like(call: OnnxCall) -> Node:
    """Cast to the type of the second operand."""
    call.ignore("saturate", "round_mode")  # of 8-bit floats
    return converted(call.arg(0), call.arg(1).tensor.dtype)


@dataclass(frozen=True)
class Filled(Pointwise):
    """A tensor of the operand's shape whose every element is `value`."""

    value: float
    to: DType

    samples = (
        sample("f32[2,3]", value=1, to=dtypes.bool_),
        sample("i64[4]", value=2, to=dtypes.f32),
    )

    def scalar(self, x: Scalar) -> Scalar:
        """value."""
        return literal(self.value, self.to)

    def formula(self, dtypes: Sequence[DType]) -> Scalar:
        """The literal in its own dtype, whatever the operand's."""
        return literal(self.value, self.to)

    def reference(self, *arrays: Array) -> Array:
        """numpy.full."""
        return np.full(arrays[0].shape, self.value, self.to.numpy)


@onnx("Dropout", since=7)
def import_dropout(call: OnnxCall) -> Node | tuple[Node, Node]:
    """Dropout of an inference graph: the operand, and a mask that keeps everything."""
    call.ignore("ratio", "seed")
    x = call.arg(0)
    training = call.optional(2)
    if training is not None:
        known = call.require_constant(2, "training_mode")
        ratio = call.constant(1)
        if bool(known) and (ratio is None or float(ratio) != 0.0):
            raise call.refuse("in training mode", "export the model for inference")
    mask_type = dtypes.bool_ if call.opset >= 10 else x.tensor.dtype
    return x if call.outputs < 2 else (x, Node(Filled(1, mask_type), (x,)))
