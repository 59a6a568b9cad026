"""One architecture as an ONNX file, by either of PyTorch's exporters. Not here: which there are."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch

from models.exported import RECIPES, Exported

OPSETS = {"traced": 17, "dynamo": 18}


def export(name: str, form: str, folder: Path) -> str:
    """Write NAME.FORM.onnx, and its inputs and PyTorch's output beside it; what came of it.

    `form` names the exporter; "-free" leaves the axes open that may vary.
    """
    torch.manual_seed(crc32(name.encode()))
    made = RECIPES[name]()
    made.module.eval()
    path = folder / f"{name}.{form}.onnx"
    exporter, _, free = form.partition("-")
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = made.module(*made.arguments.values())
            _write(made, path, exporter, bool(free))
    except Exception as error:  # the exporters' own, of many kinds
        path.unlink(missing_ok=True)
        return f"not exported: {type(error).__name__}: {' '.join(str(error).split())[:100]}"
    arrays = {key: value.numpy() for key, value in made.arguments.items()}
    np.savez(path.with_suffix(".npz"), **arrays, y=result.numpy())
    return f"{path.stat().st_size / 1e6:.1f} MB"


def _write(made: Exported, path: Path, exporter: str, free: bool) -> None:
    options: dict[str, Any] = {
        "input_names": list(made.arguments),
        "output_names": ["y"],
        "opset_version": OPSETS[exporter],
        "external_data": False,
        "verbose": False,
        "dynamo": exporter == "dynamo",
    }
    if free and exporter == "traced":
        options["dynamic_axes"] = {key: dict(axes) for key, axes in made.free.items()}
    elif free:
        options["dynamic_shapes"] = _dynamic(made)
    torch.onnx.export(made.module, tuple(made.arguments.values()), str(path), **options)


def _dynamic(made: Exported) -> object:
    """The open axes as the newer exporter takes them: by position; one dimension for each name."""
    names = {name for axes in made.free.values() for name in axes.values()}
    dims = {name: torch.export.Dim(name, min=1, max=16) for name in names}
    shapes = tuple(
        {axis: dims[name] for axis, name in made.free[key].items()} for key in made.arguments
    )
    formals = inspect.signature(made.module.forward).parameters.values()
    varies = any(formal.kind is formal.VAR_POSITIONAL for formal in formals)
    return (shapes,) if varies else shapes
