"""Operands of samples: types from text and seeded arrays. Not here: the samples themselves."""

from __future__ import annotations

import re
import zlib
from dataclasses import replace

import numpy as np

from unistack_aot.aicf.op import Array
from unistack_aot.aicf.types import TensorType
from unistack_aot.base.dtypes import parse_dtype
from unistack_aot.base.errors import BadInput
from unistack_aot.base.symbolic import parse
from unistack_aot.ops.op import Sample

_TYPE = re.compile(r"(\w+)\[([^\]]*)\]")

_SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 65504.0, 1e-6)


def parse_type(notation: str) -> TensorType:
    """A tensor type from text such as "f32[N, 3]"."""
    found = _TYPE.fullmatch(notation.strip())
    if found is None:
        raise BadInput(f"{notation!r} is no tensor type", hint='write one as "f32[2, 3]"')
    dims = [part.strip() for part in found[2].split(",") if part.strip()]
    return TensorType(parse_dtype(found[1]), tuple(parse(d) for d in dims))


def as_sample(given: Sample | str) -> Sample:
    """A sample with one type per operand; text lists types separated by commas."""
    sample = given if isinstance(given, Sample) else Sample((given,))
    types = tuple(f"{name}[{dims}]" for arg in sample.args for name, dims in _TYPE.findall(arg))
    return replace(sample, args=types)


def sample_arrays(given: Sample, dims: dict[str, int], seed: int = 0) -> tuple[Array, ...]:
    """One array per operand of a sample, the same for the same seed."""
    arrays: list[Array] = []
    for k, notation in enumerate(given.args):
        kind = parse_type(notation)
        shape = tuple(d if isinstance(d, int) else _bound(d, dims) for d in kind.shape)
        default = "normal" if kind.dtype.is_float else "bool" if kind.dtype.is_bool else "small"
        fill = given.fill[k] if k < len(given.fill) else default
        rng = np.random.default_rng([seed, k, zlib.crc32(notation.encode())])
        arrays.append(_filled(fill, shape, kind, rng))
    return tuple(arrays)


def _bound(dim: object, dims: dict[str, int]) -> int:
    found = dims.get(str(dim))
    if found is None:
        raise BadInput(f"dimension {dim} has no value", hint="use plain symbols in samples")
    return found


def _filled(fill: str, shape: tuple[int, ...], kind: TensorType, rng: np.random.Generator) -> Array:
    dtype = kind.dtype.numpy
    signed = kind.dtype.is_signed
    match fill.split(":"):
        case ["normal"]:
            values = rng.standard_normal(shape)
        case ["positive"]:
            values = rng.uniform(0.1, 4.0, shape)
        case ["unit"]:
            values = rng.uniform(-0.99, 0.99, shape)
        case ["above_one"]:
            values = rng.uniform(1.0, 4.0, shape)
        case ["halves"]:
            values = np.resize(np.arange(-2.5, 3.0, 0.5), shape)
        case ["special"]:
            values = np.resize(np.asarray(_SPECIAL), shape)
        case ["index", bound]:
            values = rng.integers(-int(bound) if signed else 0, int(bound), shape)
        case ["bool"]:
            values = rng.integers(0, 2, shape)
        case ["small"]:
            values = rng.integers(-4 if signed else 0, 5, shape)
        case ["nonzero"]:
            values = rng.integers(1, 5, shape) * (rng.choice([-1, 1], shape) if signed else 1)
        case ["count"]:
            values = rng.integers(0, 4, shape)
        case ["full"]:
            values = rng.integers(
                int(kind.dtype.lowest), int(kind.dtype.highest), shape, endpoint=True
            )
        case ["zeros"]:
            values = np.zeros(shape)
        case ["one"]:
            values = np.ones(shape)
        case _:
            raise BadInput(f"there is no fill {fill!r}", hint="see ops/samples.py")
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(dtype)
