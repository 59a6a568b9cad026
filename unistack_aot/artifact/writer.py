"""Writing a package, all or nothing: a ZIP of stored, 64-byte aligned members.

Not here: what goes into it (manifest.py).

Equal content gives equal bytes: fixed time stamps, members in sorted order. The manifest is the
last member, because it holds the hashes of the others; its own hash is the archive's comment.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import struct
import zipfile
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from unistack_aot.artifact.manifest import Manifest, Member
from unistack_aot.artifact.verify import faults
from unistack_aot.artifact.wire import to_bytes
from unistack_aot.base.errors import IRError, UnistackError

MANIFEST = "manifest.pb"
COMMENT = "unistack_aot package, manifest sha256 "
ALIGNMENT = 64
_LOCAL_HEADER = 30
_ZIP64_EXTRA = 20
_CHUNK = 1 << 22
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time a ZIP can hold
_PADDING_ID = 0xD935  # "alignment" extra field, as written by Android's zipalign
_ZIP64_FROM = 1 << 30  # well below the 2 GiB at which Python's zipfile insists on it


class Content(Protocol):
    """What a member holds: a size known beforehand and the bytes in pieces."""

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        ...

    def chunks(self) -> Iterable[memoryview]:
        """The bytes, in order."""
        ...


@dataclass(frozen=True, slots=True)
class Written:
    """A finished package: where it is, its size in bytes and the SHA-256 of the file."""

    path: Path
    nbytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class _Bytes:
    data: bytes

    @property
    def nbytes(self) -> int:
        return len(self.data)

    def chunks(self) -> Iterator[memoryview]:
        yield memoryview(self.data)


def write_package(
    path: str | os.PathLike[str], manifest: Manifest, contents: Mapping[str, bytes | Content]
) -> Written:
    """Write the package, or leave no trace and raise.

    `IRError` for a manifest that contradicts itself, `UnistackError` when the file cannot be
    written (disk full, missing folder).
    """
    if wrong := faults(manifest, contents):
        raise IRError(f"the manifest contradicts itself: {wrong[0]}", at=os.fspath(path))
    target = Path(path)
    with _atomic(target) as temporary:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED, strict_timestamps=True) as archive:
            members = tuple(
                _add(archive, name, _content(contents[name])) for name in sorted(contents)
            )
            body = to_bytes(replace(manifest, members=members))
            digest = _add(archive, MANIFEST, _Bytes(body)).sha256
            archive.comment = (COMMENT + digest).encode()
        nbytes, digest = temporary.stat().st_size, file_sha256(temporary)
    return Written(target, nbytes, digest)


def file_sha256(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a whole file in lower-case hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _content(content: bytes | Content) -> Content:
    return _Bytes(content) if isinstance(content, bytes) else content


def _add(archive: zipfile.ZipFile, name: str, content: Content) -> Member:
    info = zipfile.ZipInfo(name, _EPOCH)
    info.create_system = 3
    info.external_attr = 0o644 << 16
    info.file_size = content.nbytes
    zip64 = content.nbytes >= _ZIP64_FROM
    assert archive.fp is not None
    header = _LOCAL_HEADER + len(name.encode()) + (_ZIP64_EXTRA if zip64 else 0) + 4
    start = archive.fp.tell() + header
    padding = -start % ALIGNMENT
    info.extra = struct.pack("<HH", _PADDING_ID, padding) + bytes(padding)
    digest = hashlib.sha256()
    done = 0
    with archive.open(info, "w", force_zip64=zip64) as file:
        for piece in content.chunks():
            for offset in range(0, piece.nbytes, _CHUNK):
                part = piece[offset : offset + _CHUNK]
                digest.update(part)
                file.write(part)
            done += piece.nbytes
    if done != content.nbytes:
        raise IRError(f"member {name} announced {content.nbytes} bytes and gave {done}")
    return Member(name, done, digest.hexdigest())


@contextmanager
def _atomic(target: Path) -> Generator[Path, None, None]:
    """A temporary file beside ``target`` that replaces it on success and vanishes on failure."""
    temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")  # the target's name may be long
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        raise UnistackError(
            f"the package could not be written: {error.strerror or error}",
            at=target,
            hint="free space or choose another place; nothing was written",
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
