"""What a user may ask of a compilation, and the digest of it. Not here: environment variables.

Every field either alters the package, and then is part of the digest, or only looks (dump folders,
process counts), and then is not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast, get_args

from .errors import BadInput

Precision = Literal["f32", "tf32", "f16", "bf16"]
Convolution = Literal["fast", "direct"]
DimRequest: TypeAlias = "int | Sequence[int]"


@dataclass(frozen=True, slots=True)
class DimRange:
    """The sizes a symbolic dimension may take, inclusive, and the one to be fastest at."""

    low: int
    typical: int
    high: int

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.typical <= self.high:
            raise BadInput(
                f"a dimension from {self.low} to {self.high}, typically {self.typical}",
                hint="give 0 <= lowest <= typical <= highest",
            )

    def __contains__(self, size: int) -> bool:
        return self.low <= size <= self.high


_LOOKS: Any = {"looks": True}


VERIFY = 1
"""The verification level where none is asked for; the tests raise it."""


@dataclass(frozen=True, slots=True)
class Options:
    """All choices of one compilation; equal options, model and property map give equal packages."""

    targets: tuple[str, ...] = ()
    """Targets as written by the user; empty: every target whose tools are here."""
    dims: tuple[tuple[str, DimRange], ...] = ()
    """Ranges of symbolic dimensions, sorted by name."""
    precision: Precision = "f32"
    """The precision that contractions may be computed in."""
    convolution: Convolution = "fast"
    """direct: sums have the terms of the definition; fast: also bilinear forms within the tolerance."""
    maps: tuple[str, ...] = ()
    """Texts of property maps that stand for the built-in ones of their architectures."""
    threads: int = 0
    """Threads to tune the host's kernels for; 0: the machine's own number."""
    verify: int = field(default_factory=lambda: VERIFY, metadata=_LOOKS)
    """1: at stage borders, 2: after each pass, 3: after each rewrite, with evaluation."""
    dump: Path | None = field(default=None, metadata=_LOOKS)
    """Folder for the numbered texts of every stage."""
    override: Path | None = None
    """Folder with texts that replace stages."""
    start: Path | None = None
    """Text of the stage that compilation begins with."""

    def __post_init__(self) -> None:
        if self.precision not in get_args(Precision):
            raise BadInput(
                f"no precision is called {self.precision!r}",
                hint=f"use one of {', '.join(get_args(Precision))}",
            )
        if self.convolution not in get_args(Convolution):
            raise BadInput(
                f"no form of convolution is called {self.convolution!r}",
                hint=f"use one of {', '.join(get_args(Convolution))}",
            )
        if self.verify not in (1, 2, 3):
            raise BadInput(f"no verification level {self.verify}", hint="use 1, 2 or 3")
        if self.threads < 0:
            raise BadInput(f"{self.threads} threads", hint="use 0 (the machine's number) or more")

    def dim(self, name: str) -> DimRange | None:
        """The range given for a symbolic dimension, or None."""
        return dict(self.dims).get(name)

    @property
    def digest(self) -> str:
        """SHA-256, in hex, of everything that may alter the package."""
        kept = {f.name: getattr(self, f.name) for f in fields(self) if not f.metadata.get("looks")}
        kept["dims"] = [[name, d.low, d.typical, d.high] for name, d in self.dims]
        kept["start"] = None if self.start is None else _contents(self.start.parent, self.start)
        kept["override"] = None if self.override is None else _contents(self.override)
        return sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def _contents(folder: Path, only: Path | None = None) -> list[list[str]]:
    """Names and hashes of the files in a folder, or of one; BadInput if there is no such folder."""
    if not folder.is_dir():
        raise BadInput("the override folder does not exist", at=folder)
    found = folder.rglob("*") if only is None else [only]
    files = sorted(path for path in found if path.is_file())
    return [
        [path.relative_to(folder).as_posix(), sha256(path.read_bytes()).hexdigest()]
        for path in files
    ]


def dim_ranges(requests: Mapping[str, DimRequest]) -> tuple[tuple[str, DimRange], ...]:
    """Ranges from {"batch": 8}, {"batch": (1, 8)} or {"batch": (1, 4, 8)}.

    Three numbers are lowest, typical, highest; two make the highest typical; BadInput otherwise.
    """
    return tuple((name, _dim_range(name, requests[name])) for name in sorted(requests))


def _dim_range(name: str, request: DimRequest) -> DimRange:
    sizes = (request,) if isinstance(request, int) else tuple(request)
    if not all(isinstance(cast(object, size), int) for size in sizes) or not 1 <= len(sizes) <= 3:
        raise BadInput(
            f"the range {request!r} can not be read",
            at=f"dimension {name}",
            hint="give one size, (lowest, highest) or (lowest, typical, highest)",
        )
    return DimRange(sizes[0], sizes[len(sizes) // 2], sizes[-1])


def parse_dim(written: str) -> tuple[str, DimRange]:
    """A dimension as written on the command line: batch=8, batch=1..8 or batch=1..4..8."""
    name, equals, sizes = written.partition("=")
    parts = sizes.split("..")
    if not name or not equals or not all(part.isdecimal() for part in parts):
        raise BadInput(
            f"the dimension {written!r} can not be read",
            hint="write batch=8, batch=1..8 or batch=1..4..8",
        )
    return name, _dim_range(name, [int(part) for part in parts])
