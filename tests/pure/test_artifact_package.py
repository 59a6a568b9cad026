"""Writing and reading packages: alignment, determinism, atomicity, every kind of damage refused."""

from __future__ import annotations

import json
import os
import random
import resource
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from unistack_aot.artifact import manifest as m
from unistack_aot.artifact.reader import open_package
from unistack_aot.artifact.tensors import RawTensor, TensorFile, read_tensors
from unistack_aot.artifact.writer import Written, file_sha256, write_package
from unistack_aot.base.dtypes import bf16
from unistack_aot.base.errors import BadPackage, UnistackError

MANIFEST = m.Manifest("unistack-aot 0", "empty", (), (), ())


def tensors() -> dict[str, RawTensor | np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "w": rng.standard_normal((32, 16)).astype(np.float32),
        "odd": rng.standard_normal(7).astype(np.float16),
        "strided": np.arange(24, dtype=np.int64).reshape(4, 6).T,
        "flag": np.array(True),
        "none": np.zeros((0, 3), np.uint8),
        "half": RawTensor(bf16, (3,), lambda: memoryview(b"\x80\x3f\x00\x40\x40\x40")),
    }


def members() -> dict[str, bytes | TensorFile]:
    return {
        "weights.safetensors": TensorFile(tensors()),
        "cpu/a.so": b"code",
        "lock.json": json.dumps({"gcc": "12.2"}).encode(),
    }


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return write_package(tmp_path / "m.pkg", MANIFEST, members())


def test_members_come_back_and_are_aligned(written: Written) -> None:
    package = open_package(written.path, verify=True)
    assert package.document("lock.json") == {"gcc": "12.2"}
    assert bytes(package.data("cpu/a.so")) == b"code"
    for name in members():
        address = np.frombuffer(package.data(name), np.uint8).ctypes.data
        assert address % 64 == 0
    stored = package.tensors("weights.safetensors")
    for name, want in tensors().items():
        if isinstance(want, np.ndarray):
            np.testing.assert_array_equal(stored[name].array(), want)
        if stored[name].data.nbytes:
            assert np.frombuffer(stored[name].data, np.uint8).ctypes.data % 64 == 0
    assert stored["half"].dtype is bf16
    assert bytes(stored["half"].data) == b"\x80\x3f\x00\x40\x40\x40"


def test_the_reference_reader_accepts_our_tensor_files(tmp_path: Path) -> None:
    plain = {name: t for name, t in tensors().items() if isinstance(t, np.ndarray)}
    file = tmp_path / "t.safetensors"
    file.write_bytes(b"".join(TensorFile(plain).chunks()))
    loaded = safetensors.numpy.load_file(file)
    for name, want in plain.items():
        np.testing.assert_array_equal(loaded[name], want)


def test_files_of_the_reference_writer_are_read() -> None:
    data = safetensors.numpy.save({"a": np.arange(5, dtype=np.int32)}, metadata={"k": "v"})
    stored = read_tensors(memoryview(data), "t")
    np.testing.assert_array_equal(stored["a"].array(), np.arange(5, dtype=np.int32))


def test_equal_content_gives_equal_bytes(written: Written, tmp_path: Path) -> None:
    shuffled = dict(reversed(members().items()))
    again = write_package(tmp_path / "again.pkg", MANIFEST, shuffled)
    assert again.sha256 == written.sha256 == file_sha256(written.path)
    assert written.nbytes == written.path.stat().st_size


def test_forgotten_members_stay_readable(tmp_path: Path) -> None:
    big = np.arange(1 << 19, dtype=np.int32)
    path = write_package(tmp_path / "m.pkg", MANIFEST, {"w": TensorFile({"big": big})}).path
    package = open_package(path)
    before = package.tensors("w")["big"].array()
    package.forget("w")
    np.testing.assert_array_equal(before, big)
    np.testing.assert_array_equal(package.tensors("w")["big"].array(), big)


def test_standard_tools_read_the_archive(written: Written) -> None:
    with zipfile.ZipFile(written.path) as archive:
        assert archive.testzip() is None
        assert sorted(archive.namelist()) == sorted([*members(), "manifest.pb"])


class _Failing:
    nbytes = 100

    def chunks(self) -> Iterator[memoryview]:
        yield memoryview(b"x" * 50)
        raise OSError(28, "No space left on device")


def test_failure_keeps_the_old_file_and_leaves_nothing_else(written: Written) -> None:
    before = written.path.read_bytes()
    with pytest.raises(UnistackError, match="could not be written: No space left on device"):
        write_package(written.path, MANIFEST, {**members(), "z": _Failing()})
    assert written.path.read_bytes() == before
    assert os.listdir(written.path.parent) == ["m.pkg"]


def test_file_size_limit_leaves_nothing(tmp_path: Path) -> None:
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, old[1]))
    try:
        with pytest.raises(UnistackError, match="could not be written: File too large"):
            write_package(tmp_path / "m.pkg", MANIFEST, {"big": bytes(1 << 22)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    assert os.listdir(tmp_path) == []


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(UnistackError, match="could not be written: No such file or directory"):
        write_package(tmp_path / "no" / "m.pkg", MANIFEST, members())


def test_any_changed_byte_is_refused_or_harmless(written: Written) -> None:
    good = written.path.read_bytes()
    rng = random.Random(1)
    contents = {name: bytes(open_package(written.path).data(name)) for name in members()}
    refused = 0
    for _ in range(300):
        at = rng.randrange(len(good))
        bad = bytearray(good)
        bad[at] ^= 1 << rng.randrange(8)
        written.path.write_bytes(bad)
        try:
            package = open_package(written.path, verify=True)
        except BadPackage:
            refused += 1
        else:  # alignment gaps, time stamps and checksums of the ZIP carry no content
            assert package.manifest == replace(MANIFEST, members=package.manifest.members)
            assert {name: bytes(package.data(name)) for name in members()} == contents
    assert refused > 150


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_cut_short(written: Written, share: float) -> None:
    data = written.path.read_bytes()
    written.path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(
        BadPackage,
        match=r"the file is (empty|cut short or not a package)|the manifest is not the one",
    ):
        open_package(written.path)
