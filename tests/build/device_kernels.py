"""Kernels of the CUDA target for the tests: legalised, verified, printed, run launch by launch on the emulator.

Not here: any test; the worker process (emulator_worker.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from tests.build import emulator_worker
from unistack_aot.artifact import manifest
from unistack_aot.base.symbolic import Ranges, evaluate, parse
from unistack_aot.hw.machine import machine_for_arch
from unistack_aot.mcir.canonical import closed
from unistack_aot.mcir.nodes import Access, Kernel
from unistack_aot.mcir.program import Buffer, Kind, Launch, Program
from unistack_aot.mcir.stages.scheduled import SCHEDULED
from unistack_aot.mcir.verify import verify_kernel
from unistack_aot.targets.cuda.legalize import legalize
from unistack_aot.targets.cuda.source import KernelText, kernel_text, unit

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Decided:
    """A kernel as the launches it became on one generation, printed; constants by buffer name."""

    launches: tuple[Launch, ...]
    texts: tuple[KernelText, ...]
    constants: Mapping[str, Array]


def decide(
    kernel: Kernel,
    name: str,
    arch: str = "sm_80",
    precision: str = "f32",
    constants: Mapping[str, Array] | None = None,
    ranges: Ranges | None = None,
) -> Decided:
    """What a naive kernel becomes; `constants` are the parameters whose content is known, `ranges` of dimensions."""
    known = dict(constants or {})
    buffers = tuple(
        Buffer(
            p.name,
            p.dtype,
            p.shape,
            Kind.CONSTANT if p.name in known else Kind.ARENA,
            constant=p.name if p.name in known else None,
        )
        for p in kernel.params
    )
    launch = closed(kernel, Launch(kernel, ()))
    program = Program("test", buffers, (launch,))
    legal = legalize(program, known, ranges or {}, machine_for_arch(arch), precision)
    done, kept = legal.program, legal.constants
    launches = tuple(done.launches())
    for each in launches:
        verify_kernel(each.kernel, SCHEDULED)
    texts = tuple(
        kernel_text(f"{name}_{k}", each.kernel, ranges or {}, ()) for k, each in enumerate(launches)
    )
    named = {b.name: kept[b.constant] for b in done.buffers if b.constant is not None}
    return Decided(launches, texts, named)


def image_text(cases: Mapping[str, Decided]) -> str:
    """One translation unit with the kernels of all cases."""
    return unit(tuple(text for case in cases.values() for text in case.texts))


def run_case(
    text: str,
    case: Decided,
    arrays: Mapping[str, Array],
    dims: Mapping[str, int],
    checked: bool = True,
    order: int = 0,
) -> tuple[dict[str, Array], list[Any]]:
    """Every launch in turn; the written arrays by name, and the counters of each launch."""
    memory = {**case.constants, **arrays}
    written: dict[str, Array] = {}
    counters: list[Any] = []
    for launch, printed in zip(case.launches, case.texts, strict=True):
        described = printed.described
        places = dict(zip((p.name for p in launch.kernel.params), launch.args, strict=True))
        arguments: list[Any] = []
        for param in described.params:
            if param.kind.startswith(("dim", "step")):
                kind = np.int32 if param.kind.endswith("32") else np.int64
                arguments.append(kind(dims.get(param.name, 0)))
            else:
                kind = launch.kernel.param(param.name)
                shape = tuple(evaluate(d, dims) for d in kind.shape)
                held = memory.get(places[param.name])
                if held is None:
                    held = np.zeros(shape, kind.dtype.numpy)
                filled = np.ascontiguousarray(held).reshape(shape)
                arguments.append(filled if filled.size else np.zeros(1, filled.dtype))
        grid = tuple(int(evaluate(parse(e), dims)) for e in described.grid)
        if not all(grid):
            continue
        settings = {"order": order, "count": int(checked), "tight_guard": int(not checked)}
        request = emulator_worker.Request(
            emulator_worker.image(text, checked),
            described.symbol,
            tuple(arguments),
            grid,  # type: ignore[arg-type]
            tuple(int(e) for e in described.block),  # type: ignore[arg-type]
            int(described.shared_bytes),
            settings,
        )
        arrays, counted = _stepped(request, described, dims)
        counters.append(counted)
        pointers = [p for p in described.params if p.kind in ("in", "out", "inout")]
        for param, array in zip(pointers, arrays, strict=True):
            if launch.kernel.param(param.name).access is not Access.IN:
                memory[places[param.name]] = written[places[param.name]] = array
    return written, counters


def _stepped(
    request: emulator_worker.Request, described: manifest.Kernel, dims: Mapping[str, int]
) -> tuple[tuple[Array, ...], Any]:
    """A launch, in as many runs as the kernel has steps: the arrays after the last, the counters of all."""
    steps = int(evaluate(parse(described.steps), dims)) if described.steps else 1
    places = [k for k, p in enumerate(described.params) if p.kind in ("in", "out", "inout")]
    told = [k for k, p in enumerate(described.params) if p.kind.startswith("step")]
    arguments, total = list(request.arguments), None
    for step in range(steps):
        for place in told:
            arguments[place] = type(arguments[place])(step)
        answer = emulator_worker.process().launch(replace(request, arguments=tuple(arguments)))
        assert answer.error == "", f"{answer.error}: {answer.message}"
        for place, array in zip(places, answer.arrays, strict=True):
            arguments[place] = array
        total = answer.counters if total is None else added(total, answer.counters)
    return tuple(arguments[place] for place in places), total


def added(one: Any, other: Any) -> Any:
    """The counters of two runs of a kernel together."""
    sums = {
        f.name: getattr(one, f.name) + getattr(other, f.name)
        for f in fields(one)
        if f.name not in ("kernel", "blocks", "threads_per_block", "shared_bytes")
    }
    return replace(one, **sums)
