"""The nodes of an MCIR kernel: loops, folds, tiles, streams, stores. Not here: launches and buffers (program.py)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

from unistack_aot.base.dtypes import DType
from unistack_aot.base.symbolic import Dim, Sym
from unistack_aot.ir.scalar import Scalar
from unistack_aot.mcir.layout import PLAIN, Layout


class Space(Enum):
    """A level of memory; a target maps these to its own (DRAM, shared, registers; or DRAM, cache, registers)."""

    FAR = "far"
    NEAR = "near"
    REG = "reg"


class Role(Enum):
    """How the iterations of a loop are executed.

    MAP: independent, not yet decided. SEQ: in order. GRID: across the machine's independent units. GROUP: across the
    workers of one unit (CUDA threads of a block). LANE: across the lanes of one worker (a warp). VECTOR: in one wide
    instruction. UNROLL: expanded. MAP is abstract: `legalize` leaves none.
    """

    MAP = "map"
    SEQ = "seq"
    GRID = "grid"
    GROUP = "group"
    LANE = "lane"
    VECTOR = "vector"
    UNROLL = "unroll"


class Access(Enum):
    """What a kernel does with a parameter."""

    IN = "in"
    OUT = "out"
    INOUT = "inout"


@dataclass(frozen=True, slots=True)
class Param:
    """A buffer as a kernel sees it: logical shape, and the layout that maps it to memory."""

    name: str
    dtype: DType
    shape: tuple[Dim, ...]
    access: Access = Access.IN
    layout: Layout = PLAIN


@dataclass(frozen=True, slots=True)
class Let:
    """A scalar computed once and named."""

    name: str
    value: Scalar


@dataclass(frozen=True, slots=True)
class Store:
    """Write `value` to `buffer` at `index`.

    `combine` ("set", "add", "mul", "min", "max") says how it meets the old one.

    An index entry is a Dim, or an i64 Scalar when it depends on data.
    """

    buffer: str
    index: tuple[int | Sym | Scalar, ...]
    value: Scalar
    combine: str = "set"


@dataclass(frozen=True, slots=True)
class Axis:
    """A named iteration space of `extent` points."""

    var: str
    extent: Dim


@dataclass(frozen=True, slots=True)
class Fold:
    """Reduce over `axes` by a monoid: binds `states` (Names in later statements) to the folded state.

    `values` are the monoid's inputs at one point of the axes. `body` is evaluated before `values` at each point
    (nested folds: a product summed inside a softmax stream).
    """

    states: tuple[str, ...]
    monoid: str
    axes: tuple[Axis, ...]
    values: tuple[Scalar, ...]
    body: tuple[Stmt, ...] = ()
    role: Role = Role.SEQ


@dataclass(frozen=True, slots=True)
class Loop:
    """`for var in extent [step n] [role]`: var takes 0, step, 2*step... below extent."""

    var: str
    extent: Dim
    body: tuple[Stmt, ...]
    role: Role = Role.MAP
    step: int = 1


@dataclass(frozen=True, slots=True)
class Stream:
    """A sequential loop over tiles of a contraction or fold, with `depth` tiles in flight."""

    var: str
    extent: Dim
    step: int
    depth: int
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Tile:
    """Declare a block of memory; `fill` is its initial value (None: not initialised)."""

    name: str
    dtype: DType
    shape: tuple[Dim, ...]
    space: Space
    fill: float | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """A range of a tile's rows or columns: `var` takes `extent` values from `first` on."""

    var: str
    first: Dim
    extent: Dim


@dataclass(frozen=True, slots=True)
class View:
    """An operand of a tile instruction: element `index` of `buffer`, or zero where `within` fails.

    `rounded`: the float type to which the instruction rounds elements as it reads them (None: none).
    """

    buffer: str
    index: tuple[Dim, ...]
    within: Scalar | None = None
    rounded: DType | None = None


@dataclass(frozen=True, slots=True)
class Contract:
    """`acc[i, j] += sum over depth of a * b`, realised by the tile instruction named `via`.

    `a` is indexed by rows.var and the depth variables, `b` by cols.var and the depth variables; element [i, j] of the
    tile belongs to rows.first + i and cols.first + j. `blocks` are the rows, columns and depth kept near at a time.
    """

    acc: str
    a: View
    b: View
    rows: Span
    cols: Span
    depth: tuple[Axis, ...]
    via: str
    blocks: tuple[int, int, int] = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class Fill:
    """All workers of a unit fill near tile `tile` together.

    Element [i, j] is `source` at rows.first + i, cols.first + j.

    Elements of the tile outside both spans, or where `source.within` fails, become zero. The copy
    may be under way until the next Sync.
    """

    tile: str
    rows: Span
    cols: Span
    source: View


@dataclass(frozen=True, slots=True)
class Drain:
    """For each element of register tile `acc`: bind `rows.var`, `cols.var`, `value` to it, and run `body`.

    A worker takes `run` neighbouring columns at once; `cols` holds whole runs.
    """

    acc: str
    rows: Span
    cols: Span
    value: str
    body: tuple[Stmt, ...]
    run: int = 1


@dataclass(frozen=True, slots=True)
class Attend:
    """For each row: out[e] = sum over keys of softmax(score) * v[key, e], streamed over blocks of keys.

    `dot` names the product of q and k over `depth`; `score` is computed from it, rows.var and
    keys.var. The state per row is (max, sum, accumulator); a block of keys is absorbed by rescaling
    it, since exp(a + b) = exp(a) exp(b). `body` runs for each row and element of `values`, with the
    result as `out`, `run` neighbouring elements at once. `blocks` are rows and keys at a time.
    """

    q: View
    k: View
    v: View
    rows: Span
    keys: Axis
    depth: Axis
    values: Axis
    dot: str
    score: Scalar
    out: str
    body: tuple[Stmt, ...]
    via: str
    blocks: tuple[int, int] = (0, 0)
    run: int = 1


@dataclass(frozen=True, slots=True)
class When:
    """Run `body` if `condition` holds, else `otherwise`."""

    condition: Scalar
    body: tuple[Stmt, ...]
    otherwise: tuple[Stmt, ...] = ()


@dataclass(frozen=True, slots=True)
class Sync:
    """All workers of a unit wait for each other; earlier NEAR writes are visible afterwards."""


Stmt: TypeAlias = (
    Let | Store | Fold | Loop | Stream | Tile | Fill | Contract | Drain | Attend | When | Sync
)


@dataclass(frozen=True, slots=True)
class Kernel:
    """A function over buffers. `params` lists results after inputs; dimension symbols in shapes are implicit arguments.

    `reinterprets`: the only result is the only input's memory under another shape (so it may alias instead of copy).
    `group`: how many threads of one unit run its GROUP and LANE loops together; 0 where the machine has no such groups.
    """

    params: tuple[Param, ...]
    body: tuple[Stmt, ...]
    reinterprets: bool = False
    group: int = 0

    @property
    def inputs(self) -> tuple[Param, ...]:
        """Parameters that are read."""
        return tuple(p for p in self.params if p.access is not Access.OUT)

    @property
    def outputs(self) -> tuple[Param, ...]:
        """Parameters that are written."""
        return tuple(p for p in self.params if p.access is not Access.IN)

    def param(self, name: str) -> Param:
        """The parameter called `name`."""
        return next(p for p in self.params if p.name == name)

    def with_body(self, body: tuple[Stmt, ...]) -> Kernel:
        """The same parameters around another body."""
        return replace(self, body=body)
