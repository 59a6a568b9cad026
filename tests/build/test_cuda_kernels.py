"""Each family of generated kernels: right values, coalesced accesses, no bank conflicts, bytes as counted by MCIR."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.build.device_kernels import Decided, decide, image_text, run_case
from unistack_aot.ir.scalar import Load
from unistack_aot.mcir.counts import count
from unistack_aot.mcir.evaluate import evaluate_kernel
from unistack_aot.mcir.nodes import Access, Param
from unistack_aot.mcir.transform import replace_loads
from unistack_aot.ops.attention import Attention
from unistack_aot.ops.contract import Contract
from unistack_aot.ops.convolve import Convolve
from unistack_aot.ops.fold import Reduce
from unistack_aot.ops.gather import Gather
from unistack_aot.ops.op import TensorOp
from unistack_aot.ops.pointwise import Add
from unistack_aot.ops.recurrent import Lstm
from unistack_aot.ops.reindex import Transpose
from unistack_aot.ops.samples import parse_type
from unistack_aot.ops.scatter import ScatterElements
from unistack_aot.ops.softmax import Softmax
from unistack_aot.ops.window import sliding

Array = np.ndarray[Any, Any]


def lowered(op: TensorOp, *types: str, **how: Any) -> Decided:
    """What an op on types such as "f32[2, 3]" becomes."""
    kinds = tuple(parse_type(t) for t in types)
    args = tuple(Param(f"a{k}", t.dtype, t.shape) for k, t in enumerate(kinds))
    result = op.infer(*kinds)
    out = Param("y0", result.dtype, result.shape, Access.OUT)  # type: ignore[union-attr]
    return decide(op.lower(args, (out,)), "k", **how)


def drawn(*types: str) -> tuple[Array, ...]:
    """Seeded arrays of these types."""
    rng = np.random.default_rng(7)
    kinds = [parse_type(t) for t in types]
    return tuple(
        rng.standard_normal(tuple(int(d) for d in t.shape)).astype(t.dtype.numpy)  # type: ignore[arg-type]
        for t in kinds
    )


def measured(op: TensorOp, *types: str, checked: bool = True, **how: Any) -> tuple[float, Any]:
    """The worst error relative to the largest result, and the counters of the only launch."""
    case = lowered(op, *types, **how)
    arrays = drawn(*types)
    feeds = {f"a{k}": a for k, a in enumerate(arrays)}
    found, counters = run_case(image_text({"k": case}), case, feeds, {}, checked)
    wide = tuple(a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays)
    want = op.reference(*wide)
    assert isinstance(want, np.ndarray)
    error = np.max(np.abs(found["y0"].astype(np.float64) - want)) / np.max(np.abs(want))
    if checked:
        (one,) = counters
        counted = count(case.launches[0].kernel)
        moved = (one.unique_read, one.unique_written)
        assert moved == (counted.read, counted.written), "bytes of far memory"
        return float(error), one
    return float(error), None


def test_map_is_coalesced() -> None:
    error, counters = measured(Add(), "f32[64, 96]", "f32[64, 96]")
    assert error < 1e-6
    assert counters.load.efficiency == counters.store.efficiency == 1
    assert counters.load.bytes == 2 * 64 * 96 * 4 == 2 * counters.store.bytes
    # 16 bytes per thread: a warp asks for 512 bytes at once
    assert counters.store.requests == 64 * 96 * 4 // 512


@pytest.mark.parametrize(("rows", "length"), [(64, 256), (3, 4000)])
def test_softmax_rows_are_coalesced(rows: int, length: int) -> None:
    error, counters = measured(Softmax(1), f"f32[{rows}, {length}]")
    assert error < 1e-5
    assert counters.load.efficiency == counters.store.efficiency == 1
    assert counters.store.bytes == rows * length * 4
    assert counters.conflicts == 0


def test_gather_reads_the_rows_it_is_told() -> None:
    """Every row once: what the indices name is what MCIR counts."""
    op, types = Gather(0), ("f32[12, 64]", "i64[12]")
    case = lowered(op, *types)
    (x,) = drawn(types[0])
    index = np.random.default_rng(2).permutation(12)
    found, (counters,) = run_case(image_text({"k": case}), case, {"a0": x, "a1": index}, {})
    np.testing.assert_array_equal(found["y0"], x[index])
    counted = count(case.launches[0].kernel)
    moved = (counters.unique_read, counters.unique_written)
    assert moved == (counted.read, counted.written) == (12 * 64 * 4 + 12 * 8, 12 * 64 * 4)


def test_column_fold_is_coalesced() -> None:
    error, counters = measured(Reduce("sum", (0,), False), "f32[40, 1024]")
    assert error < 1e-5
    assert counters.load.efficiency == counters.store.efficiency == 1


def test_transpose_is_coalesced_both_ways() -> None:
    error, counters = measured(Transpose((0, 2, 1)), "f32[2, 64, 96]")
    assert error == 0
    assert counters.load.efficiency == counters.store.efficiency == 1
    assert counters.conflicts == 0
    assert counters.load.bytes == counters.store.bytes == 2 * 64 * 96 * 4


@pytest.mark.parametrize(
    ("types", "precision", "limit"),
    [
        (("f32[64, 64]", "f32[64, 96]"), "f32", 1e-6),
        (("f32[70, 50]", "f32[50, 36]"), "f32", 1e-6),
        (("f16[64, 64]", "f16[64, 96]"), "f32", 2e-3),
        (("f32[64, 64]", "f32[64, 96]"), "tf32", 2e-3),
        (("f32[64, 64]", "f32[64, 96]"), "bf16", 2e-2),
    ],
)
def test_product(types: tuple[str, str], precision: str, limit: float) -> None:
    op = Contract("ac", "cb", "ab")
    error, counters = measured(op, *types, precision=precision)
    assert error < limit
    assert counters.conflicts == 0, "bank conflicts"
    matrix_unit = precision != "f32" or types[0].startswith("f16")
    assert (counters.mma > 0) == matrix_unit
    assert counters.store.efficiency >= 0.5


@pytest.mark.parametrize("depth", [4100, 1152])
def test_product_in_parts(depth: int) -> None:
    """Too few tiles for the machine: the depth is split, and a second kernel adds the parts, the last one shorter."""
    op, types = Contract("ac", "cb", "ab"), (f"f32[32, {depth}]", f"f32[{depth}, 64]")
    case = lowered(op, *types)
    assert len(case.launches) == 2
    a, b = drawn(*types)
    found, _ = run_case(image_text({"k": case}), case, {"a0": a, "a1": b}, {})
    want = a.astype(np.float64) @ b
    assert np.max(np.abs(found["y0"] - want)) < 1e-6 * np.max(np.abs(want)) * 4


def test_product_with_rows_of_both_operands() -> None:
    """q k': depth is contiguous on both sides."""
    error, counters = measured(Contract("bac", "bdc", "bad"), "f32[2, 40, 32]", "f32[2, 48, 32]")
    assert error < 1e-6
    assert counters.shared_load.conflicts == 0


def test_convolution() -> None:
    op = Convolve(sliding((3, 3), (1, 1), (1, 1), (1, 1), (1, 1)))
    error, counters = measured(op, "f32[1, 16, 12, 12]", "f32[32, 16, 3, 3]")
    assert error < 1e-6
    assert counters.conflicts == 0
    assert counters.store.efficiency == 1


def test_recurrence_is_spread_over_rows_and_warps() -> None:
    """Rows over groups, units over warps, the sums of a unit over lanes: weights are read in whole sectors."""
    op = Lstm()
    types = ("f32[3, 5, 512]", "f32[512, 128]", "f32[5, 128]", "f32[5, 128]")
    kinds = tuple(parse_type(t) for t in types)
    args = tuple(Param(f"a{k}", t.dtype, t.shape) for k, t in enumerate(kinds))
    outs = tuple(Param(f"y{k}", args[0].dtype, (3, 5, 128), Access.OUT) for k in range(2))
    case = decide(op.lower(args, outs), "k")
    assert [text.described.grid[0] for text in case.texts] == ["5"]
    arrays = tuple(0.2 * a for a in drawn(*types))
    feeds = {f"a{k}": a for k, a in enumerate(arrays)}
    found, (counters,) = run_case(image_text({"k": case}), case, feeds, {})
    for name, want in zip(("y0", "y1"), op.reference(*arrays), strict=True):
        np.testing.assert_allclose(found[name], want, rtol=1e-4, atol=1e-6)
    # the gates' inputs and the states before are single elements
    assert counters.load.efficiency > 0.8


@pytest.mark.parametrize("combine", ["set", "add"])
def test_scatter_is_spread(combine: str) -> None:
    """Columns never meet, so they run side by side; of duplicates the last one counts, or all."""
    op = ScatterElements(0, combine)
    types = ("f32[6, 2048]", "i64[9, 2048]", "f32[9, 2048]")
    case = lowered(op, *types)
    assert all(text.described.grid != ("1", "1", "1") for text in case.texts)
    x, updates = drawn(types[0], types[2])
    index = np.random.default_rng(5).integers(0, 6, (9, 2048))
    feeds = {"a0": x, "a1": index, "a2": updates}
    found, _ = run_case(image_text({"k": case}), case, feeds, {})
    np.testing.assert_allclose(found["y0"], op.reference(x, index, updates), rtol=1e-5, atol=1e-6)


def test_the_last_of_many_updates_counts() -> None:
    """Single elements: all updates run side by side, and yet the last one of a place stays."""
    op, types = ScatterElements(0, "set"), ("f32[70]", "i64[3000]", "f32[3000]")
    case = lowered(op, *types)
    # the copy, then: places cleared, updates numbered, last updates written
    assert [text.described.grid[0] for text in case.texts] == ["1", "1", "12", "12"]
    x, updates = drawn(types[0], types[2])
    index = np.random.default_rng(6).integers(-70, 60, 3000)
    feeds = {"a0": x, "a1": index, "a2": updates}
    for order in (0, 1):
        found, _ = run_case(image_text({"k": case}), case, feeds, {}, order=order)
        np.testing.assert_array_equal(found["y0"], op.reference(x, index, updates))


@pytest.mark.parametrize(
    ("real", "precision", "limit"),
    [("f32", "f32", 1e-6), ("f16", "f32", 4e-3), ("f32", "tf32", 4e-3)],
)
def test_convolution_over_channels_last(real: str, precision: str, limit: float) -> None:
    """Runs of channels go straight to near memory, 16 bytes at a time, zeros where the window sticks out."""
    op = Convolve(sliding((3, 3), (1, 1), (1, 1), (1, 1), (1, 1)))
    types = (f"{real}[1, 32, 12, 12]", f"{real}[64, 32, 3, 3]")
    kinds = tuple(parse_type(t) for t in types)
    args = tuple(Param(f"a{k}", t.dtype, t.shape) for k, t in enumerate(kinds))
    out = Param("y0", kinds[0].dtype, (1, 64, 12, 12), Access.OUT)
    kernel = op.lower(args, (out,))

    def channels_last(load: Load) -> Load | None:
        n, c, h, w = load.index if load.buffer == "a0" else (0, 0, 0, 0)
        return Load("a0", (n, h, w, c), load.dtype) if load.buffer == "a0" else None

    x, weights = drawn(*types)
    params = (replace(args[0], shape=(1, 12, 12, 32)), args[1], out)
    kernel = replace(kernel, params=params, body=replace_loads(kernel.body, channels_last))
    case = decide(kernel, "k", precision=precision, constants={"a1": weights})
    turned = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    found, (counters, *_) = run_case(image_text({"k": case}), case, {"a0": turned}, {})
    want = np.asarray(op.reference(x.astype(np.float64), weights.astype(np.float64)))
    assert np.max(np.abs(found["y0"] - want)) / np.max(np.abs(want)) < limit
    assert re.search(r"gather_tile_async<Block::[AB]Tile, \d+, 16>", case.texts[0].definition)
    assert counters.shared_store.requests == counters.conflicts == 0
    counted = count(case.launches[0].kernel)
    assert (counters.unique_read, counters.unique_written) == (counted.read, counted.written)


@pytest.mark.parametrize(
    ("real", "limit"), [("f32", 1e-5), ("f16", 4e-3)], ids=["exact", "matrix unit"]
)
def test_attention(real: str, limit: float) -> None:
    types = (f"{real}[1, 2, 40, 32]", f"{real}[1, 2, 72, 32]", f"{real}[1, 2, 72, 32]")
    error, counters = measured(Attention(0.17, causal=True), *types)
    assert error < limit
    assert counters.shared_load.conflicts == counters.shared_ldmatrix.conflicts == 0
    assert (counters.mma > 0) == (real == "f16")
    # queries, keys and values once per block of queries; the scores never leave the unit
    assert counters.store.bytes == 2 * 40 * 32 * (2 if real == "f16" else 4)


@pytest.mark.parametrize(
    ("op", "types"),
    [
        (Softmax(1), ("f32[6, 70]",)),
        (Transpose((1, 0)), ("f32[40, 50]",)),
        (Contract("ac", "cb", "ab"), ("f32[40, 20]", "f32[20, 36]")),
        (Contract("ac", "cb", "ab"), ("f32[9, 4100]", "f32[4100, 10]")),
        (Attention(0.3), ("f32[1, 2, 20, 8]", "f32[1, 2, 24, 8]", "f32[1, 2, 24, 16]")),
    ],
    ids=["rows", "turned", "tiles", "parts", "attention"],
)
def test_schedule_keeps_values(op: TensorOp, types: tuple[str, ...]) -> None:
    """The scheduled kernel, evaluated as MCIR, computes what the op means."""
    case = lowered(op, *types)
    arrays = drawn(*types)
    memory = {f"a{k}": a for k, a in enumerate(arrays)}
    for launch in case.launches:
        named = {
            p.name: memory[arg]
            for p, arg in zip(launch.kernel.params, launch.args, strict=True)
            if p.access is not Access.OUT
        }
        found = evaluate_kernel(launch.kernel, named, {})
        places = dict(zip((p.name for p in launch.kernel.params), launch.args, strict=True))
        memory |= {places[name]: array for name, array in found.items()}
    want = np.asarray(op.reference(*arrays))
    np.testing.assert_allclose(memory["y0"], want, rtol=1e-5, atol=2e-6 * np.max(np.abs(want)))
