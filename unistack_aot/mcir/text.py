"""MCIR as text: kernels and programs, one statement per line. Not here: scalars, reading."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import assert_never

from unistack_aot.base.dtypes import DType
from unistack_aot.base.symbolic import text
from unistack_aot.base.text import Lines
from unistack_aot.ir.scalar import Name, Scalar, postorder
from unistack_aot.mcir.formula_text import Formula, Types, dims, label, number
from unistack_aot.mcir.layout import Layout
from unistack_aot.mcir.monoids import MONOIDS
from unistack_aot.mcir.nodes import (
    Access,
    Attend,
    Contract,
    Drain,
    Fill,
    Fold,
    Kernel,
    Let,
    Loop,
    Param,
    Role,
    Span,
    Stmt,
    Store,
    Stream,
    Sync,
    Tile,
    View,
    When,
)
from unistack_aot.mcir.program import (
    Buffer,
    HostCopy,
    HostIf,
    HostLoop,
    HostRefuse,
    Launch,
    Program,
    Sliced,
    Step,
)
from unistack_aot.mcir.transform import scalars, walk

WIDE = 100  # columns up to which a header stays on one line
COMBINE = {"set": "=", "add": "+=", "mul": "*=", "min": "min=", "max": "max="}


def print_kernel(kernel: Kernel, name: str = "kernel") -> str:
    """The text of one kernel; parse_kernel gives an equal kernel back."""
    lines = Lines()
    write_kernel(kernel, name, lines)
    return str(lines)


def print_body(body: tuple[Stmt, ...], types: Types | None = None) -> str:
    """The text of statements; `types` tells what buffers and names around them hold."""
    lines = Lines()
    _Writer(lines, Types() if types is None else types).body(body)
    return str(lines)


def write_kernel(kernel: Kernel, name: str, lines: Lines) -> None:
    """Append the text of one kernel."""
    types = Types({p.name: p.dtype for p in kernel.params}, {})
    with lines.block(_header(kernel, name)):
        _Writer(lines, types).body(kernel.body)


def results_from(params: tuple[Param, ...]) -> int:
    """Where the parameters begin that text writes after the arrow: the last run of written ones."""
    split = len(params)
    while split and params[split - 1].access is not Access.IN:
        split -= 1
    return split


def _header(kernel: Kernel, name: str) -> str:
    split = results_from(kernel.params)
    ins = [_param(p, p.access is not Access.IN) for p in kernel.params[:split]]
    outs = [_param(p, p.access is Access.INOUT) for p in kernel.params[split:]]
    facts = f" group={kernel.group}" if kernel.group else ""
    facts += " reinterprets" if kernel.reinterprets else ""
    line = f"kernel {label(name)}({', '.join(ins)}) -> {', '.join(outs)}{facts} {{"
    if len(line) <= WIDE:
        return line
    joined = ",\n    ".join(ins)
    return f"kernel {label(name)}(\n    {joined}\n) -> {', '.join(outs)}{facts} {{"


def _param(param: Param, spoken: bool) -> str:
    access = f"{param.access.value} " if spoken else ""
    kind = f"{param.dtype}{dims(param.shape)}"
    return f"{access}{label(param.name)}: {kind} far{layout_text(param.layout)}"


def layout_text(layout: Layout) -> str:
    """` block(axis, size) halo(before:after, ...)`, or nothing for dense row-major."""
    parts = ""
    if layout.block is not None:
        parts += f" block({layout.block[0]}, {layout.block[1]})"
    if layout.halo:
        sides = ", ".join(f"{a}" if a == b else f"{a}:{b}" for a, b in layout.halo)
        parts += f" halo({sides})"
    return parts


@dataclass
class _Writer:
    """Statements as lines; `types` grows by what statements bind."""

    lines: Lines
    types: Types

    def body(self, body: tuple[Stmt, ...]) -> None:
        for stmt in body:
            self.statement(stmt)

    def block(self, head: str, body: tuple[Stmt, ...], types: Types, tail: str = "}") -> None:
        with self.lines.block(f"{head} {{", tail):
            _Writer(self.lines, types).body(body)

    def formula(self, stmt: Stmt) -> Formula:
        """The scalars of a statement; writes the abbreviations they use."""
        formula = Formula(self.types, scalars(stmt))
        for line in formula.lines:
            self.lines.add(line)
        return formula

    def statement(self, stmt: Stmt) -> None:
        match stmt:
            case Let():
                self.lines.add(f"{label(stmt.name)} = {self.formula(stmt).text(stmt.value)}")
                self.types.names[stmt.name] = stmt.value.dtype
            case Store():
                self.store(stmt)
            case Fold():
                self.fold(stmt)
            case Loop():
                self.loop(stmt)
            case Stream():
                head = f"stream {label(stmt.var)} in {text(stmt.extent)} step {stmt.step}"
                self.block(f"{head} depth={stmt.depth}", stmt.body, self.types.inner())
            case Tile():
                kind = f"{stmt.dtype}{dims(stmt.shape)} {stmt.space.value}"
                fill = "" if stmt.fill is None else f" = {number(stmt.fill)}"
                self.lines.add(f"{label(stmt.name)}: {kind}{fill}")
                self.types.buffers[stmt.name] = stmt.dtype
            case Fill():
                source = _view(stmt.source, self.formula(stmt))
                spans = f"{_span(stmt.rows)}, {_span(stmt.cols)}"
                self.lines.add(f"fill {label(stmt.tile)}[{spans}] <- {source}")
            case Contract():
                self.contract(stmt)
            case Drain():
                self.drain(stmt)
            case Attend():
                self.attend(stmt)
            case When():
                self.when(stmt)
            case Sync():
                self.lines.add("sync")
            case _:
                assert_never(stmt)

    def store(self, stmt: Store) -> None:
        formula = self.formula(stmt)
        index = ", ".join(formula.entry(e) for e in stmt.index)
        value = formula.text(stmt.value, self.types.buffers.get(stmt.buffer))
        self.lines.add(f"{label(stmt.buffer)}[{index}] {COMBINE[stmt.combine]} {value}")

    def loop(self, loop: Loop) -> None:
        """Loops that hold nothing but a loop share its line while it is short enough."""
        heads = [_loop_head(loop)]
        while len(loop.body) == 1 and isinstance(inner := loop.body[0], Loop):
            head = _loop_head(inner)
            if sum(map(len, heads)) + len(head) + 2 * len(heads) > WIDE - 10:
                break
            heads.append(head)
            loop = inner
        self.block(f"for {', '.join(heads)}", loop.body, self.types.inner())

    def fold(self, fold: Fold) -> None:
        axes = ", ".join(f"{label(a.var)} in {text(a.extent)}" for a in fold.axes)
        role = "" if fold.role is Role.SEQ else f" role={fold.role.value}"
        states = ", ".join(map(label, fold.states))
        head = f"{states} = fold {fold.monoid} over {axes}{role}"
        inside = _Writer(self.lines, self.types.inner())
        short = Formula(inside.types, fold.values)
        if not fold.body and not short.lines:
            self.lines.add(f"{head} of {', '.join(short.text(v) for v in fold.values)}")
        else:
            with self.lines.block(f"{head} {{"):
                inside.body(fold.body)
                formula = inside.formula(fold)
                self.lines.add(f"of {', '.join(formula.text(v) for v in fold.values)}")
        self.types.names.update(zip(fold.states, state_dtypes(fold), strict=False))

    def contract(self, stmt: Contract) -> None:
        formula = self.formula(stmt)
        depth = ", ".join(f"{label(a.var)} in {text(a.extent)}" for a in stmt.depth)
        operands = f"{_view(stmt.a, formula)}, {_view(stmt.b, formula)}"
        blocks = f" blocks{_numbers(stmt.blocks)}" if any(stmt.blocks) else ""
        acc = f"{label(stmt.acc)}[{_span(stmt.rows)}, {_span(stmt.cols)}]"
        over = f" over {depth}" if depth else ""
        self.lines.add(f"{acc} += contract({operands}){over} via {label(stmt.via)}{blocks}")

    def drain(self, stmt: Drain) -> None:
        types = self.types.inner()
        held = self.types.buffers.get(stmt.acc)
        used = _dtype_of(stmt.value, tuple(v for s in walk(stmt.body) for v in scalars(s)))
        spoken = used if used is not None and used is not held else None
        dtype = held if spoken is None else spoken
        if dtype is not None:
            types.names[stmt.value] = dtype
        spans = f"{_span(stmt.rows)}, {_span(stmt.cols)}"
        kind = f": {spoken}" if spoken is not None else ""
        head = f"drain {label(stmt.acc)}[{spans}] as {label(stmt.value)}{kind}{_by(stmt.run)}"
        self.block(head, stmt.body, types)

    def attend(self, stmt: Attend) -> None:
        keys = f"{label(stmt.keys.var)} in {text(stmt.keys.extent)}"
        blocks = f" blocks{_numbers(stmt.blocks)}" if any(stmt.blocks) else ""
        head = f"attend {_span(stmt.rows)} over {keys} via {label(stmt.via)}{blocks}"
        inside = _Writer(self.lines, self.types.inner())
        plain = Formula(self.types, ())
        with self.lines.block(f"{head} {{"):
            dot = inside.bound(stmt.dot, (stmt.score,))
            depth = f"{label(stmt.depth.var)} in {text(stmt.depth.extent)}"
            product = f"contract({_view(stmt.q, plain)}, {_view(stmt.k, plain)})"
            self.lines.add(f"{dot} = {product} over {depth}")
            formula = inside.formula(stmt)
            self.lines.add(f"score {formula.text(stmt.score)}")
            result = _Writer(self.lines, self.types.inner())
            out = result.bound(stmt.out, tuple(v for s in walk(stmt.body) for v in scalars(s)))
            values = f"{label(stmt.values.var)} in {text(stmt.values.extent)}"
            mix = f"{out} = mix({_view(stmt.v, plain)}) for {values}{_by(stmt.run)}"
            with self.lines.block(f"{mix} {{"):
                result.body(stmt.body)

    def bound(self, name: str, users: tuple[Scalar, ...]) -> str:
        """`name: dtype`, with the dtype that users read it as."""
        dtype = _dtype_of(name, users)
        if dtype is None:
            return label(name)
        self.types.names[name] = dtype
        return f"{label(name)}: {dtype}"

    def when(self, stmt: When) -> None:
        head = f"when {self.formula(stmt).text(stmt.condition)}"
        if not stmt.otherwise:
            self.block(head, stmt.body, self.types.inner())
            return
        self.block(head, stmt.body, self.types.inner(), "")
        self.block("} else", stmt.otherwise, self.types.inner())


def state_dtypes(fold: Fold) -> tuple[DType, ...]:
    """The dtypes of a fold's states."""
    return MONOIDS[fold.monoid].fields(tuple(v.dtype for v in fold.values))


def _dtype_of(name: str, users: tuple[Scalar, ...]) -> DType | None:
    found = (n.dtype for n in postorder(*users) if isinstance(n, Name) and n.name == name)
    return next(found, None)


def _loop_head(loop: Loop) -> str:
    step = "" if loop.step == 1 else f" step {loop.step}"
    role = "" if loop.role is Role.MAP else f" role={loop.role.value}"
    return f"{label(loop.var)} in {text(loop.extent)}{step}{role}"


def _span(span: Span) -> str:
    return f"{label(span.var)} in {text(span.first)} ..+ {text(span.extent)}"


def _view(view: View, formula: Formula) -> str:
    within = "" if view.within is None else f" where {formula.text(view.within)}"
    place = f"{label(view.buffer)}{dims(view.index)}"
    return (place if view.rounded is None else f"{view.rounded}({place})") + within


def _by(run: int) -> str:
    return f" by {run}" if run > 1 else ""


def _numbers(values: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, values))})"


# --- programs -----------------------------------------------------------------------------------


def program_text(program: Program) -> str:
    """The text of a program: buffers, steps, each distinct kernel once; parse_program reads it back."""
    names = kernel_names(program)
    lines = Lines()
    with lines.block(f"program {label(program.name)} {{"):
        for buffer in program.buffers:
            lines.add(_buffer(buffer))
        if program.buffers and program.steps:
            lines.add()
        _Steps(lines, names).steps(program.steps)
    for kernel, name in names.items():
        lines.add()
        write_kernel(kernel, name, lines)
    return str(lines)


def kernel_names(program: Program) -> dict[Kernel, str]:
    """k0, k1, ... for the distinct kernels in order of first launch, as generated code names them."""
    distinct = dict.fromkeys(launch.kernel for launch in program.launches())
    return {kernel: f"k{number}" for number, kernel in enumerate(distinct)}


def _buffer(buffer: Buffer) -> str:
    line = f"{buffer.kind.value} {label(buffer.name)}: {buffer.dtype}{dims(buffer.shape)}"
    line += layout_text(buffer.layout)
    if buffer.alias_of is not None:
        line += f" alias {label(buffer.alias_of)}"
    if buffer.offset != 0:
        line += f" at {text(buffer.offset)}"
    return line if buffer.constant is None else f"{line} = {json.dumps(buffer.constant)}"


@dataclass
class _Steps:
    """Steps as lines; kernels by the names that follow further down."""

    lines: Lines
    names: dict[Kernel, str]

    def steps(self, steps: tuple[Step, ...]) -> None:
        for step in steps:
            match step:
                case Launch():
                    self.launch(step)
                case HostIf():
                    came = _origins(step.origins)
                    with self.lines.block(f"if {label(step.condition)}{came} {{", "}"):
                        self.steps(step.then)
                    if step.otherwise:
                        with self.lines.block("else {"):
                            self.steps(step.otherwise)
                case HostLoop():
                    self.loop(step)
                case HostCopy():
                    self.lines.add(f"copy {label(step.source)} -> {label(step.target)}")
                case HostRefuse():
                    self.lines.add(f"refuse {label(step.target)}: {json.dumps(step.reason)}")
                case _:
                    assert_never(step)

    def launch(self, launch: Launch) -> None:
        split = results_from(launch.kernel.params)
        ins, outs = (", ".join(map(label, p)) for p in (launch.args[:split], launch.args[split:]))
        line = f"{self.names[launch.kernel]}({ins}) -> {outs}"
        line += f" as {json.dumps(launch.label)}" if launch.label else ""
        self.lines.add(line + _origins(launch.origins))

    def loop(self, loop: HostLoop) -> None:
        head = "loop"
        if isinstance(loop.trips, str):
            head += f" trips={label(loop.trips)}"
        elif loop.trips is not None:
            head += f" trips=[{text(loop.trips)}]"
        for key, name in (
            ("while", loop.condition),
            ("next", loop.next_condition),
            ("iteration", loop.iteration),
        ):
            head += "" if name is None else f" {key}={label(name)}"
        with self.lines.block(f"{head}{_origins(loop.origins)} {{"):
            for c in loop.carried:
                first, last = (label(c.initial), label(c.entry)), (label(c.exit), label(c.final))
                self.lines.add(f"carry {' -> '.join(first)}, {' -> '.join(last)}")
            for s in loop.scanned:
                self.lines.add(f"scan {label(s.stacked)} -> {label(s.slice)}{_order(s)}")
            for s in loop.stacked:
                self.lines.add(f"stack {label(s.slice)} -> {label(s.stacked)}{_order(s)}")
            self.steps(loop.body)


def _order(sliced: Sliced) -> str:
    return " reverse" if sliced.reverse else ""


def _origins(origins: tuple[str, ...]) -> str:
    return f" from {', '.join(map(json.dumps, origins))}" if origins else ""
