"""Contractions: sums over shared labels of products of two operands. Not here: windows."""

from __future__ import annotations

from dataclasses import dataclass
from string import ascii_lowercase

import numpy as np

from unistack_aot.aicf.node import Node
from unistack_aot.aicf.op import Along, Array, tensor
from unistack_aot.aicf.types import Shape, TensorType, Type
from unistack_aot.base.dtypes import DType, dtype_of, i32
from unistack_aot.base.errors import ExtentsDiffer, IRError
from unistack_aot.base.symbolic import Dim, symbol, text
from unistack_aot.ir.scalar import Name, Scalar, cast
from unistack_aot.mcir.monoids import accumulator
from unistack_aot.mcir.nodes import Axis, Fold, Kernel, Param, Store
from unistack_aot.ops.core import constant
from unistack_aot.ops.onnx import OnnxCall, onnx
from unistack_aot.ops.op import Operand, TensorOp, nest, sample
from unistack_aot.ops.pointwise import Add, Mul
from unistack_aot.ops.reindex import reshape


def product_dtypes(a: DType, b: DType, op: str) -> tuple[DType, DType]:
    """(accumulator, result) of sums of products: f32 for narrow floats, i32 for narrow integers."""
    if a.is_int and b.is_int and a.bits <= 16 and b.bits <= 16:
        return i32, i32
    if a is not b or a.is_bool:
        raise IRError(f"{op} of {a.name} and {b.name}")
    return accumulator(a), a


@dataclass(frozen=True)
class Contract(TensorOp):
    """out[...] = sum over the labels absent from `out` of left[...] * right[...].

    One letter names one axis; a letter that repeats within an operand selects its diagonal.
    """

    left: str
    right: str
    out: str

    family = "contract"
    samples = (
        sample("f32[3,4], f32[4,5]", left="ac", right="cb", out="ab"),
        sample("f16[3,40], f16[5,40]", left="ac", right="bc", out="ab"),
        sample("f32[2,3,4], f32[4,5]", left="abd", right="dc", out="abc"),
        sample("f32[2,3,4], f32[2,4,5]", left="abd", right="adc", out="abc"),
        sample("i8[3,40], u8[40,5]", left="ac", right="cb", out="ab"),
        sample("i32[3,4], i32[4]", left="ab", right="b", out="a"),
        sample("f32[3], f32[4]", left="a", right="b", out="ba"),
        sample("f32[3,3], f32[]", left="aa", right="", out="a"),
        sample("f64[4], f64[4]", left="a", right="a", out=""),
        sample("f32[N,M,4], f32[N,4,K]", left="abd", right="adc", out="abc"),
        sample("bf16[3,20], bf16[20,2]", left="ac", right="cb", out="ab"),
        sample("i16[3,20], u8[20,2]", left="ac", right="cb", out="ab"),
    )

    def extents(self, left: Shape, right: Shape) -> dict[str, Dim]:
        """The extent of each label; IRError if two axes of one label differ."""
        found: dict[str, Dim] = {}
        for labels, shape in ((self.left, left), (self.right, right)):
            if len(labels) != len(shape):
                raise IRError(f"labels {labels!r} for {len(shape)} axes")
            for label, extent in zip(labels, shape, strict=True):
                if found.setdefault(label, extent) != extent:
                    both = f"{text(found[label])} and {text(extent)}"
                    what = f"axis {label} of {self.equation} has extents {both}"
                    raise ExtentsDiffer(what, found[label], extent)
        return found

    @property
    def equation(self) -> str:
        """The einsum notation."""
        return f"{self.left},{self.right}->{self.out}"

    @property
    def summed(self) -> str:
        """Labels that are summed over, in order of appearance."""
        return "".join(c for c in dict.fromkeys(self.left + self.right) if c not in self.out)

    def sums(self) -> bool:
        """Whether it has summed labels."""
        return not set(self.left + self.right) <= set(self.out)

    def along(self, at: int, *types: Type) -> Along | None:
        """By labels, where none repeats within an operand; labels of one operand alone are parts."""
        mine, other = (self.left, self.right) if at == 0 else (self.right, self.left)
        if len(set(mine)) < len(mine) or len(set(other)) < len(other):
            return None
        return Along(
            {k: mine.index(c) for k, c in enumerate(self.out) if c in mine},
            {k: mine.index(c) for k, c in enumerate(other) if c in mine},
            tuple(k for k, c in enumerate(mine) if c in self.out and c not in other),
        )

    def infer(self, *types: Type) -> Type:
        """Extents by label; narrow integers give i32."""
        left, right = (tensor(t, self.name) for t in types)
        _, dtype = product_dtypes(left.dtype, right.dtype, self.name)
        extents = self.extents(left.shape, right.shape)
        if len(set(self.out)) != len(self.out) or any(c not in extents for c in self.out):
            raise IRError(f"result labels of {self.equation} repeat or come from nowhere")
        return TensorType(dtype, tuple(extents[c] for c in self.out))

    def reference(self, *arrays: Array) -> Array:
        """numpy.einsum in the accumulator's dtype."""
        left, right = arrays
        wide, dtype = product_dtypes(dtype_of(left.dtype), dtype_of(right.dtype), self.name)
        operands = (left.astype(wide.numpy), right.astype(wide.numpy))
        with np.errstate(all="ignore"):
            result = np.einsum(self.equation, *operands, optimize=True)
        return np.asarray(result, wide.numpy).astype(dtype.numpy)

    def lower(self, args: tuple[Param, ...], results: tuple[Param, ...]) -> Kernel:
        """Loops over the result around one sum of products."""
        (result,) = results
        left, right = (Operand(p) for p in args)
        wide, _ = product_dtypes(left.dtype, right.dtype, self.name)
        extents = self.extents(left.shape, right.shape)
        var = {label: symbol(f"{'i' if label in self.out else 'r'}_{label}") for label in extents}
        a, b = left(*(var[c] for c in self.left)), right(*(var[c] for c in self.right))
        product = cast(wide, a) * cast(wide, b)
        index = tuple(var[c] for c in self.out)
        axes = tuple(Axis(str(var[c]), extents[c]) for c in self.summed)
        body = sum_and_store(product, axes, result, index)
        return Kernel((*args, *results), nest(result.shape, index, body))


def sum_and_store(
    product: Scalar, axes: tuple[Axis, ...], result: Param, index: tuple[Dim, ...]
) -> tuple[Fold | Store, ...]:
    """Fold `product` over `axes` and store the sum; a plain store if there is nothing to fold."""
    if not axes:
        return (Store(result.name, index, cast(result.dtype, product)),)
    fold = Fold(("acc",), "sum", axes, (product,))
    return fold, Store(result.name, index, cast(result.dtype, Name("acc", product.dtype)))


def contract(a: Node, b: Node, left: str, right: str, out: str) -> Node:
    """The contraction with labels renamed in order of appearance: equal ones are one node."""
    order = dict.fromkeys(out + left + right)
    table = {ord(old): new for old, new in zip(order, ascii_lowercase, strict=False)}
    op = Contract(left.translate(table), right.translate(table), out.translate(table))
    return Node(op, (a, b))


def matmul(a: Node, b: Node) -> Node:
    """ONNX MatMul: vectors, matrices, and batches that broadcast."""
    x, y = a.tensor.shape, b.tensor.shape
    if not x or not y:
        raise IRError(f"matmul of {a.tensor} and {b.tensor}")
    rows, cols = ("R" if len(x) > 1 else ""), ("C" if len(y) > 1 else "")
    batch_x, batch_y = x[: -1 - len(rows)], y[: -1 - len(cols)]
    names = ascii_lowercase[: max(len(batch_x), len(batch_y))]
    kept_x, kept_y = _kept(batch_x, batch_y), _kept(batch_y, batch_x)
    left = "".join(_name(names, batch_x, k) for k in kept_x)
    right = "".join(_name(names, batch_y, k) for k in kept_y)
    a = reshape(a, tuple(batch_x[k] for k in kept_x) + x[len(batch_x) :])
    b = reshape(b, tuple(batch_y[k] for k in kept_y) + y[len(batch_y) :])
    out = "".join(c for c in names if c in left or c in right) + rows + cols
    return contract(a, b, f"{left}{rows}K", f"{right}K{cols}", out)


def _kept(mine: Shape, other: Shape) -> list[int]:
    """Batch axes that do not merely repeat along an axis of the other operand."""
    kept: list[int] = []
    for k, extent in enumerate(mine):
        at = k - len(mine)
        facing = other[at] if -at <= len(other) else 1
        if extent != 1 or facing == 1:
            kept.append(k)
    return kept


def _name(names: str, batch: Shape, k: int) -> str:
    return names[len(names) - len(batch) + k]


@onnx("MatMul")
def import_matmul(call: OnnxCall) -> Node:
    """Matrix product with numpy's rules."""
    return matmul(call.arg(0), call.arg(1))


@onnx("Gemm", since=7)
def import_gemm(call: OnnxCall) -> Node:
    """alpha A' B' + beta C."""
    a, b, c = call.arg(0), call.arg(1), call.optional(2)
    left = "km" if call.attr("transA", 0) else "mk"
    right = "nk" if call.attr("transB", 0) else "kn"
    result = contract(a, b, left, right, "mn")
    result = scaled(result, call.attr("alpha", 1.0))
    beta = call.attr("beta", 1.0)
    return result if c is None or beta == 0 else Node(Add(), (result, scaled(c, beta)))


def scaled(x: Node, factor: float) -> Node:
    """`x` times a number; `x` itself for 1."""
    return x if factor == 1 else Node(Mul(), (x, constant(factor, x)))
