"""A probe's CUDA kernel: file, parameters, and the instruction it exists to time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class GpuKernel:
    """`entry` of the CUDA file `file`; its SASS must match `sass` at least `least` times.

    `defines` become macros (WIDTH is PROBE_WIDTH there); `since` is the first generation that has
    the instruction; `sass` is a regular expression.
    """

    file: Path
    entry: str
    sass: str
    least: int
    since: int = 75
    defines: Mapping[str, int | str] = field(default_factory=dict[str, int | str])

    @property
    def label(self) -> str:
        """Entry and parameters as one word, for file names and messages."""
        parts = [self.entry, *(f"{name}{value}" for name, value in self.defines.items())]
        return re.sub(r"[^A-Za-z0-9_]+", "_", "-".join(parts)).lower()

    def text(self) -> str:
        """Return the CUDA text: the parameters as macros, then the file."""
        macros = "".join(f"#define PROBE_{name} {value}\n" for name, value in self.defines.items())
        return macros + self.file.read_text(encoding="utf-8")

    def offered(self, arch: str) -> bool:
        """True when the generation ("sm_90") has the instruction."""
        return number(arch) >= self.since


def number(arch: str) -> int:
    """Return 90 for "sm_90"."""
    return int(re.sub(r"\D", "", arch))
