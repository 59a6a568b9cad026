"""Reading a package: mapped, every size and hash checked before use.

Not here: writing (writer.py), running (runtime/).
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unistack_aot.artifact.manifest import Manifest, Member
from unistack_aot.artifact.tensors import StoredTensor, read_tensors
from unistack_aot.artifact.verify import faults
from unistack_aot.artifact.wire import from_bytes
from unistack_aot.artifact.writer import COMMENT, MANIFEST
from unistack_aot.base.errors import BadPackage

_AGAIN = "copy the package again, or compile the model again"
_LOCAL_HEADER = struct.Struct("<4s5H3L2H")


@dataclass(frozen=True, slots=True)
class _Place:
    offset: int
    nbytes: int


class Package:
    """An open package: its manifest, and its members as memory mapped from the file.

    The manifest is checked on opening, every other member by SHA-256 when it is first used;
    `verify` checks all of them.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._file = _map(self.path)
        self._data = memoryview(self._file)
        places, comment = _directory(self.path)
        self._places = {name: self._place(name, info) for name, info in places.items()}
        self.manifest: Manifest = from_bytes(bytes(self._manifest_bytes(comment)))
        self._members = {member.name: member for member in self.manifest.members}
        self._checked: set[str] = set()
        self._check_listing()

    def data(self, name: str) -> memoryview:
        """The bytes of a member in place (read only); `BadPackage` if it is missing or changed."""
        member = self._members.get(name)
        if member is None:
            known = ", ".join(sorted(self._members))
            raise self._bad(f"there is no member {name!r}", f"the package holds {known}")
        place = self._places[name]
        view = self._data[place.offset : place.offset + place.nbytes]
        if name not in self._checked:
            self._check_hash(member, view)
            self._checked.add(name)
        return view

    def tensors(self, name: str) -> dict[str, StoredTensor]:
        """The tensors of a safetensors member, in place."""
        return read_tensors(self.data(name), f"{self.path}, member {name}")

    def document(self, name: str) -> Any:
        """A JSON member, parsed."""
        return json.loads(bytes(self.data(name)))

    def forget(self, name: str) -> None:
        """Let the system take back the memory of a member that was copied; it stays readable."""
        place = self._places[name]
        start = -(-place.offset // mmap.PAGESIZE) * mmap.PAGESIZE
        length = (place.offset + place.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE - start
        if length > 0 and hasattr(mmap, "MADV_DONTNEED"):
            self._file.madvise(mmap.MADV_DONTNEED, start, length)

    def verify(self) -> None:
        """Check the hash of every member; `BadPackage` names the first that is wrong."""
        for name in self._members:
            self.data(name)

    def _manifest_bytes(self, comment: bytes) -> memoryview:
        place = self._places.get(MANIFEST)
        if place is None:
            raise self._bad(f"this is a ZIP file without {MANIFEST}, not a package", None)
        view = self._data[place.offset : place.offset + place.nbytes]
        digest = hashlib.sha256(view).hexdigest()
        if comment != (COMMENT + digest).encode():
            raise self._bad(
                "the manifest is not the one that was written (SHA-256 differs)", _AGAIN
            )
        return view

    def _check_listing(self) -> None:
        present = set(self._places) - {MANIFEST}
        for name in sorted(set(self._members) - present):
            raise self._bad(f"member {name!r} is missing", _AGAIN)
        for name in sorted(present - set(self._members)):
            raise self._bad(f"member {name!r} is not in the manifest", _AGAIN)
        for name, member in self._members.items():
            if self._places[name].nbytes != member.nbytes:
                raise self._bad(
                    f"member {name!r} has {self._places[name].nbytes} bytes "
                    f"instead of {member.nbytes}",
                    _AGAIN,
                )
        if wrong := faults(self.manifest, self._members):
            raise self._bad(
                f"the manifest contradicts itself: {wrong[0]}", "compile the model again"
            )

    def _check_hash(self, member: Member, view: memoryview) -> None:
        if hashlib.sha256(view).hexdigest() != member.sha256:
            raise self._bad(f"member {member.name!r} was changed (SHA-256 differs)", _AGAIN)

    def _place(self, name: str, info: zipfile.ZipInfo) -> _Place:
        start = info.header_offset
        raw = self._data[start : start + _LOCAL_HEADER.size]
        broken = self._bad(f"member {name!r} has a damaged header", _AGAIN)
        if len(raw) < _LOCAL_HEADER.size:
            raise broken
        fields = _LOCAL_HEADER.unpack(raw)
        name_at = start + _LOCAL_HEADER.size
        stored_name = bytes(self._data[name_at : name_at + fields[9]])
        offset = name_at + fields[9] + fields[10]
        if fields[0] != b"PK\3\4" or stored_name != name.encode():
            raise broken
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
            raise self._bad(f"member {name!r} is compressed", "do not repack the package")
        if offset + info.file_size > len(self._data):
            raise broken
        return _Place(offset, info.file_size)

    def _bad(self, what: str, hint: str | None) -> BadPackage:
        return BadPackage(what, at=self.path, hint=hint)


def open_package(path: str | os.PathLike[str], verify: bool = False) -> Package:
    """Open a package; ``verify`` hashes every member now; `BadPackage` says what is wrong."""
    package = Package(path)
    if verify:
        package.verify()
    return package


def _map(path: Path) -> mmap.mmap:
    try:
        with open(path, "rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError as error:  # an empty file cannot be mapped
        raise BadPackage("the file is empty", at=path, hint=_AGAIN) from error
    except OSError as error:
        raise BadPackage(
            f"the package cannot be opened: {error.strerror}", at=path, hint="check the path"
        ) from error


def _directory(path: Path) -> tuple[dict[str, zipfile.ZipInfo], bytes]:
    try:
        with zipfile.ZipFile(path) as archive:
            return {info.filename: info for info in _distinct(archive, path)}, archive.comment
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError) as error:
        raise BadPackage(
            f"the file is cut short or not a package ({error})", at=path, hint=_AGAIN
        ) from error


def _distinct(archive: zipfile.ZipFile, path: Path) -> Iterator[zipfile.ZipInfo]:
    seen: set[str] = set()
    for info in archive.infolist():
        if info.filename in seen:
            raise BadPackage(f"two members are called {info.filename!r}", at=path, hint=_AGAIN)
        seen.add(info.filename)
        yield info
