"""Tuning: rounds of trials, the database between them, and packages that follow from it alone."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from unistack_aot.artifact.reader import open_package
from unistack_aot.check.compile import Tuning, compile_model
from unistack_aot.cli.main import main
from unistack_aot.packing import Builder, Tuned
from unistack_aot.pipeline import Report
from unistack_aot.runtime.session import load
from unistack_aot.schedule.choices import Pick
from unistack_aot.stages import Hooks
from unistack_aot.targets.target import Request, Target
from unistack_aot.tune.database import Database, Entry, Setting
from unistack_aot.tune.search import FEW, best_way


def product(rows: int = 96, depth: int = 512, cols: int = 256) -> onnx.ModelProto:
    weight = np.random.default_rng(1).standard_normal((depth, cols)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "fc")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, depth])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, cols])],
        [numpy_helper.from_array(weight, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tuning")


def compiled(folder: Path, seconds: float, name: str, database: str = "db") -> Report:
    return compile_model(
        product(),
        folder / name,
        ("cpu:x86-64-v3",),
        golden=False,
        tuning=Tuning(seconds, folder / database),
    )


def entries(folder: Path, database: str = "db") -> Iterator[dict[str, object]]:
    for path in sorted((folder / database).rglob("*.json")):
        yield json.loads(path.read_text())


def test_a_search_stops_resumes_and_leaves_the_best_so_far(folder: Path) -> None:
    first = compiled(folder, 1e-3, "first.pkg")
    (entry,) = entries(folder)
    assert len(entry["measured"]) == 1  # type: ignore[arg-type]
    assert "1 kernels not searched to the end" in first.variants[0].tuned
    compiled(folder, 120, "second.pkg")
    (entry,) = entries(folder)
    measured: dict[str, float] = entry["measured"]  # type: ignore[assignment]
    assert len(measured) == FEW and entry["usual"] in measured
    assert len(entry["predicted"]) > FEW  # type: ignore[arg-type]
    third = compiled(folder, 120, "third.pkg")
    assert next(entries(folder))["measured"].keys() == measured.keys()  # type: ignore[attr-defined]
    assert "not searched" not in third.variants[0].tuned


def test_the_same_database_gives_the_same_bytes_and_says_what_was_measured(folder: Path) -> None:
    compiled(folder, 120, "tuned.pkg")
    replays = [compiled(folder, 0, name) for name in ("a.pkg", "b.pkg")]
    assert len({report.written.sha256 for report in replays}) == 1
    assert replays[0].variants[0].tuned == f"ways from {folder / 'db'}"
    assert replays[0].variants[0].predicted > 0
    lock = open_package(folder / "a.pkg").document("lock.json")
    (blocks,) = [d for d in lock["decisions"]["cpu:x86-64-v3"] if d["what"] == "blocks"]
    assert f"measured: the fastest of {FEW}" in blocks["because"]
    assert sum(", measured " in tried for tried in blocks["tried"]) == FEW - 1


def attention(heads: int, rows: int, keys: int, depth: int) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Transpose", ["k"], ["kt"], "turn", perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "kt"], ["scores"], "scores"),
        helper.make_node("Softmax", ["scores"], ["weights"], "softmax", axis=-1),
        helper.make_node("MatMul", ["weights", "v"], ["y"], "mix"),
    ]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, heads, size, depth])
        for name, size in (("q", rows), ("k", keys), ("v", keys))
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, heads, rows, depth])
    graph = helper.make_graph(nodes, "g", inputs, [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@dataclass
class Every:
    """In place of a search: runs these ways of the only kernel with choices, and keeps what came out."""

    wanted: tuple[str, ...]
    feeds: dict[str, np.ndarray]
    found: dict[str, np.ndarray] = field(default_factory=dict)

    def __call__(self, target: Target, request: Request, build: Builder) -> Tuned:
        with tempfile.TemporaryDirectory() as scratch:
            (choice,) = build(replace(request, whole=True), Path(scratch) / "usual.pkg").choices
            assert set(self.wanted) <= dict(choice.ways).keys()
            for number, way in enumerate(self.wanted):
                picks = {choice.key: Pick(way, on_trial=True)}
                trial = build(replace(request, picks=picks), Path(scratch) / f"{number}.pkg")
                assert trial.choices[0].chosen == way
                session = load(trial.package, "cpu", 2)
                self.found[way] = session.run(self.feeds)["y"]
        return Tuned(request, "")


def test_every_block_of_an_attention_computes_the_same(folder: Path) -> None:
    rng = np.random.default_rng(2)
    shapes = {"q": (1, 2, 70, 16), "k": (1, 2, 300, 16), "v": (1, 2, 300, 16)}
    feeds = {name: rng.standard_normal(s).astype(np.float32) for name, s in shapes.items()}
    wanted = tuple(
        f"{q} queries and {k} keys at a time" for q, k in ((70, 304), (8, 112), (35, 160))
    )
    every = Every(wanted, feeds)
    compile_model(attention(2, 70, 300, 16), folder / "a.pkg", ("cpu:x86-64-v3",),
                  golden=False, hooks=Hooks(tuner=every))  # fmt: skip
    q, k, v = (feeds[name].astype(np.float64) for name in "qkv")
    scores = q @ k.transpose(0, 1, 3, 2)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    want = weights / weights.sum(-1, keepdims=True) @ v
    for way in wanted:
        np.testing.assert_allclose(every.found[way], want, rtol=2e-5, atol=2e-5, err_msg=way)


def test_a_variant_without_choices_says_so_and_measures_nothing(folder: Path) -> None:
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", value[:1], value[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    tuning = Tuning(60, folder / "none")
    report = compile_model(model, folder / "r.pkg", ("cpu:x86-64-v3",), golden=False, tuning=tuning)
    assert report.variants[0].tuned.startswith("nothing measured: no kernel offers ways")
    assert list(entries(folder, "none")) == []


def test_entries_hold_for_one_kernel_map_tool_chain_and_number_of_threads() -> None:
    usual = Setting("map", "g++", 2)
    others = (Setting("other", "g++", 2), Setting("map", "clang", 2), Setting("map", "g++", 1))
    names = {each.name("kernel") for each in (usual, *others)} | {usual.name("other kernel")}
    assert len(names) == 5


def test_the_usual_way_wins_what_noise_could_decide() -> None:
    entry = Entry("fc", "usual", {}, {"usual": 1.0, "other": 0.995})
    assert best_way(entry) == "usual"
    assert best_way(entry.with_time("other", 0.9)) == "other"
    assert entry.with_time("usual", 2.0).measured["usual"] == 1.0


@pytest.mark.parametrize(
    "text, what",
    [
        ("{", "a tuning entry is not JSON: "),
        ('{"schema": 9}', "a tuning entry has schema 9, this version reads 2"),
        (
            '{"schema": 2, "subject": "", "usual": "", "predicted": {}, "measured": {"a": -1}, "refused": {}}',
            "a tuning entry says that 'a' takes -1 seconds",
        ),
        (
            '{"schema": 2, "subject": "", "usual": "", "predicted": {}, "measured": {}}',
            "a tuning entry has no field 'refused'",
        ),
    ],
)
def test_a_damaged_entry_is_named(text: str, what: str, tmp_path: Path) -> None:
    database = Database(tmp_path)
    path = database.path("ab" * 32)
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(Exception, match="tuning entry") as refused:
        database.read("ab" * 32)
    assert str(refused.value).startswith(what)
    assert f"at: {path}" in str(refused.value)


@pytest.mark.parametrize(
    "words, what",
    [
        (("--tuning", "db"), "error: --tuning alone does nothing"),
        (("--tune", "-1"), "error: --tune -1 is no number of seconds"),
        (
            ("--tune", "5", "--target", "emulator:sm_80"),
            "error: an emulator has no speed to tune for",
        ),
        (("--map", "no-such"), "error: no built-in property map is called 'no-such'"),
        (("--map", "a100-sxm-80"), "error: the property map 'a100-sxm-80' describes sm_80"),
        (
            ("--map", "cpu-x86-64-v3", "--map", "cpu-x86-64-v3"),
            "error: two property maps describe x86-64-v3",
        ),
    ],
)
def test_refused(
    words: tuple[str, ...], what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(product(), tmp_path / "m.onnx")
    target = () if "--target" in words else ("--target", "cpu:x86-64-v3")
    code = main([str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.pkg"), *target, *words])
    assert code == 2
    assert capsys.readouterr().err.startswith(what)
    assert not (tmp_path / "m.pkg").exists()
