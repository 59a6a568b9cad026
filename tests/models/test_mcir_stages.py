"""Programs of the small models at every stage: verified by the stage's rules, and read back from their text."""

from __future__ import annotations

from collections.abc import Iterator
from time import process_time

import pytest

from models.catalogue import SMALL, entry
from unistack_aot.lower import lower_graph
from unistack_aot.mcir.program import Program
from unistack_aot.mcir.program_parse import parse_program
from unistack_aot.mcir.stages.lowered import LOWERED
from unistack_aot.mcir.stages.prepared import PREPARED
from unistack_aot.mcir.stages.scheduled import SCHEDULED
from unistack_aot.mcir.stages.stage import Stage
from unistack_aot.mcir.text import program_text
from unistack_aot.mcir.verify_program import verify_program
from unistack_aot.onnx_in import import_model
from unistack_aot.rules import apply_rules
from unistack_aot.schedule.layouts import choose_layouts
from unistack_aot.schedule.prepare import prepare
from unistack_aot.targets.registry import split_name
from unistack_aot.targets.target import Request

QUICK = {"bert_small_dynamic", "generator_small_scan", "mobilenet_v3_small", "lstm_small_dynamic"}
NAMES = [e.name if e.name in QUICK else pytest.param(e.name, marks=pytest.mark.slow) for e in SMALL]
TARGETS = ("cpu:x86-64-v3", "emulator:sm_90")


def stages(name: str) -> Iterator[tuple[Stage, Program, dict[str, object]]]:
    found = entry(name)
    model = found.load()
    sizes = {key: (min(values), max(values)) for key, values in found.dims(model).items()}
    imported = import_model(model, sizes)
    graph, _ = apply_rules(imported.graph, imported.origins)
    naive, constants = lower_graph(graph, imported.origins)
    ranges = dict(imported.ranges.items())
    yield LOWERED, naive, ranges
    fused, _ = prepare(naive, constants)
    yield PREPARED, fused, ranges
    yield PREPARED, choose_layouts(fused, 16, ranges)[0], ranges
    for written in TARGETS:
        target, level = split_name(written)
        request = Request(written, str(level), "f32", ranges, verify=2)
        yield SCHEDULED, target.schedule(naive, constants, request).program, ranges


@pytest.mark.parametrize("name", NAMES)
def test_every_stage_is_sound_and_reads_back(name: str) -> None:
    for stage, program, ranges in stages(name):
        verify_program(program, stage, ranges)  # type: ignore[arg-type]
        start = process_time()
        text = program_text(program)
        assert process_time() - start < 1, "a program prints in less than a second"
        assert parse_program(text) == program
