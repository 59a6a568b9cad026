"""Schedule operator: an operand of a product or an attention copied into dense rows, in the order of its loops.

For operands that a tile instruction cannot read where they lie (blocks of channels, transposed values). Not here:
which operands (targets know their instructions).
"""

from __future__ import annotations

from collections.abc import Mapping

from unistack_aot.base.symbolic import Dim, substitute, symbol, symbols
from unistack_aot.base.verdict import YES, No, Yes
from unistack_aot.ir.scalar import Load, Scalar, index_symbols, substitute_indices
from unistack_aot.mcir.nodes import Access, Axis, Fold, Kernel, Loop, Param, Stmt, Store
from unistack_aot.mcir.transform import all_loads, perfect_nest, replace_loads
from unistack_aot.schedule.attention import AttentionSite, find_attention
from unistack_aot.schedule.contraction import Site, find_site
from unistack_aot.schedule.merging import outputs_last
from unistack_aot.schedule.operator import Kernels, Operator

Operands = dict[Load, tuple[Axis, ...]]


def operands(kernel: Kernel) -> Operands:
    """The loads that a kernel multiplies, with the loops that each depends on, the summed one last."""
    site, heads = find_site(kernel), find_attention(kernel)
    if isinstance(heads, AttentionSite):
        axes = {
            heads.q: (*heads.outer, heads.rows, heads.depth),
            heads.k: (*heads.outer, heads.keys, heads.depth),
            heads.v: (*heads.outer, heads.keys, heads.values),
        }
    elif isinstance(site, Site) and site.cols:
        axes = {
            factor.load: (*site.batch, *site.rows, *site.cols, *site.depth)
            for factor in (site.a, site.b)
            if factor.within is None
        }
    else:
        return {}
    return {
        load: tuple(axis for axis in loops if axis.var in index_symbols(load))
        for load, loops in axes.items()
    }


def can_copy(kernel: Kernel, load: Load, name: str) -> Yes | No:
    """Whether the load is an operand whose elements the loops that it depends on meet once each."""
    axes = operands(kernel).get(load)
    if axes is None:
        return No("it is no operand of a product")
    if any(param.name == name for param in kernel.params):
        return No(f"{name} is taken")
    for entry in load.index:
        if isinstance(entry, Scalar):
            return No("its index depends on data")
        if _is_window(entry, axes):
            return No("windows overlap: a copy would hold elements again and again")
    return YES


def copied(kernel: Kernel, load: Load, name: str) -> tuple[Kernel, Kernel]:
    """The kernel that copies an operand into dense rows, and the kernel that reads those.

    before:
        kernel product(a: f32[6, N] far, b: f32[6, 20] far) -> y: f32[N, 20] far {
          for i in N, j in 20 {
            s = fold sum over k in 6 of a[k, i] * b[k, j]
            y[i, j] = s
          }
        }
    after:
        kernel k0(a: f32[6, N] far) -> rows: f32[N, 6] far {
          for i in N, k in 6 {
            rows[i, k] = a[k, i]
          }
        }

        kernel k1(b: f32[6, 20] far, rows: f32[N, 6] far) -> y: f32[N, 20] far {
          for i in N, j in 20 {
            s = fold sum over k in 6 of rows[i, k] * b[k, j]
            y[i, j] = s
          }
        }
    """
    axes = operands(kernel)[load]
    source = kernel.param(load.buffer)
    held = Param(name, source.dtype, tuple(axis.extent for axis in axes), Access.OUT)
    copy: tuple[Stmt, ...] = (Store(name, tuple(symbol(a.var) for a in axes), load),)
    for axis in reversed(axes):
        copy = (Loop(axis.var, axis.extent, copy),)
    again = _second_pass(kernel)
    back = {first: second for second, first in again.items()}

    def change(read: Load) -> Scalar | None:
        if read is load:
            return Load(name, tuple(symbol(a.var) for a in axes), read.dtype)
        if again and substitute_indices(read, {v: symbol(w) for v, w in again.items()}) is load:
            index = tuple(symbol(back.get(a.var, a.var)) for a in axes)
            return Load(name, index, read.dtype)
        return None

    body = replace_loads(kernel.body, change)
    names = {read.buffer for read in all_loads(body)}
    kept = (p for p in kernel.params if p.access is not Access.IN or p.name in names)
    params = outputs_last((*kept, Param(name, held.dtype, held.shape)))
    return Kernel((source, held), copy), Kernel(params, body)


def _second_pass(kernel: Kernel) -> Mapping[str, str]:
    """Of an attention, whose scores stand twice: the second pass's loops, and those of the first that they repeat."""
    if not isinstance(find_attention(kernel), AttentionSite):
        return {}
    _, (state, over) = perfect_nest(kernel.body)
    assert isinstance(state, Fold) and isinstance(over, Loop)
    mix, inner = over.body[0], state.body[0]
    assert isinstance(mix, Fold) and isinstance(inner, Fold)
    again = mix.body[0]
    assert isinstance(again, Fold)
    return {mix.axes[0].var: state.axes[0].var, again.axes[0].var: inner.axes[0].var}


def _is_window(entry: Dim, axes: tuple[Axis, ...]) -> bool:
    """Whether two loops may reach one element: a sum in which a step of one is no whole run of another."""
    names = [axis for axis in axes if axis.var in symbols(entry)]
    if len(names) < 2:
        return False
    steps = [(_step(entry, axis), axis) for axis in names]
    known = sorted(
        ((s, a.extent) for s, a in steps if isinstance(s, int) and isinstance(a.extent, int)),
    )
    if len(known) < len(names):
        return True
    reach = 0
    for step, extent in known:
        if step <= reach:
            return True
        reach += step * (extent - 1)
    return False


def _step(entry: Dim, axis: Axis) -> Dim:
    """How far one iteration of a loop moves along an axis of the buffer."""
    return substitute(entry, {axis.var: symbol(axis.var) + 1}) - entry


def _example(kernels: Kernels) -> Kernels | No:
    (kernel,) = kernels
    first = next(iter(operands(kernel)))
    return COPY_OPERAND(kernel, first, "rows")


COPY_OPERAND = Operator("copy-operand", can_copy, copied, _example)
