"""Code for AArch64, run under qemu by the runtime of this process: every sample of every op, and small models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest

import unistack_aot as ua
from models.catalogue import entry
from tests.build.cpu_graphs import FAMILIES, run_on_cpu, sample_graph
from tests.build.foreign import ForeignLibrary, foreign_run, why_not
from tests.build.test_cpu_kernels import difference
from unistack_aot.artifact.manifest import Variant
from unistack_aot.artifact.reader import Package
from unistack_aot.runtime import cpu, devices
from unistack_aot.runtime.processor import Processor

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
]
TARGET = "cpu:aarch64"


@pytest.fixture(autouse=True)
def aarch64(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[ForeignLibrary]]:
    """The runtime takes this machine for an AArch64 one; all libraries that it loaded."""
    loaded: list[ForeignLibrary] = []

    def run_function(package: Package, variant: Variant) -> Any:
        library, function = foreign_run(package, variant, tmp_path)
        loaded.append(library)
        return function

    monkeypatch.setattr(devices, "this_processor", lambda: Processor("aarch64", frozenset()))
    monkeypatch.setattr(cpu, "run_function", run_function)
    yield loaded
    for each in loaded:
        each.close()


@pytest.mark.parametrize("family", FAMILIES)
def test_samples(family: str, aarch64: list[ForeignLibrary], tmp_path: Path) -> None:
    given = sample_graph(family)
    found = run_on_cpu(given.graph, given.feeds, tmp_path, target=TARGET)
    wrong = {n: difference(found[n], want) for n, want in given.expected.items()}
    assert not any(wrong.values()), {n: reason for n, reason in wrong.items() if reason}
    assert len(aarch64) == 1


@pytest.mark.parametrize("name", ["resnet_small", "bert_small", "lstm_small", "resnet_int8_small"])
def test_model(name: str, aarch64: list[ForeignLibrary], tmp_path: Path) -> None:
    model, package = tmp_path / "model.onnx", tmp_path / "model.pkg"
    onnx.save(entry(name).load(), str(model))
    ua.compile_model(model, package, targets=(TARGET,))
    verdict = ua.check(model, package, device="cpu", bisect=False)
    assert verdict, str(verdict)
    assert aarch64
