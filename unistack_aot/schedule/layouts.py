"""Activation layouts for convolution chains: channel blocks kept from layer to layer, and zero halos instead of bounds.

A buffer may change its layout if only launches touch it; otherwise its readers get a copy in the layout they want.
Not here: a kernel over such layouts (laying_out.py), the contraction over them (panel_tiles.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from unistack_aot.base.dtypes import f32, i16
from unistack_aot.base.symbolic import (
    Dim,
    Ranges,
    bounds,
    of_atom,
    simplify,
    symbol,
    terms,
    unrounded,
)
from unistack_aot.base.verdict import No
from unistack_aot.ir.scalar import Load, Scalar, cast
from unistack_aot.mcir.canonical import closed, opened
from unistack_aot.mcir.layout import Layout
from unistack_aot.mcir.nodes import Access, Kernel, Loop, Param, Stmt, Store
from unistack_aot.mcir.program import Buffer, HostIf, HostLoop, Kind, Launch, Program, Step
from unistack_aot.mcir.transform import all_loads, replace_loads, walk
from unistack_aot.schedule.contraction import Site, find_site
from unistack_aot.schedule.crops import CROP
from unistack_aot.schedule.decision import Decision
from unistack_aot.schedule.laying_out import LAY_OUT
from unistack_aot.schedule.uses import touched

LAID = (f32, i16)  # what tiles take from windows: floats, and integers less their zero point
CHANNELS = 1  # the axis that is blocked: N, C, then space
CONTRACTED = "contracted"  # the channels of a contraction: those it sums and those it makes
FEWEST = 8  # channels below this read plain rows: a block of 16 would be mostly padding


@dataclass
class Wishes:
    """Which layout each buffer's readers want: channel block and the widest halo."""

    block: int
    halos: dict[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    blocked: set[str] = field(default_factory=set)
    convolved: set[str] = field(default_factory=set)

    def want(self, buffer: str, halo: tuple[tuple[int, int], ...], block: bool) -> None:
        """Note one reader's wish."""
        old = self.halos.get(buffer, ((0, 0),) * len(halo))
        joint = zip(old, halo, strict=True)
        self.halos[buffer] = tuple((max(a, c), max(b, d)) for (a, b), (c, d) in joint)
        if block:
            self.blocked.add(buffer)


def is_window(site: Site) -> bool:
    """Whether a contraction slides a window over a spatial operand: rank 3 to 5, constant-size taps."""
    return 3 <= len(site.a.load.index) <= 5 and any(
        not isinstance(e, Scalar) and _mixed(e, site) for e in site.a.load.index
    )


def _mixed(entry: Dim, site: Site) -> bool:
    names = entry.symbols if not isinstance(entry, int) else frozenset[str]()
    rows = {axis.var for axis in (*site.rows, *site.batch)}
    depth = {axis.var for axis in site.depth}
    return bool(names & rows) and bool(names & depth)


def halo_of(
    site: Site, shape: tuple[Dim, ...], ranges: Ranges
) -> tuple[tuple[int, int], ...] | None:
    """Elements read before and after each axis of the left operand; None if they cannot be bounded."""
    inside = dict(ranges)
    for axis in (*site.batch, *site.rows, *site.cols, *site.depth):
        inside[axis.var] = (0, axis.extent - 1)
    result: list[tuple[int, int]] = []
    for entry, extent in zip(site.a.load.index, shape, strict=True):
        assert not isinstance(entry, Scalar)
        low = bounds(entry, inside)[0]
        over = _over(entry, extent, site)
        if low is None or over is None:
            return None
        result.append((max(0, -low), max(0, over)))
    return tuple(result)


def _over(entry: Dim, extent: Dim, site: Site) -> int | None:
    """The most by which an index passes the last element, using floor(n / s) * s <= n."""
    top: Dim = entry
    for axis in (*site.batch, *site.rows, *site.cols, *site.depth):
        top = _at_most(top, axis.var, axis.extent)
    gap = simplify(unrounded(top - extent + 1), {})
    if isinstance(gap, int):
        return gap
    return bounds(gap, {})[1]


def _at_most(value: Dim, var: str, extent: Dim) -> Dim:
    const, parts = terms(value)
    result: Dim = const
    for coefficient, atom in parts:
        if of_atom(atom) == symbol(var):
            result = result + coefficient * (extent - 1 if coefficient > 0 else 0)
        else:
            result = result + of_atom(atom) * coefficient
    return result


def choose_layouts(
    program: Program, block: int, ranges: Ranges
) -> tuple[Program, tuple[Decision, ...]]:
    """Give convolution chains channel blocks and halos; other buffers stay plain. Crops are stored first."""
    crops = Crops(ranges)
    steps = crops.stored(program.steps)
    program = Program(program.name, (*program.buffers, *crops.buffers), steps)
    wishes = _wishes(program, block, ranges)
    free = _free_buffers(program)
    _spread(program, wishes, free)
    layouts: dict[str, Layout] = {}
    decisions = crops.decisions
    for buffer in program.buffers:
        layout = _layout(buffer, wishes, free)
        if layout is not None:
            layouts[buffer.name] = layout
            note = f"block {layout.block}, halo {layout.halo}"
            decisions.append(Decision("layout", buffer.name, note, "read by convolutions"))
    copied = _copies(_apply(program, layouts), wishes, free)
    for buffer in copied.buffers[len(program.buffers) :]:
        note = f"copy with block {buffer.layout.block}, halo {buffer.layout.halo}"
        because = "read by convolutions; its owner keeps it plain"
        decisions.append(Decision("layout", buffer.name, note, because))
    return copied, tuple(decisions)


@dataclass
class Crops:
    """The parts of buffers that padded windows read, each stored before its reader."""

    ranges: Ranges
    buffers: list[Buffer] = field(default_factory=list[Buffer])
    decisions: list[Decision] = field(default_factory=list[Decision])

    def stored(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        """The steps with launches that store the crops, and readers of those."""
        result: list[Step] = []
        for step in steps:
            match step:
                case Launch():
                    result += self._launch(step)
                case HostIf():
                    then, otherwise = self.stored(step.then), self.stored(step.otherwise)
                    result.append(replace(step, then=then, otherwise=otherwise))
                case HostLoop():
                    result.append(replace(step, body=self.stored(step.body)))
                case _:
                    result.append(step)
        return tuple(result)

    def _launch(self, launch: Launch) -> list[Step]:
        kernel = opened(launch)
        site = find_site(kernel)
        if not isinstance(site, Site) or not is_window(site):
            return [launch]
        source = site.a.load.buffer
        name = f"{source}_crop{len(self.buffers)}"
        found = CROP(kernel, self.ranges, name)
        if isinstance(found, No):
            return [launch]
        copy, reader = found
        crop = copy.outputs[0]
        self.buffers.append(Buffer(name, crop.dtype, crop.shape))
        because = f"zeros around it can lie in a halo; {source} has other elements there"
        self.decisions.append(Decision("crop", name, f"part of {source}", because))
        taken = closed(copy, Launch(copy, (), launch.origins, "crop"))
        return [taken, closed(reader, launch)]


def _wishes(program: Program, block: int, ranges: Ranges) -> Wishes:
    wishes = Wishes(block)
    for launch in program.launches():
        site = find_site(launch.kernel)
        if not isinstance(site, Site) or not is_window(site):
            continue
        named = dict(zip((p.name for p in launch.kernel.params), launch.args, strict=True))
        source = launch.kernel.param(site.a.load.buffer)
        halo = halo_of(site, source.shape, ranges)
        if halo is None or source.dtype not in LAID:
            continue
        channels = source.shape[CHANNELS]
        dense = not site.batch and bool(site.cols)
        depthwise = not site.cols and isinstance(channels, int)
        wide = isinstance(channels, int) and channels >= FEWEST and (dense or depthwise)
        wishes.want(named[source.name], halo, wide)
        if wide or dense:
            wishes.convolved.update(launch.writes())
    return wishes


def _free_buffers(program: Program) -> set[str]:
    """Arena buffers of rank 3 to 5 that only launches touch, without aliases: they may take any layout."""
    held: set[str] = set()

    def visit(steps: tuple[Step, ...]) -> None:
        for step in steps:
            if isinstance(step, Launch):
                if step.kernel.reinterprets:
                    held.update(step.args)
            else:
                held.update(touched(step))

    visit(program.steps)
    aliased = {b.alias_of for b in program.buffers} | {
        b.name for b in program.buffers if b.alias_of is not None
    }
    return {
        b.name
        for b in program.buffers
        if b.kind is Kind.ARENA
        and b.dtype in LAID
        and 3 <= len(b.shape) <= 5
        and b.name not in held
        and b.name not in aliased
    }


def _spread(program: Program, wishes: Wishes, free: set[str]) -> None:
    """Blocks spread from convolutions' operands and results to what pointwise and window kernels join with them."""
    shapes = {b.name: b.shape for b in program.buffers}
    settled = {n for n in wishes.blocked | wishes.convolved if n in free and _blockable(shapes[n])}
    changed = True
    while changed:
        changed = False
        for launch in program.launches():
            names = {a for a in launch.args if a in free and _blockable(shapes[a])}
            known = names & settled
            if not known or known == names:
                continue
            channels = _channels(launch)
            for name in names - settled:
                near = [shapes[s] for s in known if channels[s] & channels[name]]
                if _alike(shapes[name], near):
                    settled.add(name)
                    changed = True
    wishes.blocked |= settled


def _channels(launch: Launch) -> dict[str, set[str]]:
    """Which loops count the channels of each operand of rank 2 or more; those of a contraction, summed or not,
    count as one. A transposition's result has other channels than its operand, whatever the shapes.
    """
    site = find_site(launch.kernel)
    axes = (*site.cols, *site.depth) if isinstance(site, Site) else ()
    joint = {axis.var: CONTRACTED for axis in axes}
    stores = [s for s in walk(launch.kernel.body) if isinstance(s, Store)]
    touches = [(s.buffer, s.index) for s in stores]
    touches += [(load.buffer, load.index) for load in all_loads(launch.kernel.body)]
    argument = dict(zip((p.name for p in launch.kernel.params), launch.args, strict=True))
    found: dict[str, set[str]] = {name: set() for name in launch.args}
    for buffer, index in touches:
        if len(index) > CHANNELS and not isinstance(entry := index[CHANNELS], int | Scalar):
            found[argument[buffer]] |= {joint.get(var, var) for var in entry.symbols}
    return found


def _blockable(shape: tuple[Dim, ...]) -> bool:
    channels = shape[CHANNELS]
    return isinstance(channels, int) and channels >= FEWEST


def _alike(shape: tuple[Dim, ...], others: list[tuple[Dim, ...]]) -> bool:
    return any(len(other) == len(shape) and other[0] == shape[0] for other in others)


def _layout(buffer: Buffer, wishes: Wishes, free: set[str]) -> Layout | None:
    if buffer.name not in free:
        return None
    block = (CHANNELS, wishes.block) if buffer.name in wishes.blocked else None
    halo = wishes.halos.get(buffer.name, ())
    if not any(a or b for a, b in halo):
        halo = ()
    layout = Layout(block, halo)
    return None if layout.plain else layout


def _apply(program: Program, layouts: dict[str, Layout]) -> Program:
    buffers = tuple(
        replace(b, layout=layouts[b.name]) if b.name in layouts else b for b in program.buffers
    )

    def change(launch: Launch) -> Launch:
        if not any(name in layouts for name in launch.args):
            return launch
        return closed(LAY_OUT.sure(opened(launch), layouts), launch)

    return Program(program.name, buffers, program.steps).map_launches(change)


def _copies(program: Program, wishes: Wishes, free: set[str]) -> Program:
    """Give readers that want a halo or blocks on a buffer that must stay plain their own copy."""
    buffers = list(program.buffers)
    known = program.by_name()
    made: dict[str, str] = {}
    steps: list[Step] = []
    for step in program.steps:
        if isinstance(step, Launch):
            step = _with_copy(step, wishes, free, known, made, buffers, steps)
        steps.append(step)
    return Program(program.name, tuple(buffers), tuple(steps))


def _with_copy(
    launch: Launch,
    wishes: Wishes,
    free: set[str],
    known: dict[str, Buffer],
    made: dict[str, str],
    buffers: list[Buffer],
    steps: list[Step],
) -> Launch:
    site = find_site(launch.kernel)
    if not isinstance(site, Site) or not is_window(site):
        return launch
    named = dict(zip((p.name for p in launch.kernel.params), launch.args, strict=True))
    source = known[named[site.a.load.buffer]]
    if source.name in free or source.name not in wishes.halos or source.kind is Kind.CONSTANT:
        return launch
    block = (CHANNELS, wishes.block) if source.name in wishes.blocked else None
    layout = Layout(block, wishes.halos[source.name])
    if layout.plain:
        return launch
    if source.name not in made:
        name = f"{source.name}_laid"
        fresh = Buffer(name, source.dtype, source.shape, layout=layout)
        buffers.append(fresh)
        steps.append(relayout(source, fresh))
        made[source.name] = name
    kernel = _reading(opened(launch), source.name, made[source.name], layout)
    return closed(kernel, launch)


def _reading(kernel: Kernel, old: str, new: str, layout: Layout) -> Kernel:
    """The kernel reading its contraction operand from the copy."""
    from_old = kernel.param(old)
    site = find_site(kernel)
    assert isinstance(site, Site)
    body = _replace_operand(kernel.body, site.a.load, new)
    params = (*kernel.params, replace(from_old, name=new, layout=layout))
    return Kernel(_used(params, body), body)


def _replace_operand(body: tuple[Stmt, ...], load: Load, new: str) -> tuple[Stmt, ...]:
    return replace_loads(
        body, lambda read: Load(new, read.index, read.dtype) if read is load else None
    )


def _used(params: tuple[Param, ...], body: tuple[Stmt, ...]) -> tuple[Param, ...]:
    names = {load.buffer for load in all_loads(body)}
    return tuple(p for p in params if p.access is not Access.IN or p.name in names)


def relayout(source: Buffer, target: Buffer) -> Launch:
    """The launch that copies a buffer into another layout or type, borders zeroed."""
    index = tuple(symbol(f"i{k}") for k in range(len(source.shape)))
    read = Param(source.name, source.dtype, source.shape, layout=source.layout)
    write = Param(target.name, target.dtype, target.shape, Access.OUT)
    value = cast(target.dtype, Load(source.name, index, source.dtype))
    body: tuple[Stmt, ...] = (Store(target.name, index, value),)
    for var, extent in zip(reversed(index), reversed(source.shape), strict=True):
        body = (Loop(str(var), extent, body),)
    kernel = LAY_OUT.sure(Kernel((read, write), body), {target.name: target.layout})
    return closed(kernel, Launch(kernel, (), label="relayout"))
