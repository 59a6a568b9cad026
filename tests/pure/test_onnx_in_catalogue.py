"""Every small recipe of the catalogue: imported, evaluated, and compared with onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from models.catalogue import CATALOGUE, Entry
from tests.ops.single_node import expected
from unistack_aot.aicf.evaluate import evaluate_graph
from unistack_aot.onnx_in import coverage, import_model

# results whose extent depends on data: what the coverage report says instead
UNSUPPORTED = {
    "detector_small_suppress": "NonMaxSuppression(17) whose result's extent depends on data",
    "generator_small_loop": "Loop(17) that stacks results of a number of iterations that depends "
    "on data",
}
LOOSE = {"bert_small_f16": 4e-3, "bert_small_int8": 4e-2}
SMALL = [entry for entry in CATALOGUE if entry.kind == "small"]


@pytest.mark.parametrize("entry", SMALL, ids=lambda entry: entry.name)
def test_import(entry: Entry) -> None:
    model = entry.load()
    if entry.name in UNSUPPORTED:
        assert [gap.what for gap in coverage(model)] == [UNSUPPORTED[entry.name]]
        return
    assert coverage(model) == []
    graph = import_model(model).graph
    for case in entry.cases:
        feeds = entry.feeds(case)
        ours = evaluate_graph(graph, feeds)
        for mine, theirs in zip(ours.values(), expected(model, feeds), strict=True):
            assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
            scale = float(np.max(np.abs(theirs.astype(np.float64)), initial=1e-6))
            worst = float(np.max(np.abs(mine.astype(np.float64) - theirs), initial=0))
            assert worst <= scale * LOOSE.get(entry.name, 1e-5), f"{case}: {worst} of {scale}"
