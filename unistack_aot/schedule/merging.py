"""What fusions share: the parameters, names and origins of a launch made of two. Not here: any fusion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from unistack_aot.base.symbolic import Dim, substitute
from unistack_aot.ir.scalar import IndexEntry, Scalar
from unistack_aot.mcir.nodes import Access, Param, Stmt
from unistack_aot.mcir.program import Launch
from unistack_aot.mcir.transform import all_loads


def both(first: Launch, second: Launch) -> Launch:
    """The second launch, with the origins and label of both."""
    origins = tuple(dict.fromkeys((*first.origins, *second.origins)))
    label = "+".join(
        dict.fromkeys(filter(None, (*first.label.split("+"), *second.label.split("+"))))
    )
    return replace(second, origins=origins, label=label)


def outputs_last(params: tuple[Param, ...]) -> tuple[Param, ...]:
    """The parameters that are only read, then those that are written."""
    ins = tuple(p for p in params if p.access is Access.IN)
    return (*ins, *(p for p in params if p.access is not Access.IN))


def loaded(params: tuple[Param, ...], body: tuple[Stmt, ...]) -> tuple[Param, ...]:
    """The parameters that a body still uses."""
    names = {load.buffer for load in all_loads(body)}
    return tuple(p for p in params if p.access is not Access.IN or p.name in names)


def substituted(value: Dim, env: Mapping[str, IndexEntry]) -> Dim:
    """An index with variables replaced, as far as their values do not depend on data."""
    return substitute(value, {k: v for k, v in env.items() if not isinstance(v, Scalar)})
