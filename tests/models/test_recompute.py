"""Maps that several kernels read are computed again where a machine's numbers say so, and far traffic never grows."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from models.catalogue import entry
from unistack_aot.base.symbolic import Ranges
from unistack_aot.base.verdict import No
from unistack_aot.hw.machine import Machine, machine_for_arch
from unistack_aot.lower import lower_graph
from unistack_aot.mcir.counts import count
from unistack_aot.mcir.parse import parse_kernel
from unistack_aot.mcir.program import Launch, Program
from unistack_aot.onnx_in import import_model
from unistack_aot.rules import apply_rules
from unistack_aot.schedule.kernel_facts import usual
from unistack_aot.schedule.operator import launch_of
from unistack_aot.schedule.prepare import prepare
from unistack_aot.schedule.recompute import RECOMPUTE, weigh

CPU, GPU = (machine_for_arch(arch) for arch in ("x86-64-v3", "sm_90"))
MODELS = {  # how often something is recomputed on cores and on a wide machine
    "bert_small": (0, 0),
    "vit_small": (0, 0),
    "mobilenet_v3_small": (0, 0),
    "detector_small": (1, 2),
    "llama_small": (1, 5),
}
SHIFT = """
kernel shift(x: f32[N, M] far) -> t: f32[N, M] far {
  for i in N, j in M { t[i, j] = VALUE }
}
"""
DOUBLE = """
kernel double(t: f32[N, M] far) -> u: f32[N, M] far {
  for i in N, j in M { u[i, j] = t[i, j] * 2.0 }
}
"""
ROWS = """
kernel rows(t: f32[N, M] far) -> y: f32[N] far {
  for i in N { s = fold max over j in M of t[i, j]  y[i] = s }
}
"""
DENSE = """
kernel dense(t: f32[N, M] far, w: f32[M, 64] far) -> y: f32[N, 64] far {
  for i in N, j in 64 { s = fold sum over k in M of t[i, k] * w[k, j]  y[i, j] = s }
}
"""
SIZES: Ranges = {"N": (4096, 4096), "M": (4096, 4096)}
CHEAP = "max(x[i, j] + 1.0, 0.0)"


def with_entries(machine: Machine, **factors: float) -> Machine:
    """The machine with entries multiplied; "dram_bandwidth" names the entry "dram.bandwidth"."""
    entries = dict(machine.map.properties)
    for word, factor in factors.items():
        name = word.replace("_", ".")
        entries[name] = replace(entries[name], value=factor * entries[name].value)
    return Machine(replace(machine.map, properties=MappingProxyType(entries)))


def launches(value: str, *readers: str) -> tuple[Launch, tuple[Launch, ...]]:
    producer = launch_of(parse_kernel(SHIFT.replace("VALUE", value)))
    return producer, tuple(launch_of(parse_kernel(text)) for text in readers)


def tried(
    value: str, *readers: str, machine: Machine = CPU, sizes: Ranges = SIZES
) -> tuple[Launch, ...] | No:
    producer, found = launches(value, *readers)
    return RECOMPUTE(producer, found, "t", machine, sizes)


def test_both_sides_are_counted() -> None:
    producer, readers = launches(CHEAP, DOUBLE, ROWS)
    balance = weigh(producer, readers, "t", CPU, SIZES)
    elements = 4096 * 4096
    assert balance.saved == 4 * elements * (2 + 2 - 1 - 1)  # x, t, t, t becomes x, x
    assert balance.repeated == 2 * elements  # add and max, once more
    assert balance.gain == balance.saved / CPU.bandwidth("far").value
    assert balance.price == balance.repeated / (CPU.rate("fma", "f32").value / 2)


@pytest.mark.parametrize("machine", [CPU, GPU], ids=["cores", "wide"])
def test_a_machine_with_slower_arithmetic_or_faster_memory_stores_it(machine: Machine) -> None:
    assert not isinstance(tried(CHEAP, DOUBLE, ROWS, machine=machine), No)
    for factors in ({"fma_f32": 1e-3}, {"dram_bandwidth": 1e3}):
        refusal = tried(CHEAP, DOUBLE, ROWS, machine=with_entries(machine, **factors))
        assert isinstance(refusal, No)
        assert "saves 134217728 far bytes" in str(refusal)
        assert "repeats 33554432 operations" in str(refusal)


def test_on_cores_a_small_result_costs_the_bandwidth_of_its_cache() -> None:
    slow = with_entries(CPU, l1_bandwidth_one=1e-3)
    small: Ranges = {"N": (8, 8), "M": (8, 8)}
    assert isinstance(tried("exp(x[i, j])", DOUBLE, ROWS, sizes=small), No)
    assert not isinstance(tried("exp(x[i, j])", DOUBLE, ROWS, sizes=small, machine=slow), No)


@pytest.mark.parametrize(
    ("value", "readers", "why"),
    [
        (CHEAP, (DOUBLE, DENSE), "a contraction would recompute it for every product"),
        ("x[j, i] + 1.0", (DOUBLE, ROWS), "its operands are not read along its rows"),
    ],
)
def test_it_is_refused_with_a_reason(value: str, readers: tuple[str, ...], why: str) -> None:
    free = with_entries(CPU, fma_f32=1e6)
    assert why in str(tried(value, *readers, machine=free))


def test_operands_that_weigh_more_than_the_result_are_loaded_once() -> None:
    wide = SHIFT.replace("x: f32", "x: f64").replace("VALUE", "f32(x[i, j] + 1.0)")
    producer = launch_of(parse_kernel(wide))
    readers = [launch_of(parse_kernel(text.replace("u", "z"))) for text in (ROWS,) * 4]
    found = RECOMPUTE(producer, readers, "t", with_entries(CPU, fma_f32=1e6), SIZES)
    assert str(found) == "the readers would load more than they save"


def moved(program: Program, ranges: Ranges) -> int:
    """Far bytes of all launches at usual sizes."""
    return sum(usual(count(launch.kernel).far_bytes, ranges) for launch in program.launches())


@pytest.mark.parametrize("name", MODELS)
def test_far_traffic_shrinks_by_what_the_records_say(name: str) -> None:
    found = entry(name)
    model = found.load()
    sizes = {key: (min(values), max(values)) for key, values in found.dims(model).items()}
    imported = import_model(model, sizes)
    graph, _ = apply_rules(imported.graph, imported.origins)
    naive, constants = lower_graph(graph, imported.origins)
    ranges = dict(imported.ranges.items())
    before, _ = prepare(naive, constants, ranges)
    for machine, times in zip((CPU, GPU), MODELS[name], strict=True):
        after, decisions = prepare(naive, constants, ranges, level=2, machine=machine)
        records = [each for each in decisions if each.kind == "recompute"]
        saved = [int(each.because.split()[1]) for each in records]
        assert len(records) == times and all(bytes_ > 0 for bytes_ in saved)
        assert moved(before, ranges) - moved(after, ranges) == sum(saved)
