"""Damaged packages: the exact words for each kind of damage."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from unistack_aot.artifact import manifest as m
from unistack_aot.artifact.reader import open_package
from unistack_aot.artifact.tensors import TensorFile, read_tensors
from unistack_aot.artifact.wire import to_bytes
from unistack_aot.artifact.writer import write_package
from unistack_aot.base.errors import BadPackage, IRError

MANIFEST = m.Manifest("unistack-aot 0", "empty", (), (), ())
AGAIN = "copy the package again, or compile the model again"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_package(tmp_path / "m.pkg", MANIFEST, {"a.bin": b"first", "b.bin": b"second"}).path


def repack(path: Path, edit: Callable[[dict[str, bytes]], None]) -> None:
    """Rewrite the archive with edited members, as a person with a ZIP tool would."""
    with zipfile.ZipFile(path) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
        comment = archive.comment
    edit(contents)
    with zipfile.ZipFile(path, "w") as archive:
        archive.comment = comment
        for name, data in contents.items():
            archive.writestr(name, data)


def refusal(path: Path) -> str:
    with pytest.raises(BadPackage) as caught:
        open_package(path, verify=True)
    assert caught.value.at == str(path)
    return f"{caught.value.what} | {caught.value.hint}"


def test_changed_member(path: Path) -> None:
    repack(path, lambda c: c.update({"a.bin": b"fIrst"}))
    assert refusal(path) == f"member 'a.bin' was changed (SHA-256 differs) | {AGAIN}"


def test_changed_size(path: Path) -> None:
    repack(path, lambda c: c.update({"a.bin": b"firsts"}))
    assert refusal(path) == f"member 'a.bin' has 6 bytes instead of 5 | {AGAIN}"


def test_missing_member(path: Path) -> None:
    repack(path, lambda c: c.pop("a.bin") and None)
    assert refusal(path) == f"member 'a.bin' is missing | {AGAIN}"


def test_foreign_member(path: Path) -> None:
    repack(path, lambda c: c.update({"c.bin": b""}))
    assert refusal(path) == f"member 'c.bin' is not in the manifest | {AGAIN}"


def test_changed_manifest(path: Path) -> None:
    repack(path, lambda c: c.update({"manifest.pb": to_bytes(replace(MANIFEST, model="other"))}))
    assert (
        refusal(path) == f"the manifest is not the one that was written (SHA-256 differs) | {AGAIN}"
    )


def test_not_a_package(path: Path) -> None:
    repack(path, lambda c: c.pop("manifest.pb") and None)
    assert refusal(path) == "this is a ZIP file without manifest.pb, not a package | None"


def test_compressed(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in contents.items():
            archive.writestr(name, data * 100)
    assert refusal(path) == "member 'a.bin' is compressed | do not repack the package"


def test_text_file(tmp_path: Path) -> None:
    path = tmp_path / "m.pkg"
    path.write_text("hello")
    assert (
        refusal(path)
        == f"the file is cut short or not a package (File is not a zip file) | {AGAIN}"
    )


def test_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "m.pkg"
    path.touch()
    assert refusal(path) == f"the file is empty | {AGAIN}"


def test_no_file(tmp_path: Path) -> None:
    assert (
        refusal(tmp_path / "m.pkg")
        == "the package cannot be opened: No such file or directory | check the path"
    )


def test_newer_version(tmp_path: Path) -> None:
    path = write_package(tmp_path / "m.pkg", replace(MANIFEST, version=9), {}).path
    with pytest.raises(BadPackage) as caught:
        open_package(path)
    assert str(caught.value) == (
        "the package has format version 9, this runtime reads up to 1\n"
        "  do: install a newer unistack_aot, or compile the model with this version"
    )


def test_unknown_member_is_named(path: Path) -> None:
    with pytest.raises(BadPackage, match=r"there is no member 'c'\n.*\n.*holds a.bin, b.bin"):
        open_package(path).data("c")


def test_writer_refuses_a_contradiction(tmp_path: Path) -> None:
    wrong = replace(MANIFEST, dims=(m.Dim("n", 5, 1, 3),))
    with pytest.raises(IRError, match=r"dimension 'n' has the range 5\.\.3\.\.1"):
        write_package(tmp_path / "m.pkg", wrong, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda d: d[:4], "4 bytes are too few"),
        (lambda d: b"\xff" * 8 + d[8:], "its header claims 18446744073709551615 bytes"),
        (lambda d: d.replace(b"F32", b"Q32"), r"its header is not readable \('Q32'\)"),
        (lambda d: d[:-4], r"tensor 'a' of f32\[2\] lies at 0\.\.8"),
        (lambda d: d.replace(b"[0,8]", b"[0,4]"), r"tensor 'a' of f32\[2\] lies at 0\.\.4"),
        (lambda d: d.replace(b'{"a"', b'{{a"'), "its header is not readable"),
    ],
)
def test_damaged_tensor_file(edit: Callable[[bytes], bytes], words: str) -> None:
    data = b"".join(TensorFile({"a": np.zeros(2, np.float32)}).chunks())
    with pytest.raises(BadPackage, match=words):
        read_tensors(memoryview(edit(data)), "w.safetensors")
