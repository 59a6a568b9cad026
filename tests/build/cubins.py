"""Catalogue models as cubins for the tests: built by nvcc, held against what their schedules claim.

`python -m tests.build.cubins` prints the table of docs/cuda.md. Not here: any test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from models.catalogue import entry
from unistack_aot.aicf.graph import Graph
from unistack_aot.base.dtypes import f32
from unistack_aot.lower.driver import lower_graph
from unistack_aot.onnx_in import import_model
from unistack_aot.rules import apply_rules
from unistack_aot.targets.cuda.build import GENERATIONS
from unistack_aot.targets.cuda.instructions import ATTENTION, INSTRUCTIONS
from unistack_aot.targets.cuda.sass import read_back
from unistack_aot.targets.cuda.target import CUDA
from unistack_aot.targets.target import Avoided, BuiltBadly, Request, Source
from unistack_aot.variants import MORE_BUILDS, signature_keys

NETWORKS = ("resnet_small", "unet_small_dynamic", "bert_small_dynamic", "llama_small", "lstm_small")
"""One of each kind: convolutions of fixed and symbolic sizes, an encoder, a decoder with a cache, a recurrence."""
PRECISIONS = (
    ("sm_75", "f16"),
    *((level, p) for p in ("tf32", "f16", "bf16") for level in ("sm_80", "sm_90", "sm_120")),
)
_KERNEL = re.compile(
    r'^extern "C" __global__ void __launch_bounds__\(\d+(?:, 1)?\) (\w+)\(.*?^UA_KERNEL',
    re.S | re.M,
)


@cache
def _imported(model: str) -> tuple[Graph, object, dict[str, tuple[int, int | None]]]:
    imported = import_model(entry(model).load())
    graph, _ = apply_rules(imported.graph, imported.origins)
    return graph, imported.origins, dict(imported.ranges)


def shipped(model: str, level: str, precision: str, top: int | None = None) -> tuple[Source, bytes]:
    """The text and machine code that a package would hold: scheduled again where a first choice spills.

    `top` is the largest size that open dimensions are declared to have.
    """
    graph, origins, found = _imported(model)
    ranges = {name: (low, high or top) for name, (low, high) in found.items()}
    program, constants = lower_graph(graph, origins)  # type: ignore[arg-type]
    dims = {name: k for k, name in enumerate(ranges)}
    avoid: tuple[Avoided, ...] = ()
    for _ in range(MORE_BUILDS + 1):
        request = Request(f"cuda:{level}", level, precision, ranges, avoid=avoid)
        scheduled = CUDA.schedule(program, constants, request)
        keys = signature_keys(graph, scheduled.program)
        source = CUDA.emit(scheduled.program, request, keys, dims)
        try:
            return source, CUDA.build(source, request, lambda *_: None)
        except BuiltBadly as spilling:
            avoid = (*avoid, *spilling.avoid)
    raise AssertionError(f"{MORE_BUILDS + 1} schedules of {model} spill: {avoid}")


def faults(model: str, level: str, precision: str = "f32") -> list[str]:
    """What is wrong with a model's machine code: kernels or instructions that are missing.

    What spills is refused by the build; local memory may also hold the large arguments of sine and cosine.
    """
    found, image = shipped(model, level, precision)
    ((_, text),) = found.files
    read = {each.symbol: each for each in read_back(image)}
    symbols = [kernel.symbol for kernel in found.kernels]
    if not set(symbols) <= set(read):
        return [f"kernels {sorted(read)}"]
    wrong: list[str] = []
    for symbol, body in kernel_bodies(text):
        for pattern, wanted in claims(body, found.ways.get(symbol, ""), level):
            if bool(re.search(pattern, read[symbol].sass)) != wanted:
                wrong.append(f"{symbol} ({found.ways.get(symbol)}): {pattern} is {not wanted}")
    return wrong


def kernel_bodies(text: str) -> Iterator[tuple[str, str]]:
    """Symbol and text of each kernel of a translation unit."""
    for each in _KERNEL.finditer(text):
        yield each[1], each[0]


def claims(body: str, way: str, level: str) -> Iterator[tuple[str, bool]]:
    """Patterns of instructions, and whether the kernel must hold them, from its text and its tile instruction."""
    matrix = way in INSTRUCTIONS and INSTRUCTIONS[way].engine == "mma"
    matrix |= way in ATTENTION and ATTENTION[way].kind != "fma"
    yield r"\bHMMA\b", matrix
    if way in INSTRUCTIONS:
        tile = INSTRUCTIONS[way]
        if matrix and tile.element is not f32:
            yield r"\bLDSM\b", True
        if tile.name.startswith("fma.f32"):
            yield r"\bFFMA2?\b", True
    if level != "sm_75" and re.search(r"\b(copy_tile|gather_\w+)_async", body):
        yield r"\bLDGSTS\b", True
    if (
        re.search(r"ua::load<4>\(&x|ua::load<8>\(&x", body)
        and "float" in body
        and way.startswith("loops")
    ):
        yield r"\bLDG\.E\.(\w+\.)*(128|64)\b", True
    if re.search(r"ua::Vector<float, 4> out\d+;", body):
        yield r"\bSTG\.E\.(\w+\.)*128\b", True


def row(level: str, precision: str) -> str:
    """The networks' kernels in numbers, as a line of a table."""
    found = [shipped(model, level, precision) for model in NETWORKS]
    kernels = [
        each
        for source, image in found
        for each in read_back(image)
        if each.symbol in {kernel.symbol for kernel in source.kernels}
    ]
    most = max(each.registers for each in kernels)
    holding = (
        sum(bool(re.search(pattern, each.sass)) for each in kernels)
        for pattern in (r"\bHMMA\b", r"\bLDGSTS\b", r"\b(?:LD|ST)\w*\.[\w.]*128\b")
    )
    numbers = (len(NETWORKS), len(kernels), most, *holding)
    return f"| {level} | {precision} | {' | '.join(map(str, numbers))} |"


if __name__ == "__main__":
    for asked in (*((level, "f32") for level in GENERATIONS), *PRECISIONS):
        print(row(*asked), flush=True)
