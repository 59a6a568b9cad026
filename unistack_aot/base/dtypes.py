"""Element types and their numpy counterparts. Not here: conversion of data, promotion rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from .errors import BadInput, MissingTool

try:
    from ml_dtypes import bfloat16 as _numpy_bf16
except ImportError:  # a deployed machine may have numpy and protobuf only
    _numpy_bf16 = None

Kind = Literal["float", "int", "uint", "bool"]


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """One element type: its name in every text form, its width in bits and its kind.

    The constants below are the only ones; they are compared by identity.
    """

    name: str
    bits: int
    kind: Kind

    @property
    def bytes(self) -> int:
        """Size of one element in memory, in bytes (a bool takes one)."""
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        """Whether values are floating point."""
        return self.kind == "float"

    @property
    def is_narrow(self) -> bool:
        """Whether values are floats of 16 bits, which kernels compute with in f32."""
        return self.is_float and self.bits < 32

    @property
    def is_int(self) -> bool:
        """Whether values are integers, signed or not (bool is not)."""
        return self.kind in ("int", "uint")

    @property
    def is_signed(self) -> bool:
        """Whether negative values exist."""
        return self.kind in ("float", "int")

    @property
    def is_bool(self) -> bool:
        """Whether values are truth values."""
        return self.kind == "bool"

    @property
    def numpy(self) -> np.dtype[Any]:
        """The numpy dtype; MissingTool if it is bf16 and the ml_dtypes package is absent."""
        if self.name == "bf16":
            return _bfloat16()
        return np.dtype(_NUMPY_NAMES[self.name])

    @property
    def lowest(self) -> int | float:
        """The smallest finite value."""
        match self.kind:
            case "float":
                return -_FLOAT_MAX[self.name]
            case "int":
                return -(1 << (self.bits - 1))
            case _:
                return 0

    @property
    def highest(self) -> int | float:
        """The largest finite value."""
        match self.kind:
            case "float":
                return _FLOAT_MAX[self.name]
            case "int":
                return (1 << (self.bits - 1)) - 1
            case "uint":
                return (1 << self.bits) - 1
            case "bool":
                return 1

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return parse_dtype, (self.name,)


f64 = DType("f64", 64, "float")
f32 = DType("f32", 32, "float")
f16 = DType("f16", 16, "float")
bf16 = DType("bf16", 16, "float")
i8 = DType("i8", 8, "int")
i16 = DType("i16", 16, "int")
i32 = DType("i32", 32, "int")
i64 = DType("i64", 64, "int")
u8 = DType("u8", 8, "uint")
u16 = DType("u16", 16, "uint")
u32 = DType("u32", 32, "uint")
u64 = DType("u64", 64, "uint")
bool_ = DType("bool", 8, "bool")

ALL: tuple[DType, ...] = (f64, f32, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, bool_)

_NUMPY_NAMES = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "bool": "bool",
}
_FLOAT_MAX = {
    "f64": 1.7976931348623157e308,
    "f32": float(2**128 - 2**104),
    "f16": 65504.0,
    "bf16": float(2**128 - 2**120),
}
_BY_NAME = {dtype.name: dtype for dtype in ALL}
_BY_NUMPY = {name: _BY_NAME[ours] for ours, name in _NUMPY_NAMES.items()} | {"bfloat16": bf16}


def dtype_of(dtype: npt.DTypeLike) -> DType:
    """Our type of a numpy dtype (ml_dtypes' bfloat16 included); BadInput when there is none."""
    given = np.dtype(dtype)
    found = _BY_NUMPY.get(given.name)
    if found is None:
        raise BadInput(
            f"element type {given.name} is not supported",
            hint=f"use one of {', '.join(_BY_NUMPY)}",
        )
    return found


def parse_dtype(name: str) -> DType:
    """The type of a name such as "f32"; BadInput when there is none."""
    found = _BY_NAME.get(name)
    if found is None:
        raise BadInput(
            f"no element type is called {name!r}", hint=f"use one of {', '.join(_BY_NAME)}"
        )
    return found


def _bfloat16() -> np.dtype[Any]:
    if _numpy_bf16 is None:
        raise MissingTool("bf16 arrays need the ml_dtypes package", hint="pip install ml_dtypes")
    return np.dtype(_numpy_bf16)
