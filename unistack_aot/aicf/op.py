"""What an AICF operation is: a frozen value with a type rule and a numpy meaning. Not here: lowering (ops/op.py)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from unistack_aot.aicf.types import TensorType, Type
from unistack_aot.base.dtypes import dtype_of
from unistack_aot.base.errors import IRError

Array = NDArray[Any]


@dataclass(frozen=True)
class Along:
    """How an operation of two operands is linear in one of them: which axes run along with its axes.

    `result` maps result axes, `data` axes of the other operand, to axes of this operand: scaling
    there is scaling this operand there. Parts of this operand along an axis of `parts` give parts
    of the result, each by itself.
    """

    result: Mapping[int, int]
    data: Mapping[int, int]
    parts: tuple[int, ...] = ()


class Op:
    """Base of all operations. Concrete subclasses are frozen dataclasses whose fields are the attributes.

    They register themselves under `name` (the class name in snake case), which the text form uses.
    """

    family: ClassVar[str] = ""
    moves: ClassVar[bool] = False
    """Every result element is an element of an operand, by position alone."""
    unsigned_results: ClassVar[tuple[int, ...]] = ()
    """Numbers of results that never have their sign bit set, NaN aside."""
    name: ClassVar[str] = ""
    registry: ClassVar[dict[str, type[Op]]] = {}

    def __init_subclass__(cls, abstract: bool = False) -> None:
        super().__init_subclass__()
        if not abstract:
            cls.name = snake_case(cls.__name__)
            Op.registry[cls.name] = cls

    def infer(self, *types: Type) -> Type:
        """The result type for these argument types; raises IRError when they do not fit."""
        raise IRError(f"{self.name} has no type rule")

    def sums(self) -> bool:
        """Whether every result element is a sum that starts from +0, so that none is -0."""
        return False

    def along(self, at: int, *types: Type) -> Along | None:
        """How it is linear in operand `at`, the other held fixed; None where it is not, or not by axes."""
        return None

    def reference(self, *arrays: Array) -> Array | tuple[Array, ...]:
        """The meaning, in numpy; computes in the dtype it is given (f64 gives the float64 evaluation)."""
        raise IRError(f"{self.name} has no reference")


def snake_case(name: str) -> str:
    """`HardSwish` -> `hard_swish`."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


@dataclass(frozen=True)
class ArrayData:
    """An array as an attribute, compared and hashed by dtype, shape and content."""

    array: Array = field(compare=False)
    digest: str

    @staticmethod
    def of(array: Array) -> ArrayData:
        """Wrap `array`; it must not be changed afterwards."""
        solid = np.ascontiguousarray(array).reshape(np.shape(array))
        head = f"{dtype_of(solid.dtype).name}{solid.shape}".encode()
        digest = hashlib.sha256(head)
        digest.update(solid.reshape(-1).view(np.uint8).data)  # without a copy: weights are large
        return ArrayData(solid, digest.hexdigest())

    def __repr__(self) -> str:
        return f"#{self.digest[:16]}"


@dataclass(frozen=True)
class Input(Op):
    """A graph or region input."""

    label: str
    kind: TensorType

    family = "core"

    def infer(self, *types: Type) -> Type:
        """Its declared type."""
        return self.kind


@dataclass(frozen=True)
class Constant(Op):
    """A tensor known at compile time."""

    data: ArrayData

    family = "core"

    def infer(self, *types: Type) -> Type:
        """The array's own type."""
        return TensorType(dtype_of(self.data.array.dtype), tuple(self.data.array.shape))

    def reference(self, *arrays: Array) -> Array:
        """The array."""
        return self.data.array


def tensor(kind: Type, op: str) -> TensorType:
    """`kind` as a tensor type, or an IRError that names the op."""
    if not isinstance(kind, TensorType):
        raise IRError(f"{op} takes tensors, got the tuple {kind}")
    return kind
