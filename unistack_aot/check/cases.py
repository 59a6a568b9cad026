"""The sizes of symbolic dimensions that a check tries. Not here: the inputs' values (feeds.py)."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from unistack_aot.artifact.manifest import UNBOUNDED, Dim, Manifest
from unistack_aot.base.errors import BadInput
from unistack_aot.base.options import DimRequest
from unistack_aot.check.feeds import shape_of

SMALL = (3, 7, 5, 11, 9, 13)
"""Sizes tried for dimensions without a declared bound: odd, and different for each dimension."""
LARGEST_INPUTS = 1 << 24
"""Elements of all inputs together beyond which a size is not tried on its own account."""


def sizes_to_try(
    manifest: Manifest, asked: Mapping[str, DimRequest] | None = None
) -> tuple[dict[str, int], ...]:
    """Bindings of a package's dimensions: lowest, typical, highest, without repeats.

    Dimensions without a bound take a small odd size instead of the highest. `asked` gives sizes
    instead: one, or several of which the n-th go together. Bindings with very large inputs are
    left out unless nothing else is left. BadInput for an unknown or impossible dimension.
    """
    asked = dict(asked or {})
    known = {dim.name: dim for dim in manifest.dims}
    for name in asked:
        if name not in known:
            raise BadInput(
                f"the package has no dimension {name!r}",
                hint=f"its dimensions are {', '.join(known) or 'all fixed'}",
            )
    choices = {
        dim.name: _asked(dim, asked[dim.name]) if dim.name in asked else _own(dim, number)
        for number, dim in enumerate(manifest.dims)
    }
    longest = max((len(sizes) for sizes in choices.values()), default=1)
    found: list[dict[str, int]] = []
    for k in range(longest):
        sizes = {name: tried[min(k, len(tried) - 1)] for name, tried in choices.items()}
        if sizes not in found:
            found.append(sizes)
    modest = [sizes for sizes in found if _elements(manifest, sizes) <= LARGEST_INPUTS]
    return tuple(modest or found[:1])


def named(sizes: Mapping[str, int]) -> str:
    """A binding as people write it: "batch 1, length 7"."""
    return ", ".join(f"{name} {size}" for name, size in sizes.items())


def _asked(dim: Dim, request: DimRequest) -> tuple[int, ...]:
    sizes = (request,) if isinstance(request, int) else tuple(request)
    for size in sizes:
        if not dim.low <= size <= dim.high:
            most = "any" if dim.high >= UNBOUNDED else dim.high
            raise BadInput(
                f"dimension {dim.name!r} cannot be {size}",
                hint=f"the package was compiled for {dim.low}..{most}",
            )
    return sizes


def _own(dim: Dim, number: int) -> tuple[int, ...]:
    if dim.high >= UNBOUNDED:
        usual = dim.typical if dim.typical > dim.low else max(dim.low, 1)
        odd = SMALL[number % len(SMALL)]
        return (max(dim.low, 1), max(dim.low, odd), max(usual, odd) if usual > odd else usual)
    middle = dim.typical if dim.low < dim.typical < dim.high else (dim.low + dim.high) // 2
    return (max(dim.low, 1) if dim.high else 0, middle, dim.high)


def _elements(manifest: Manifest, sizes: Mapping[str, int]) -> int:
    return sum(prod(shape_of(tensor, sizes)) for tensor in manifest.inputs)
