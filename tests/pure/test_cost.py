"""Predicted times follow the map for the stated reason: one entry changed, one term moves, one choice changes."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from unistack_aot.base.dtypes import f32
from unistack_aot.hw.machine import Machine, machine_for_arch
from unistack_aot.hw.roofline import Prediction
from unistack_aot.mcir.nodes import Kernel
from unistack_aot.mcir.parse import parse_kernel
from unistack_aot.mcir.program import Buffer, Kind, Launch, Program
from unistack_aot.schedule.attention import AttentionSite, find_attention
from unistack_aot.schedule.block_tiles import Sizes, predicted, stages_of
from unistack_aot.schedule.cost import (
    explained,
    holding,
    predict_kernel,
    predict_program,
    prediction_records,
    rank,
)
from unistack_aot.schedule.panel_blocks import Extents, choose_blocks
from unistack_aot.schedule.query_blocks import query_blocks
from unistack_aot.targets.cuda.instructions import INSTRUCTIONS

CPU, A100, H100 = (machine_for_arch(arch) for arch in ("x86-64-v3", "sm_80", "sm_90"))

SCALE = """
kernel scale(x: f32[N] far) -> y: f32[N] far {
  for i in N role=vector { y[i] = x[i] * 2.0 }
}
"""
ROWS = """
kernel rows(x: f32[64, 4096] far) -> y: f32[64] far {
  for i in 64 role=grid { s = fold sum over j in 4096 role=ROLE of x[i, j]  y[i] = s }
}
"""
STEPS = """
kernel steps(w: f32[256, 256] far) -> y: f32[101, 256] far {
  for t in 100 role=seq {
    for i in 4 role=ROLE, l in 64 role=vector {
      s = fold sum over k in 256 of w[k, 64*i + l] * y[t, k]
      y[t + 1, 64*i + l] = s
    }
  }
}
"""
VIEWS = "x[i, k], w[j//16, k, j%16]"
PRODUCT = """
kernel product(x: f32[192, 512] far, w: f32[16, 512, 16] far) -> y: f32[192, 256] far {
  for t in 4 role=grid {
    tile: f32[48, 256] reg = 0.0
    tile[i in 48*t ..+ 48, j in 0 ..+ 256] += contract(VIEWS) over k in 512 via fma.panel16 blocks(ROWS, 256, DEPTH)
    drain tile[i in 48*t ..+ 48, j in 0 ..+ 256] as v { y[i, j] = v }
  }
}
"""

HEADS = """
kernel heads(q: f32[4, 504, 64] far, k: f32[4, 512, 64] far, v: f32[4, 512, 64] far) -> y: f32[4, 504, 64] far {
  for h in 4 role=grid, m_block in 504//ROWS role=grid {
    attend m in ROWS*m_block ..+ ROWS over n in 512 via attention.f32 blocks(ROWS, KEYS) {
      dot: f32 = contract(q[h, m, d], k[h, n, d]) over d in 64
      score dot * 0.125
      out: f32 = mix(v[h, n, e]) for e in 64 { y[h, m, e] = out }
    }
  }
}
"""
WINDOWS = """
kernel windows(
    x: f32[1, 32, 9, 11] far block(1, 16), w: f32[32, 1, 3, 3] far block(0, 16)
) -> y: f32[1, 32, 7, 9] far block(1, 16) {
  for c in 2 role=grid, i in 7 role=grid, j in 9 role=ROLE, l in 16 role=vector {
    s = fold sum over m in 3, n in 3 of x[0, 16*c + l, i + m, j + n] * w[16*c + l, 0, m, n]
    y[0, 16*c + l, i, j] = s
  }
}
"""
MOMENTS = """
kernel moments(x: f32[64, 4096] far) -> y: f32[64] far, z: f32[64] far {
  for i in 64 role=grid {
    n, mean, m2 = fold moments over j in 4096 role=vector of x[i, j]
    y[i] = mean
    z[i] = m2
  }
}
"""
LOOPS_OF_HEADS = """
kernel heads(q: f32[H, M, 64] far, k: f32[H, N, 64] far, v: f32[H, N, 64] far) -> y: f32[H, M, 64] far {
  for h in H, m in M {
    top, total = fold softmax over n in N {
      dot = fold sum over d in 64 of q[h, m, d] * k[h, n, d]
      of dot
    }
    for e in 64 {
      out = fold sum over n2 in N {
        dot2 = fold sum over d2 in 64 of q[h, m, d2] * k[h, n2, d2]
        of exp(dot2 - top) / total * v[h, n2, e]
      }
      y[h, m, e] = out
    }
  }
}
"""


def with_entries(machine: Machine, **values: float) -> Machine:
    """The machine with other values; "dram_bandwidth" names the entry "dram.bandwidth"."""
    entries = dict(machine.map.properties)
    for word, value in values.items():
        name = word.replace("_", ".")
        entries[name] = replace(entries[name], value=value)
    return Machine(replace(machine.map, properties=MappingProxyType(entries)))


def without(machine: Machine, capability: str) -> Machine:
    """The machine without a capability."""
    kept = {k: v for k, v in machine.map.capabilities.items() if k != capability}
    return Machine(replace(machine.map, capabilities=MappingProxyType(kept)))


def seconds_of(prediction: Prediction, term: str) -> float:
    """Seconds of one term; 0 where it is absent."""
    return sum(t.seconds for t in prediction.terms if t.name == term)


def kernel(source: str, **words: object) -> Kernel:
    """A kernel with words of its text replaced."""
    for word, value in {"VIEWS": VIEWS, **words}.items():
        source = source.replace(word, str(value))
    return parse_kernel(source)


def test_bytes_take_the_time_of_the_level_that_holds_them() -> None:
    scale, dims = kernel(SCALE), {"N": 1 << 20}
    far = predict_kernel(scale, CPU, dims, units=1)
    near = predict_kernel(scale, CPU, dims, {"x": "l3", "y": "l3"}, units=1)
    moved = 3 * 4 * dims["N"]  # a load, and a store that reads its line first
    assert seconds_of(far, "dram") == pytest.approx(moved / CPU.bandwidth("far", 1).value)
    assert seconds_of(near, "dram") == 0
    assert seconds_of(near, "l3") == pytest.approx(moved / CPU.bandwidth("l3", 1).value)
    assert far.dominant.name == "dram" and far.entries == ("dram.bandwidth.one",)


def test_dimensions_are_bound() -> None:
    scale = kernel(SCALE)
    one, two = (predict_kernel(scale, CPU, {"N": n}, units=1) for n in (1 << 20, 1 << 21))
    assert seconds_of(two, "dram") == pytest.approx(2 * seconds_of(one, "dram"))


def test_faster_memory_shortens_its_own_term_alone() -> None:
    scale, dims = kernel(SCALE), {"N": 1 << 20}
    faster = with_entries(CPU, dram_bandwidth_one=1.5 * CPU.bandwidth("far", 1).value)
    before, after = (predict_kernel(scale, m, dims, units=1) for m in (CPU, faster))
    for term in before.terms:
        ratio = 1.5 if term.name == "dram" else 1
        assert term.seconds == pytest.approx(ratio * seconds_of(after, term.name))


def test_partial_states_break_the_chain_of_a_fold() -> None:
    wide = predict_kernel(kernel(ROWS, ROLE="vector"), CPU, units=1)
    narrow = predict_kernel(kernel(ROWS, ROLE="seq"), CPU, units=1)
    assert narrow.dominant.name == "chain"
    assert seconds_of(narrow, "chain") > 4 * seconds_of(wide, "chain")


def test_tasks_are_shared_in_whole_turns() -> None:
    product = kernel(PRODUCT, ROWS=48, DEPTH=0)
    times = {units: predict_kernel(product, CPU, units=units) for units in (1, 2, 3, 4)}
    work = {units: seconds_of(found, "multiply-add") for units, found in times.items()}
    assert work[1] == pytest.approx(2 * work[2]) == pytest.approx(4 * work[4])
    assert work[3] == work[2]  # four tasks take three cores two turns
    assert times[1].rounds == 4 and times[3].rounds == 2


def test_cores_that_share_every_step_meet_after_each() -> None:
    shared, alone = (
        predict_kernel(kernel(STEPS, ROLE=role), CPU, units=2) for role in ("grid", "seq")
    )
    assert seconds_of(shared, "barrier") == pytest.approx(100 * CPU.barrier_cost().value)
    assert seconds_of(shared, "instructions") == pytest.approx(
        seconds_of(alone, "instructions") / 2
    )
    assert seconds_of(alone, "barrier") == 0


def test_multiply_adds_run_at_the_measured_rate() -> None:
    found = predict_kernel(kernel(PRODUCT, ROWS=48, DEPTH=0), CPU, units=1)
    rate = CPU.rate("fma", "f32").value / CPU.parallel_units
    assert seconds_of(found, "multiply-add") == pytest.approx(2 * 192 * 512 * 256 / rate)
    assert found.dominant.name == "multiply-add"


def test_small_row_blocks_read_the_right_operand_again() -> None:
    whole, cut = (
        predict_kernel(kernel(PRODUCT, ROWS=rows, DEPTH=0), CPU, units=1) for rows in (48, 12)
    )
    assert cut.seconds > whole.seconds
    assert seconds_of(cut, "l2") > seconds_of(whole, "l2") or seconds_of(cut, "l3") > 0


def test_a_block_too_deep_for_the_first_cache_streams_beside_the_multiply_adds() -> None:
    deep, cut = kernel(PRODUCT, ROWS=48, DEPTH=0), kernel(PRODUCT, ROWS=48, DEPTH=128)
    small = with_entries(CPU, l1_capacity=16384)
    slow = with_entries(small, l2_bandwidth_one=2e9)
    hidden, shown = (predict_kernel(deep, machine, units=1) for machine in (small, slow))
    assert hidden.dominant.name == "multiply-add"
    assert shown.dominant.name == "l2" and seconds_of(shown, "multiply-add") == 0
    assert seconds_of(predict_kernel(cut, slow, units=1), "multiply-add") > 0
    # Where the second cache keeps up, a whole depth is no slower: it has no partial sums.
    assert hidden.seconds < predict_kernel(cut, small, units=1).seconds


def test_every_block_of_queries_packs_keys_and_values_anew() -> None:
    large, small = (predict_kernel(kernel(HEADS, ROWS=r, KEYS=512), CPU, units=1) for r in (84, 42))
    packed = 4 * 6 * 512 * (64 + 64) * 8 / CPU.bandwidth("l2", 1).value  # a read and a write each
    assert seconds_of(small, "packing") == pytest.approx(2 * seconds_of(large, "packing"))
    assert seconds_of(large, "packing") >= packed
    slow = with_entries(CPU, l2_bandwidth_one=CPU.bandwidth("l2", 1).value / 10)
    slowed = predict_kernel(kernel(HEADS, ROWS=84, KEYS=512), slow, units=1)
    assert seconds_of(slowed, "packing") == pytest.approx(10 * packed)
    assert seconds_of(slowed, "multiply-add") == seconds_of(large, "multiply-add")


def test_every_block_of_keys_reads_again_what_was_mixed() -> None:
    whole, cut = (predict_kernel(kernel(HEADS, ROWS=84, KEYS=k), CPU, units=1) for k in (512, 128))
    again = 4 * 504 * 64 * 3 * 3 * 4 / CPU.bandwidth("l2", 1).value
    assert seconds_of(cut, "l2") - seconds_of(whole, "l2") == pytest.approx(again)
    assert seconds_of(cut, "instructions") > seconds_of(whole, "instructions")


def test_scores_that_outgrow_the_first_cache_come_from_the_second() -> None:
    small = with_entries(CPU, l1_capacity=8192)  # of 6 rows x 512 keys x 4 bytes
    near, far = (predict_kernel(kernel(HEADS, ROWS=84, KEYS=512), m, units=1) for m in (CPU, small))
    scores = 4 * 504 * 512 * 7 * 4
    assert seconds_of(near, "l2") == 0
    assert seconds_of(far, "l2") > scores / CPU.bandwidth("l2", 1).value


def test_pixels_of_a_row_share_the_weights_of_their_windows() -> None:
    slow = with_entries(CPU, l1_bandwidth_one=CPU.bandwidth("l1", 1).value / 10)
    row, apart = (predict_kernel(kernel(WINDOWS, ROLE=r), slow, units=1) for r in ("seq", "map"))
    products, stored = 2 * 7 * 9 * 16 * 9, 2 * 7 * 9 * 16
    loads = products * 4 / slow.bandwidth("l1", 1).value  # of the image alone
    rest = stored * 4 / slow.bandwidth("l1", 1).value
    assert seconds_of(row, "l1") == pytest.approx(loads + rest, rel=0.01)
    assert seconds_of(apart, "l1") == pytest.approx(2 * loads + rest, rel=0.01)


def test_a_division_under_a_condition_waits_for_it() -> None:
    found = predict_kernel(kernel(MOMENTS), CPU, units=1)
    later = with_entries(CPU, clock=CPU.map.need("clock").value / 2)  # 4 cycles an operation
    slowed = predict_kernel(kernel(MOMENTS), later, units=1)
    assert found.dominant.name == "chain"
    # x - mean, its test, the division, the product and the sum, for every 16 of 4096 elements of 64 rows
    steps = 64 * 4096 / 16 * (1 + 1 + 1 + 4 + 1 + 1)
    assert seconds_of(found, "chain") == pytest.approx(
        steps * 4 / CPU.map.need("clock").value, rel=0.05
    )
    assert seconds_of(slowed, "chain") == pytest.approx(2 * seconds_of(found, "chain"), rel=0.05)


def blocks_of(machine: Machine, heads: int, rows: int, keys: int) -> tuple[int, int]:
    """The usual queries and keys at a time."""
    site = find_attention(kernel(LOOPS_OF_HEADS, H=heads, M=rows, N=keys))
    assert isinstance(site, AttentionSite)
    return query_blocks(site, machine, {})[0]


def test_queries_are_cut_for_cores_and_keys_for_the_first_cache() -> None:
    one, two, many = (with_entries(CPU, units_count=n) for n in (1, 2, 16))
    assert blocks_of(one, 1, 504, 500) == (504, 512)
    assert blocks_of(two, 1, 504, 500) == (252, 512)  # one head: half of it for each
    assert blocks_of(two, 12, 197, 197) == (197, 208)  # heads enough
    assert blocks_of(many, 2, 504, 500) == (63, 512)
    # 6 rows x 4 bytes x 512 keys need 12288 bytes; 1030 keys are cut evenly, in whole panels
    assert blocks_of(with_entries(two, l1_capacity=8192), 12, 197, 1030)[1] == 208
    assert blocks_of(two, 12, 197, 1030)[1] == 352


def test_rank_takes_the_fastest_and_keeps_the_losers() -> None:
    candidates = [(f"{rows} rows", rows) for rows in (6, 12, 48)]
    best, decision = rank(
        "blocks",
        "product",
        candidates,
        lambda rows: predict_kernel(kernel(PRODUCT, ROWS=rows, DEPTH=0), CPU, units=1),
        CPU,
    )
    assert best == 48 and decision.chosen == "48 rows"
    assert [tried.split(" us")[0].rsplit(" ", 1)[0] for tried in decision.tried] == [
        "12 rows",
        "6 rows",
    ]
    assert "multiply-add" in decision.because and f"map {CPU.id}: fma.f32" in decision.because


def test_a_smaller_cache_means_smaller_blocks() -> None:
    extents = Extents(rows=4096, cols=1024, depth=2048, batch=1, run=2048, taps=1, step=1)
    usual = choose_blocks(extents, CPU)
    less_near = choose_blocks(extents, with_entries(CPU, l1_capacity=16384))
    less_mid = choose_blocks(extents, with_entries(CPU, l2_capacity=262144))
    assert less_near.depth_block < usual.depth_block
    assert less_mid.row_block < usual.row_block and less_mid.depth_block == usual.depth_block


def test_without_asynchronous_copies_two_stages_do() -> None:
    tile = INSTRUCTIONS["fma.f32.128x128x16.8x8"]
    assert stages_of(tile, H100, 16384) == 3
    assert stages_of(tile, without(H100, "async_copy"), 16384) == 2


def test_a_cache_keeps_what_was_seen_to_stay() -> None:
    assert holding(CPU, 20e6) == "l3"
    seen = replace(CPU.map.need("l3.capacity"), name="l3.capacity.seen", value=8e6)
    entries = {**CPU.map.properties, seen.name: seen}
    shared = Machine(replace(CPU.map, properties=MappingProxyType(entries)))
    assert holding(shared, 20e6) == "far" and holding(shared, 7e6) == "l3"


def two_launches(elements: int) -> Program:
    """y = 2 x, z = 2 y."""
    scale = kernel(SCALE.replace("N", str(elements)))
    shape = (elements,)
    buffers = (
        Buffer("x", f32, shape, Kind.INPUT),
        Buffer("y", f32, shape),
        Buffer("z", f32, shape, Kind.OUTPUT),
    )
    launches = (Launch(scale, ("x", "y")), Launch(scale, ("y", "z")))
    return Program("p", buffers, launches)


def test_a_result_is_read_from_the_cache_it_was_written_to() -> None:
    small, large = (predict_program(two_launches(n), CPU, {}, 1) for n in (1 << 12, 1 << 24))
    assert {t.name for found in small for t in found.terms}.isdisjoint({"dram", "l3"})
    assert all(found.dominant.name == "dram" for found in large)


def test_records_name_kernel_terms_and_entries() -> None:
    program = two_launches(1 << 24)
    times = predict_program(program, CPU, {}, 1)
    (record,) = prediction_records(program, times, CPU)
    assert record["kernel"] == "k0" and record["what"] == "predicted"
    assert str(record["chosen"]).endswith(" us")
    assert "dram" in record["because"] and "dram.bandwidth.one" in record["because"]
    assert explained(times[0], CPU).startswith(str(record["chosen"]))


def test_two_generations_take_different_tiles() -> None:
    sizes = Sizes(rows=128, cols=3072, depth=768, batch=1)
    tiles = [tile for name, tile in INSTRUCTIONS.items() if name.startswith("fma.f32.")]

    def best(machine: Machine) -> str:
        return min(tiles, key=lambda tile: (predicted(tile, 1, sizes, machine), tile.name)).name

    more_units = with_entries(A100, units_count=H100.parallel_units)
    assert best(A100) != best(H100)
    assert predicted(INSTRUCTIONS[best(H100)], 1, sizes, H100) < predicted(
        INSTRUCTIONS[best(A100)], 1, sizes, H100
    )
    assert best(more_units) != best(A100)  # the number of units alone changes what fills a wave


def test_wide_machines_go_by_the_roofline() -> None:
    source = """
    kernel scale(x: f32[1048576] far) -> y: f32[1048576] far {
      for b in 4096 role=grid, t in 256 role=group { y[256*b + t] = x[256*b + t] * 2.0 }
    }
    """
    scale = replace(parse_kernel(source), group=256)
    found = predict_kernel(scale, H100)
    assert seconds_of(found, "dram") == pytest.approx(
        8 * 1048576 / H100.bandwidth("far").value, rel=0.02
    )
    assert found.seconds > seconds_of(found, "launch") == H100.launch_cost().value
    # 4 bytes a thread leave memory waiting: Little's law, as in hardware maps
    assert seconds_of(found, "latency") > seconds_of(found, "dram")
