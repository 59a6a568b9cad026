"""The CUDA text of a program: one kernel per distinct MCIR kernel, preceded by the monoids that they merge."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from unistack_aot.artifact import manifest
from unistack_aot.base.dtypes import DType
from unistack_aot.base.symbolic import Dim, Ranges, text
from unistack_aot.base.verdict import No
from unistack_aot.codegen.ctree import Block, CNode, Comment, Directive, Line, render
from unistack_aot.codegen.expr import Addresses, Printer, identifier, size_name
from unistack_aot.codegen.kernel import KernelWriter, dimensions
from unistack_aot.ir.scalar import Name
from unistack_aot.mcir.monoids import MONOIDS
from unistack_aot.mcir.nodes import Access, Attend, Contract, Kernel, Loop, Role
from unistack_aot.mcir.transform import walk
from unistack_aot.schedule.steps import launched_steps
from unistack_aot.targets.cuda.dialect import NARROW, WIDE
from unistack_aot.targets.cuda.indices import narrowed
from unistack_aot.targets.cuda.printer import DevicePrinter, grid_loops
from unistack_aot.targets.cuda.spills import LOOPS, LoopWay

KINDS: dict[Access, manifest.ParamKind] = {
    Access.IN: "in",
    Access.OUT: "out",
    Access.INOUT: "inout",
}


@dataclass(frozen=True, slots=True)
class KernelText:
    """One kernel as CUDA C++, what it needs besides, how it is launched; `narrow` are sizes that must fit 32 bits."""

    definition: str
    monoids: dict[str, tuple[str, tuple[DType, ...]]]
    described: manifest.Kernel
    way: str
    narrow: tuple[Dim, ...] = ()


def kernel_text(
    symbol: str,
    kernel: Kernel,
    ranges: Ranges,
    origins: tuple[str, ...],
    loops: LoopWay = LOOPS[0],
    roomy: bool = False,
) -> KernelText:
    """Print one kernel; `origins` of its launches are quoted in a comment.

    `roomy`: it may have all registers that a group can have, even if few groups are resident then.
    """
    asked = narrowed(kernel, ranges)
    narrow = not isinstance(asked, No)
    target = DevicePrinter(NARROW if narrow else WIDE, kernel)
    writer = KernelWriter(kernel, target, ranges)
    steps, inside = launched_steps(kernel)
    with ExitStack() as scopes:
        if steps is not None:
            scopes.enter_context(writer.scope(steps.var, steps.extent))
        body = writer.body(inside)
    way = way_of(kernel) or loops.name
    if way == loops.name and loops.rolled:
        body = _rolled(body)
    shared = target.shared_bytes
    if target.scratch:
        shared = scratch_bytes(target)
    if shared:
        body = (Line("UA_DYNAMIC_SHARED(shared);"), *body)
    names = dimensions(kernel)
    head = prototype(symbol, kernel, target, roomy)
    comments: tuple[CNode, ...] = tuple(Comment(_one_line(label)) for label in origins[:8])
    nodes = (*comments, Block(head, body), Line(f"UA_KERNEL({symbol})"))
    kind: manifest.ParamKind = "dim32" if narrow else "dim64"
    number: manifest.ParamKind = "step32" if narrow else "step64"
    params = (
        *(manifest.Param(p.name, KINDS[p.access]) for p in kernel.params),
        *(manifest.Param(name, kind) for name in names),
        *(() if steps is None else (manifest.Param(steps.var, number),)),
    )
    described = manifest.Kernel(
        symbol,
        params,
        grid=(text(grid_of(kernel)), "1", "1"),
        block=(str(kernel.group), "1", "1"),
        shared_bytes=str(shared),
        origins=origins,
        far_bytes=text(far_bytes(kernel)),
        steps="" if steps is None else text(steps.extent),
    )
    return KernelText(render(nodes), target.monoids, described, way, asked if narrow else ())


def way_of(kernel: Kernel) -> str:
    """The name of the tile instruction or attention block that realises a kernel; "" for plain loops."""
    for stmt in walk(kernel.body):
        match stmt:
            case Contract():
                return stmt.via
            case Attend():
                return stmt.via.rpartition(".")[0]
            case _:
                pass
    return ""


def _rolled(nodes: tuple[CNode, ...]) -> tuple[CNode, ...]:
    """The nodes with every loop kept as a loop."""
    result: list[CNode] = []
    for node in nodes:
        if isinstance(node, Block):
            if node.head.startswith("for (") and not (result and isinstance(result[-1], Directive)):
                result.append(Directive("UA_UNROLL_NOT"))
            node = Block(node.head, _rolled(node.body), node.tail)
        result.append(node)
    return tuple(result)


def prototype(symbol: str, kernel: Kernel, target: DevicePrinter, roomy: bool) -> str:
    """The head of a kernel's definition."""
    dialect = target.dialect
    pointers = [
        f"{'const ' if p.access is Access.IN else ''}{dialect.type(p.dtype)}* "
        f"{dialect.restrict} {identifier(p.name)}"
        for p in kernel.params
    ]
    sizes = [f"const {dialect.index_type} {size_name(name)}" for name in dimensions(kernel)]
    steps, _ = launched_steps(kernel)
    if steps is not None:
        sizes.append(f"const {dialect.index_type} {identifier(steps.var)}")
    bound = f"__launch_bounds__({kernel.group}{', 1' if roomy else ''})"
    return f'extern "C" __global__ void {bound} {symbol}({", ".join((*pointers, *sizes))})'


def scratch_bytes(target: DevicePrinter) -> int:
    """Shared bytes of the largest reduction: one state per warp, each field aligned to its size."""
    sizes: list[int] = []
    for kind, inputs in target.monoids.values():
        fields = MONOIDS[kind].fields(inputs)
        largest = max(d.bytes for d in fields)
        place = 0
        for d in fields:
            place = -(-place // d.bytes) * d.bytes + d.bytes
        sizes.append(-(-place // largest) * largest * (target.group // 32))
    return max(sizes)


def grid_of(kernel: Kernel) -> Dim:
    """The number of blocks."""
    (outer,) = launched_steps(kernel)[1]
    assert isinstance(outer, Loop) and outer.role is Role.GRID
    total: Dim = 1
    for loop in grid_loops(outer):
        total = total * loop.extent
    return total


def far_bytes(kernel: Kernel) -> Dim:
    """Bytes of far memory that a launch must move at least: every parameter once, twice if read and written."""
    total: Dim = 0
    for param in kernel.params:
        times = 2 if param.access is Access.INOUT else 1
        total = total + param.layout.elements(param.shape) * param.dtype.bytes * times
    return total


def monoid_text(name: str, monoid: str, kinds: tuple[DType, ...]) -> str:
    """The struct of a monoid: its state, and the merge of two states."""
    declared = MONOIDS[monoid]
    fields = declared.fields(kinds)
    printer = Printer(WIDE, Addresses({}, {}), {})
    left = tuple(Name(f"a{k}", d) for k, d in enumerate(fields))
    right = tuple(Name(f"b{k}", d) for k, d in enumerate(fields))
    unpack = [
        Line(f"const {WIDE.type(d)} {side}{k} = {side}.at{k};")
        for side in "ab"
        for k, d in enumerate(fields)
    ]
    lines: list[CNode] = []
    names: dict[object, str] = {}
    results: list[str] = []
    for value in declared.merge(left, right):
        extra, printed = printer.bind(value, names)  # type: ignore[arg-type]
        lines += extra
        results.append(printed)
    state = Block(
        "struct State",
        (*(Line(f"{WIDE.type(d)} at{k};") for k, d in enumerate(fields)),),
        ";",
    )
    merge = Block(
        "static UA_METHOD State merge(const State a, const State b)",
        (*unpack, *lines, Line(f"return {{{', '.join(results)}}};")),
    )
    return render((Block(f"struct {name}", (state, merge), ";"),))


def unit(kernels: tuple[KernelText, ...]) -> str:
    """One translation unit."""
    monoids: dict[str, tuple[str, tuple[DType, ...]]] = {}
    for kernel in kernels:
        monoids |= kernel.monoids
    head = render((Directive("#include <ua/kernel.cuh>"), Line("")))
    structs = [monoid_text(name, *monoids[name]) for name in sorted(monoids)]
    return "\n".join((head, *structs, *(kernel.definition for kernel in kernels)))


def _one_line(label: str) -> str:
    return " ".join(label.replace("\\", "/").split())[:120]
