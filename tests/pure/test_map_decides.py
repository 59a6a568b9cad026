"""A changed map changes what is scheduled, and the record of the decision names the entry as the reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from models.catalogue import entry
from unistack_aot.hw import propmap
from unistack_aot.hw.catalogue import map_for_arch
from unistack_aot.hw.propmap import PropertyMap
from unistack_aot.lower import lower_graph
from unistack_aot.onnx_in import import_model
from unistack_aot.rules import apply_rules
from unistack_aot.schedule.decision import Decision
from unistack_aot.targets.cpu import target as cpu
from unistack_aot.targets.target import Request, Scheduled

LEVEL = "x86-64-v4"
MAPS = Path(__file__).parents[2] / "probe_suite" / "maps"
RECORDED = propmap.load(MAPS / f"amd-epyc-2-processors-{LEVEL}.json")
SLOW = 2.5e8  # B/s: a serial memory


def changed(**values: float) -> PropertyMap:
    """The recorded map with other values: "dram_bandwidth" for "dram.bandwidth"."""
    entries = dict(RECORDED.properties)
    for word, value in values.items():
        name = word.replace("_", ".")
        entries[name] = replace(entries[name], value=value)
    return replace(RECORDED, properties=MappingProxyType(entries))


def convolution(size: int, channels: int) -> onnx.ModelProto:
    """3x3, stride 1."""
    shape = (channels, channels, 3, 3)
    weight = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    image = [1, channels, size, size]
    return _model(helper.make_node("Conv", ["x", "w"], ["y"], "conv", pads=[1] * 4), image, weight)


def product(rows: int, depth: int, cols: int) -> onnx.ModelProto:
    """A product with constant weights."""
    weight = np.random.default_rng(1).standard_normal((depth, cols)).astype(np.float32)
    return _model(helper.make_node("MatMul", ["x", "w"], ["y"], "fc"), [rows, depth], weight)


def _model(node: onnx.NodeProto, shape: list[int], weight: np.ndarray) -> onnx.ModelProto:
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weight, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def scheduled(
    model: onnx.ModelProto, machine: PropertyMap, whole: bool = False, precision: str = "f32"
) -> Scheduled:
    """The model scheduled for a machine; `whole`: every way of each kernel is ranked."""
    imported = import_model(model)
    graph, _ = apply_rules(imported.graph, imported.origins, 1, dict(imported.ranges))
    program, constants = lower_graph(graph, imported.origins)
    ranges = dict(imported.ranges)
    request = Request(f"cpu:{LEVEL}", LEVEL, precision, ranges, map=machine, whole=whole)
    return cpu.schedule(program, constants, request)


def decided(
    model: onnx.ModelProto, kind: str, machine: PropertyMap, precision: str = "f32"
) -> Decision:
    """The one decision of a kind that scheduling the model for a machine takes."""
    (found,) = [
        d for d in scheduled(model, machine, precision=precision).decisions if d.kind == kind
    ]
    return found


def test_slow_memory_refuses_the_larger_weights_of_a_fast_convolution() -> None:
    model = convolution(14, 256)  # 2.4 MB of weights, 4.2 MB transformed for fewer products
    usual = decided(model, "algorithm", RECORDED)
    slow = decided(model, "algorithm", changed(dram_bandwidth=SLOW, dram_bandwidth_one=SLOW))
    assert usual.chosen == "F(2x2, 3x3)"
    assert " rows x " in slow.chosen
    assert "% less than F(2x2, 3x3)" in slow.because and "dram.bandwidth" in slow.because
    (loser,) = [tried for tried in slow.tried if tried.startswith("F(2x2, 3x3) +")]
    assert "(dram +" in loser  # the term that makes it lose
    assert "dram +" not in " ".join(usual.tried)


@pytest.mark.parametrize(
    "entry, size, shrinks", [("l2_capacity", 131072, "rows"), ("l1_capacity", 16384, "deep")]
)
def test_a_smaller_cache_shrinks_the_block_that_is_to_stay_in_it(
    entry: str, size: int, shrinks: str
) -> None:
    model = product(512, 2048, 1024)
    usual, less = (decided(model, "blocks", m) for m in (RECORDED, changed(**{entry: size})))

    def number(found: Decision) -> int:
        words = found.chosen.replace(",", "").split()
        places = [k for k, word in enumerate(words) if word == shrinks]
        return int(words[places[-1] - 1])

    assert number(less) < number(usual)
    level = entry.partition("_")[0].upper()
    assert f"{level} {size} B" in less.because and f"{level} {size} B" not in usual.because


@pytest.mark.parametrize("name", ["resnet_small", "bert_small", "lstm_small"])
def test_every_way_that_could_be_measured_has_a_place_of_its_own(name: str) -> None:
    """A search passes over ways without a place (tune/proposals.py)."""
    choices = scheduled(entry(name).load(), RECORDED, whole=True).choices
    assert choices
    for choice in choices:
        ways = dict(choice.ways)
        assert ways.keys() <= choice.places.keys(), choice.subject
        assert len({choice.places[way] for way in ways}) == len(ways), choice.subject
        assert len({len(place) for place in choice.places.values()}) == 1


@pytest.mark.parametrize(
    "lacking, chosen", [((), "amx.panel16"), (("matrix.bf16",), "fma.panel16")]
)
def test_without_amx_products_of_bf16_run_in_vectors(lacking: tuple[str, ...], chosen: str) -> None:
    """The processor with AMX has slower dot products than multiply-adds, so that these are next."""
    known = map_for_arch("x86-64-v4-amx").map
    capabilities = {k: v for k, v in known.capabilities.items() if k not in lacking}
    machine = replace(known, capabilities=MappingProxyType(capabilities))
    found = decided(product(512, 2048, 1024), "instruction", machine, "bf16")
    assert found.chosen == chosen
    assert ("amx.bf16 2.64e+13 FLOP/s" in found.because) == (not lacking)
    assert found.because.startswith("bf16 is asked for; fma.f32 1.43e+12 FLOP/s, dot.bf16 9.2e+11")
