"""Measured times of kernels' ways: one JSON file per kernel, named by content, written whole or not at all.

A name is the hash of the kernel's text, the property map, the tool chain and the number of threads,
so a folder can be copied, shared and merged file by file. Not here: what is measured (search.py).
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from unistack_aot.base.errors import BadInput

SCHEMA = 2
_AGAIN = "delete the file; it is measured again"


@dataclass(frozen=True, slots=True)
class Setting:
    """What measurements hold for, besides the kernel: a map's text, a tool chain's words, threads."""

    map: str
    toolchain: str
    threads: int

    def name(self, key: str) -> str:
        """The entry's name for the kernel `key`."""
        words = (str(SCHEMA), key, self.map, self.toolchain, str(self.threads))
        return sha256("\0".join(words).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Entry:
    """One kernel: what it computes, predicted and measured seconds by way, the usual way, ways refused and why."""

    subject: str
    usual: str
    predicted: Mapping[str, float]
    measured: Mapping[str, float] = field(default_factory=dict[str, float])
    refused: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def tried(self) -> frozenset[str]:
        """The ways that need no trial any more."""
        return frozenset((*self.measured, *self.refused))

    def with_time(self, way: str, seconds: float) -> Entry:
        """The entry with one more measurement; of two of the same way the shorter counts."""
        times = {**self.measured, way: min(seconds, self.measured.get(way, seconds))}
        return replace(self, measured=times)

    def without(self, refused: Mapping[str, str]) -> Entry:
        """The entry with ways that must not be taken, whatever their times are."""
        return replace(self, refused={**self.refused, **refused})


class Database:
    """The entries in a folder; a missing folder is an empty database."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path:
        """Where an entry lies."""
        return self.folder / name[:2] / f"{name}.json"

    def read(self, name: str) -> Entry | None:
        """The entry of that name; BadInput names a file that is none."""
        path = self.path(name)
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise BadInput(
                f"a tuning entry is not JSON: {error}", at=path, hint="delete the file"
            ) from error
        return _entry(found, path)

    def write(self, name: str, entry: Entry) -> None:
        """Put an entry there; whoever reads meanwhile sees the old one or the new one."""
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        document = {
            "schema": SCHEMA,
            "subject": entry.subject,
            "usual": entry.usual,
            "predicted": dict(sorted(entry.predicted.items())),
            "measured": dict(sorted(entry.measured.items())),
            "refused": dict(sorted(entry.refused.items())),
        }
        handle, draft = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=1)
        os.replace(draft, path)


def _entry(found: object, path: Path) -> Entry:
    fields = cast(dict[str, Any], found) if isinstance(found, dict) else {}
    if fields.get("schema") != SCHEMA:
        raise BadInput(
            f"a tuning entry has schema {fields.get('schema')!r}, this version reads {SCHEMA}",
            at=path,
            hint=_AGAIN,
        )
    names = ("subject", "usual", "predicted", "measured", "refused")
    missing = [name for name in names if name not in fields]
    if missing:
        raise BadInput(f"a tuning entry has no field '{missing[0]}'", at=path, hint=_AGAIN)
    times = {**fields["measured"], **fields["predicted"]}
    for way, seconds in times.items():
        if not isinstance(seconds, int | float) or not 0 < seconds < 1e4:
            raise BadInput(
                f"a tuning entry says that '{way}' takes {seconds!r} seconds", at=path, hint=_AGAIN
            )
    return Entry(*(fields[name] for name in names))
