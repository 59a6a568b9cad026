"""NAME=FILE arguments and the arrays in those files; works without the compiler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from unistack_aot.artifact.manifest import Tensor
from unistack_aot.artifact.reader import Package
from unistack_aot.base.dtypes import parse_dtype
from unistack_aot.base.errors import BadInput
from unistack_aot.base.symbolic import evaluate, parse

Array: TypeAlias = "np.ndarray[Any, Any]"


def named_files(written: Sequence[str]) -> dict[str, Path]:
    """Files by input name; a file without a name gets the name ""."""
    found: dict[str, Path] = {}
    for each in written:
        name, equals, file = each.rpartition("=")
        if not equals:
            name, file = "", each
        if name in found:
            raise BadInput(f"input {name!r} is given twice", hint="give each --input once")
        found[name] = Path(file)
    return found


def read_feeds(given: Mapping[str, Path], inputs: tuple[Tensor, ...]) -> dict[str, Array]:
    """Arrays from .npy files by input name, or all from one .npz under the name "".

    BadInput names what cannot be read or is missing.
    """
    found: dict[str, Array] = {}
    for name, path in given.items():
        loaded = _loaded(path)
        if isinstance(loaded, np.ndarray):
            if not name and len(inputs) != 1:
                known = ", ".join(tensor.name for tensor in inputs)
                raise BadInput(
                    f"{path} does not say which input it is for",
                    hint=f"write NAME={path}; the inputs are {known}",
                )
            found[name or inputs[0].name] = loaded
        else:
            found.update(loaded)
    return found


def _loaded(path: Path) -> Array | dict[str, Array]:
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            return {name: loaded[name] for name in loaded.files}
    except FileNotFoundError:
        raise BadInput(f"there is no file {path}", hint="give a .npy or .npz file") from None
    except (OSError, ValueError, EOFError) as error:
        reason = str(error).split("\n", maxsplit=1)[0]
        raise BadInput(
            f"{path} cannot be read as numpy data: {reason}",
            hint="write it with numpy.save or numpy.savez, without Python objects",
        ) from None


def invented_feeds(package: Package, dims: Mapping[str, int], seed: int) -> dict[str, Array]:
    """Inputs for timing: a recorded run's if no sizes are given and there is one, else random ones.

    Random integers are 0 or 1, so that they index any table.
    """
    manifest = package.manifest
    if manifest.golden and not dims:
        golden = manifest.golden[-1]
        stored = package.tensors(golden.member)
        return {t.name: stored[f"{golden.name}/input/{t.name}"].array() for t in manifest.inputs}
    known = {dim.name: max(dim.typical, 1) for dim in manifest.dims}
    if unknown := sorted(dims.keys() - known.keys()):
        listed = ", ".join(known) or "all fixed"
        raise BadInput(
            f"the package has no dimension {unknown[0]!r}", hint=f"its dimensions are {listed}"
        )
    random = np.random.default_rng(seed)
    return {tensor.name: _random(tensor, {**known, **dims}, random) for tensor in manifest.inputs}


def _random(tensor: Tensor, dims: Mapping[str, int], random: np.random.Generator) -> Array:
    shape = tuple(evaluate(parse(size), dims) for size in tensor.shape)
    dtype = parse_dtype(tensor.dtype)
    if dtype.is_float:
        return random.standard_normal(shape).astype(dtype.numpy)
    return random.integers(0, 2, shape).astype(dtype.numpy)
