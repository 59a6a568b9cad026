"""Recipes and the catalogue: valid ONNX, finite and varied results, repeatable bytes."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from models import bert, generator, gpt2, resnet
from models.attention import Form
from models.catalogue import CATALOGUE, Entry, entry
from models.fetch import ModelUnavailable, PackageFile, WheelFile
from models.files import FILES
from models.summary import model_inputs, summarize
from unistack_aot.base.errors import BadInput

SMALL = [item for item in CATALOGUE if item.kind == "small"]
FULL = [item for item in CATALOGUE if item.kind == "full"]
# These build hundreds of megabytes of equal weights while they run.
HEAVY = ("light_vgg19", "light_zfnet512", "light_bvlc_alexnet")
PUBLISHED = [
    pytest.param(item, marks=pytest.mark.slow if item.name in HEAVY else (), id=item.name)
    for item in CATALOGUE
    if item.kind == "file"
]


def _names(item: object) -> str:
    return item.name if isinstance(item, Entry) else str(item)


def _results(model: onnx.ModelProto, item: Entry) -> dict[str, list[np.ndarray]]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    options.log_severity_level = 3
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return {case: session.run(None, item.feeds(case)) for case in item.cases}


def _check_runs(item: Entry) -> None:
    model = item.load()
    onnx.checker.check_model(model, full_check=model.ByteSize() < 1e8)
    for case, outputs in _results(model, item).items():
        for output in outputs:
            assert np.isfinite(output).all(), f"{item.name}, {case}: not finite"
            assert np.abs(output).max() < 1e4, f"{item.name}, {case}: grows without bound"


@pytest.mark.parametrize("item", SMALL, ids=_names)
def test_small_recipe_is_valid_and_runs(item: Entry) -> None:
    _check_runs(item)
    for case, outputs in _results(item.load(), item).items():
        assert outputs[0].std() > 1e-3, f"{item.name}, {case}: all results alike"


@pytest.mark.slow
@pytest.mark.parametrize("item", FULL, ids=_names)
def test_full_recipe_is_valid_and_runs(item: Entry) -> None:
    _check_runs(item)


@pytest.mark.parametrize("item", PUBLISHED)
def test_published_file_is_read_and_runs(item: Entry) -> None:
    try:
        model = item.load()
    except ModelUnavailable as error:
        pytest.skip(str(error).replace("\n", ";"))
    for case, outputs in _results(model, item).items():
        assert all(np.isfinite(output).all() for output in outputs), f"{item.name}, {case}"


@pytest.mark.parametrize("item", SMALL, ids=_names)
def test_building_and_feeding_twice_gives_the_same_bytes(item: Entry) -> None:
    first, second = (hashlib.sha256(item.load().SerializeToString()).digest() for _ in range(2))
    assert first == second
    for case in item.cases:
        one, same, other = item.feeds(case, 1), item.feeds(case, 1), item.feeds(case, 2)
        assert all(np.array_equal(one[name], same[name]) for name in one)
        assert any(not np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("item", SMALL, ids=_names)
def test_every_case_feeds_exactly_the_declared_inputs(item: Entry) -> None:
    declared = {value.name: value for value in model_inputs(item.load())}
    for case in item.cases:
        arrays = item.feeds(case)
        assert arrays.keys() == declared.keys()
        for name, array in arrays.items():
            kind = onnx.helper.tensor_dtype_to_np_dtype(declared[name].type.tensor_type.elem_type)
            assert array.dtype == kind


def test_names_are_unique_and_dims_come_from_the_cases() -> None:
    assert len({item.name for item in CATALOGUE}) == len(CATALOGUE)
    assert entry("unet_small_dynamic").dims() == {
        "batch": (1, 2),
        "height": (20, 24),
        "width": (16, 28),
    }
    assert entry("resnet_small").dims() == {}


def test_unknown_names_are_refused_with_close_ones() -> None:
    with pytest.raises(BadInput, match=r"no model named 'unet_smal'\n.*\n  do: try unet"):
        entry("unet_smal")
    with pytest.raises(BadInput, match="use one of usual, other"):
        entry("unet_small_dynamic").feeds("huge")


def _same_results(first: onnx.ModelProto, second: onnx.ModelProto, item: Entry) -> bool:
    pairs = zip(_results(first, item).values(), _results(second, item).values(), strict=True)
    return all(
        np.allclose(a, b, rtol=1e-4, atol=1e-5)
        for one, two in pairs
        for a, b in zip(one, two, strict=True)
    )


def test_written_forms_of_one_encoder_agree() -> None:
    """Scale on either operand, mask added or selected, norm whole or decomposed: one function."""
    usual = bert.build(bert.Config(2, 32, 4, 64, 101, 24, batch=2, length=12))
    for form in (Form("mul", "where"), Form("query", "add"), Form("both", "where")):
        config = bert.Config(
            2, 32, 4, 64, 101, 24, batch=2, length=12, norm="decomposed", form=form
        )
        assert _same_results(usual, bert.build(config), entry("bert_small")), form


def test_causal_masks_agree_however_they_are_built() -> None:
    models = [
        gpt2.build(gpt2.Config(2, 32, 4, 103, 32, batch=2, length=9, causal=causal))
        for causal in ("constant", "trilu", "range")
    ]
    assert all(_same_results(models[0], other, entry("gpt2_small")) for other in models[1:])


def test_cached_steps_of_the_decoder_repeat_the_prompt() -> None:
    """Feeding tokens one by one through the cache gives the logits of feeding them at once."""
    item = entry("llama_small")
    session = ort.InferenceSession(item.load().SerializeToString())
    names = [output.name for output in session.get_outputs()]
    prompt = item.feeds("prompt")
    prompt["attention_mask"][:] = 1
    whole = session.run(None, prompt)[0]
    carried = {name: value for name, value in prompt.items() if name.startswith("past")}
    length = prompt["input_ids"].shape[1]
    for position in range(length):
        step = {name: prompt[name][:, position : position + 1] for name in ("input_ids",)}
        step["position_ids"] = prompt["position_ids"][:, position : position + 1]
        step["attention_mask"] = prompt["attention_mask"][:, : position + 1]
        outputs = dict(zip(names, session.run(None, {**step, **carried}), strict=True))
        np.testing.assert_allclose(outputs["logits"][:, 0], whole[:, position], atol=2e-6)
        carried = {
            name.replace("present", "past_key_values"): value
            for name, value in outputs.items()
            if name != "logits"
        }


def test_summary_counts_what_a_recipe_contains() -> None:
    summary = summarize(resnet.build(resnet.Config.full50()))
    assert (summary.ops["Conv"], summary.ops["BatchNormalization"]) == (53, 53)
    # ResNet-50 has 25,557,032 weights; stored batch statistics add 53,120 more.
    assert summary.parameters == 25_557_032 + 53_120
    assert summarize(entry("lstm_small_dynamic").load()).variants["LSTM(inputs bias lengths h0 c0)"]


def test_wheel_member_is_extracted_once_and_absence_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UA_MODELS", str(tmp_path))
    folder = tmp_path / "made-1.0"
    folder.mkdir()
    with zipfile.ZipFile(folder / "made-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("made/net.onnx", b"weights")
    found = WheelFile("made==1.0", "made/net.onnx").path()
    assert found.read_bytes() == b"weights"
    next(folder.glob("*.whl")).unlink()
    assert WheelFile("made==1.0", "made/net.onnx").path() == found
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(ModelUnavailable, match=r"cannot download absent==1.0: .*\n.*\n  do: go on"):
        WheelFile("absent==1.0", "absent/net.onnx").path()
    with pytest.raises(ModelUnavailable, match=r"cannot read nothing\.onnx"):
        PackageFile("onnx", "nothing.onnx").path()


def test_sources_of_published_files_are_pinned() -> None:
    wheels = [file.source for file in FILES if isinstance(file.source, WheelFile)]
    assert wheels and all("==" in source.requirement for source in wheels)


def _outputs(item: Entry, case: str | None = None) -> list[np.ndarray]:
    session = ort.InferenceSession(item.load().SerializeToString())
    return session.run(None, item.feeds(case))


def test_float16_encoder_comes_near_the_float32_one() -> None:
    pairs = zip(_outputs(entry("bert_small")), _outputs(entry("bert_small_f16")), strict=True)
    for whole, narrow in pairs:
        assert narrow.dtype == np.float16
        np.testing.assert_allclose(narrow, whole, atol=0.02)


def test_suppressing_detector_keeps_some_boxes_of_the_plain_one() -> None:
    plain = _outputs(entry("detector_small"))[0]
    picked, boxes, scores = _outputs(entry("detector_small_suppress"))
    assert 0 < len(picked) < plain.shape[2]
    image, label, cell = picked.T
    np.testing.assert_allclose(boxes, plain[image, :4, cell], rtol=1e-5)
    np.testing.assert_allclose(scores, plain[image, 4 + label, cell], rtol=1e-5)
    assert scores.min() >= 0.7


def test_generating_stops_at_the_limit_or_when_every_row_has_ended() -> None:
    config = generator.Config(12, 4, steps=12)
    session = ort.InferenceSession(generator.build(config).SerializeToString())
    lengths = set[int]()
    for seed in range(20):
        tokens = session.run(None, generator.feeds(config, seed))[0]
        ended = (tokens == 0).all(axis=1)
        assert not ended[:-1].any() and (len(tokens) == 12 or ended[-1])
        lengths.add(len(tokens))
    assert {12} < lengths


@pytest.mark.parametrize("verb", [["list"], ["ops", "bert_small"]])
def test_script_runs_as_a_file(verb: list[str]) -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, str(root / "scripts" / "models.py"), *verb],
        capture_output=True,
        text=True,
        check=True,
        cwd=root,
    )
    assert "bert_small" in done.stdout
