"""Any shape: reshapes, slices, concatenations and pads move elements as numpy does."""

from __future__ import annotations

from math import prod

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from unistack_aot.aicf.op import Array
from unistack_aot.aicf.types import TensorType
from unistack_aot.base.dtypes import i64
from unistack_aot.base.symbolic import Dim, evaluate, substitute, symbol
from unistack_aot.mcir.evaluate import evaluate_kernel
from unistack_aot.mcir.nodes import Access, Param
from unistack_aot.ops.op import TensorOp
from unistack_aot.ops.pad import Pad
from unistack_aot.ops.reindex import Reshape, regroup
from unistack_aot.ops.slices import Concat, Slice

EXTENT = st.integers(1, 4)
SHAPE = st.lists(EXTENT, min_size=1, max_size=4).map(tuple)


def kernel_value(op: TensorOp, *arrays: Array) -> Array:
    """What the op's naive kernel writes."""
    args = tuple(Param(f"x{k}", i64, a.shape) for k, a in enumerate(arrays))
    kind = op.infer(*(TensorType(i64, a.shape) for a in arrays))
    assert isinstance(kind, TensorType)
    kernel = op.lower(args, (Param("y", i64, kind.shape, Access.OUT),))
    return evaluate_kernel(kernel, {p.name: a for p, a in zip(args, arrays, strict=True)}, {})["y"]


def numbered(shape: tuple[int, ...]) -> Array:
    """0, 1, 2, ... in that shape."""
    return np.arange(prod(shape), dtype=np.int64).reshape(shape)


@st.composite
def factorings(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes of as many elements: the same small factors, grouped and ordered in two ways."""
    factors = draw(st.lists(st.sampled_from([1, 2, 3, 5]), min_size=1, max_size=5))
    shuffled = draw(st.permutations(factors))

    def grouped(parts: list[int]) -> tuple[int, ...]:
        cuts = sorted(draw(st.sets(st.integers(1, len(parts)), max_size=3)) | {len(parts)})
        return tuple(prod(parts[a:b]) for a, b in zip([0, *cuts], cuts, strict=False))

    return grouped(factors), grouped(list(shuffled))


@given(factorings())
def test_reshape(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    old, new = shapes
    x = numbered(old)
    np.testing.assert_array_equal(kernel_value(Reshape(new), x), x.reshape(new))


@given(factorings(), st.integers(1, 4), st.integers(1, 3))
def test_reshape_with_symbolic_extents_around(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], rows: int, columns: int
) -> None:
    """Symbolic leading and trailing axes keep their own index, whatever happens between them."""
    old, new = shapes
    n, m = symbol("N"), symbol("M")
    index = tuple(symbol(f"i{k}") for k in range(len(new) + 2))
    found = regroup((n, *new, m), (n, *old, m), index)
    assert found[0] is index[0]
    env = {"N": rows, "M": columns}
    source = numbered((rows, *old, columns))
    want = source.reshape((rows, *new, columns))
    for place in np.ndindex(*want.shape):
        here = {**env, **{f"i{k}": v for k, v in enumerate(place)}}
        assert source[tuple(evaluate(i, here) for i in found)] == want[place]


@st.composite
def slices(draw: st.DrawFn) -> tuple[tuple[int, ...], Slice]:
    shape = draw(SHAPE)
    starts, steps, sizes = [], [], []
    for extent in shape:
        start = draw(st.integers(0, extent - 1))
        step = draw(st.sampled_from([-2, -1, 1, 2]))
        room = (extent - 1 - start) // step if step > 0 else start // -step
        starts.append(start)
        steps.append(step)
        sizes.append(draw(st.integers(0, room + 1)))
    return shape, Slice(tuple(starts), tuple(steps), tuple(sizes))


@given(slices())
def test_slice(case: tuple[tuple[int, ...], Slice]) -> None:
    shape, op = case
    x = numbered(shape)
    parts = [s + np.arange(n) * k for s, k, n in zip(op.starts, op.steps, op.sizes, strict=True)]
    want = x[np.ix_(*parts)] if all(op.sizes) else np.zeros(static(op.sizes), np.int64)
    np.testing.assert_array_equal(op.reference(x), want)
    if all(op.sizes):
        np.testing.assert_array_equal(kernel_value(op, x), want)


def static(sizes: tuple[Dim, ...]) -> tuple[int, ...]:
    """Sizes as ints."""
    return tuple(evaluate(substitute(s, {}), {}) for s in sizes)


@given(SHAPE, st.lists(EXTENT, min_size=1, max_size=4), st.data())
def test_concat(shape: tuple[int, ...], extents: list[int], data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    arrays = [numbered((*shape[:axis], e, *shape[axis + 1 :])) + 100 * e for e in extents]
    want = np.concatenate(arrays, axis)
    np.testing.assert_array_equal(kernel_value(Concat(axis), *arrays), want)


@given(SHAPE, st.sampled_from(["constant", "reflect", "edge", "wrap"]), st.data())
def test_pad(shape: tuple[int, ...], mode: str, data: st.DataObject) -> None:
    most = [extent - 1 if mode == "reflect" else 5 for extent in shape]
    before = tuple(data.draw(st.integers(0, m)) for m in most)
    after = tuple(data.draw(st.integers(0, m)) for m in most)
    op, x = Pad(before, after, mode), numbered(shape)
    fill = (np.array(-7, np.int64),) if mode == "constant" else ()
    counts = list(zip(before, after, strict=True))
    options = {"constant_values": -7} if mode == "constant" else {}
    want = np.pad(x, counts, mode=mode, **options)  # type: ignore[call-overload]
    np.testing.assert_array_equal(op.reference(x, *fill), want)
    np.testing.assert_array_equal(kernel_value(op, x, *fill), want)
