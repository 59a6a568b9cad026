"""TensorProto to numpy, raw, typed or external. Not here: AICF constants (scope.py)."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from unistack_aot.artifact.manifest import UNBOUNDED
from unistack_aot.base.dtypes import DType
from unistack_aot.base.errors import BadModel, Unsupported
from unistack_aot.ops.convert import ELEMENT_TYPES


def element_type(number: int, at: str) -> DType:
    """The element type of an ONNX data type number; Unsupported if kernels have none like it."""
    found = ELEMENT_TYPES.get(number)
    if found is None:
        name = TensorProto.DataType.Name(number) if number in _NUMBERS else str(number)
        raise Unsupported(
            f"element type {name.lower()}",
            at=at,
            hint="use float, double, float16, bfloat16, bool or integers of 8 to 64 bits",
        )
    return found


LONGEST = 18
"""Digits of a number of bytes."""
_NUMBERS = frozenset(TensorProto.DataType.values())


def read_tensor(proto: TensorProto, folder: Path | None, at: str) -> NDArray[Any]:
    """The array of a TensorProto; `folder` is where external data lies."""
    label = proto.name or at
    dtype = element_type(proto.data_type, label).numpy
    shape = tuple(proto.dims)
    if any(not 0 <= extent <= UNBOUNDED for extent in shape):
        raise BadModel(
            f"a tensor of shape {list(shape)}",
            at=label,
            hint=f"extents are whole numbers up to {UNBOUNDED}; export it again",
        )
    if proto.data_location == TensorProto.EXTERNAL:
        return _read_external(proto, folder, dtype, shape, label)
    if proto.HasField("raw_data"):
        return _from_bytes(proto.raw_data, dtype, shape, label)
    try:
        return numpy_helper.to_array(proto).astype(dtype, copy=False)
    except (ValueError, TypeError):
        raise BadModel(
            f"tensor data does not fill the shape {list(shape)}", at=label, hint="export it again"
        ) from None


def _from_bytes(
    content: bytes, dtype: np.dtype[Any], shape: tuple[int, ...], label: str
) -> NDArray[Any]:
    wanted = prod(shape) * dtype.itemsize
    if len(content) != wanted:
        raise BadModel(
            f"tensor data has {len(content)} bytes, its shape {list(shape)} needs {wanted}",
            at=label,
            hint="the file is damaged; export it again",
        )
    return np.frombuffer(content, dtype).reshape(shape)


def _read_external(
    proto: TensorProto,
    folder: Path | None,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    label: str,
) -> NDArray[Any]:
    entries = {entry.key: entry.value for entry in proto.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise BadModel(
            f"external data {location!r} of a model that is not a file",
            at=label,
            hint="give the model's path, or load it with onnx.load, which reads external data",
        )
    try:
        path = (folder / location).resolve()
        there = path.is_file()
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a name that none can be
        raise BadModel(
            f"external data {location[:80]!r} cannot be looked for: {error.args[-1]}",
            at=label,
            hint="save the model with data beside it",
        ) from error
    if not location or not path.is_relative_to(folder.resolve()):
        raise BadModel(
            f"external data {location!r} lies outside the model's folder",
            at=label,
            hint="save the model with data beside it",
        )
    if not there:
        raise BadModel(
            f"the external data file {location!r} is missing",
            at=label,
            hint=f"put it beside the model, in {folder}",
        )
    wanted = prod(shape) * dtype.itemsize
    offset, length = (
        _whole(entries.get(key, str(default)), key, label)
        for key, default in (("offset", 0), ("length", wanted))
    )
    held = path.stat().st_size - offset
    if length != wanted or held < wanted:
        raise BadModel(
            f"external data {location!r} has {max(held, 0)} bytes from {offset}, "
            f"the tensor needs {wanted}",
            at=label,
            hint="the data file is cut short or belongs to another model; copy it again",
        )
    if wanted == 0:
        return np.empty(shape, dtype)
    return np.memmap(path, dtype, "r", offset, shape)


def _whole(written: str, key: str, label: str) -> int:
    """A number that external data states."""
    if not written.isdecimal() or len(written) > LONGEST:
        raise BadModel(
            f"external data with {key} {written!r}, it must be a whole number",
            at=label,
            hint="the file is damaged; export it again",
        )
    return int(written)


def tensor_shape(value: onnx.ValueInfoProto) -> list[onnx.TensorShapeProto.Dimension]:
    """The dimension protos of a tensor-typed value."""
    return list(value.type.tensor_type.shape.dim)
