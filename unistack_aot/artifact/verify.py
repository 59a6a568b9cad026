"""Consistency of a manifest: every number in range, every name known.

Not here: hashes and sizes of members (reader.py).
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import chain

from unistack_aot.artifact.manifest import (
    Copy,
    Fill,
    Golden,
    If,
    Launch,
    Loop,
    Manifest,
    Refuse,
    Step,
    Variant,
    walk,
)

_KINDS = ("input", "output", "constant", "arena")
_PARAM_KINDS = ("in", "out", "inout", "dim32", "dim64", "step32", "step64")


def faults(manifest: Manifest, members: Container[str]) -> tuple[str, ...]:
    """All contradictions in the manifest, as sentences; ``members`` are the package's names."""
    found = [_unique(manifest)]
    found += [_variant(manifest, variant, members) for variant in manifest.variants]
    found += [_golden(manifest, golden, members) for golden in manifest.golden]
    return tuple(chain.from_iterable(found))


def _unique(manifest: Manifest) -> Iterator[str]:
    for what, names in (
        ("input", [t.name for t in manifest.inputs]),
        ("output", [t.name for t in manifest.outputs]),
        ("dimension", [d.name for d in manifest.dims]),
        ("target", [v.target for v in manifest.variants]),
    ):
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield f"two {what}s are called {name!r}"
    for dim in manifest.dims:
        if not 0 <= dim.low <= dim.typical <= dim.high:
            yield f"dimension {dim.name!r} has the range {dim.low}..{dim.typical}..{dim.high}"


def _golden(manifest: Manifest, golden: Golden, members: Container[str]) -> Iterator[str]:
    if golden.member not in members:
        yield f"golden run {golden.name!r} needs the missing member {golden.member!r}"
    outputs = {tensor.name for tensor in manifest.outputs}
    for tolerance in golden.tolerances:
        if tolerance.output not in outputs:
            yield f"golden run {golden.name!r} has a tolerance for no output: {tolerance.output!r}"


def _variant(manifest: Manifest, variant: Variant, members: Container[str]) -> Iterator[str]:
    at = f"variant {variant.target}"
    for name in (variant.code, *variant.weights):
        if name not in members:
            yield f"{at} needs the missing member {name!r}"
    yield from (f"{at}: {fault}" for fault in _signature(manifest, variant))
    yield from (f"{at}: {fault}" for fault in _buffers(variant))
    yield from (f"{at}: {fault}" for fault in _kernels(manifest, variant))
    for step in walk(variant.steps):
        yield from (f"{at}: {fault}" for fault in _step(step, variant))


def _signature(manifest: Manifest, variant: Variant) -> Iterator[str]:
    for kind, tensors in (("input", manifest.inputs), ("output", manifest.outputs)):
        known = {tensor.name: tensor for tensor in tensors}
        # A view of an input or output is written as an alias, so keys are unique.
        keys = [b.key for b in variant.buffers if b.kind == kind]
        if sorted(keys) != sorted(known):
            yield f"its {kind} buffers are {sorted(keys)}, the signature has {sorted(known)}"
        for buffer in variant.buffers:
            tensor = known.get(buffer.key)
            if buffer.kind == kind and tensor is not None and buffer.dtype != tensor.dtype:
                yield f"{kind} {buffer.key!r} is {tensor.dtype}, its buffer {buffer.dtype}"


def _buffers(variant: Variant) -> Iterator[str]:
    count = len(variant.buffers)
    for number, buffer in enumerate(variant.buffers):
        at = f"buffer {number} ({buffer.name})"
        if buffer.kind not in _KINDS:
            yield f"{at} has the unknown kind {buffer.kind!r}"
        if buffer.first > buffer.last:
            yield f"{at} lives from step {buffer.first} to {buffer.last}"
        if buffer.alignment < 1 or buffer.alignment & (buffer.alignment - 1):
            yield f"{at} has alignment {buffer.alignment}, not a power of two"
        if buffer.kind == "constant" and not buffer.key:
            yield f"{at} is a constant without a key"
        base = buffer.alias_of
        if base is None:
            continue
        if base >= count or variant.buffers[base].alias_of is not None or base == number:
            yield f"{at} must be a view of a buffer that is not a view, not of {base}"
        elif buffer.kind != "arena":
            yield f"{at} is a view, so its kind must be arena, not {buffer.kind}"
    for measured in variant.measured:
        if measured.buffer >= count:
            yield f"measured dimension {measured.dim!r} is in the missing buffer {measured.buffer}"


def _kernels(manifest: Manifest, variant: Variant) -> Iterator[str]:
    dims = {dim.name for dim in manifest.dims}
    for kernel in variant.kernels:
        for param in kernel.params:
            if param.kind not in _PARAM_KINDS:
                yield f"kernel {kernel.symbol} has a parameter of unknown kind {param.kind!r}"
            elif param.kind in ("dim32", "dim64") and param.name not in dims:
                yield f"kernel {kernel.symbol} needs the unknown dimension {param.name!r}"
        told = sum(param.kind.startswith("step") for param in kernel.params)
        if told != bool(kernel.steps):
            yield f"kernel {kernel.symbol} runs in {kernel.steps or 'no'} steps and is told {told} numbers"


def _step(step: Step, variant: Variant) -> Iterator[str]:
    count = len(variant.buffers)
    for number in _used(step):
        if number >= count:
            yield f"a {type(step).__name__.lower()} step uses the missing buffer {number}"
    if isinstance(step, Loop):
        # Carried values move one after another, so none may overwrite what a later one reads.
        entering = {carried.entering for carried in step.carried}
        for carried in step.carried:
            if carried.leaving in entering and carried.leaving != carried.entering:
                yield f"a loop carries buffer {carried.leaving} out that is carried in elsewhere"
    if not isinstance(step, Launch):
        return
    if step.kernel >= len(variant.kernels):
        yield f"a launch names the missing kernel {step.kernel}"
        return
    kernel = variant.kernels[step.kernel]
    if len(step.buffers) != len(kernel.pointers):
        yield (
            f"a launch of {kernel.symbol} gives {len(step.buffers)} buffers "
            f"for {len(kernel.pointers)} pointers"
        )


def _used(step: Step) -> tuple[int, ...]:
    match step:
        case Launch():
            return step.buffers
        case If():
            return (step.condition,)
        case Copy():
            return (step.source, step.target)
        case Fill() | Refuse():
            return (step.buffer,)
        case Loop():
            scalars = (step.trips, step.condition, step.iteration, step.condition_out, step.count)
            used = [number for number in scalars if number is not None]
            for carried in step.carried:
                used += [carried.initial, carried.entering, carried.leaving, carried.final]
            for scanned in (*step.scan_inputs, *step.scan_outputs):
                used += [scanned.stacked, scanned.slice]
            return tuple(used)
