"""Schedule operators on written examples: the program before and after, exactly, and the same numbers from both.

Operators on loops show their examples in their docstrings, those on whole kernels in tests/golden/operators.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from unistack_aot.base.verdict import No
from unistack_aot.mcir.evaluate import evaluate_kernel
from unistack_aot.mcir.layout import Layout
from unistack_aot.mcir.nodes import Kernel, Loop, Role
from unistack_aot.mcir.parse import parse_kernel
from unistack_aot.mcir.program import Launch
from unistack_aot.mcir.text import print_kernel
from unistack_aot.mcir.transform import rewrite
from unistack_aot.mcir.verify import verify_kernel
from unistack_aot.schedule.attention import AttentionSite, attended, find_attention
from unistack_aot.schedule.clipping import clipped
from unistack_aot.schedule.contraction import Site, find_site
from unistack_aot.schedule.fusion import extended, inlined, joined
from unistack_aot.schedule.layouts import with_layouts
from unistack_aot.schedule.operators import (
    can_fuse,
    can_interchange,
    can_split,
    fused,
    interchange,
    split,
)
from unistack_aot.schedule.panels import Blocks, Depth, depth_of, pack_kernel, tiled
from unistack_aot.schedule.split_depth import finishing, partial

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "operators"
DIMS = {"N": 7, "M": 5, "K": 6}
Kernels = tuple[Kernel, ...]


def kernels_of(text: str) -> Kernels:
    return tuple(parse_kernel(part) for part in re.split(r"(?m)^(?=kernel )", text) if part.strip())


def numbers(kernels: Kernels) -> dict[str, np.ndarray]:
    """All arrays after running kernels one after the other on seeded inputs."""
    rng = np.random.default_rng(7)
    written = {p.name for k in kernels for p in k.outputs}
    arrays: dict[str, np.ndarray] = {}
    names = sorted({p.name: p for k in kernels for p in k.params}.items())
    for name, param in names:
        shape = [d if isinstance(d, int) else DIMS[str(d)] for d in param.shape]
        if name not in written:
            arrays[name] = rng.standard_normal(shape).astype(param.dtype.numpy)
    for kernel in kernels:
        arrays |= evaluate_kernel(kernel, arrays, DIMS)
    return arrays


def assert_same_numbers(before: Kernels, after: Kernels, names: dict[str, str]) -> None:
    """`names` gives the results to compare: in `after` by their name in `before`."""
    first, second = numbers(before), numbers(after)
    for old, new in names.items():
        np.testing.assert_allclose(second[new], first[old], rtol=1e-5, atol=1e-6)


def on_loop(kernel: Kernel, change: Callable[[Loop], Loop]) -> Kernel:
    (loop,) = kernel.body
    assert isinstance(loop, Loop)
    return kernel.with_body((change(loop),))


LOOPS: dict[Callable[..., Loop], Callable[[Kernel], Kernel]] = {
    split: lambda k: on_loop(k, lambda loop: split(loop, 4, Role.GRID, Role.VECTOR)),
    fused: lambda k: on_loop(k, fused),
    interchange: lambda k: on_loop(k, interchange),
}


@pytest.mark.parametrize("operator", LOOPS, ids=lambda f: f.__name__)
def test_docstrings_of_loop_operators(operator: Callable[..., Loop]) -> None:
    text = inspect.getdoc(operator) or ""
    found = re.search(rf"before:\n(.*?)after {operator.__name__}\(.*?\):\n(.*)", text, re.DOTALL)
    assert found is not None, f"{operator.__name__} shows no example"
    before, after = (inspect.cleandoc(part) + "\n" for part in found.groups())
    kernel = parse_kernel(before)
    changed = LOOPS[operator](kernel)
    assert print_kernel(changed, "k") == after
    verify_kernel(changed)
    assert_same_numbers((kernel,), (changed,), {"y": "y"})


def test_loop_operators_refuse_with_a_reason() -> None:
    def loop(text: str) -> tuple[Kernel, Loop]:
        kernel = parse_kernel(f"kernel k(x: f32[9, 9] far) -> y: f32[9, 9] far {{ {text} }}")
        (found,) = kernel.body
        assert isinstance(found, Loop)
        return kernel, found

    kernel, decided = loop("for i in 9 role=grid { y[i, 0] = 0.0 }")
    assert not can_split(decided, 4) and not can_split(loop("for i in 9 { y[i, 0] = 0.0 }")[1], 0)
    assert str(can_interchange(decided)) == "loop i holds more than one loop"
    kernel, ragged = loop("for i in 9, j in i + 1 { y[i, j] = 0.0 }")
    assert str(can_interchange(ragged)) == "the extent of j depends on i"
    assert not can_fuse(kernel, ragged, {})
    kernel, turned = loop("for i in 9, j in 9 { y[i, j] = x[j, i] }")
    assert str(can_fuse(kernel, turned, {})) == "x is not linear in the joint loop"
    assert can_interchange(turned) and can_split(turned, 4)


def launch(kernel: Kernel) -> Launch:
    return Launch(kernel, tuple(p.name for p in kernel.params))


def site_of(kernel: Kernel) -> tuple[Site, Depth]:
    site = find_site(kernel)
    assert isinstance(site, Site)
    param = kernel.param(site.a.load.buffer)
    depth = depth_of(site, param.layout, param.shape, {})
    assert isinstance(depth, Depth)
    return site, depth


def _inline(kernels: Kernels) -> Kernels:
    first, second = map(launch, kernels)
    return (inlined(first, second, "t").kernel,)


def _epilogue(kernels: Kernels) -> Kernels:
    found = extended(*map(launch, kernels), "t")
    assert not isinstance(found, No), found
    return (found.kernel,)


def _join(kernels: Kernels) -> Kernels:
    found = joined(*map(launch, kernels), frozenset())
    assert not isinstance(found, No), found
    return (found.kernel,)


def _panels(kernels: Kernels) -> Kernels:
    (kernel,) = kernels
    site, depth = site_of(kernel)
    layout = kernel.param(site.a.load.buffer).layout
    blocks = Blocks(4, 1, 4, 1, 0)
    packing = pack_kernel(site, depth, layout, kernel.param(site.b.load.buffer))
    return packing, tiled(kernel, site, depth, layout, "packed", blocks, {})


def _attend(kernels: Kernels) -> Kernels:
    (kernel,) = kernels
    site = find_attention(kernel)
    assert isinstance(site, AttentionSite), site
    return (attended(kernel, site, 4, 8, "attention.f32"),)


def _layouts(kernels: Kernels) -> Kernels:
    (kernel,) = kernels
    return (with_layouts(kernel, {"y": Layout((1, 8), ((0, 0), (0, 0), (1, 1)))}),)


def _clip(kernels: Kernels) -> Kernels:
    (kernel,) = kernels
    change = lambda s: clipped(s) if hasattr(s, "monoid") else None  # noqa: E731
    return (kernel.with_body(rewrite(kernel.body, change)),)


WHOLE: dict[str, Callable[[Kernels], Kernels]] = {
    "inline": _inline,
    "epilogue": _epilogue,
    "join-rows": _join,
    "panels": _panels,
    "attend": _attend,
    "layouts": _layouts,
    "clip": _clip,
}


@pytest.mark.parametrize("name", WHOLE)
def test_operators_on_kernels(name: str, update_golden: bool) -> None:
    """The file holds the kernels before, a line of dashes, and the kernels after."""
    path = GOLDEN / f"{name}.mcir"
    before, _, after = path.read_text().partition("----\n")
    kernels = kernels_of(before)
    changed = WHOLE[name](kernels)
    text = "\n".join(print_kernel(k, f"k{n}") for n, k in enumerate(changed))
    if update_golden:
        path.write_text(f"{before}----\n{text}")
        after = text
    assert text == after
    for kernel in (*kernels, *changed):
        verify_kernel(kernel)
    if name == "layouts":  # the evaluator knows logical elements only, not the zeroed borders
        changed = (changed[0].with_body(changed[0].body[:1]),)
    result = changed[-1].outputs[-1].name
    assert_same_numbers(kernels, changed, {kernels[-1].outputs[-1].name: result})


def test_split_depth_adds_the_parts() -> None:
    text = (GOLDEN / "panels.mcir").read_text().partition("----\n")[0]
    (kernel,) = kernels_of(text)
    site, _ = site_of(kernel)
    first, _ = partial(kernel, site, "parts", 3)
    assert [p.name for p in first.outputs] == ["parts"]
    last = finishing(kernel, site, "parts", 3)
    verify_kernel(last)
    assert "fold sum over part in 3 of parts[part, i, j]" in print_kernel(last)
