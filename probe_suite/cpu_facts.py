"""What the operating system says about this CPU: model, cores, instruction set level, cache sizes.
No measurement.
"""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

_LEVELS = {
    "x86-64-v2": {"sse4_2", "ssse3", "popcnt", "cx16"},
    "x86-64-v3": {"avx2", "bmi1", "bmi2", "fma", "f16c", "movbe"},
    "x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
}


def flags() -> frozenset[str]:
    """Return the feature flags of the first processor (empty where /proc/cpuinfo has none)."""
    match = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", _cpuinfo(), flags=re.M)
    return frozenset(match[1].split()) if match else frozenset()


def model() -> str:
    """Return the processor's name as the system reports it."""
    match = re.search(r"^model name\s*:\s*(.*)$", _cpuinfo(), flags=re.M)
    return match[1].strip() if match else platform.machine()


def isa_levels() -> tuple[str, ...]:
    """Return the instruction set levels this machine runs, lowest first: x86-64-v2 .. v4, or
    aarch64.
    """
    if platform.machine() != "x86_64":
        return (platform.machine(),)
    have, found = flags(), list[str]()
    for level, needs in _LEVELS.items():
        if not needs <= have:
            break
        found.append(level)
    return tuple(found)


def cores() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0))


def cache_bytes(level: int) -> int:
    """Return the size of one data or unified cache of `level`, or 0 when it is not known."""
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        kind, depth = _text(index / "type"), _text(index / "level")
        if depth == str(level) and kind in ("Data", "Unified"):
            return _size(_text(index / "size"))
    return 0


def line_bytes() -> int:
    """Return the reported cache line size (64 when the system does not say)."""
    return int(_text(Path("/sys/devices/system/cpu/cpu0/cache/index0/coherency_line_size")) or 64)


def memory_bytes() -> int:
    """Return the installed memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def kernel() -> str:
    """Return the operating system's name and release (the closest thing a CPU has to a driver
    version).
    """
    return f"{platform.system()} {platform.release()}"


def _cpuinfo() -> str:
    return _text(Path("/proc/cpuinfo"))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _size(text: str) -> int:
    match = re.fullmatch(r"(\d+)([KMG]?)", text)
    scale = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(match[1]) * scale[match[2]] if match else 0
