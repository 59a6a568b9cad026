"""Which loop variables the address of a store determines."""

from __future__ import annotations

import pytest

from unistack_aot.base.symbolic import parse
from unistack_aot.mcir.distinct import determined

INSIDE = {"n": (1, None), "i": (0, None), "j": (0, 8191)}


@pytest.mark.parametrize(
    "entries",
    [
        ("8192*i + j",),
        ("(8192*i + j)//60", "(2048*i + j//4)%15", "j%4"),
        ("(8192*i + j)//224", "j%16", "(256*i + j//32)%7", "(j//16)%2"),
        (
            "(8192*i + j)//144",
            "(4*((8192*i + j)%144))//9",
            "((4*((8192*i + j)%144))//3)%3",
            "(i*32768 + 4*j)%3",
        ),
    ],
)
def test_a_flat_loop_over_several_axes_is_determined(entries: tuple[str, ...]) -> None:
    found = determined([parse(e) for e in entries], {"i", "j"}, INSIDE)
    assert found == {"i", "j"}


@pytest.mark.parametrize(
    "entries",
    [
        ("4096*i + j",),
        ("(8192*i + j)//60", "(2048*i + j//4)%15"),
        ("(8192*i + j)//61", "(2048*i + j//4)%15", "j%4"),
        ("(8192*i + j)//120", "(2048*i + j//4)%15", "j%4"),
        (
            "(8192*i + j)//144",
            "(4*((8192*i + j)%144))//9",
            "((4*((8192*i + j)%144))//3)%3",
            "(i*32768 + 5*j)%3",
        ),
    ],
)
def test_colliding_addresses_determine_nothing(entries: tuple[str, ...]) -> None:
    assert determined([parse(e) for e in entries], {"i", "j"}, INSIDE) != {"i", "j"}
