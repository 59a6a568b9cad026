"""Several images in one member of a package: what went in comes out, and what is cut short is refused."""

from __future__ import annotations

import pytest

from unistack_aot.artifact.images import joined, split


@pytest.mark.parametrize("images", [(b"\x7fELF one",), (b"a" * 64, b"", b"c" * 65), (b"x",) * 9])
def test_images_come_out_as_they_went_in(images: tuple[bytes, ...]) -> None:
    assert split(joined(images)) == images


def test_one_image_is_the_member() -> None:
    assert joined([b"\x7fELF one"]) == b"\x7fELF one"


@pytest.mark.parametrize("left", [8, 12, 20, 64, 130])
def test_a_member_cut_short_is_refused(left: int) -> None:
    whole = joined([b"a" * 100, b"b" * 100])
    with pytest.raises(ValueError, match="cut short"):
        split(whole[:left])
