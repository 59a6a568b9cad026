"""What schedule operators refuse, and the reason they give."""

from __future__ import annotations

import pytest

from unistack_aot.base.dtypes import DType, bf16, f32
from unistack_aot.base.errors import IRError
from unistack_aot.hw.catalogue import builtin_maps
from unistack_aot.hw.machine import Machine
from unistack_aot.mcir.layout import Layout
from unistack_aot.mcir.nodes import Fold, Kernel, Loop, Role
from unistack_aot.mcir.parse import parse_kernel
from unistack_aot.mcir.winograd import F2
from unistack_aot.schedule.block_cuts import CUT_BLOCKS
from unistack_aot.schedule.contraction import Site, find_site
from unistack_aot.schedule.epilogues import EPILOGUE
from unistack_aot.schedule.independent import MOVE_OUTSIDE
from unistack_aot.schedule.inlining import INLINE
from unistack_aot.schedule.lanes_inside import LANES_INSIDE
from unistack_aot.schedule.last_writer import LAST_WRITER
from unistack_aot.schedule.laying_out import LAY_OUT
from unistack_aot.schedule.loops import BIND, FUSE, SPLIT
from unistack_aot.schedule.narrow_floats import WIDEN
from unistack_aot.schedule.operator import launch_of
from unistack_aot.schedule.panel_packing import PACK
from unistack_aot.schedule.panel_tiles import TILE_PANELS
from unistack_aot.schedule.panels import Blocks, Depth, depth_of
from unistack_aot.schedule.row_joins import JOIN_ROWS
from unistack_aot.schedule.separation import SEPARATE
from unistack_aot.schedule.split_depth import SPLIT_REDUCE
from unistack_aot.schedule.staging import STAGE
from unistack_aot.schedule.storing_narrow import STORE_NARROW
from unistack_aot.schedule.tile_instruction import SHOWN
from unistack_aot.schedule.tiling import STREAM, TILE
from unistack_aot.schedule.transposes import TURN
from unistack_aot.schedule.vectorising import VECTORISE, VECTORISE_FOLD
from unistack_aot.schedule.winograd import TILE_WINOGRAD

PRODUCT = """kernel product(a: f32[N, 20] far, b: f32[20, M] far) -> y: f32[N, M] far {
  for i in N, j in M { s = fold sum over k in 20 of a[i, k] * b[k, j] y[i, j] = s }
}"""


def square(body: str) -> Kernel:
    return parse_kernel(f"kernel k(x: f32[9, 9] far) -> y: f32[9, 9] far {{ {body} }}")


def loop_of(kernel: Kernel) -> Loop:
    (found,) = kernel.body
    assert isinstance(found, Loop)
    return found


def test_loop_operators_refuse_with_a_reason() -> None:
    def loop(text: str) -> tuple[Kernel, Loop]:
        kernel = square(text)
        return kernel, loop_of(kernel)

    kernel, decided = loop("for i in 9 role=grid { y[i, 0] = 0.0 }")
    roles = (Role.GRID, Role.VECTOR)
    assert str(SPLIT(decided, 4, *roles)) == "its role or step is decided already"
    assert (
        str(SPLIT(loop("for i in 9 { y[i, 0] = 0.0 }")[1], 0, *roles)) == "chunks of 0 iterations"
    )
    assert str(FUSE(kernel, decided, {})) == "loop i holds more than one loop"
    assert str(BIND(decided, Role.VECTOR)) == "it has the role grid already"
    with pytest.raises(IRError, match="bind: it has the role grid already"):
        BIND.sure(decided, Role.VECTOR)
    kernel, ragged = loop("for i in 9, j in i + 1 { y[i, j] = 0.0 }")
    assert str(FUSE(kernel, ragged, {})) == "the extent of j depends on i"
    kernel, turned = loop("for i in 9, j in 9 { y[i, j] = x[j, i] }")
    assert str(FUSE(kernel, turned, {})) == "x is not linear in the joint loop"
    assert SPLIT(turned, 4, *roles)


def test_fusions_refuse_with_a_reason() -> None:
    fold = "for i in 9 { s = fold sum over j in 9 of x[i, j] t[i] = s }"
    first = parse_kernel(f"kernel k(x: f32[9, 9] far) -> t: f32[9] far {{ {fold} }}")
    head = "kernel k(t: f32[9] far) -> y: f32[9] far"
    moved = parse_kernel(f"{head} {{ for i in 9 {{ y[i] = t[8 - i] + t[i] }} }}")
    launches = (launch_of(first), launch_of(moved))
    assert str(INLINE(*launches, "t")) == "the producer is not a map"
    assert str(EPILOGUE(*launches, "t")) == "the reader reads several elements"
    assert str(JOIN_ROWS(*launches, frozenset())) == "the reader uses other rows' results"


def test_tiles_refuse_with_a_reason() -> None:
    kernel = parse_kernel(PRODUCT)
    site = find_site(kernel)
    assert isinstance(site, Site)
    copy = square("for i in 9 { y[i, 0] = x[i, 0] }")
    assert (
        str(TILE(copy, find_site(copy), SHOWN, {})) == "there is no fold directly inside the loops"
    )
    two = kernel.with_body((*kernel.body, *copy.body))
    assert str(TILE(two, find_site(two), SHOWN, {})) == "more nests follow the contraction"
    tiles = TILE.sure(kernel, site, SHOWN, {})
    assert str(STREAM(kernel, 8)) == "it is no tiled contraction"
    assert str(STREAM(tiles, 0)) == "steps of 0"
    stream = STREAM.sure(tiles, 8)
    assert str(STREAM(stream, 4)) == "its depth is cut already"
    assert str(STAGE(tiles, SHOWN, (True, True), 2)) == "no stream holds the product alone"
    assert str(STAGE(stream, SHOWN, (True, True), 0)) == "0 stages"
    assert str(SPLIT_REDUCE(tiles, site, "parts", 2)) == "its depth is no stream"
    assert str(SPLIT_REDUCE(stream, site, "a", 2)) == "a is taken"
    assert str(SPLIT_REDUCE(stream, site, "parts", 1)) == "1 parts"


def test_panels_refuse_with_a_reason() -> None:
    kernel = parse_kernel(PRODUCT)
    half = parse_kernel(PRODUCT.replace("f32", "f16"))
    assert str(PACK(half, find_site(half), "packed", {})) == "fma.panel16 takes f32"
    thin = parse_kernel(PRODUCT.replace("M", "3"))
    assert str(PACK(thin, find_site(thin), "packed", {})) == "too few columns for a panel"
    guarded = parse_kernel(PRODUCT.replace("of a[i, k]", "of where(k < 9, a[i, k], 0.0)"))
    reason = "the left operand has guarded elements"
    assert str(PACK(guarded, find_site(guarded), "packed", {})) == reason
    assert str(PACK(kernel, find_site(kernel), "a", {})) == "a is taken"
    plain = TILE_PANELS(kernel, find_site(kernel), Blocks(4, 1, 4, 1, 0), {})
    assert str(plain) == "the right operand is not packed"


def test_winograd_refuses_with_a_reason() -> None:
    def refused(channels: str, window: str, side: int = 4) -> str:
        size = side + 2
        kernel = parse_kernel(
            f"kernel k(x: f32[1, 32, {2 * size}, {size}] far{channels}, w: f32[16, 32, 3, 3] far) "
            f"-> y: f32[1, 16, {side}, {side}] far {{ for o in 16, i in {side}, j in {side} {{ "
            f"s = fold sum over c in 32, di in 3, dj in 3 of x[0, c, {window}] * w[o, c, di, dj] "
            "y[0, o, i, j] = s } }"
        )
        site = find_site(kernel)
        assert isinstance(site, Site)
        a = kernel.param("x")
        depth = depth_of(site, a.layout, a.shape, {})
        assert isinstance(depth, Depth)
        machine = Machine(next(iter(builtin_maps().values())))
        return str(TILE_WINOGRAD(kernel, site, depth, F2, "weights", machine))

    assert refused("", "i + di, j + dj") == "the operand is no image in channel blocks"
    blocked = " block(1, 16)"
    assert refused(blocked, "2*i + di, j + dj") == "the window is strided or dilated"
    assert refused(blocked, "i + di, j + dj", 5) == "5x5 pixels are no whole tiles of F(2x2, 3x3)"


def test_layouts_refuse_with_a_reason() -> None:
    kernel = square("for i in 9, j in 9 { y[i, j] = x[i, j] }")
    assert str(LAY_OUT(kernel, {"y": Layout((2, 8))})) == "y has 2 axes"
    assert str(LAY_OUT(kernel, {"y": Layout(None, ((1, 1),))})) == "y has 2 axes"
    laid = LAY_OUT.sure(kernel, {"y": Layout((1, 8))})
    assert str(LAY_OUT(laid, {"y": Layout((0, 8))})) == "y is laid out already"
    full = loop_of(kernel)
    assert str(CUT_BLOCKS(kernel, full)) == "no loop of constant length runs over blocks"
    even = parse_kernel("kernel k() -> y: f32[16] far block(0, 8) { for i in 16 { y[i] = 0.0 } }")
    reason = "its blocks are all full, or it has only one"
    assert str(CUT_BLOCKS(even, loop_of(even))) == reason
    assert str(LANES_INSIDE(full, "k", 4)) == "no loop is called k"
    assert str(LANES_INSIDE(full, "i", 0)) == "chunks of 0 iterations"
    ordered = loop_of(square("for i in 9 role=seq { y[i, 0] = 0.0 }"))
    assert str(LANES_INSIDE(ordered, "i", 4)) == "its loops are not independent"


def test_wide_steps_refuse_with_a_reason() -> None:
    kernel = parse_kernel(
        "kernel k(x: f32[64, 30] far) -> y: f32[64] far "
        "{ for i in 64 { s = fold sum over j in 30 of x[i, j] y[i] = s } }"
    )
    row = loop_of(kernel)
    fold = row.body[0]
    assert isinstance(fold, Fold)
    assert str(VECTORISE(kernel, row, 4, {})) == "it holds more than straight code"
    assert str(VECTORISE_FOLD(kernel, fold, 1, {})) == "1 elements at once"
    assert str(VECTORISE_FOLD(kernel, fold, 4, {})) == "its steps do not divide into 4"
    assert VECTORISE_FOLD(kernel, fold, 2, {})

    def refused(body: str) -> str:
        wide = parse_kernel(f"kernel k(x: f32[64] far) -> y: f32[64] far {{ {body} }}")
        return str(VECTORISE(wide, loop_of(wide), 4, {}))

    reason = "4 elements of x are not one aligned run"
    assert refused("for i in 60 { y[i] = x[i + 1] }") == reason
    assert refused("for i in 32 { y[i] = x[2*i] }") == reason
    assert refused("for i in 64 { y[i] += x[i] }") == "it combines with what its result holds"


def test_orders_refuse_with_a_reason() -> None:
    one = square("for i in 9, j in 9 { y[i, j] = x[i, j] }")
    assert str(SEPARATE(one)) == "it is one nest"
    assert str(MOVE_OUTSIDE(one)) == "its outermost loop is not ordered"
    crossed = square("for t in 8 role=seq { for i in 9 { y[t + 1, i] = y[t, 8 - i] } }")
    assert str(MOVE_OUTSIDE(crossed)) == "no loop inside has places of its own"
    reason = "it is not ordered loops around one overwriting store"
    assert str(LAST_WRITER(crossed, "w")) == reason
    told = square("for t in 9 role=seq { y[t, 0] = 0.0 }")
    assert str(LAST_WRITER(told, "w")) == "its places do not depend on data"
    scatter = "kernel k(places: i64[9] far) -> inout y: f32[9] far { for i in 9 role=seq { %s } }"
    few = parse_kernel(scatter % "y[at places[i]] = 0.0")
    assert str(LAST_WRITER(few, "w")) == "9 updates"
    reading = parse_kernel(scatter % "y[at places[i]] = y[0]")
    assert str(LAST_WRITER(reading, "w")) == "it reads what it writes"
    assert str(TURN(one, {})) == "not exactly one operand is turned"
    narrow = parse_kernel(
        "kernel k(x: f32[4, 99] far) -> y: f32[99, 4] far { for i in 99, j in 4 { y[i, j] = x[j, i] } }"
    )
    assert str(TURN(narrow, {})) == "the matrix is narrow"


def test_narrow_types_refuse_with_a_reason() -> None:
    assert str(WIDEN(parse_kernel(PRODUCT))) == "no function takes narrow floats"
    first = parse_kernel("kernel k(x: f32[9] far) -> t: f32[9] far { for i in 9 { t[i] = x[i] } }")
    last = parse_kernel("kernel k(t: f32[9] far) -> y: f32[9] far { for i in 9 { y[i] = t[i] } }")
    launches = launch_of(first), launch_of(last)

    def rounded(_: Kernel, name: str) -> DType:
        return bf16

    def exact(_: Kernel, name: str) -> None:
        return None

    assert STORE_NARROW(launches, {"t": bf16}, rounded)
    assert str(STORE_NARROW(launches, {"t": bf16}, exact)) == "not every reader rounds t to bf16"
    assert str(STORE_NARROW(launches, {"t": f32}, rounded)) == "f32 is no narrower than t"
    assert str(STORE_NARROW(launches, {"y": bf16}, rounded)) == "y is not written once and read"
    assert str(STORE_NARROW(launches, {}, rounded)) == "nothing is chosen"
