"""The emulator finds planted mistakes in kernels of hazards.cu, and passes the sound ones."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.build.emulator_worker import Answer, Request, image, kernel_file, process

X = np.random.default_rng(0).standard_normal(256).astype(np.float32)
SETTINGS = ({"order": 0}, {"order": 1}, {"order": 2, "seed": 5})


def launch(kernel: str, checked: bool, blocks: int = 1, **settings: int) -> Answer:
    """One launch on fresh buffers."""
    request = Request(
        image(kernel_file("hazards.cu"), checked),
        kernel,
        (X, np.zeros(256, np.float32), np.int32(256)),
        (blocks, 1, 1),
        (256, 1, 1),
        shared=1024,
        settings=settings,
    )
    return process().launch(request)


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("kernel", ["sound", "sound_async"])
def test_sound_kernels_pass(kernel: str, checked: bool, settings: dict[str, int]) -> None:
    answer = launch(kernel, checked, **settings)
    assert answer.error == "", answer.message
    np.testing.assert_array_equal(answer.arrays[1], X[::-1])


CHECKED = {
    "no_barrier_next": "uninitialised shared memory is read|race",
    "no_barrier_previous": "race: shared offset 0 is read here and was written by thread 0",
    "overwritten_too_early": "race: shared offset",
    "no_warp_barrier": "race: shared offset 0 is read here and was written by thread 0",
    "no_copy_wait": "is read before the async copy into it was waited for",
    "no_barrier_after_copy": "race: shared offset .* without a barrier between",
    "copied_over_too_early": "race: shared offset",
    "uninitialised": "uninitialised shared memory is read at offset 1020",
    "reads_past_end": "illegal address: read of 4 bytes at offset 1024 of an allocation",
    "reads_before_start": "illegal address",
    "writes_past_end": "illegal address: write of 4 bytes at offset 1024 of an allocation",
    "copies_from_past_end": "illegal address: read of 16 bytes at offset 1024",
    "shared_past_end": "shared memory out of bounds: offset 1024, 4 bytes, of 1024",
    "misaligned": "misaligned read of 16 bytes",
    "two_barriers": r"divergent barrier: waits at .*, thread \(\d+,0,0\) waits at ",
    "divergent_shuffle": "deadlock: waits in the warp collective",
    "shuffle_outside_mask": "a shuffle reads a lane outside its mask",
    "blocks_race": "race between blocks",
    "waits_for_too_few": "is read before the async copy into it was waited for",
    "stored_into_flight": "is written while an async copy into it is under way",
    "fragment_before_wait": "is read before the async copy into it was waited for",
    "fragment_before_barrier": "uninitialised shared memory is read|race: shared offset",
    "stage_filled_too_early": "race: shared offset",
    "mma_in_half_a_warp": "deadlock: waits in the warp collective",
    "reads_shared_past_end": "shared memory out of bounds: offset 1024, 4 bytes, of 1024",
    "copies_past_end": "cp.async writes 16 bytes at offset 1024 of 1024 bytes of shared memory",
    "misaligned_store": "misaligned write of 16 bytes",
    "misaligned_copy": "cp.async of 16 bytes at a misaligned address",
    "misaligned_fragment": "ldmatrix reads rows at multiples of 16 bytes only",
    "masks_disagree": "divergent warp collective: lane .* with mask",
    "barrier_against_collective": "deadlock: waits in the warp collective .* at the barrier",
}


@pytest.mark.parametrize("kernel", CHECKED)
def test_checked_kernels_name_the_mistake(kernel: str) -> None:
    answer = launch(kernel, checked=True, blocks=4 if kernel == "blocks_race" else 1)
    assert answer.error, "the mistake was not found"
    assert answer.message.startswith(f"kernel {kernel} block (")
    assert _found(CHECKED[kernel], answer), answer.message


FAST_FAULTS = {
    "reads_past_end": "illegal address .* offset 1024 of an allocation",
    "reads_before_start": "illegal address",
    "writes_past_end": "illegal address .* offset 1024 of an allocation of 1024 bytes",
    "copies_from_past_end": "illegal address .* offset 1024",
    "two_barriers": "divergent barrier",
    "divergent_shuffle": "deadlock",
    "shuffle_outside_mask": "outside its mask",
    "mma_in_half_a_warp": "deadlock",
    "copies_past_end": "cp.async writes 16 bytes at offset 1024 of 1024 bytes of shared memory",
    "misaligned_copy": "misaligned address",
    "misaligned_fragment": "multiples of 16 bytes only",
    "masks_disagree": "divergent warp collective|deadlock",
    "barrier_against_collective": "deadlock",
}


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("kernel", FAST_FAULTS)
def test_fast_kernels_still_fault(kernel: str, settings: dict[str, int]) -> None:
    """Guard pages, barriers and collectives are watched at full speed, in every thread order."""
    answer = launch(kernel, checked=False, **settings)
    assert answer.error
    assert _found(FAST_FAULTS[kernel], answer), answer.message


@pytest.mark.parametrize(
    "kernel",
    [
        "no_barrier_next",
        "no_barrier_previous",
        "overwritten_too_early",
        "no_warp_barrier",
        "no_copy_wait",
        "no_barrier_after_copy",
        "copied_over_too_early",
        "uninitialised",
        "waits_for_too_few",
        "fragment_before_wait",
        "fragment_before_barrier",
        "stage_filled_too_early",
    ],
)
def test_fast_kernels_show_ordering_mistakes(kernel: str) -> None:
    """Poison and late copies: one of two orders gives NaN, or the two disagree."""
    forward, reverse = (launch(kernel, False, order=order) for order in (0, 1))
    results = [forward.arrays[1], reverse.arrays[1]]
    assert any(np.isnan(y).any() for y in results) or not np.array_equal(*results)


def test_strict_exit_reports_a_thread_that_left() -> None:
    assert launch("leaves_before_barrier", checked=False).error == ""
    answer = launch("leaves_before_barrier", checked=False, strict_exit=1)
    assert _found(r"6 thread\(s\) of the block have already left", answer)


def test_strict_exit_reports_uneven_barriers() -> None:
    assert launch("uneven_barriers", checked=False).error == ""
    answer = launch("uneven_barriers", checked=False, strict_exit=1)
    assert _found(r"128 thread\(s\) of the block have already left", answer)


def test_an_error_does_not_outlive_its_report() -> None:
    assert launch("two_barriers", checked=False).error
    assert launch("sound", checked=False).error == ""


def _found(pattern: str, answer: Answer) -> bool:
    return re.search(pattern, answer.message) is not None
