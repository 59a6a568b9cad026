"""Machine answers in capabilities and costs; roofline names the term and the map entries that
decided.
"""

from __future__ import annotations

import pytest

from unistack_aot.hw.catalogue import builtin_maps
from unistack_aot.hw.machine import Machine, machine_for_arch
from unistack_aot.hw.occupancy import resident_groups
from unistack_aot.hw.propmap import BadPropertyMap
from unistack_aot.hw.roofline import Counts, predict, waves

H100 = machine_for_arch("sm_90")
CPU = machine_for_arch("x86-64-v3")


@pytest.mark.parametrize("name", sorted(builtin_maps()))
def test_every_question_has_an_answer(name: str) -> None:
    machine = Machine(builtin_maps()[name])
    for level in ("far", "near"):
        assert machine.latency(level).unit == "s"
        assert machine.bandwidth(level).value >= machine.bandwidth(level, 1).value > 0
        assert machine.capacity(level).unit == "B"
    assert machine.latency("far").value > machine.latency("near").value
    assert machine.bandwidth("near").value > machine.bandwidth("far").value
    assert machine.capacity("reg").value > 0
    assert machine.rate("fma.outer", "f32").value > 1e10
    assert machine.launch_cost(graph=True).value <= machine.launch_cost().value
    assert machine.barrier_cost().value < machine.launch_cost().value
    assert machine.registers_per_thread >= 16
    assert machine.vector_bytes in (16, 32, 64)


def test_little_law_matches_the_published_arithmetic() -> None:
    # 3.24 TB/s x 700 cycles / 1.83 GHz over 132 multiprocessors: 9.4 KB each
    per_unit = H100.bytes_in_flight().value / H100.parallel_units
    assert per_unit == pytest.approx(9389, rel=1e-3)


def test_rate_falls_back_from_instruction_to_engine_but_never_invents_one() -> None:
    assert H100.rate("mma.m16n8k16", "bf16").name == "mma.bf16"
    assert H100.find_rate("amx", "bf16") is None
    with pytest.raises(BadPropertyMap, match="no rate of 'amx' on bf16"):
        H100.rate("amx", "bf16")


def test_capabilities_are_asked_by_name_and_levels() -> None:
    assert H100.can("async_copy")
    assert H100.can("async_copy", "far", "near")
    assert not H100.can("async_copy", "near", "far")
    assert not machine_for_arch("sm_75").can("async_copy")
    assert not machine_for_arch("sm_75").can("matrix.bf16")
    assert CPU.can("fma")
    assert not machine_for_arch("x86-64-v2").can("fma")


@pytest.mark.parametrize(
    ("stride", "width", "cycles"),
    # the 4-byte rows are what the wavefront counter of an H200 shows for these strides
    [
        (4, 4, 1),
        (8, 4, 2),
        (12, 4, 1),
        (16, 4, 4),
        (20, 4, 1),
        (32, 4, 8),
        (60, 4, 1),
        (128, 4, 32),
        (132, 4, 1),
        (0, 4, 1),
        (2, 2, 1),
        (8, 8, 2),
        (16, 16, 4),
        (32, 16, 8),
    ],
)
def test_bank_cost(stride: int, width: int, cycles: int) -> None:
    assert H100.bank_cost(stride, width).value == cycles


@pytest.mark.parametrize(
    ("stride", "width", "offset", "sectors"),
    [
        (4, 4, 0, 4),
        (4, 4, 4, 5),
        (8, 4, 0, 8),
        (32, 4, 0, 32),
        (16, 16, 0, 16),
        (0, 4, 0, 1),
        (2, 2, 0, 2),
    ],
)
def test_sector_cost(stride: int, width: int, offset: int, sectors: int) -> None:
    assert H100.sector_cost(stride, width, offset).value == sectors


def test_useful_share_of_strided_access() -> None:
    assert H100.useful_share(4, 4) == 1.0
    assert H100.useful_share(8, 4) == 0.5
    assert H100.useful_share(128, 4) == 0.125


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "groups", "limit"),
    [
        (256, 32, 0, 8, "units.registers"),
        (128, 255, 0, 2, "units.registers"),
        (1024, 32, 0, 2, "units.registers"),
        (128, 64, 100 * 1024, 2, "shared.capacity"),
        (32, 16, 0, 32, "units.groups"),
        (1024, 128, 0, 0, "units.registers"),
        (256, 32, 228 * 1024, 0, "shared.capacity"),
        (2048, 16, 0, 0, "group.threads"),
    ],
)
def test_occupancy(threads: int, registers: int, shared: int, groups: int, limit: str) -> None:
    found = resident_groups(H100, threads, registers, shared)
    assert (found.groups, found.limit) == (groups, limit)


def test_waves_split_work_into_full_rounds_and_a_rest() -> None:
    assert waves(264, 132) == ((1.0, 132),)
    assert waves(10, 132) == ((1.0, 10),)
    assert waves(133, 132) == ((pytest.approx(132 / 133), 132), (pytest.approx(1 / 133), 1))


def test_uneven_last_round_costs_a_compute_bound_kernel_a_whole_round() -> None:
    def seconds(groups: int) -> float:
        counts = Counts(bytes={}, flops={("fma", "f32"): 1e9 * groups}, groups=groups, threads=128)
        return predict(H100, counts).dominant.seconds

    assert seconds(133) == pytest.approx(2 * seconds(132))
    assert seconds(264) == pytest.approx(2 * seconds(132))


def test_streaming_kernel_is_bound_by_far_memory() -> None:
    counts = Counts(bytes={"far": 3e9}, groups=65536, threads=256, registers=32, bytes_in_flight=16)
    found = predict(H100, counts)
    assert found.dominant.name == "dram"
    assert found.entries == ("dram.bandwidth",)
    assert found.seconds == pytest.approx(3e9 / 3.24e12, rel=0.02)


def test_few_bytes_in_flight_make_it_latency_bound() -> None:
    few = Counts(bytes={"far": 3e9}, groups=65536, threads=256, registers=64, bytes_in_flight=4)
    found = predict(H100, few)
    assert found.dominant.name == "latency"
    assert found.seconds > 2 * 3e9 / 3.24e12


def test_matrix_kernel_is_bound_by_its_engine_at_the_reachable_share() -> None:
    counts = Counts(
        bytes={"far": 2e8}, flops={("wgmma.m64n128k16", "bf16"): 1e12}, groups=1320, threads=128
    )
    found = predict(H100, counts)
    assert found.dominant.name == "wgmma.m64n128k16.bf16"
    assert found.dominant.seconds == pytest.approx(1e12 / (989e12 * 0.803))


def test_tiny_kernel_is_bound_by_its_launch() -> None:
    found = predict(H100, Counts(bytes={"far": 1e4}, groups=4, threads=128))
    assert found.dominant.name == "launch"


def test_group_that_does_not_fit_takes_for_ever() -> None:
    found = predict(H100, Counts(bytes={"far": 1.0}, threads=128, shared_bytes=1 << 20))
    assert found.seconds == float("inf")
    assert "shared.capacity" in found.dominant.name


def test_one_core_gets_one_thread_bandwidth() -> None:
    one = predict(CPU, Counts(bytes={"far": 1e9}, groups=1))
    many = predict(CPU, Counts(bytes={"far": 1e9}, groups=64))
    assert one.seconds == pytest.approx(1e9 / 20e9, rel=0.01)
    assert many.seconds == pytest.approx(1e9 / 38e9, rel=0.01)
