"""What a package says about itself, as frozen dataclasses.

Not here: its protobuf form (wire.py), the file (writer.py, reader.py). All sizes, shapes, offsets
and grids are dimension expressions in the text form of base/symbolic over the names in
``Manifest.dims``; all sizes are in bytes. Buffers and kernels are numbered by their position.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

FORMAT_VERSION = 1
UNBOUNDED = 10**9
"""``Dim.high`` of a dimension without a declared bound; index arithmetic relies on it."""

BufferKind = Literal["input", "output", "constant", "arena"]
ParamKind = Literal["in", "out", "inout", "dim32", "dim64", "step32", "step64"]
Shape = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Dim:
    """A symbolic dimension of the signature with its accepted range (inclusive)."""

    name: str
    low: int
    high: int
    typical: int


@dataclass(frozen=True, slots=True)
class Demand:
    """What the dimensions of a run must satisfy beside their ranges: ``value`` is not negative.

    ``hint`` says what to do otherwise, if giving arrays of other sizes is not all.
    """

    value: str
    sentence: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One input or output of the model."""

    name: str
    dtype: str
    shape: Shape


@dataclass(frozen=True, slots=True)
class Member:
    """One file inside the package; ``sha256`` is lower-case hex."""

    name: str
    nbytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far an output may be from its golden value: ``absolute + relative * |golden|``."""

    output: str
    relative: float
    absolute: float


@dataclass(frozen=True, slots=True)
class Golden:
    """A recorded run: ``member`` has tensors "<name>/input/<input>", "<name>/output/<output>"."""

    name: str
    member: str
    tolerances: tuple[Tolerance, ...]


@dataclass(frozen=True, slots=True)
class Buffer:
    """A piece of memory: a model input or output, a constant, or a part of the arena.

    ``first`` and ``last`` are the numbers (pre-order, see `walk`) of the first and last step that
    touch it; a buffer that must survive iterations of a loop spans the whole loop. ``key`` is the
    signature's name for inputs and outputs, and the tensor's name in the weights for constants.
    A view has ``alias_of`` and a byte ``offset`` into that buffer, and no memory of its own.
    """

    name: str
    dtype: str
    shape: Shape
    nbytes: str
    kind: BufferKind
    key: str = ""
    first: int = 0
    last: int = 0
    alias_of: int | None = None
    offset: str = "0"
    alignment: int = 64


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter: a pointer ("in", "out", "inout"), the dimension ``name``, or the number of the step."""

    name: str
    kind: ParamKind


@dataclass(frozen=True, slots=True)
class Kernel:
    """One compiled function; ``origins`` are ONNX node names, ``text`` says what it computes.

    With ``steps`` a launch runs it so often, one run after the other, each told its number.
    """

    symbol: str
    params: tuple[Param, ...]
    grid: tuple[str, str, str] = ("1", "1", "1")
    block: tuple[str, str, str] = ("1", "1", "1")
    shared_bytes: str = "0"
    origins: tuple[str, ...] = ()
    flops: str = "0"
    far_bytes: str = "0"
    text: str = ""
    steps: str = ""

    @property
    def pointers(self) -> tuple[Param, ...]:
        """The pointer parameters, in order."""
        return tuple(p for p in self.params if p.kind in ("in", "out", "inout"))


@dataclass(frozen=True, slots=True)
class Launch:
    """Run kernel number ``kernel`` with ``buffers`` for its pointer parameters, in order.

    Launches are numbered in pre-order over the variant; ``ua_run`` takes these numbers.
    ``origins`` are the ONNX nodes that this launch computes; its kernel may serve others as well.
    """

    kernel: int
    buffers: tuple[int, ...]
    origins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class If:
    """Run one of two step lists, by the bool scalar in buffer ``condition``."""

    condition: int
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Carried:
    """A value carried by a loop: buffers before, inside (read, computed) and after it."""

    initial: int
    entering: int
    leaving: int
    final: int


@dataclass(frozen=True, slots=True)
class Scanned:
    """A slice of ``stacked`` along ``axis`` per iteration; ``reverse`` starts at the far end."""

    stacked: int
    slice: int
    axis: int = 0
    reverse: bool = False


@dataclass(frozen=True, slots=True)
class Loop:
    """Run ``body`` repeatedly, as ONNX Loop and Scan do.

    ``limit`` (dimension expression, "": none) and ``trips`` (i64 scalar buffer) bound the
    iterations and ``condition`` (bool scalar) must hold to start; None means no bound and true.
    The runtime writes ``iteration`` (i64) before each one, reads ``condition_out`` (bool, None:
    true) after it, and writes ``count`` (i64: how many ran) at the end.
    """

    body: tuple[Step, ...]
    trips: int | None = None
    condition: int | None = None
    iteration: int | None = None
    condition_out: int | None = None
    count: int | None = None
    carried: tuple[Carried, ...] = ()
    scan_inputs: tuple[Scanned, ...] = ()
    scan_outputs: tuple[Scanned, ...] = ()
    limit: str = ""


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy all of buffer ``source`` to buffer ``target`` (equal sizes)."""

    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Fill:
    """Zero a buffer: whenever it is reached, or ``once`` per plan (its memory is never reused)."""

    buffer: int
    once: bool = False


@dataclass(frozen=True, slots=True)
class Refuse:
    """End the run with an error: there is nothing that ``buffer`` could be filled with."""

    buffer: int
    reason: str


Step = Launch | If | Loop | Copy | Fill | Refuse


@dataclass(frozen=True, slots=True)
class Measured:
    """A dimension known only after the run: read from an i64 scalar ``buffer``.

    Outputs with ``dim`` in their signature shape are allocated as their buffer says (the bound) and
    cut to the measured value.
    """

    dim: str
    buffer: int


@dataclass(frozen=True, slots=True)
class DimValue:
    """One dimension bound to a value."""

    name: str
    value: int


@dataclass(frozen=True, slots=True)
class Certificate:
    """Arena bytes for one binding of the dimensions, and the far traffic predicted per run."""

    dims: tuple[DimValue, ...]
    peak: int
    lower_bound: int
    far_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Variant:
    """The program for one target: machine code, constants, buffers, kernels and steps."""

    target: str
    code: str
    buffers: tuple[Buffer, ...]
    kernels: tuple[Kernel, ...]
    steps: tuple[Step, ...]
    needs: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()
    measured: tuple[Measured, ...] = ()
    certificates: tuple[Certificate, ...] = ()
    demands: tuple[Demand, ...] = ()

    @property
    def launches(self) -> tuple[Launch, ...]:
        """All launches in pre-order: position is the launch number."""
        return tuple(step for step in walk(self.steps) if isinstance(step, Launch))


@dataclass(frozen=True, slots=True)
class Manifest:
    """The whole description of a package; ``members`` is filled by the writer."""

    producer: str
    model: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    variants: tuple[Variant, ...]
    dims: tuple[Dim, ...] = ()
    golden: tuple[Golden, ...] = ()
    options: tuple[str, ...] = ()
    demands: tuple[Demand, ...] = ()
    members: tuple[Member, ...] = ()
    version: int = FORMAT_VERSION


def children(step: Step) -> tuple[tuple[Step, ...], ...]:
    """The step lists nested in a step."""
    match step:
        case If():
            return (step.then, step.otherwise)
        case Loop():
            return (step.body,)
        case Launch() | Copy() | Fill() | Refuse():
            return ()


def walk(steps: tuple[Step, ...]) -> Iterator[Step]:
    """All steps in pre-order; the position is the step number that buffer lifetimes use."""
    pending = list(reversed(steps))
    while pending:
        step = pending.pop()
        yield step
        for block in reversed(children(step)):
            pending.extend(reversed(block))
