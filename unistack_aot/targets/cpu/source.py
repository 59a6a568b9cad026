"""The C++ text of a whole program: one function per distinct kernel, a table of launches, the entry point."""

from __future__ import annotations

from dataclasses import dataclass

from unistack_aot.base.symbolic import Ranges
from unistack_aot.codegen.ctree import Block, CNode, Comment, Directive, Line, render
from unistack_aot.codegen.expr import identifier, size_name
from unistack_aot.codegen.kernel import KernelWriter, dimensions
from unistack_aot.mcir.nodes import Access, Kernel
from unistack_aot.mcir.program import Launch
from unistack_aot.targets.cpu.dialect import DIALECT
from unistack_aot.targets.cpu.printer import HostPrinter

ABI = 1


@dataclass(frozen=True, slots=True)
class KernelText:
    """One kernel as C++: its symbol, the prototype, and the definition."""

    symbol: str
    prototype: str
    definition: str


def kernel_text(
    symbol: str, kernel: Kernel, ranges: Ranges, origins: tuple[str, ...]
) -> KernelText:
    """The function of one kernel; `origins` of its first launch are quoted in a comment."""
    writer = KernelWriter(kernel, HostPrinter(), ranges)
    pointers = [
        f"{'const ' if p.access is Access.IN else ''}{DIALECT.type(p.dtype)}* "
        f"{DIALECT.restrict} {identifier(p.name)}"
        for p in kernel.params
    ]
    sizes = [f"const int64_t {size_name(name)}" for name in dimensions(kernel)]
    prototype = f"void {symbol}({', '.join((*pointers, *sizes))})"
    comments: tuple[CNode, ...] = tuple(Comment(_one_line(label)) for label in origins[:8])
    nodes = (*comments, Block(prototype, writer.body(kernel.body)))
    return KernelText(symbol, prototype, render(nodes))


def unit(kernels: tuple[KernelText, ...]) -> str:
    """One translation unit of kernel definitions."""
    head = render((Directive("#include <ua/kernel.h>"), Line("")))
    body = "\n".join(kernel.definition for kernel in kernels)
    return f"{head}namespace model {{\n\n{body}\n}}  // namespace model\n"


def entry(
    kernels: tuple[KernelText, ...],
    launches: tuple[Launch, ...],
    symbols: dict[Kernel, str],
    buffers: dict[str, int],
    dims: dict[str, int],
) -> str:
    """The translation unit with the launch table, the exported entry points, and what a library defines once.

    `buffers` and `dims` number the program's buffers and dimension symbols.
    """
    nodes: list[CNode] = [Directive(f"#define {macro}") for macro in _asked(kernels)]
    nodes += [Directive("#include <ua/engine.h>"), Line("")]
    nodes.append(Line("namespace ua { struct f16; struct bf16; }"))
    nodes.append(Block("namespace model", tuple(Line(f"{k.prototype};") for k in kernels)))
    calls: list[CNode] = []
    for number, launch in enumerate(launches):
        args = [
            f"static_cast<{_pointer(p.access, DIALECT.type(p.dtype))}>(b[{buffers[arg]}])"
            for p, arg in zip(launch.kernel.params, launch.args, strict=True)
        ]
        args += [f"d[{dims[name]}]" for name in dimensions(launch.kernel)]
        call = Line(f"model::{symbols[launch.kernel]}({', '.join(args)});")
        head = f"static void launch_{number}(void* const* b, const int64_t* d)"
        calls.append(Block(head, (Line("(void)d;"), call)))
    table = ", ".join(f"launch_{number}" for number in range(len(launches)))
    nodes += calls
    nodes.append(
        Line(f"static void (*const launches[])(void* const*, const int64_t*) = {{{table}}};")
    )
    nodes += _exports()
    return render(tuple(nodes))


def _asked(kernels: tuple[KernelText, ...]) -> list[str]:
    """What of ua/engine.h only some libraries need: tiles of pairs."""
    return [
        f"UA_PRODUCTS_OF_{kind.upper()}"
        for kind in ("bf16", "i16")
        if any(f"ua::contract_{kind}(" in kernel.definition for kernel in kernels)
    ]


def _exports() -> tuple[CNode, ...]:
    head = (
        'extern "C" __attribute__((visibility("default"))) int ua_run('
        "const int32_t* numbers, int n, void* const* buffers, const int64_t* dims, int threads)"
    )
    loop = Block("for (int i = 0; i < n; ++i)", (Line("launches[numbers[i]](buffers, dims);"),))
    return (
        Block(
            'extern "C" __attribute__((visibility("default"))) int ua_abi(void)',
            (Line(f"return {ABI};"),),
        ),
        Block(head, (Line("ua::set_threads(threads);"), loop, Line("return 0;"))),
    )


def _pointer(access: Access, kind: str) -> str:
    return f"const {kind}*" if access is Access.IN else f"{kind}*"


def _one_line(label: str) -> str:
    return " ".join(label.replace("\\", "/").split())[:120]
