"""Tests of conversions: back and forth, changes, errors."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

import official_albert as albert
from official_albert import AlbertConfig, checkpoints, modeling, runs, training
from official_albert.inference import make_model
from official_albert.settings import WRITE_FORMATS
from official_albert.tasks.pretraining import model as model_lib
from official_albert.testing import toy_models, toy_vocabulary
from official_albert.tools.conversion import conversion, hf_outputs
from official_albert.tools.testing import many_commands, toy_runs

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_GOLDEN = _ROOT / "official_albert" / "testdata"
_TESTDATA = {
  "squad": _ROOT / "tasks" / "squad" / "testdata",
  "multiple": _ROOT / "tasks" / "race" / "testdata",
}
_POOLER = "bert/pooler/dense"
_PIECES = {
  group: toy_vocabulary.numbers(vocab_size)
  for group, vocab_size in (("one_group", 211), ("two_groups", 97))
}


@pytest.fixture(autouse=True)
def no_other_framework(monkeypatch):
  """Ignores an installed torch; other tests compare batches."""
  monkeypatch.setattr(conversion, "find_hf_python", lambda path: path)


def _golden(folder, group="one_group", name="model.ckpt"):
  """Copies a checkpoint, its configuration and a tokenizer, as in a release."""
  source = _TESTDATA.get(name.replace(".", "_").split("_")[0], _GOLDEN)
  folder = folder / "golden"
  os.makedirs(folder)
  for end in ("index", "data-00000-of-00001"):
    shutil.copy(source / group / f"{name}.{end}", folder)
  shutil.copy(_GOLDEN / group / "albert_config.json", folder)
  (folder / "30k-clean.model").write_bytes(_PIECES[group])
  return str(folder / name)


def _keep_best(run, step):
  """Writes other weights as the best checkpoint; returns the model."""
  config = AlbertConfig.from_json_file(f"{run}/albert_config.json")
  tf.keras.utils.set_random_seed(11)
  model = model_lib.AlbertForPretraining(config)
  keeper = training.BestCheckpoint(training.TrainConfig(run), model)
  assert keeper.offer(step, 1, {"loss": 2.5})
  return model


def _values(path):
  reader = tf.train.load_checkpoint(path)
  return {
    name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()
  }


@pytest.mark.golden
@pytest.mark.parametrize("group", ["one_group", "two_groups"])
@pytest.mark.parametrize(
  "name, head",
  [
    ("model.ckpt", ""),
    ("classifier.ckpt", ""),
    ("regression.ckpt", ""),
    ("multiple_choice.ckpt", "multiple_choice"),
    ("squad_v1.ckpt", ""),
    ("squad_v2.ckpt", ""),
  ],
)
def test_back_and_forth_is_exact(group, name, head, tmp_path):
  path = original = _golden(tmp_path, group, name)
  lost = set()
  targets = ["official_albert", "hf", "official_albert", "tf1"]
  if name == "squad_v2.ckpt":  # Hugging Face does not have its head.
    targets = ["official_albert", "tf1"]
  for step, target in enumerate(targets):
    output = str(tmp_path / f"{step}")
    report = conversion.convert(target, path, output, head=head)
    head = ""  # Other formats than TF1 record it.
    lost |= set(report["not_carried"])
    path = output
  expected, values = _values(original), _values(f"{output}/model.ckpt-best")
  expected.setdefault("global_step", np.int64(0))
  pooler = {f"{_POOLER}/kernel", f"{_POOLER}/bias"}
  # The question answering model of transformers has no pooler.
  assert lost == (pooler if name == "squad_v1.ckpt" else set())
  kept = {name: x for name, x in expected.items() if name not in lost}
  np.testing.assert_equal(values, kept)
  assert values["global_step"].dtype == np.int64
  assert pathlib.Path(output, "tokenizer.model").read_bytes() == _PIECES[group]
  # Our models are warm-started from both of our folders.
  for step in (0, len(targets) - 2):
    folder = str(tmp_path / f"{step}")
    read = checkpoints.read_checkpoint(folder)
    model = make_model(read.head, read.config, read.classes)
    loaded = checkpoints.warm_start(model, folder)
    assert not loaded.unexpected
    assert len(loaded.missing) == (len(lost) if step else 0)


def test_optimizer_state_back_and_forth(tmp_path):
  path = _golden(tmp_path, "one_group", "trained_lamb.ckpt-10")
  convert = functools.partial(conversion.convert, include_optimizer=True)
  ours, back = str(tmp_path / "ours"), str(tmp_path / "back")
  report = convert("official_albert", path, ours)
  assert report["matched"] == 97 and not report["not_carried"]
  loaded = modeling.AlbertModel.from_checkpoint(ours).load_report
  assert len(loaded.matched) == 25 and not loaded.missing
  assert len(loaded.unexpected) == 7  # Of the two heads.
  # The best checkpoint of a run holds only weights: the latest one is read.
  _keep_best(ours, 7)
  report = convert("tf1", ours, back)
  assert any("model.ckpt-10, step 10." in note for note in report["notes"])
  expected, values = _values(path), _values(f"{back}/model.ckpt-best")
  np.testing.assert_equal(values, expected)
  assert values["global_step"] == 10
  report = convert("hf", path, str(tmp_path / "hf"))
  assert len(report["not_carried"]) == 64
  assert set(report["not_carried"].values()) == {
    "Hugging Face keeps no optimizer state with a model"
  }


def test_a_head_that_cannot_be_carried(tmp_path):
  path = _golden(tmp_path, "one_group", "squad_v2.ckpt")
  report = conversion.convert("hf", path, str(tmp_path / "out"))
  assert report["head"] == "none" and len(report["not_carried"]) == 11
  reason = report["not_carried"]["start_logits/dense/kernel"]
  assert reason.startswith("Hugging Face has no head")
  assert "were not compared" in report["notes"][-1]
  file = tmp_path / "out" / conversion.REPORT_FILE
  written = json.loads(file.read_text())
  assert written["matched"] == 36 and written["proofs"] == {}


def test_the_best_checkpoint_of_a_run(tmp_path):
  run = toy_runs.write_pretrained(str(tmp_path / "run"))
  best, name = _keep_best(run, 5).albert.pooler.kernel, f"{_POOLER}/kernel"

  def convert(path, output, **arguments):
    output = str(tmp_path / output)
    report = conversion.convert("tf1", str(path), output, **arguments)
    return _values(f"{output}/model.ckpt-best"), "\n".join(report["notes"])

  values, notes = convert(run, "a")
  np.testing.assert_array_equal(values[name], best)
  assert values["global_step"] == 5
  assert f"weights are {run}/best/model.ckpt-5, step 5." in notes
  values, notes = convert(run, "b", checkpoint="latest")
  assert np.abs(values[name] - best).max() > 0.1
  assert f"weights are {run}/model.ckpt-1, step 0." in notes
  with pytest.raises(ValueError, match="is not the folder of a run"):
    convert(tmp_path / "a", "c", checkpoint="latest")


def test_a_classifier_of_several_labels_a_text_stays_one(tmp_path):
  run, hf, back = (str(tmp_path / x) for x in ("run", "hf", "back"))
  toy_runs.write_finetuned(run, "text_multi_label", ("x", "y", "z"))
  (*_, note, _) = conversion.convert("hf", run, hf)["notes"]
  assert "{'x': 0.3, 'y': 0.5, 'z': 0.7}: 0.5 is used" in note
  notes = conversion.convert("tf1", run, str(tmp_path / "tf1"))["notes"]
  for fact in ("labels: x, y, z.", "max_seq_length: 24."):
    assert any(note.endswith(fact) for note in notes)
  conversion.convert("official_albert", hf, back)
  for path in (hf, back):
    read = checkpoints.read_checkpoint(path)
    assert (read.head, read.labels) == ("multi_label", ("x", "y", "z"))
  with pytest.raises(ValueError, match="multi_label_.*, but 3 outputs or ano"):
    checkpoints.read_checkpoint(hf, head="classification")


@pytest.mark.parametrize(
  "task, labels, settings",
  [
    ("text_multi_label", ("x", "y", "z"), {}),
    ("squad_v2", None, {"threshold": -1.5, "doc_stride": 7, "start_n_top": 2}),
    ("squad_v1", None, {"max_answer_length": 5}),
    ("race", None, {"max_qa_length": 9}),
    ("sst2", ("bad", "good"), {}),
  ],
)
def test_a_converted_run_is_served_like_the_run(
  task, labels, settings, tmp_path, monkeypatch
):
  """With the settings of its answers, and its length of texts."""
  run, own, hf = (str(tmp_path / x) for x in ("run", "own", "hf"))
  toy_runs.write_finetuned(run, task, labels, **settings)
  conversion.convert("official_albert", run, own)
  first, second = (albert.load(path).source for path in (run, own))
  assert first.task == second.task == task
  assert first.module.settings() == second.module.settings()
  assert first.module.max_seq_length == second.module.max_seq_length == 24
  report = conversion.convert("hf", run, hf)
  assert albert.load(hf).source.module.max_seq_length == 24
  is_dropped = task == "squad_v2"  # Its head, so its threshold is no loss.
  assert (report["head"] == "none") == is_dropped
  assert not any("null_score" in note for note in report["notes"])
  lengths = [f"{k}={x}" for k, x in settings.items() if k != "threshold"]
  lost = [f"a TF1 checkpoint cannot hold the settings: {', '.join(lengths)}."]
  found = conversion.convert("tf1", run, str(tmp_path / "tf1"))["notes"]
  assert [x for x in found if "settings" in x] == (lost if lengths else [])
  assert any("settings" in x for x in report["notes"]) == (
    bool(lengths) and not is_dropped
  )
  encoder = str(tmp_path / "encoder")
  conversion.convert("official_albert", run, encoder, head="none")
  assert albert.load(encoder).kind == "encoder"
  if settings.get("threshold"):
    for path in pathlib.Path(run).glob("model.ckpt-1.*"):
      shutil.copy(path, str(path).replace("ckpt-1", "ckpt-0"))
    earlier = f"{run}/model.ckpt-0"
    report = conversion.convert("official_albert", earlier, f"{tmp_path}/0")
    assert any("not carried, -1.5: each" in note for note in report["notes"])
  # The scores of the folder where the command runs are not those of the model.
  monkeypatch.chdir(run)
  runs.write_results(".", {"dev": {"f1": 0.123}})
  conversion.convert("hf", hf, str(tmp_path / "again"))
  assert "0.123" not in (tmp_path / "again" / "README.md").read_text()


def test_tokenizers(tmp_path):
  path = _golden(tmp_path)
  file = tmp_path / "golden" / "30k-clean.model"

  def convert(output, target="hf", path=path, **chosen):
    report = conversion.convert(target, path, str(tmp_path / output), **chosen)
    return "\n".join(report["notes"])

  # More pieces than rows are refused; fewer may be padding.
  file.write_bytes(toy_vocabulary.numbers(212))
  with pytest.raises(ValueError, match="212 pieces, but .* vocab_size 211: "):
    convert("a")
  file.write_bytes(toy_vocabulary.numbers(96))
  assert "96 pieces for a vocab_size of 211" in convert("a")
  # The rules are chosen, or as recorded, for another file, too.
  notes = convert(
    "cased",
    tokenizer=checkpoints.TokenizerChoice(lower_case=False, keep_accents=True),
  )
  assert "{'lower_case': False, 'keep_accents': True} and 96" in notes
  cased = checkpoints.read_checkpoint(str(tmp_path / "cased")).tokenizer
  assert cased.rules.keep_accents and not cased.rules.lower_case
  given = checkpoints.TokenizerChoice(str(file))
  notes = convert("given", path=str(tmp_path / "cased"), tokenizer=given)
  assert f"{file}, with {{'lower_case': False, 'keep_a" in notes
  run = toy_runs.write_pretrained(str(tmp_path / "run"))
  with pytest.raises(ValueError, match="is not the tokenizer that the model"):
    convert("b", path=run, tokenizer=given)
  # A tokenizer above the folder is not used.
  file.rename(tmp_path / file.name)
  for target in WRITE_FORMATS:
    assert "no tokenizer was found" in convert(target, target)
    assert not os.path.exists(tmp_path / target / "tokenizer.model")


def test_a_failure_leaves_nothing(tmp_path, monkeypatch):
  path = _golden(tmp_path)
  before = sorted(os.listdir(tmp_path))
  output = str(tmp_path / "new" / "out")
  write, name = checkpoints.WRITERS["hf"], f"{_POOLER}/bias"
  for more, rate, message in (
    (1e-7, 0.02, f"'{name}' differs in"),
    (np.nan, 0.02, f"'{name}' differs in"),
    (0, 0.3, "the configurat"),
  ):

    def write_wrongly(checkpoint, folder, more=more, rate=rate):
      value = np.asarray(checkpoint.tensors[name]) + np.float32(more)
      config = dataclasses.replace(checkpoint.config, initializer_range=rate)
      wrong = {**checkpoint.tensors, name: value}
      write(
        dataclasses.replace(checkpoint, tensors=wrong, config=config), folder
      )

    monkeypatch.setitem(checkpoints.WRITERS, "hf", write_wrongly)
    with pytest.raises(ValueError, match=f"is wrong: {message}"):
      conversion.convert("hf", path, output)
  assert sorted(os.listdir(tmp_path)) == before


def test_a_batch_with_different_outputs(tmp_path, monkeypatch):
  path = _golden(tmp_path)
  monkeypatch.setattr(conversion, "find_hf_python", lambda path: "it")
  names = ("sequence_output", "masked_lm_logits", "sentence_order_logits")
  rng = np.random.default_rng(3)
  their = {"factor": 1.0}

  def theirs(python, folder, head, batch):
    assert head == "pretraining"
    assert python == "it" and os.path.exists(f"{folder}/model.safetensors")
    read = checkpoints.read_checkpoint(folder)
    outputs = conversion.own_outputs(read, batch)
    found = {}
    for name in names:
      value = their["factor"] * outputs[name].numpy().astype(np.float64)
      noise = 4e-7 * rng.standard_normal(value.shape)
      found[name] = np.stack([value, value * (1 + noise)])
    return found

  monkeypatch.setattr(conversion, "hf_outputs", theirs)
  report = conversion.convert("hf", path, str(tmp_path / "a"))
  proofs = [report["proofs"][f"{x} of both models for a batch"] for x in names]
  for difference, allowed in proofs:
    assert difference == 0 and allowed == pytest.approx(8 * 4e-7, rel=0.5)
  their["factor"] = 1 + 1e-5
  with pytest.raises(ValueError, match="sequence_output .* differ by .*, more"):
    conversion.convert("hf", path, str(tmp_path / "b"))
  assert not os.path.exists(tmp_path / "b")


def test_errors_relative_to_size():
  rng = np.random.default_rng(0)
  expected = rng.standard_normal([5, 7, 11]) * 3
  noise = 3e-3 * rng.standard_normal([5, 7, 11])
  # A channel with larger values neither hides the others nor counts more, and
  # one without values counts as one of the median size.
  for scale in (1, 1e3, 0):
    scales = np.where(np.arange(11) == 4, scale, 1)
    wrong = expected * scales + noise * np.maximum(scales, 1)
    error = conversion.relative_error(wrong, expected * scales)
    assert error == pytest.approx(1e-3, rel=0.1)


# Comparing values and outputs.

_CONFIG = toy_models.config(31, 9, num_hidden_groups=2)


@pytest.mark.parametrize("head", sorted(checkpoints.HEADS))
def test_the_table_has_every_variable_of_every_model(head):
  sizes = {"classification": 3, "multi_label": 3, "regression": 1}
  sizes["token_classification"] = 5
  classes = sizes.get(head, 0)
  model = make_model(head, _CONFIG, classes)
  prefix = "" if hasattr(model, "albert") else "albert/"
  variables = checkpoints.by_path(model)
  shapes = {f"{prefix}{path}": v.shape for path, v in variables.items()}
  rows = checkpoints.rows(_CONFIG, head)
  if head == "masked_lm":  # Its model has both pretraining heads.
    rows += checkpoints.HEADS["pretraining"][-2:]
  assert {row.own: row.shape_in(_CONFIG, classes) for row in rows} == shapes
  assert len(checkpoints.tf1_variables(model)) == len(rows)


@pytest.mark.golden
@pytest.mark.parametrize(
  "name, outputs",
  [
    ("pretraining", ("prediction_logits", "sop_logits")),
    ("sequence_classification", ("logits",)),
    ("question_answering", ("start_logits", "end_logits")),
  ],
)
def test_outputs_of_transformers(name, outputs):
  folder = _GOLDEN / "hf_one_group" / name
  checkpoint = checkpoints.read_checkpoint(str(folder))
  expected = np.load(folder / "reference_outputs.npz")
  mask = expected["attention_mask"].astype(bool)
  batch = {
    "input_ids": expected["input_ids"].astype(np.int32),
    "input_mask": mask.astype(np.int32),
    "segment_ids": expected["token_type_ids"].astype(np.int32),
    # For heads that score the vocabulary.
    "masked_lm_positions": np.mgrid[: len(mask), : mask.shape[1]][1],
  }
  ours = conversion.own_outputs(checkpoint, batch)
  names = {**hf_outputs.NAMES, "last_hidden_state": "sequence_output"}
  for theirs in ("last_hidden_state", *outputs):
    a, b = expected[theirs], ours[names.get(theirs, theirs)].numpy()
    assert a.shape == b.shape
    per_token = a.shape[:2] == mask.shape
    a, b = (a[mask], b[mask]) if per_token else (a, b)
    # Measured: 4e-7 in float32.
    np.testing.assert_allclose(b, a, atol=1e-5, rtol=0)


def test_outputs_for_options():
  path = str(_GOLDEN / "one_group" / "regression.ckpt")
  checkpoint = checkpoints.read_checkpoint(path, head="multiple_choice")
  batch = conversion.make_batch(checkpoint.config, checkpoint.head)
  assert conversion.own_outputs(checkpoint, batch)["logits"].shape == (1, 2)


def test_finding_and_running_the_other_framework(tmp_path, monkeypatch):
  monkeypatch.undo()
  with pytest.raises(FileNotFoundError, match="is not a program"):
    conversion.find_hf_python(str(tmp_path))
  assert conversion.find_hf_python(sys.executable) == sys.executable
  batch = conversion.make_batch(_CONFIG, "none")
  # The last line of its output is reported.
  with pytest.raises(ValueError, match="Hugging Face cannot run the model: .+"):
    conversion.hf_outputs(sys.executable, str(tmp_path), "none", batch)


def test_weights_that_transformers_does_not_read(tmp_path):
  """Only the folder that was written is given to it."""
  shutil.copytree(_GOLDEN / "hf_one_group" / "pretraining", tmp_path / "hf")
  path = tmp_path / "hf" / "model.safetensors"
  values = safetensors.numpy.load_file(path)
  wrapped = {f"_orig_mod.{name}": value for name, value in values.items()}
  safetensors.numpy.save_file(wrapped, path)
  for target in ("official_albert", "tf1"):
    output = str(tmp_path / target)
    report = conversion.convert(
      target, str(tmp_path / "hf"), output, hf_python="/bin/false"
    )
    assert report["source"][0] == "keras" and not report["proofs"]
  with pytest.raises(ValueError, match="Hugging Face cannot run"):
    output = str(tmp_path / "again")
    conversion.convert(
      "hf", str(tmp_path / "hf"), output, hf_python="/bin/false"
    )


# Runs with transformers. The statistics are those of trained models: a channel
# 12 times as large as the others, and keys whose bias is 12.
_WRITE = """
import sys, torch, transformers
name, folder, settings = sys.argv[1], sys.argv[2], eval(sys.argv[3])
has_pooler = settings.pop("add_pooling_layer", True)
config = transformers.AlbertConfig(
  vocab_size=97, embedding_size=16, hidden_size=64, num_hidden_layers=4,
  num_attention_heads=4, intermediate_size=256, **settings)
options = {} if has_pooler else {"add_pooling_layer": False}
model = getattr(transformers, name)(config, **options)
torch.manual_seed(5)
with torch.no_grad():
  for name, value in model.named_parameters():
    random = torch.randn(value.shape)
    if "LayerNorm.weight" in name or "layer_norm.weight" in name:
      value.copy_(1 + random / 5)
    elif value.ndim > 1 and "embeddings" not in name:
      value.copy_(random / value.shape[-1] ** 0.5)
    else:
      value.copy_(random / 20)
    if "full_layer_layer_norm" in name:
      value[3] = 12
    if name.endswith("key.bias"):
      value.mul_(240)
model.save_pretrained(folder)
"""


@pytest.mark.heavy
@pytest.mark.parametrize(
  "name, settings",
  [
    ("AlbertModel", {}),
    ("AlbertModel", {"add_pooling_layer": False}),
    ("AlbertForPreTraining", {"hidden_act": "gelu"}),
    ("AlbertForMaskedLM", {"num_hidden_groups": 2}),
    ("AlbertForSequenceClassification", {"num_labels": 3}),
    ("AlbertForSequenceClassification", {"num_labels": 1}),
    (
      "AlbertForSequenceClassification",
      {"num_labels": 3, "problem_type": "multi_label_classification"},
    ),
    ("AlbertForTokenClassification", {"num_labels": 5}),
    ("AlbertForMultipleChoice", {"inner_group_num": 2}),
    ("AlbertForQuestionAnswering", {}),
  ],
)
def test_proofs_with_transformers(name, settings, tmp_path, peer_python):
  """Right conversions pass, both ways; other functions do not."""
  python = peer_python("huggingface")
  first, own, back = (str(tmp_path / x) for x in ("first", "own", "back"))
  subprocess.run(
    [python, "-c", _WRITE, name, first, repr(settings)], check=True
  )
  report = conversion.convert("official_albert", first, own, hf_python=python)
  again = conversion.convert("hf", own, back, hf_python=python)
  assert report["proofs"].keys() == again["proofs"].keys() != set()

  def are_refused(folder, **changes):
    hf, ours = map(checkpoints.read_checkpoint, (first, own))
    hf.source, ours.config = folder, dataclasses.replace(ours.config, **changes)
    proofs = conversion.compare_outputs(hf, ours, python, [])
    assert proofs.keys() == report["proofs"].keys()
    return any(error > allowed for error, allowed in proofs.values())

  assert not are_refused(first)
  is_exact = settings.get("hidden_act") == "gelu"
  assert are_refused(first, hidden_act="gelu" if is_exact else "gelu_erf")
  changed = shutil.copytree(first, tmp_path / "changed")
  values = json.loads((changed / "config.json").read_text())
  values["layer_norm_eps"] = 1e-5
  (changed / "config.json").write_text(json.dumps(values))
  assert are_refused(str(changed))


@pytest.mark.parametrize("target", WRITE_FORMATS)
def test_other_programs_get_merged_adapters(target, tmp_path):
  first, run, output = (str(tmp_path / x) for x in ("first", "run", target))
  toy_runs.write_pretrained(
    first, num_hidden_layers=3, inner_group_num=2, adapter_rank=3
  )
  read = checkpoints.read_checkpoint(first)
  rng = np.random.default_rng(9)
  for name, value in read.tensors.items():
    if name.endswith("_b"):
      read.tensors[name] = np.float32(rng.normal(0, 0.1, value.shape))
  os.makedirs(run)
  checkpoints.WRITERS["official_albert"](read, run)
  report = conversion.convert(target, run, output)
  written = checkpoints.read_checkpoint(output)
  is_own = target == "official_albert"
  changes = {"adapter_rank": 0, "num_hidden_groups": 3}
  changes = {} if is_own else changes
  assert written.config == dataclasses.replace(read.config, **changes)
  assert (
    any("adapters are merged" in note for note in report["notes"]) != is_own
  )
  batch = conversion.make_batch(read.config, read.head)
  a, b = (conversion.own_outputs(x, batch) for x in (read, written))
  for name in ("masked_lm_logits", "sequence_output", "pooled_output"):
    np.testing.assert_allclose(b[name], a[name], rtol=0, atol=2e-5)


def test_the_program(tmp_path):
  run = toy_runs.write_pretrained(str(tmp_path / "run"))
  data = f"{run}/model.ckpt-1.data-00000-of-00001"
  os.truncate(data, os.path.getsize(data) // 2)
  (tmp_path / "pieces").write_bytes(toy_vocabulary.numbers(211))
  tf1 = _GOLDEN / "one_group" / "model.ckpt"

  def line(*more, input=tf1, output="none", to="hf"):
    output = tmp_path / output
    return [f"--input={input}", f"--output={output}", f"--to={to}", *more]

  spm = f"--spm_model_file={tmp_path / 'pieces'}"
  wrong = [
    (line(input=run), f"error: {data} is damaged"),
    (line(input=tmp_path / "nothing"), "no checkpoint at"),
    (line(output="out"), "exists and is not empty"),
    (line("--head=squad1"), "lacks cls/squad/output_weights"),
    (line("--include_optimizer"), "holds 0 of the 64 optimizer slots"),
    (line("--hf_python=/none"), "--hf_python /none is not a program"),
    (
      line(spm, f"--vocab_file={tmp_path / 'pieces'}"),
      "are two tokenizers for one model",
    ),
    (line("--spm_model_file=/none"), "the tokenizer /none does not exist"),
    (line("--push_to=toy"), "--push_to=toy is not USER/NAME"),
    (line("--license=mit", to="tf1"), "a model card need --to=hf"),
    (line(input="kaggle://a/b"), "'kaggle://a/b' names no model: give hf://"),
  ]
  before = sorted(os.listdir(tmp_path))
  (good,) = many_commands.run(
    "convert_checkpoint",
    [line(spm, "--nodo_lower_case", "--license=mit", output="out")],
  )
  report = json.loads(good.out)
  assert report["matched"] == 33 and not report["missing"]
  settings = (tmp_path / "out" / "tokenizer_config.json").read_text()
  assert '"do_lower_case": false' in settings
  assert 'license: "mit"' in (tmp_path / "out" / "README.md").read_text()
  many_commands.check_refusals("convert_checkpoint", wrong)
  assert sorted(os.listdir(tmp_path)) == sorted([*before, "out"])
