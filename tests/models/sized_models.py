"""Compiles a catalogue model for the sizes of each of its cases, and judges it; prints failures as JSON.

Not here: what is asserted (test_branches.py). A process has one driver, and the emulator's comes before pycuda.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from models.catalogue import Entry, entry
from models.summary import model_inputs
from unistack_aot.check.checker import check
from unistack_aot.emulator.load import activate
from unistack_aot.onnx_in.dims import axis_names
from unistack_aot.pipeline import compile_model


def failures(item: Entry, case: str, target: str) -> list[str]:
    """What is wrong with one case, in words."""
    model, feeds = item.load(), item.feeds(case)
    sizes = {
        name: size
        for value in model_inputs(model)
        for name, size in zip(axis_names(value), feeds[value.name].shape, strict=True)
        if name is not None
    }
    with TemporaryDirectory() as folder:
        package = Path(folder) / "model.pkg"
        compile_model(model, package, (target,), sizes)
        device = target.partition(":")[0]
        verdict = check(model, package, device, feeds=feeds, bisect=False)
    return [] if verdict.passed else [f"{item.name}, {case}: {verdict}"]


def main(arguments: list[str]) -> None:
    """Arguments: target, model, cases."""
    target, name, *cases = arguments
    if target.startswith("emulator"):
        activate().set_generation(int(target.rpartition("_")[2]))
    item = entry(name)
    print(json.dumps([each for case in cases for each in failures(item, case, target)]))


if __name__ == "__main__":
    main(sys.argv[1:])
