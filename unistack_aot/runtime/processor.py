"""What this processor can run: instruction set level, features, sensible number of threads.

Not here: loading code (cpu.py).
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from unistack_aot.artifact.manifest import Variant
from unistack_aot.base.environment import environment

# Flags of /proc/cpuinfo that a level adds to the one before: those of the x86-64 psABI, then our own.
_LEVELS: dict[str, frozenset[str]] = {
    "x86-64": frozenset({"cx8", "cmov", "fxsr", "sse2"}),
    "x86-64-v2": frozenset({"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"}),
    "x86-64-v3": frozenset({"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"}),
    "x86-64-v4": frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
    "x86-64-v4-bf16": frozenset({"avx512_bf16", "avx512_vnni"}),
    "x86-64-v4-amx": frozenset({"amx_tile", "amx_bf16"}),
}
# Linux keeps AMX's tile registers from a process until it asks for them (linux/arch/x86/include/uapi/asm/prctl.h).
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18


@dataclass(frozen=True, slots=True)
class Processor:
    """The architecture ("x86_64", "aarch64") and the features Linux reports."""

    architecture: str
    features: frozenset[str]

    def lacks(self, variant: Variant) -> str | None:
        """Why a CPU variant cannot run here, or None if it can."""
        level = variant.target.partition(":")[2]
        family = "x86_64" if level.startswith("x86-64") else level.partition("-")[0]
        if family != self.architecture:
            return f"{variant.target} is for {family}, this processor is {self.architecture}"
        missing = sorted((_required(level) | set(variant.needs)) - self.features)
        if missing:
            return f"{variant.target} needs {', '.join(missing)}"
        return None


@lru_cache(maxsize=1)
def this_processor() -> Processor:
    """The processor this process runs on."""
    found = _features(Path("/proc/cpuinfo"))
    if "amx_tile" in found and not _tiles_granted():
        found = frozenset(name for name in found if not name.startswith("amx_"))
    return Processor(platform.machine(), found)


def _tiles_granted() -> bool:
    """Whether Linux lets this process use AMX's tiles, which it asks for here; threads of it may use them then too."""
    return ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) == 0


def best_variant(
    variants: Sequence[Variant], processor: Processor
) -> tuple[Variant | None, tuple[str, ...]]:
    """The CPU variant of the highest level that runs (of several the most demanding), and why better ones do not."""
    reasons: list[str] = []
    levels = list(_LEVELS)
    mine = [v for v in variants if v.target.startswith("cpu:")]
    for variant in sorted(mine, key=lambda v: (-_rank(v, levels), -len(v.needs))):
        reason = processor.lacks(variant)
        if reason is None:
            return variant, tuple(reasons)
        reasons.append(reason)
    return None, tuple(reasons)


def _rank(variant: Variant, levels: Sequence[str]) -> int:
    """The place of a variant's level among those that build on each other; 0 for any other."""
    level = variant.target.partition(":")[2]
    return levels.index(level) if level in levels else 0


def default_threads() -> int:
    """UA_THREADS if it is set lower, else one per physical core, bounded by the CPU quota."""
    allowed = sorted(os.sched_getaffinity(0))
    physical = len({_siblings(number) for number in allowed})
    return max(1, min(physical, environment().threads, _quota(Path("/sys/fs/cgroup/cpu.max"))))


def _features(cpuinfo: Path) -> frozenset[str]:
    for line in cpuinfo.read_text().splitlines() if cpuinfo.exists() else ():
        name, _, words = line.partition(":")
        if name.strip().lower() in ("flags", "features"):
            return frozenset(words.split())
    return frozenset()


def _required(level: str) -> set[str]:
    needed: set[str] = set()
    for name, flags in _LEVELS.items() if level in _LEVELS else ():
        needed |= flags
        if name == level:
            break
    return needed


def _siblings(number: int) -> str:
    path = Path(f"/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list")
    try:
        return path.read_text().strip()
    except OSError:
        return str(number)


def _quota(path: Path) -> int:
    """Whole processors granted by the control group; a large number where there is no limit."""
    try:
        granted, period = path.read_text().split()
        return max(1, int(granted) // int(period))
    except (OSError, ValueError):  # no such group, or "max"
        return 1 << 16
