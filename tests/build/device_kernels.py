"""Kernels of the CUDA target for the tests: legalised, printed, run launch by launch on the emulator.

Not here: any test; the worker process (emulator_worker.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.build import emulator_worker
from unistack_aot.base.symbolic import evaluate, parse
from unistack_aot.hw.machine import machine_for_arch
from unistack_aot.mcir.canonical import closed
from unistack_aot.mcir.nodes import Access, Kernel
from unistack_aot.mcir.program import Buffer, Kind, Launch, Program
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
) -> Decided:
    """What a naive kernel becomes; `constants` are the parameters whose content is known."""
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
    done, kept, _ = legalize(program, known, {}, machine_for_arch(arch), precision)
    launches = tuple(done.launches())
    texts = tuple(
        kernel_text(f"{name}_{k}", each.kernel, {}, ()) for k, each in enumerate(launches)
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
            if param.kind == "dim32":
                arguments.append(np.int32(dims[param.name]))
            elif param.kind == "dim64":
                arguments.append(np.int64(dims[param.name]))
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
        answer = emulator_worker.process().launch(request)
        assert answer.error == "", f"{answer.error}: {answer.message}"
        counters.append(answer.counters)
        pointers = [p for p in described.params if not p.kind.startswith("dim")]
        for param, array in zip(pointers, answer.arrays, strict=True):
            if launch.kernel.param(param.name).access is not Access.IN:
                memory[places[param.name]] = written[places[param.name]] = array
    return written, counters
