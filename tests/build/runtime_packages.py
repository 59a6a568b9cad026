"""Hand-written programs for the runtime's tests: C++ text to a shared library, inside a package."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from unistack_aot.artifact import manifest as m
from unistack_aot.artifact.tensors import TensorFile
from unistack_aot.artifact.writer import write_package

CODE = "cpu/x86-64-v2.so"
WEIGHTS = "weights.safetensors"
GOLDEN = "golden.safetensors"
HEAD = """
#include <cstdint>
extern "C" int ua_abi(void) { return 1; }
"""


def compile_library(folder: Path, text: str) -> bytes:
    """The shared library of a C++ text, by g++."""
    source, library = folder / "code.cpp", folder / "code.so"
    source.write_text(text)
    command = ["g++", "-O1", "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    return library.read_bytes()


def launch_table(calls: Sequence[str]) -> str:
    """``ua_run`` over numbered calls; each may use ``b`` (buffers) and ``d`` (dims)."""
    cases = "\n".join(f"case {number}: {{ {call}; break; }}" for number, call in enumerate(calls))
    return f"""
extern "C" int ua_run(const int32_t* launches, int n, void* const* b, const int64_t* d, int t) {{
  for (int i = 0; i < n; ++i) switch (launches[i]) {{
    {cases}
    default: return 1;
  }}
  return 0;
}}
"""


def buffer(name: str, shape: Sequence[str], kind: str = "arena", **more: object) -> m.Buffer:
    """An f32 buffer (unless told otherwise) in C order; its key is its name."""
    dtype = str(more.pop("dtype", "f32"))
    size = {"f32": 4, "i64": 8, "bool": 1}[dtype]
    nbytes = " * ".join([str(size), *(f"({extent})" for extent in shape)])
    key = "" if kind == "arena" else name
    alignment = 4 if kind in ("input", "output") else 64
    made = m.Buffer(name, dtype, tuple(shape), nbytes, kind, key, alignment=alignment)  # type: ignore[arg-type]
    return replace(made, **more)  # type: ignore[arg-type]


def kernel(symbol: str, pointers: int, *origins: str) -> m.Kernel:
    """A kernel with that many pointers."""
    params = tuple(m.Param(f"p{number}", "inout") for number in range(pointers))
    return m.Kernel(symbol, params, origins=origins, far_bytes="12*n")


def package(
    path: Path,
    code: bytes,
    manifest: m.Manifest,
    weights: Mapping[str, np.ndarray] | None = None,
    golden: Mapping[str, np.ndarray] | None = None,
) -> Path:
    """Write the package; its signature follows from the buffers of its first variant."""
    contents: dict[str, bytes | TensorFile] = {v.code: code for v in manifest.variants}
    if weights is not None:
        contents[WEIGHTS] = TensorFile(weights)
    if golden is not None:
        contents[GOLDEN] = TensorFile(golden)
    return write_package(path, manifest, contents).path


def manifest_of(variant: m.Variant, *dims: m.Dim, **more: object) -> m.Manifest:
    """A manifest whose signature is that of the variant's input and output buffers."""
    inputs, outputs = (
        tuple(m.Tensor(b.key, b.dtype, b.shape) for b in variant.buffers if b.kind == kind)
        for kind in ("input", "output")
    )
    made = m.Manifest("tests", "hand", inputs, outputs, (variant,), dims)
    return replace(made, **more)  # type: ignore[arg-type]


def variant_of(
    buffers: Sequence[m.Buffer],
    kernels: Sequence[m.Kernel],
    steps: Sequence[m.Step],
    **more: object,
) -> m.Variant:
    """A variant for any x86-64 machine of the last fifteen years."""
    made = m.Variant("cpu:x86-64-v2", CODE, tuple(buffers), tuple(kernels), tuple(steps))
    return replace(made, **more)  # type: ignore[arg-type]
