"""Equal models, options and property maps give equal packages, whatever the seed of Python's hashes."""

from __future__ import annotations

import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from models.catalogue import entry
from unistack_aot.artifact.reader import open_package
from unistack_aot.pipeline import compile_model

COMPILE = """
import sys
from pathlib import Path
from models.catalogue import entry
from unistack_aot.pipeline import compile_model
found = entry(sys.argv[1])
model = found.load()
dims = {name: (min(sizes), max(sizes)) for name, sizes in found.dims(model).items()}
compile_model(model, Path(sys.argv[2]), targets=sys.argv[3].split(","), dims=dims)
"""
ROOT = Path(__file__).resolve().parents[2]


def compiled(name: str, path: Path, seed: str, targets: str = "cpu") -> bytes:
    done = subprocess.run(
        ["env", f"PYTHONHASHSEED={seed}", sys.executable, "-c", COMPILE, name, str(path), targets],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return path.read_bytes()


def assert_same(one: Path, two: Path) -> None:
    first, second = open_package(one), open_package(two)
    for member in first.manifest.members:
        same = first.data(member.name) == second.data(member.name)
        assert same, f"{member.name} differs"
    assert sha256(one.read_bytes()).digest() == sha256(two.read_bytes()).digest()


MODELS = [
    "gru_small",
    pytest.param("bert_small_dynamic", marks=pytest.mark.slow),
    pytest.param("resnet_small_dynamic", marks=pytest.mark.slow),
    pytest.param("generator_small_scan", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("name", MODELS)
def test_packages_are_the_same_in_every_process(name: str, tmp_path: Path) -> None:
    compiled(name, tmp_path / "one.pkg", "1")
    compiled(name, tmp_path / "two.pkg", "4242")
    assert_same(tmp_path / "one.pkg", tmp_path / "two.pkg")


def test_packages_are_the_same_in_one_process(tmp_path: Path) -> None:
    found = entry("generator_small_scan")
    for name in ("one.pkg", "two.pkg"):
        model = found.load()
        dims = {k: (min(v), max(v)) for k, v in found.dims(model).items()}
        compile_model(model, tmp_path / name, dims=dims)
    assert_same(tmp_path / "one.pkg", tmp_path / "two.pkg")


def test_packages_tell_what_was_decided(tmp_path: Path) -> None:
    found = entry("lstm_small")
    compile_model(found.load(), tmp_path / "lstm.pkg", targets=("cpu:x86-64-v3",))
    package = open_package(tmp_path / "lstm.pkg")
    (variant,) = package.manifest.variants
    records = package.document("lock.json")["decisions"][variant.target]
    symbols = {kernel.symbol for kernel in variant.kernels}
    assert {record["kernel"] for record in records} <= symbols
    assert {"fuse-inline", "blocks"} <= {record["what"] for record in records}
    for record in records:
        assert set(record) == {"kernel", "what", "subject", "chosen", "because", "tried"}
