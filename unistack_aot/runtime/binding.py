"""Matching what a caller feeds against the signature: names, types, shapes, dimension values.

Not here: where the arrays go (cpu.py, cuda.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from unistack_aot.artifact.manifest import Demand, Manifest, Tensor
from unistack_aot.artifact.manifest import Dim as Range
from unistack_aot.base.dtypes import parse_dtype
from unistack_aot.base.errors import BadInput
from unistack_aot.base.symbolic import Dim, evaluate, linear_split, parse, symbols

Array: TypeAlias = "np.ndarray[Any, Any]"
_CPU_DEVICES = (1, 3)  # kDLCPU and kDLCUDAHost of dlpack.h


@dataclass(frozen=True, slots=True)
class Input:
    """One input of the signature, ready for matching."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[Dim, ...]
    written: str  # "f32[n, 3]", for messages


class Signature:
    """The inputs of a model; `collect` and `bind` turn feeds into arrays and dimension values."""

    def __init__(
        self,
        manifest: Manifest,
        from_device: Callable[[object, str], Array],
        more: tuple[Demand, ...] = (),
    ) -> None:
        """`more` are demands of the variant that runs, beside those of the model."""
        self.inputs = tuple(_input(tensor) for tensor in manifest.inputs)
        self.ranges = {dim.name: dim for dim in manifest.dims}
        self._names = frozenset(item.name for item in self.inputs)
        self.demands = tuple((parse(d.value), d) for d in (*manifest.demands, *more))
        self._from_device = from_device

    def collect(self, feeds: object) -> list[Array]:
        """The arrays in the order of the signature, types checked; shapes are `bind`'s work.

        Takes numpy arrays and objects with ``__dlpack__`` or ``__cuda_array_interface__``.
        """
        if not isinstance(feeds, Mapping):
            raise BadInput(
                f"feeds is a {type(feeds).__name__}, not a mapping", hint="give {name: array}"
            )
        if len(feeds) != len(self.inputs) or not self._names.issuperset(feeds):
            self._refuse_names(feeds)
        arrays: list[Array] = []
        for item in self.inputs:
            given = feeds[item.name]
            array = given if type(given) is np.ndarray else self._convert(item, given)
            if array.dtype != item.dtype:
                raise BadInput(
                    f"input {item.name!r} is {array.dtype}, the model takes {item.dtype}",
                    at=f"{item.name}: {item.written}",
                    hint=f"convert it: array.astype({item.dtype.name!r})",
                )
            arrays.append(array)
        return arrays

    def bind(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
        """The value of every dimension, from the shapes of the inputs in the signature's order."""
        dims: dict[str, int] = {}
        source: dict[str, str] = {}
        waiting: list[tuple[Input, int, Dim, int]] = []
        for item, shape in zip(self.inputs, shapes, strict=True):
            if len(shape) != len(item.shape):
                raise _wrong_shape(item, shape)
            for axis, (want, size) in enumerate(zip(item.shape, shape, strict=True)):
                self._bind_axis(item, axis, want, size, dims, source, waiting)
        for _ in waiting:  # each round may make another expression solvable
            for item, axis, want, size in waiting:
                _learn(item, axis, want, size, dims, source)
        for item, axis, want, size in waiting:
            _check_axis(item, axis, want, size, dims)
        for name, dim in self.ranges.items():
            if name not in dims:
                raise BadInput(
                    f"no input tells the value of dimension {name!r}",
                    hint="compile the model with a fixed value for it",
                )
            _check_range(dim, dims[name], source[name])
        for value, demand in self.demands:
            if evaluate(value, dims) < 0:
                bound = ", ".join(f"{name} = {dims[name]}" for name in sorted(symbols(value)))
                hint = demand.hint or "give arrays of other sizes"
                raise BadInput(f"{demand.sentence}; here {bound}", hint=hint)
        return {name: dims[name] for name in self.ranges}

    def _bind_axis(
        self,
        item: Input,
        axis: int,
        want: Dim,
        size: int,
        dims: dict[str, int],
        source: dict[str, str],
        waiting: list[tuple[Input, int, Dim, int]],
    ) -> None:
        where = f"axis {axis} of input {item.name!r}"
        if isinstance(want, int):
            if size != want:
                raise BadInput(
                    f"{where} has size {size}, the model takes {want}",
                    at=f"{item.name}: {item.written}",
                    hint="give an array of that shape, or compile with a symbolic dimension there",
                )
            return
        (name, *others) = symbols(want)
        if others or linear_split(want, name) != (1, 0):
            waiting.append((item, axis, want, size))
        elif dims.setdefault(name, size) != size:
            raise BadInput(
                f"dimension {name!r} is {dims[name]} in {source[name]} and {size} in {where}",
                hint="give arrays that agree",
            )
        else:
            source.setdefault(name, where)

    def _convert(self, item: Input, given: object) -> Array:
        if isinstance(given, np.ndarray | np.generic):
            return np.asarray(given)
        if hasattr(given, "__cuda_array_interface__"):
            return self._from_device(given, item.name)
        device = getattr(given, "__dlpack_device__", None)
        if device is not None and device()[0] not in _CPU_DEVICES:
            raise BadInput(
                f"input {item.name!r} lies on a device (DLPack type {device()[0]})",
                hint="copy it to the host first",
            )
        if device is not None:
            try:
                return np.from_dlpack(given)  # type: ignore[arg-type]
            except (BufferError, RuntimeError, TypeError) as error:
                raise BadInput(
                    f"input {item.name!r} cannot be read through DLPack ({error})",
                    hint="give a numpy array",
                ) from error
        raise BadInput(
            f"input {item.name!r} is a {type(given).__name__}, not an array",
            at=f"{item.name}: {item.written}",
            hint=f"give numpy.asarray(value, {item.dtype.name!r})",
        )

    def _refuse_names(self, feeds: Mapping[str, object]) -> None:
        known = ", ".join(f"{item.name}: {item.written}" for item in self.inputs) or "none"
        missing = [item.name for item in self.inputs if item.name not in feeds]
        unknown = [name for name in feeds if name not in self._names]
        words = [f"input {name!r} is missing" for name in missing]
        words += [f"there is no input {name!r}" for name in unknown]
        raise BadInput("; ".join(words), hint=f"the inputs are {known}")


def described(tensor: Tensor) -> str:
    """A tensor of the signature as people write it: "f32[n, 3]"."""
    return f"{tensor.dtype}[{', '.join(tensor.shape)}]"


def _input(tensor: Tensor) -> Input:
    shape = tuple(parse(size) for size in tensor.shape)
    return Input(tensor.name, parse_dtype(tensor.dtype).numpy, shape, described(tensor))


def _learn(
    item: Input, axis: int, want: Dim, size: int, dims: dict[str, int], source: dict[str, str]
) -> None:
    """Note the value of the one unknown dimension of an extent such as 4*rows or past + new."""
    unknown = symbols(want) - dims.keys()
    name = next(iter(unknown), "")
    parts = linear_split(want, name) if len(unknown) == 1 else None
    if parts is None:
        return
    factor, rest = evaluate(parts[0], dims), evaluate(parts[1], dims)
    if factor:
        dims[name] = (size - rest) // factor
        source[name] = f"axis {axis} of input {item.name!r}"


def _check_axis(item: Input, axis: int, want: Dim, size: int, dims: dict[str, int]) -> None:
    if symbols(want) - dims.keys() or evaluate(want, dims) == size:
        return
    where = f"axis {axis} of input {item.name!r} has size {size}"
    if len(names := symbols(want)) == 1:
        (name,) = names
        parts = linear_split(want, name)
        if parts is not None and parts[1] == 0 and isinstance(parts[0], int):
            raise BadInput(
                f"{where}, the model takes multiples of {parts[0]}",
                at=f"{item.name}: {item.written}",
                hint=f"pad it to {-(-size // parts[0]) * parts[0]}",
            )
    values = ", ".join(f"{name} = {dims[name]}" for name in sorted(symbols(want)))
    raise BadInput(
        f"{where}, the model takes {want} ({values})",
        at=f"{item.name}: {item.written}",
        hint="give arrays that agree",
    )


def _wrong_shape(item: Input, shape: tuple[int, ...]) -> BadInput:
    return BadInput(
        f"input {item.name!r} has shape {list(shape)}, "
        f"the model takes {len(item.shape)} dimensions",
        at=f"{item.name}: {item.written}",
        hint="reshape it",
    )


def _check_range(dim: Range, size: int, where: str) -> None:
    if not dim.low <= size <= dim.high:
        raise BadInput(
            f"dimension {dim.name!r} is {size} in {where}, "
            f"the package was compiled for {dim.low}..{dim.high}",
            hint=f"compile with --dim {dim.name}={min(dim.low, size)}..{max(dim.high, size)}",
        )
