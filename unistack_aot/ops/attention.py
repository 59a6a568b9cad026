"""Scaled dot-product attention as one op. Not here: the rule that finds it, its tiled form."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from unistack_aot.aicf.op import Array, tensor
from unistack_aot.aicf.types import TensorType, Type
from unistack_aot.base.dtypes import dtype_of
from unistack_aot.base.errors import IRError
from unistack_aot.base.symbolic import Dim, symbol
from unistack_aot.ir import formula as word
from unistack_aot.ir.scalar import Name, Scalar, cast, index_value, literal, where
from unistack_aot.mcir.monoids import accumulator, lowest
from unistack_aot.mcir.nodes import Axis, Fold, Kernel, Loop, Param, Store
from unistack_aot.ops.op import Operand, TensorOp, broadcast_index, nest, sample


@dataclass(frozen=True)
class Attention(TensorOp):
    """softmax(scale q k' + mask) v per batch and head.

    q[b, h, m, d], k[b, g, n, d], v[b, g, n, e] give [b, h, m, e]; h is a multiple of g, and head i
    uses key head i // (h / g). Up to two masks follow, which broadcast to [b, h, m, n]: one of floats
    is added to the scores; then, where one of bools is false, `hidden` replaces them, NaN or not.
    With `causal`, query i sees key j when j <= i + n - m. A query that sees only -inf gives NaN.
    """

    scale: float
    causal: bool = False
    hidden: float = -math.inf

    family = "contract"
    samples = (
        sample("f32[1,2,3,4], f32[1,2,5,4], f32[1,2,5,6]", scale=0.5),
        sample("f32[2,4,3,4], f32[2,2,5,4], f32[2,2,5,4]", scale=0.5, causal=True),
        sample("f32[2,2,3,4], f32[2,2,3,4], f32[2,2,3,4], f32[2,1,1,3]", scale=1.0),
        sample("f32[B,4,M,4], f32[B,2,N,4], f32[B,2,N,4], f32[M,N]", scale=0.5, causal=True),
        sample("f16[1,2,4,8], f16[1,1,4,8], f16[1,1,4,8], f16[4,4]", scale=0.25, causal=True),
        sample("f32[2,2,3,4], f32[2,2,5,4], f32[2,2,5,4], bool[2,1,1,5]", scale=0.5, hidden=-1e9),
        sample(
            "f32[1,2,3,4], f32[1,1,5,4], f32[1,1,5,4], f32[5], bool[3,5]", scale=1.0, hidden=-2.0
        ),
    )

    def infer(self, *types: Type) -> Type:
        """[b, h, m, e] in the operands' dtype."""
        q, k, v, *mask = (tensor(t, self.name) for t in types)
        what = f"attention of {', '.join(str(t) for t in types)}"
        floats = [t for t in mask if not t.dtype.is_bool]
        if any(t.rank != 4 for t in (q, k, v)) or len({t.dtype for t in (q, k, v, *floats)}) != 1:
            raise IRError(f"{what}: ranks or dtypes differ")
        if len(mask) > 2 or (len(mask) == 2 and (len(floats) != 1 or floats[0] is not mask[0])):
            raise IRError(f"{what}: a mask of floats, then one of bools")
        same = q.shape[0] == k.shape[0] == v.shape[0] and q.shape[3] == k.shape[3]
        if not same or k.shape[1:3] != v.shape[1:3] or not q.dtype.is_float:
            raise IRError(f"{what}: extents do not fit")
        self._share(q.shape[1], k.shape[1])
        for each in mask:
            want = (*q.shape[:3], k.shape[2])
            pairs = zip(reversed(each.shape), reversed(want), strict=False)
            if each.rank > 4 or any(a not in (1, b) for a, b in pairs):
                raise IRError(f"{what}: the mask does not broadcast to the scores")
        return TensorType(q.dtype, (*q.shape[:3], v.shape[3]))

    def _share(self, heads: Dim, key_heads: Dim) -> int:
        """How many query heads use one key head."""
        if heads == key_heads:
            return 1
        if not (isinstance(heads, int) and isinstance(key_heads, int)) or heads % key_heads:
            raise IRError(f"{heads} query heads do not share {key_heads} key heads evenly")
        return heads // key_heads

    def reference(self, *arrays: Array) -> Array:
        """The definition, in f32 for narrower floats."""
        dtype = arrays[0].dtype
        q, k, v = (a.astype(accumulator(dtype_of(dtype)).numpy) for a in arrays[:3])
        share = self._share(q.shape[1], k.shape[1])
        k, v = np.repeat(k, share, axis=1), np.repeat(v, share, axis=1)
        with np.errstate(all="ignore"):
            scores = np.matmul(q, np.swapaxes(k, 2, 3)) * np.asarray(self.scale, q.dtype)
            for mask in arrays[3:]:
                if mask.dtype == np.bool_:
                    scores = np.where(mask, scores, np.asarray(self.hidden, scores.dtype))
                else:
                    scores = scores + mask.astype(scores.dtype)
            if self.causal:
                m, n = scores.shape[2:]
                hidden = np.arange(n)[None, :] > np.arange(m)[:, None] + n - m
                scores = np.where(hidden, -np.inf, scores)
            raised = np.exp(scores - np.max(scores, axis=3, keepdims=True, initial=-np.inf))
            weights = raised / np.sum(raised, axis=3, keepdims=True)
            return np.matmul(weights, v).astype(dtype)

    def lower(self, args: tuple[Param, ...], results: tuple[Param, ...]) -> Kernel:
        """Per query a softmax fold over keys; per element a sum that recomputes the scores."""
        (result,) = results
        q, k, v, *_ = (Operand(p) for p in args)
        wide = accumulator(q.dtype)
        index = tuple(symbol(name) for name in ("b", "h", "m"))
        head = index[1] // self._share(q.shape[1], k.shape[1])
        first, score = self._score(args, index, head, "s")
        again, weight = self._score(args, index, head, "u")
        keys, top, total = k.shape[2], Name("top", wide), Name("total", wide)
        state = Fold(("top", "total"), "softmax", (Axis("sn", keys),), (score,), (first,))
        value = cast(wide, v(index[0], head, symbol("un"), symbol("e")))
        product = word.exp(weight - top) / total * value
        mix = Fold(("acc",), "sum", (Axis("un", keys),), (product,), (again,))
        store = Store(result.name, (*index, symbol("e")), cast(result.dtype, Name("acc", wide)))
        body = (state, Loop("e", v.shape[3], (mix, store)))
        return Kernel((*args, *results), nest(q.shape[:3], index, body))

    def _score(
        self, args: tuple[Param, ...], index: tuple[Dim, ...], head: Dim, prefix: str
    ) -> tuple[Fold, Scalar]:
        """The fold over d that gives q k', and the masked score of key `<prefix>n`."""
        q, k, _, *mask = (Operand(p) for p in args)
        wide = accumulator(q.dtype)
        n, d = symbol(f"{prefix}n"), symbol(f"{prefix}d")
        product = cast(wide, q(*index, d)) * cast(wide, k(index[0], head, n, d))
        fold = Fold((f"{prefix}dot",), "sum", (Axis(str(d), q.shape[3]),), (product,))
        score: Scalar = Name(f"{prefix}dot", wide) * literal(self.scale, wide)
        for each in mask:
            element = each(*broadcast_index(each.shape, (*index, n)))
            shown = each.dtype.is_bool
            score = (
                where(element, score, literal(self.hidden, wide))
                if shown
                else score + cast(wide, element)
            )
        if self.causal:
            last = index_value(index[2] + k.shape[2] - q.shape[2])
            score = where(index_value(n) <= last, score, lowest(wide))
        return fold, score
