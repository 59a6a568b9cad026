"""Arena bytes of real models, with and without results in the memory of dead operands; no compiler needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from models.catalogue import entry
from unistack_aot.artifact.manifest import Variant
from unistack_aot.lower import lower_graph
from unistack_aot.mcir.program import Program
from unistack_aot.mcir.stages.scheduled import SCHEDULED
from unistack_aot.mcir.verify_program import verify_program
from unistack_aot.onnx_in import import_model
from unistack_aot.rules import apply_rules
from unistack_aot.runtime.arena import ArenaPlan
from unistack_aot.runtime.layout import lay_out
from unistack_aot.schedule import prepare
from unistack_aot.schedule.lifetimes import export
from unistack_aot.targets.registry import split_name
from unistack_aot.targets.target import Request
from unistack_aot.variants import signature_keys

SMALL = ("bert_small_dynamic", "resnet_small_dynamic")
# Mobilenet and the U-Net are fullest where a convolution reads one layout and writes another size.
FULL = {
    "resnet50": (7_225_344, 5_276_160),
    "bert_base": (2_359_808, 1_966_592),
    "mobilenet_v2": (6_107_520, 6_107_520),
    "unet": (33_817_600, 33_817_600),
}


def arena(program: Program, keys: Mapping[str, str], dims: Mapping[str, int]) -> ArenaPlan:
    """The plan that the runtime makes."""
    found = export(program, dict(keys))
    variant = Variant("cpu", "", found.buffers, (), found.steps, (), ())
    return lay_out(variant, dims).arena


def plans(name: str, target: str, monkeypatch: pytest.MonkeyPatch) -> tuple[ArenaPlan, ArenaPlan]:
    """Without and with reuse."""
    item = entry(name)
    model = item.load()
    sizes = {key: (min(values), max(values)) for key, values in item.dims(model).items()}
    imported = import_model(model, sizes)
    graph, _ = apply_rules(imported.graph, imported.origins)
    naive, constants = lower_graph(graph, imported.origins)
    ranges: dict[str, Any] = dict(imported.ranges.items())
    family, level = split_name(target)
    request = Request(target, str(level), "f32", ranges)
    after = family.schedule(naive, constants, request).program
    with monkeypatch.context() as patch:
        patch.setattr(prepare, "reuse_memory", lambda program, _: (program, ()))
        before = family.schedule(naive, constants, request).program
    verify_program(after, SCHEDULED, ranges)
    dims = {key: high for key, (_, high) in sizes.items()}
    old, new = (arena(p, signature_keys(graph, p), dims) for p in (before, after))
    return old, new


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("target", ["cpu:x86-64-v3", "emulator:sm_90"])
def test_reuse_never_needs_more(name: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = plans(name, target, monkeypatch)
    assert new.lower_bound <= old.lower_bound
    assert new.lower_bound <= new.peak <= old.peak


@pytest.mark.slow
@pytest.mark.parametrize("name", FULL)
def test_peaks_of_real_models(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = plans(name, "cpu:x86-64-v3", monkeypatch)
    assert (old.peak, new.peak) == FULL[name]
    assert new.peak == new.lower_bound
