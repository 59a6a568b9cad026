"""Whole programs evaluated by numpy, naive and scheduled for the host, against the graph: no compiler needed.

A failure names the first buffer whose content the schedule changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from models.catalogue import Entry, entry
from unistack_aot.aicf.bind import dims_of
from unistack_aot.aicf.evaluate import evaluate_graph
from unistack_aot.lower import lower_graph
from unistack_aot.mcir.program import Program
from unistack_aot.mcir.run import run_program
from unistack_aot.onnx_in import Imported, import_model
from unistack_aot.rules import apply_rules
from unistack_aot.targets.cpu import target as cpu
from unistack_aot.targets.target import Constants, Request
from unistack_aot.variants import signature_keys

Array = np.ndarray[Any, Any]
LEVEL = "x86-64-v3"
QUICK = (
    "resnet_small_dynamic",
    "bert_small_dynamic",
    "gpt2_small",
    "llama_small",
)
SLOW = (
    "unet_small_dynamic",
    "lstm_small_dynamic",
    "resnet_int8_small",
    "detector_small",
    "mobilenet_v3_small",
    "unet_small_linear",
    "speech_small_dynamic",
    "vit_small_dynamic",
    "bert_small_split",
    "bert_small_both",
    "bert_small_int8",
    "gpt2_small_trilu",
    "gru_small_dynamic",
    "generator_small_scan",
)
TOLERANCE = 1e-4


@dataclass
class Trace:
    """What launches wrote, by buffer; a second run is compared with the first."""

    first: dict[str, Array] = field(default_factory=dict[str, Array])
    differs: str = ""

    def keep(self, name: str, value: Array) -> None:
        """Note a buffer of the naive program."""
        self.first[name] = value

    def compare(self, name: str, value: Array) -> None:
        """Note the first buffer that is not what it was."""
        want = self.first.get(name)
        if want is None or want.shape != value.shape or self.differs:
            return
        if distance(value, want) > TOLERANCE:
            self.differs = f"{name}: off by {distance(value, want):.1e}"


def distance(got: Array, want: Array) -> float:
    """The largest difference, relative to the largest finite value; NaN equals NaN."""
    a, b = got.astype(np.float64), want.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return 0.0
    scale = np.max(np.abs(b), initial=0.0, where=np.isfinite(b)) + 1e-9
    worst = np.max(np.where(same, 0.0, np.abs(np.where(same, 0, a) - np.where(same, 0, b))))
    return float(np.nan_to_num(worst / scale, nan=np.inf))


def imported(item: Entry) -> Imported:
    """The import with the sizes of all cases as ranges."""
    model = item.load()
    sizes = {n: found if len(found) > 1 else found[0] for n, found in item.dims(model).items()}
    bounds = {n: (min(s), max(s)) if isinstance(s, tuple) else s for n, s in sizes.items()}
    return import_model(model, bounds)


def evaluated(
    program: Program,
    constants: Constants,
    keys: Mapping[str, str],
    feeds: Mapping[str, Array],
    dims: Mapping[str, int],
    seen: Any,
) -> dict[str, Array]:
    """The outputs of a program by the signature's names."""
    named = {buffer: feeds[key] for buffer, key in keys.items() if key in feeds}
    found = run_program(program, named, constants, dims, seen)
    return {keys[buffer]: value for buffer, value in found.items()}


def check(name: str) -> None:
    """Every case of a model: naive and scheduled programs against the graph's own evaluation."""
    item = entry(name)
    given = imported(item)
    graph, _ = apply_rules(given.graph, given.origins)
    naive, constants = lower_graph(graph, given.origins)
    request = Request(f"cpu:{LEVEL}", LEVEL, "f32", dict(given.ranges.items()), verify=2)
    scheduled = cpu.schedule(naive, constants, request)
    for case in item.cases:
        feeds = item.feeds(case)
        want = evaluate_graph(given.graph, feeds)
        dims = dims_of(given.graph, {key: array.shape for key, array in feeds.items()})
        trace = Trace()
        for program, held, seen in (
            (naive, constants, trace.keep),
            (scheduled.program, scheduled.constants, trace.compare),
        ):
            found = evaluated(program, held, signature_keys(graph, program), feeds, dims, seen)
            worst = {key: distance(found[key], want[key]) for key in want}
            assert max(worst.values()) < TOLERANCE, (case, program is naive, worst, trace.differs)


@pytest.mark.parametrize("name", QUICK)
def test_schedule_keeps_values(name: str) -> None:
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_schedule_keeps_values_of_more_models(name: str) -> None:
    check(name)
