"""Switches shared by all tests: a quick hypothesis profile, --update-golden, the gpu marker, verification level 2."""

from __future__ import annotations

import ctypes

import pytest
from hypothesis import settings

from unistack_aot.base import options

options.VERIFY = 2
settings.register_profile("quick", max_examples=60, deadline=None, derandomize=True)
settings.register_profile("thorough", max_examples=2000, deadline=None)
settings.load_profile("quick")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite the expected texts in tests/golden"
    )


@pytest.fixture(scope="session")
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether expected texts are to be rewritten instead of compared."""
    return bool(request.config.getoption("--update-golden"))


def _why_no_gpu() -> str | None:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no NVIDIA driver on this machine (libcuda.so.1 is absent)"
    if status := driver.cuInit(0):
        return f"the NVIDIA driver does not start (cuInit returned {status})"
    count = ctypes.c_int(0)
    driver.cuDeviceGetCount(ctypes.byref(count))
    return None if count.value else "the NVIDIA driver sees no device"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    reason = _why_no_gpu() if marked else None
    if reason is not None:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))
