"""Compiles a model for a target, runs it on saved inputs, and saves the outputs. Not here: what they should be."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from unistack_aot.emulator.load import activate
from unistack_aot.pipeline import compile_model
from unistack_aot.runtime.session import load


def main(arguments: list[str]) -> None:
    """Arguments: model, inputs (.npz), outputs (.npz) and target; a process has one driver."""
    model, inputs, outputs, target = arguments
    if target.startswith("emulator"):
        activate().set_generation(int(target.rpartition("_")[2]))
    package = Path(outputs).with_suffix(".pkg")
    compile_model(Path(model), package, (target,))
    with np.load(inputs) as feeds:
        found = load(package, target.partition(":")[0]).run(dict(feeds))
    np.savez(outputs, **found)  # type: ignore[arg-type]


if __name__ == "__main__":
    main(sys.argv[1:])
