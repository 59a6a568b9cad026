"""`--json` of every verb: one document, with the keys that docs/cli.md lists, the same each time."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from unistack_aot.cli.main import VERBS, main

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text()
TABLE = dict(re.findall(r"^\| (\w+) \| ([\w ]+) \|$", PAGE, re.MULTILINE))
TABLE.pop("verb", None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with m.onnx and m.pkg."""
    place = tmp_path_factory.mktemp("json")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "fc")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])],
        [numpy_helper.from_array(np.ones((4, 4), np.float32), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, place / "m.onnx")
    words = [str(place / "m.onnx"), "-o", str(place / "m.pkg"), "--target", "cpu:x86-64-v3", "-q"]
    assert main(words) == 0
    return place


def facts(capsys: pytest.CaptureFixture[str], folder: Path, *words: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main([word.replace("DIR", str(folder)) for word in (*words, "--json")]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    return json.loads(said.out)


COMMANDS = {
    "compile": ("DIR/m.onnx", "-o", "DIR/n.pkg", "--target", "cpu:x86-64-v3"),
    "check": ("check", "DIR/m.onnx", "DIR/m.pkg"),
    "run": ("run", "DIR/m.pkg", "--device", "cpu"),
    "show": ("show", "DIR/m.pkg"),
    "explain": ("explain", "DIR/m.pkg"),
    "doctor": ("doctor",),
}


def test_every_verb_is_listed() -> None:
    """probe measures for minutes: its document is tested with the lab."""
    assert set(COMMANDS) == set(TABLE) == set(VERBS) - {"probe"}


@pytest.mark.parametrize("verb", COMMANDS)
def test_keys_are_those_of_the_page(
    verb: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = facts(capsys, folder, *COMMANDS[verb])
    assert set(found) == set(TABLE[verb].split())
    assert set(facts(capsys, folder, *COMMANDS[verb])) == set(found)


@pytest.mark.parametrize("verb", ["show", "explain", "doctor", "check"])
def test_the_same_question_has_the_same_answer(
    verb: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert facts(capsys, folder, *COMMANDS[verb]) == facts(capsys, folder, *COMMANDS[verb])


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        (("run", "DIR/m.pkg", "--device", "cpu", "--time", "--repeat", "2"), "seconds"),
        (("run", "DIR/m.pkg", "--device", "cpu", "--selftest"), "passed"),
        (("explain", "DIR/m.pkg", "--node", "fc"), "node op gone launches"),
        (("explain", "DIR/m.onnx", "--rule", "merge-affine"), "rule fired refused"),
        (("doctor", "DIR/m.onnx"), "model gaps"),
    ],
)
def test_further_keys(
    words: tuple[str, ...], keys: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert set(keys.split()) <= set(facts(capsys, folder, *words))
