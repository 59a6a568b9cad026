"""Each family of generated kernels: right values, coalesced accesses, no bank conflicts, bytes as counted by MCIR."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.build.device_kernels import Decided, decide, image_text, run_case
from unistack_aot.aicf.types import TensorType, TupleType
from unistack_aot.hw.machine import machine_for_arch
from unistack_aot.ir.scalar import Load
from unistack_aot.mcir.counts import count
from unistack_aot.mcir.evaluate import evaluate_kernel
from unistack_aot.mcir.nodes import Access, Param
from unistack_aot.mcir.parse import parse_kernel
from unistack_aot.mcir.requests import requests
from unistack_aot.mcir.transform import replace_loads
from unistack_aot.ops.attention import Attention
from unistack_aot.ops.contract import Contract
from unistack_aot.ops.convolve import Convolve
from unistack_aot.ops.fold import Reduce
from unistack_aot.ops.gather import Gather
from unistack_aot.ops.op import TensorOp
from unistack_aot.ops.pointwise import Add
from unistack_aot.ops.recurrent import Gru, Lstm, Recurrence, Rnn
from unistack_aot.ops.reindex import Transpose
from unistack_aot.ops.samples import parse_type
from unistack_aot.ops.scatter import ScatterElements
from unistack_aot.ops.softmax import Softmax
from unistack_aot.ops.window import sliding

Array = np.ndarray[Any, Any]
LANES = machine_for_arch("sm_80").lanes
PADDED = Convolve(sliding((3, 3), before=(1, 1), after=(1, 1)))


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
        assert_asked(case, counters)
        counted = count(case.launches[0].kernel)
        moved = (one.unique_read, one.unique_written)
        assert moved == (counted.read, counted.written), "bytes of far memory"
        return float(error), one
    return float(error), None


def assert_asked(case: Decided, counters: Sequence[Any]) -> None:
    """Every launch asked for just the bytes that MCIR says its workers ask for."""
    for launch, one in zip(case.launches, counters, strict=True):
        asked = requests(launch.kernel, {}, LANES)
        assert asked.exact
        assert (one.read.bytes, one.store.bytes) == (asked.read, asked.written), "bytes asked for"


def test_map_is_coalesced() -> None:
    error, counters = measured(Add(), "f32[64, 96]", "f32[64, 96]")
    assert error < 1e-6
    assert counters.load.efficiency == counters.store.efficiency == 1
    assert counters.load.bytes == 2 * 64 * 96 * 4 == 2 * counters.store.bytes
    # 16 bytes per thread: a warp asks for 512 bytes at once
    assert counters.store.requests == 64 * 96 * 4 // 512


@pytest.mark.parametrize(
    ("op", "types"),
    [
        (Add(), ("f32[63, 97]", "f32[63, 97]")),
        (Add(), ("f32[63, 97]", "f32[97]")),
        (Add(), ("f32[64, 128]", "f32[64, 1]")),
        (Softmax(1), ("f32[63, 250]",)),
        (Softmax(1), ("f32[3, 4001]",)),
        (Softmax(1), ("f32[300, 20]",)),
        (Reduce("sum", (0, 1), False), ("f32[41, 99]",)),
        (Transpose((0, 2, 1)), ("f32[2, 65, 97]",)),
        (Transpose((0, 2, 1)), ("f16[2, 65, 97]",)),
        (Transpose((0, 2, 1)), ("u8[2, 65, 97]",)),
        (Contract("bac", "bdc", "bad"), ("f32[2, 41, 30]", "f32[2, 47, 30]")),
        (PADDED, ("f32[2, 15, 13, 11]", "f32[33, 15, 3, 3]")),
        (PADDED, ("f16[1, 15, 13, 11]", "f16[33, 15, 3, 3]")),
        (Attention(0.17), ("f32[1, 2, 41, 30]", "f32[1, 2, 71, 30]", "f32[1, 2, 71, 30]")),
        (Attention(0.17), ("f16[1, 2, 41, 30]", "f16[1, 2, 71, 30]", "f16[1, 2, 71, 30]")),
    ],
    ids=lambda value: value.name if isinstance(value, TensorOp) else "",
)
def test_bytes_where_nothing_divides(op: TensorOp, types: tuple[str, ...]) -> None:
    """At edges, what lies outside is not asked for; `measured` compares with MCIR's count."""
    error, _ = measured(op, *types)
    assert error < 4e-3


def test_requests_that_data_decides_are_bounded() -> None:
    """A branch that data takes counts as taken: the count is at least what the emulator sees."""
    kernel = parse_kernel(
        """kernel k(c: f32[64] far, x: f32[64] far) -> y: f32[64] far {
          for i in 64 { y[i] = where(c[i] < 0.0, x[i], 0.0) }
        }"""
    )
    case = decide(kernel, "k")
    c, x = drawn("f32[64]", "f32[64]")
    found, (one,) = run_case(image_text({"k": case}), case, {"c": c, "x": x}, {})
    np.testing.assert_array_equal(found["y"], np.where(c < 0, x, 0))
    asked = requests(case.launches[0].kernel, {}, LANES)
    assert not asked.exact
    assert asked.read == 2 * x.nbytes
    assert one.read.bytes == x.nbytes + 4 * np.count_nonzero(c < 0) < asked.read
    assert one.store.bytes == asked.written == x.nbytes


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
        (("f16[71, 51]", "f16[51, 37]"), "f32", 2e-3),
        (("f32[64, 64]", "f32[64, 96]"), "tf32", 2e-3),
        (("f32[64, 64]", "f32[64, 96]"), "bf16", 2e-2),
        (("f32[71, 51]", "f32[51, 37]"), "bf16", 2e-2),
    ],
)
def test_product(types: tuple[str, str], precision: str, limit: float) -> None:
    op = Contract("ac", "cb", "ab")
    error, counters = measured(op, *types, precision=precision)
    assert error < limit
    assert counters.conflicts == 0, "bank conflicts"
    matrix_unit = precision != "f32" or types[0].startswith("f16")
    assert (counters.mma > 0) == matrix_unit
    if types[1].endswith("96]"):  # rows of whole sectors, of 16-bit results too
        assert counters.store.efficiency == 1


@pytest.mark.parametrize("depth", [4100, 1152])
def test_product_in_parts(depth: int) -> None:
    """Too few tiles for the machine: the depth is split, and a second kernel adds the parts, the last one shorter."""
    op, types = Contract("ac", "cb", "ab"), (f"f32[32, {depth}]", f"f32[{depth}, 64]")
    case = lowered(op, *types)
    assert len(case.launches) == 2
    a, b = drawn(*types)
    found, counters = run_case(image_text({"k": case}), case, {"a0": a, "a1": b}, {})
    assert_asked(case, counters)
    want = a.astype(np.float64) @ b
    assert np.max(np.abs(found["y0"] - want)) < 1e-6 * np.max(np.abs(want)) * 4


def test_product_with_rows_of_both_operands() -> None:
    """q k': depth is contiguous on both sides."""
    error, counters = measured(Contract("bac", "bdc", "bad"), "f32[2, 40, 32]", "f32[2, 48, 32]")
    assert error < 1e-6
    assert counters.shared_load.conflicts == 0


def test_convolution() -> None:
    error, counters = measured(PADDED, "f32[1, 16, 12, 12]", "f32[32, 16, 3, 3]")
    assert error < 1e-6
    assert counters.conflicts == 0
    assert counters.store.efficiency == 1


def test_recurrence_is_spread_over_rows_and_warps() -> None:
    """Rows over groups, units over warps, the sums of a unit over lanes: weights are read in whole sectors."""
    op = Lstm()
    types = ("f32[3, 5, 256]", "f32[256, 64]", "f32[5, 64]", "f32[5, 64]")
    kinds = tuple(parse_type(t) for t in types)
    args = tuple(Param(f"a{k}", t.dtype, t.shape) for k, t in enumerate(kinds))
    outs = tuple(Param(f"y{k}", args[0].dtype, (3, 5, 64), Access.OUT) for k in range(2))
    case = decide(op.lower(args, outs), "k")
    assert [text.described.grid[0] for text in case.texts] == ["5"]
    arrays = tuple(0.2 * a for a in drawn(*types))
    feeds = {f"a{k}": a for k, a in enumerate(arrays)}
    found, (counters,) = run_case(image_text({"k": case}), case, feeds, {})
    for name, want in zip(("y0", "y1"), op.reference(*arrays), strict=True):
        np.testing.assert_allclose(found[name], want, rtol=1e-4, atol=1e-6)
    assert_asked(case, [counters])
    # the gates' inputs and the states before are single elements
    assert counters.load.efficiency > 0.8


def results_of(op: Recurrence, kinds: Sequence[TensorType]) -> tuple[Param, ...]:
    """What a recurrence writes."""
    found = op.infer(*kinds)
    types = found.items if isinstance(found, TupleType) else (found,)
    return tuple(Param(f"y{k}", t.dtype, t.shape, Access.OUT) for k, t in enumerate(types))


def test_steps_of_two_parts_are_spread_over_rows() -> None:
    """Where launches cost more: a group per row, whose workers wait for each other between the parts."""
    op = Gru()
    types = ("f32[3, 5, 192]", "f32[192, 64]", "f32[5, 64]")
    kinds = tuple(parse_type(t) for t in types)
    args = tuple(Param(f"a{k}", t.dtype, t.shape) for k, t in enumerate(kinds))
    case = decide(op.lower(args, results_of(op, kinds)), "k")
    (described,) = (text.described for text in case.texts)
    assert (described.steps, described.grid[0]) == ("", "5")
    arrays = tuple(0.2 * a for a in drawn(*types))
    feeds = {f"a{k}": a for k, a in enumerate(arrays)}
    for order in (0, 1):
        found, counters = run_case(image_text({"k": case}), case, feeds, {}, order=order)
        for k, want in enumerate(op.reference(*arrays)):
            np.testing.assert_allclose(found[f"y{k}"], want, rtol=1e-4, atol=1e-6)
        assert_asked(case, counters)


@pytest.mark.parametrize(
    ("op", "types", "launches"),
    [
        (Lstm(), ("f32[3, 1, 512]", "f32[512, 128]", "f32[1, 128]", "f32[1, 128]"), 1),
        (
            Lstm(lengths=True),
            ("f32[4, 2, 512]", "f32[512, 128]", "f32[2, 128]", "f32[2, 128]", "i32[2]"),
            1,
        ),
        (
            Gru(reset_after=True),
            ("f32[3, 1, 480]", "f32[480, 160]", "f32[1, 160]", "f32[160]"),
            1,
        ),
        (Gru(), ("f32[3, 1, 768]", "f32[768, 256]", "f32[1, 256]"), 2),
        (Gru(lengths=True), ("f32[4, 3, 768]", "f32[768, 256]", "f32[3, 256]", "i32[3]"), 2),
        (Rnn(), ("f32[3, 1, 300]", "f32[300, 300]", "f32[1, 300]"), 1),
    ],
    ids=["lstm", "lengths", "gru", "reset before", "reset before, lengths", "rnn"],
)
def test_recurrence_of_few_rows_is_spread_over_units(
    op: Recurrence, types: tuple[str, ...], launches: int
) -> None:
    """A launch per step, or per part of a step, in which every unit of the machine takes some of the states."""
    kinds = tuple(parse_type(t) for t in types)
    args = tuple(Param(f"a{k}", t.dtype, t.shape) for k, t in enumerate(kinds))
    time, rows = kinds[0].shape[:2]
    units = kinds[1].shape[1]
    case = decide(op.lower(args, results_of(op, kinds)), "k")
    (described,) = (text.described for text in case.texts)
    assert described.steps == str(int(time) * launches)
    assert described.grid[0] == str(rows * units // 4)
    arrays = tuple(0.2 * a if a.dtype.kind == "f" else abs(a) % 4 for a in drawn(*types))
    feeds = {f"a{k}": a for k, a in enumerate(arrays)}
    wanted = op.reference(*arrays)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for order in (0, 1):
        found, counters = run_case(image_text({"k": case}), case, feeds, {}, order=order)
        for k, want in enumerate(wanted):
            np.testing.assert_allclose(found[f"y{k}"], want, rtol=1e-4, atol=1e-6)
    if not op.lengths:  # a row that has ended reads nothing: data decides
        assert_asked(case, counters)
    (launch,) = case.launches
    named = {f"a{k}": a for k, a in enumerate(arrays)}
    places = dict(zip((p.name for p in launch.kernel.params), launch.args, strict=True))
    fed = {p.name: named[places[p.name]] for p in launch.kernel.params if p.access is Access.IN}
    evaluated = evaluate_kernel(launch.kernel, fed, {})
    for name, array in evaluated.items():
        np.testing.assert_allclose(array, found[places[name]], rtol=1e-4, atol=1e-6)


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
    op = PADDED
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
    found, launched = run_case(image_text({"k": case}), case, {"a0": turned}, {})
    assert_asked(case, launched)
    counters = launched[0]
    want = np.asarray(op.reference(x.astype(np.float64), weights.astype(np.float64)))
    assert np.max(np.abs(found["y0"] - want)) / np.max(np.abs(want)) < limit
    assert re.search(r"gather_tile_async<Block::[AB]Tile, \d+, 16>", case.texts[0].definition)
    assert counters.shared_store.requests == counters.conflicts == 0
    counted = count(case.launches[0].kernel)
    assert (counters.unique_read, counters.unique_written) == (counted.read, counted.written)


@pytest.mark.parametrize(
    ("channels", "side", "pad"), [(128, 3, 1), (128, 3, 0), (16, 3, 1), (512, 1, 0)]
)
def test_channels_first_of_16_bits_are_turned_where_the_depth_is_long(
    channels: int, side: int, pad: int
) -> None:
    """Windows shift by two bytes: turned once, runs of channels go straight to near memory."""
    op = Convolve(sliding((side, side), before=(pad, pad), after=(pad, pad)))
    types = (f"f16[2, {channels}, 10, 10]", f"f16[64, {channels}, {side}, {side}]")
    kinds = tuple(parse_type(t) for t in types)
    args = tuple(Param(f"a{k}", t.dtype, t.shape) for k, t in enumerate(kinds))
    extent = 10 + 2 * pad - side + 1
    out = Param("y0", kinds[0].dtype, (2, 64, extent, extent), Access.OUT)
    x, weights = drawn(*types)
    case = decide(op.lower(args, (out,)), "k", constants={"a1": weights})
    found, counters = run_case(image_text({"k": case}), case, {"a0": x}, {})
    assert_asked(case, counters)
    want = np.asarray(op.reference(x.astype(np.float64), weights.astype(np.float64)))
    assert np.max(np.abs(found["y0"] - want)) / np.max(np.abs(want)) < 4e-3
    tiled = next(k for k, text in enumerate(case.texts) if text.way.startswith("mma.f16."))
    turned = tiled > 0
    if side == 1:  # a matrix as it is, or its images apart
        return
    assert turned == (channels == 128)
    asynchronous = r"gather_tile_async<Block::[AB]Tile, \d+, 16>"
    assert bool(re.search(asynchronous, case.texts[tiled].definition)) == turned
    assert (counters[tiled].shared_store.requests == 0) == turned


@pytest.mark.parametrize(
    ("real", "limit"), [("f32", 1e-5), ("f16", 4e-3)], ids=["exact", "matrix unit"]
)
def test_attention(real: str, limit: float) -> None:
    types = (f"{real}[1, 2, 40, 32]", f"{real}[1, 2, 72, 32]", f"{real}[1, 2, 72, 32]")
    error, counters = measured(Attention(0.17, causal=True), *types)
    assert error < limit
    assert counters.shared_load.conflicts == counters.shared_ldmatrix.conflicts == 0
    assert (counters.mma > 0) == (real == "f16")
    assert counters.store.efficiency == 1
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
