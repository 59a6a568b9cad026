"""Types of AICF values: tensors of a dtype and a shape, and tuples of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from unistack_aot.base.dtypes import DType
from unistack_aot.base.symbolic import Dim, text

Shape: TypeAlias = tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class TensorType:
    """A dtype and a shape; dimensions are ints or symbolic expressions."""

    dtype: DType
    shape: Shape

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def with_shape(self, shape: Shape) -> TensorType:
        """The same dtype over another shape."""
        return TensorType(self.dtype, shape)

    def with_dtype(self, dtype: DType) -> TensorType:
        """The same shape in another dtype."""
        return TensorType(dtype, self.shape)

    def __str__(self) -> str:
        return f"{self.dtype.name}[{', '.join(text(d) for d in self.shape)}]"


@dataclass(frozen=True, slots=True)
class TupleType:
    """The type of an op with several results; `item(value, k)` selects one."""

    items: tuple[TensorType, ...]

    def __str__(self) -> str:
        return f"({', '.join(str(t) for t in self.items)})"


Type: TypeAlias = TensorType | TupleType
