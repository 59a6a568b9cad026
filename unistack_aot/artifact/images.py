"""Several images of machine code as one member of a package: a count, their sizes, the images one after another.

One image alone is a member as it is. Not here: what is in an image.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

_MAGIC = b"UAimages"
_ALIGNED = 64


def joined(images: Sequence[bytes]) -> bytes:
    """The content of a member that holds these images."""
    if len(images) == 1:
        return images[0]
    head = _MAGIC + struct.pack(f"<{1 + len(images)}Q", len(images), *map(len, images))
    return b"".join(part.ljust(_rounded(len(part)), b"\0") for part in (head, *images))


def split(member: bytes | memoryview) -> tuple[bytes, ...]:
    """The images of a member; ValueError if it is cut short."""
    data = bytes(member)
    if not data.startswith(_MAGIC):
        return (data,)
    try:
        (count,) = struct.unpack_from("<Q", data, len(_MAGIC))
        sizes = struct.unpack_from(f"<{count}Q", data, len(_MAGIC) + 8)
    except struct.error as error:
        raise ValueError("the list of images is cut short") from error
    place = _rounded(len(_MAGIC) + 8 * (1 + count))
    found: list[bytes] = []
    for size in sizes:
        found.append(data[place : place + size])
        place += _rounded(size)
    if any(len(image) != size for image, size in zip(found, sizes, strict=True)):
        raise ValueError("an image is cut short")
    return tuple(found)


def _rounded(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED
