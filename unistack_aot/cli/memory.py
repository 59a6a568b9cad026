"""Sentences about a variant's memory, from the same plan that the runtime makes."""

from __future__ import annotations

from unistack_aot.artifact.manifest import UNBOUNDED as UNBOUNDED
from unistack_aot.artifact.manifest import Certificate, Manifest, Variant
from unistack_aot.base.errors import UnistackError
from unistack_aot.cli.face import size
from unistack_aot.runtime.layout import certify


def certificates(manifest: Manifest, variant: Variant) -> list[tuple[str, Certificate]]:
    """Arena bytes at the lowest and the highest sizes (typical ones where there is no bound)."""
    low = {dim.name: max(dim.low, 1) for dim in manifest.dims}
    high = {
        dim.name: dim.high if dim.high < UNBOUNDED else max(dim.typical, 1) for dim in manifest.dims
    }
    found: list[tuple[str, Certificate]] = []
    for sizes in [low] if low == high else [low, high]:
        try:
            found.append((_named(sizes), certify(variant, sizes)))
        except UnistackError:
            continue  # sizes that each dimension allows need not fit together
    return found


def memory_line(manifest: Manifest, variant: Variant) -> str:
    """`arena 3.1 MB at batch 1, 24.6 MB at batch 8 (lower bound 24.6 MB)`."""
    found = certificates(manifest, variant)
    if not found:
        return ""
    parts = [f"{size(each.peak)} at {where}" if where else size(each.peak) for where, each in found]
    return f"arena {', '.join(parts)} (lower bound {size(found[-1][1].lower_bound)})"


def _named(sizes: dict[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sizes.items())
