"""Files of named tensors in the safetensors format, written in pieces and read in place.

Not here: the ZIP around them (writer.py, reader.py). The format
(https://github.com/huggingface/safetensors): a little-endian u64 header length, a JSON header
``{name: {dtype, shape, data_offsets}}``, then raw data without holes. Every tensor starts at a
multiple of 64 bytes; since holes are forbidden, the gaps are u8 tensors named ``_pad.N``, which
reading skips.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from unistack_aot.base.dtypes import DType, dtype_of, parse_dtype
from unistack_aot.base.errors import BadPackage

ALIGNMENT = 64
_PAD = "_pad."
_HEADER_LIMIT = 1 << 28
_STORED_NAMES = {
    "f64": "F64",
    "f32": "F32",
    "f16": "F16",
    "bf16": "BF16",
    "i64": "I64",
    "i32": "I32",
    "i16": "I16",
    "i8": "I8",
    "u64": "U64",
    "u32": "U32",
    "u16": "U16",
    "u8": "U8",
    "bool": "BOOL",
}
_OUR_NAMES = {stored: ours for ours, stored in _STORED_NAMES.items()}


@dataclass(frozen=True, slots=True)
class RawTensor:
    """A tensor to be written: ``data`` gives its C-order bytes, made only when they are written."""

    dtype: DType
    shape: tuple[int, ...]
    data: Callable[[], memoryview]

    @property
    def nbytes(self) -> int:
        """Size of the data in bytes."""
        return self.dtype.bytes * prod(self.shape)


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor inside a mapped file: ``data`` are its bytes in place (read only)."""

    dtype: DType
    shape: tuple[int, ...]
    data: memoryview

    def array(self) -> np.ndarray[Any, Any]:
        """The tensor as a read-only numpy array over the same memory."""
        return np.frombuffer(self.data, dtype=self.dtype.numpy).reshape(self.shape)


class TensorFile:
    """A set of tensors to be written as one file; equal content gives equal bytes."""

    def __init__(self, tensors: Mapping[str, RawTensor | np.ndarray[Any, Any]]) -> None:
        raws = {name: _raw(tensor) for name, tensor in tensors.items()}
        # Sizes that keep the alignment go first, so that few gaps are needed.
        names = sorted(raws, key=lambda name: (raws[name].nbytes % ALIGNMENT != 0, name))
        header: dict[str, Any] = {}
        self._pieces: list[RawTensor | int] = []
        offset = 0
        for number, name in enumerate(names):
            raw = raws[name]
            gap = -offset % ALIGNMENT
            if gap:
                header[f"{_PAD}{number}"] = _entry("U8", (gap,), offset, gap)
                self._pieces.append(gap)
                offset += gap
            header[name] = _entry(_STORED_NAMES[raw.dtype.name], raw.shape, offset, raw.nbytes)
            self._pieces.append(raw)
            offset += raw.nbytes
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        text += b" " * (-(8 + len(text)) % ALIGNMENT)
        self._head = len(text).to_bytes(8, "little") + text
        self._nbytes = len(self._head) + offset

    @property
    def nbytes(self) -> int:
        """Size of the file in bytes."""
        return self._nbytes

    def chunks(self) -> Iterator[memoryview]:
        """The bytes of the file, in order; each tensor is produced only when its turn comes."""
        yield memoryview(self._head)
        for piece in self._pieces:
            if isinstance(piece, int):
                yield memoryview(bytes(piece))
            elif piece.nbytes:
                data = piece.data().cast("B")
                if data.nbytes != piece.nbytes:
                    raise ValueError(f"tensor data has {data.nbytes} bytes, not {piece.nbytes}")
                yield data


def read_tensors(data: memoryview, where: str) -> dict[str, StoredTensor]:
    """All tensors of a file, in place; `BadPackage` if the header contradicts the data."""
    if len(data) < 8:
        raise _damaged(where, f"{len(data)} bytes are too few for a tensor file")
    length = int.from_bytes(data[:8], "little")
    if length > _HEADER_LIMIT or 8 + length > len(data):
        raise _damaged(where, f"its header claims {length} bytes, the file has {len(data)}")
    try:
        header = json.loads(bytes(data[8 : 8 + length]))
        body = data[8 + length :]
        return {
            name: _stored(name, entry, body, where)
            for name, entry in header.items()
            if name != "__metadata__" and not name.startswith(_PAD)
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(where, f"its header is not readable ({error})") from error


def _stored(name: str, entry: Any, body: memoryview, where: str) -> StoredTensor:
    dtype = parse_dtype(_OUR_NAMES[entry["dtype"]])
    shape = tuple(int(size) for size in entry["shape"])
    start, stop = (int(offset) for offset in entry["data_offsets"])
    fits = 0 <= start <= stop <= len(body) and all(size >= 0 for size in shape)
    if not fits or stop - start != dtype.bytes * prod(shape):
        raise _damaged(where, f"tensor {name!r} of {dtype}{list(shape)} lies at {start}..{stop}")
    return StoredTensor(dtype, shape, body[start:stop])


def _damaged(where: str, what: str) -> BadPackage:
    return BadPackage(
        f"tensor file is damaged: {what}", at=where, hint="copy the package again, or recompile"
    )


def _entry(dtype: str, shape: tuple[int, ...], offset: int, nbytes: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + nbytes]}


def _raw(tensor: RawTensor | np.ndarray[Any, Any]) -> RawTensor:
    if isinstance(tensor, RawTensor):
        return tensor
    shape = tuple(tensor.shape)

    def data() -> memoryview:
        return np.ascontiguousarray(tensor).reshape(-1).view(np.uint8).data

    return RawTensor(dtype_of(tensor.dtype), shape, data)
