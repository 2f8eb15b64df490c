"""Tests of conversions: back and forth, changes, errors."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import tarfile

import numpy as np
import pytest
import tensorflow as tf

from official_albert import AlbertConfig, checkpoints, modeling, training
from official_albert.testing import toy_vocabulary
from tasks import pretraining
from tools import finetuning
from tools.conversion import conversion as checkpoint_conversion
from tools.conversion import proof as checkpoint_proof
from tools.testing import toy_encoder, toy_finetuned

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_GOLDEN = _ROOT / "official_albert" / "testdata"
_PIECES = {
  group: toy_vocabulary.numbers(vocab_size)
  for group, vocab_size in (("one_group", 211), ("two_groups", 97))
}


@pytest.fixture(autouse=True)
def no_other_framework(monkeypatch):
  """Ignores an installed torch; other tests compare batches."""
  monkeypatch.setattr(checkpoint_proof, "find_hf_python", lambda path: "")


def _golden(folder, group, name):
  """Copies a checkpoint and its configuration, as in a release."""
  source = _GOLDEN
  if name.startswith("squad"):
    source = _ROOT / "tasks" / "squad" / "testdata"
  elif name.startswith("multiple"):
    source = _ROOT / "tasks" / "race" / "testdata"
  folder = folder / "golden"
  os.makedirs(folder)
  for end in ("index", "data-00000-of-00001"):
    shutil.copy(source / group / f"{name}.{end}", folder)
  shutil.copy(_GOLDEN / group / "albert_config.json", folder)
  (folder / "30k-clean.model").write_bytes(_PIECES[group])
  return str(folder / name)


def _values(path):
  reader = tf.train.load_checkpoint(path)
  return {
    name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()
  }


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
  if name == "squad_v2.ckpt":  # Whose head Hugging Face does not have.
    targets = ["official_albert", "tf1"]
  for step, target in enumerate(targets):
    output = str(tmp_path / f"{step}")
    report = checkpoint_conversion.convert("", target, path, output, head)
    assert report.proofs == {"values read again by name": (0.0, 1e-5)}
    lost |= set(report.not_carried)
    path = output
  expected, values = _values(original), _values(f"{output}/model.ckpt-best")
  expected.setdefault("global_step", np.int64(0))
  pooler = {"bert/pooler/dense/kernel", "bert/pooler/dense/bias"}
  # The question answering model of transformers has no pooler.
  assert lost == (pooler if name == "squad_v1.ckpt" else set())
  assert set(values) == set(expected) - lost
  for variable, value in values.items():
    np.testing.assert_array_equal(value, expected[variable])
  with open(os.path.join(output, "tokenizer.model"), "rb") as file:
    assert file.read() == _PIECES[group]
  # Our models are warm-started from both of our folders.
  for step in (0, len(targets) - 2):
    folder = str(tmp_path / f"{step}")
    read = checkpoints.READERS["official_albert"](folder)
    model = finetuning.registry.make_model(
      read.head, read.config, checkpoint_proof.classes_of(read)
    )
    loaded = training.warm_start(model, folder)
    assert not loaded.unexpected and not loaded.other_shape
    assert len(loaded.missing) == (len(lost) if step else 0)


def test_optimizer_state_back_and_forth(tmp_path):
  path = _golden(tmp_path, "one_group", "trained_lamb.ckpt-10")
  ours, back = str(tmp_path / "ours"), str(tmp_path / "back")
  report = checkpoint_conversion.convert(
    "tf1", "official_albert", path, ours, include_optimizer=True
  )
  assert report.matched == 97 and not report.not_carried
  checkpoint_conversion.convert(
    "official_albert", "tf1", ours, back, include_optimizer=True
  )
  expected, values = _values(path), _values(f"{back}/model.ckpt-best")
  assert set(values) == set(expected) and values["global_step"] == 10
  for name, value in values.items():
    np.testing.assert_array_equal(value, expected[name])
  report = checkpoint_conversion.convert(
    "tf1", "hf", path, str(tmp_path / "hf"), include_optimizer=True
  )
  assert len(report.not_carried) == 64
  assert set(report.not_carried.values()) == {
    "Hugging Face keeps no optimizer state with a model"
  }


def test_a_head_that_cannot_be_carried(tmp_path):
  path = _golden(tmp_path, "one_group", "squad_v2.ckpt")
  output = str(tmp_path / "out")
  report = checkpoint_conversion.convert("", "hf", path, output)
  assert report.head == "none" and len(report.not_carried) == 11
  text = str(report)
  assert (
    "not carried: start_logits/dense/kernel (Hugging Face has no head for "
    "squad2)" in text
  )
  assert "36 variables matched, 0 missing, 0 unexpected" in text
  assert "no batch went through Hugging Face's model" in text
  assert "read again by name: largest absolute difference 0" in text
  with open(os.path.join(output, checkpoint_conversion.REPORT_FILE)) as file:
    assert json.load(file)["matched"] == 36


def _run_with_best(folder, seed):
  """Writes a run and returns weights of its best checkpoint, which differ."""
  folder = toy_encoder.write(str(folder))
  config = AlbertConfig.from_json_file(f"{folder}/albert_config.json")
  tf.keras.utils.set_random_seed(seed)
  model = pretraining.AlbertForPretraining(config)
  keeper = training.BestCheckpoint(folder, model, "loss")
  assert keeper.offer(5, 1, {"loss": 2.5})
  return model.albert.pooler.kernel.numpy()


def test_the_best_checkpoint_of_a_run(tmp_path):
  best = _run_with_best(tmp_path / "run", 11)
  run, name = str(tmp_path / "run"), "bert/pooler/dense/kernel"

  def kernel(output, **arguments):
    output = str(tmp_path / output)
    report = checkpoint_conversion.convert("", "tf1", run, output, **arguments)
    return _values(f"{output}/model.ckpt-best"), "\n".join(report.notes)

  values, notes = kernel("a")
  np.testing.assert_array_equal(values[name], best)
  assert values["global_step"] == 5
  assert f"weights are {run}/best/model.ckpt-5, step 5, the run's best" in notes
  values, notes = kernel("b", which="latest")
  assert np.abs(values[name] - best).max() > 0.1
  assert f"weights are {run}/model.ckpt-1, step 0." in notes
  with pytest.raises(FileNotFoundError, match="no checkpoint at newest"):
    kernel("c", which="newest")
  # The best of several seeds.
  os.rename(run, tmp_path / "seed_6")
  summary = {"seeds": {"5": {}, "6": {}}, "best_seed": 6}
  (tmp_path / "summary.json").write_text(json.dumps(summary))
  run = str(tmp_path)
  values, notes = kernel("d/d")
  np.testing.assert_array_equal(values[name], best)
  assert "seed_6/best/model.ckpt-5, step 5, the run's best" in notes
  run = str(tmp_path / "a")
  with pytest.raises(ValueError, match="is not the folder of a run"):
    kernel("e", which="latest")


def test_optimizer_state_is_in_the_latest_checkpoint_only(tmp_path):
  shutil.copytree(_GOLDEN / "one_group", tmp_path / "tf1")
  run = str(tmp_path / "run")
  checkpoint_conversion.convert(
    "tf1", "official_albert", str(tmp_path / "tf1" / "trained_lamb.ckpt-10"),
    run, include_optimizer=True,
  )  # fmt: skip
  config = AlbertConfig.from_json_file(f"{run}/albert_config.json")
  model = pretraining.AlbertForPretraining(config)
  keeper = training.BestCheckpoint(run, model, "loss")
  assert keeper.offer(7, 1, {"loss": 2.5})
  report = checkpoint_conversion.convert(
    "", "tf1", run, str(tmp_path / "out"), include_optimizer=True
  )
  assert any("model.ckpt-10, step 10." in note for note in report.notes)
  values = _values(str(tmp_path / "out" / "model.ckpt-best"))
  expected = _values(str(tmp_path / "tf1" / "trained_lamb.ckpt-10"))
  slot = "bert/pooler/dense/kernel/adam_m"
  np.testing.assert_array_equal(values[slot], expected[slot])


def test_a_classifier_back_and_forth(tmp_path):
  run, labels = str(tmp_path / "run"), ("x", "y", "z")
  toy_finetuned.write(run, "text_classification", labels)
  hf, back = str(tmp_path / "hf"), str(tmp_path / "back")
  checkpoint_conversion.convert("", "hf", run, hf)
  with open(os.path.join(hf, "config.json")) as file:
    values = json.load(file)
  assert values["id2label"] == {"0": "x", "1": "y", "2": "z"}
  assert values["problem_type"] == "single_label_classification"
  checkpoint_conversion.convert(
    "", "official_albert", hf, back, task="text_pair_classification"
  )
  trained = finetuning.trained_run.read(back)
  assert trained.task == "text_pair_classification"
  assert trained.labels == labels and trained.max_seq_length == 40
  with pytest.raises(ValueError, match="--task=text_regression needs regress"):
    checkpoint_conversion.convert(
      "", "official_albert", hf, str(tmp_path / "no"), task="text_regression"
    )
  # Multi-label classification is another model.
  values["problem_type"] = "multi_label_classification"
  with open(os.path.join(hf, "config.json"), "w") as file:
    json.dump(values, file)
  with pytest.raises(ValueError, match="several classes or numbers to one"):
    checkpoint_conversion.convert(
      "",
      "official_albert",
      hf,
      str(tmp_path / "no"),
      task="text_classification",
    )
  values["id2label"].pop("2")
  with open(os.path.join(hf, "config.json"), "w") as file:
    json.dump(values, file)
  with pytest.raises(
    ValueError, match="has 3 classes, but names 2 in id2label"
  ):
    checkpoint_conversion.convert("", "tf1", hf, str(tmp_path / "no"))


def test_an_archive(tmp_path):
  path = _golden(tmp_path, "two_groups", "model.ckpt")
  archive = str(tmp_path / "albert.tar.gz")
  with tarfile.open(archive, "w:gz") as file:
    file.add(os.path.dirname(path), "albert_tiny")
  output = str(tmp_path / "out")
  report = checkpoint_conversion.convert("", "official_albert", archive, output)
  assert report.source == ("tf1", archive) and report.matched == 79
  assert os.path.exists(os.path.join(output, "tokenizer.model"))
  assert f"the tokenizer is 30k-clean.model of {archive}." in report.notes


def test_a_tokenizer_above_the_folder_is_not_used(tmp_path):
  path = _golden(tmp_path, "one_group", "model.ckpt")
  report = checkpoint_conversion.convert("", "tf1", path, str(tmp_path / "a"))
  model = tmp_path / "golden" / "30k-clean.model"
  assert f"the tokenizer is {model}." in report.notes
  model.rename(tmp_path / "30k-clean.model")
  for target in ("official_albert", "tf1"):
    output = str(tmp_path / f"to_{target}")
    report = checkpoint_conversion.convert("", target, path, output)
    assert any("no tokenizer was found" in note for note in report.notes)
    assert not os.path.exists(os.path.join(output, "tokenizer.model"))
    path = output


def test_a_given_tokenizer(tmp_path):
  path = _golden(tmp_path, "one_group", "model.ckpt")
  (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")
  tokenizer = checkpoints.TokenizerFile(
    str(tmp_path / "vocab.txt"), "wordpiece"
  )
  output = str(tmp_path / "out")
  report = checkpoint_conversion.convert(
    "", "hf", path, output, tokenizer=tokenizer
  )
  assert f"the tokenizer is {tokenizer.path}." in report.notes
  with open(os.path.join(output, "config.json")) as file:
    assert json.load(file)["eos_token_id"] == 3
  assert not os.path.exists(os.path.join(output, "spiece.model"))


def test_a_tokenizer_of_another_size(tmp_path):
  """More pieces than rows are refused; fewer may be padding."""
  path = _golden(tmp_path, "two_groups", "model.ckpt")
  file = tmp_path / "golden" / "30k-clean.model"
  output = tmp_path / "out"

  def convert():
    return checkpoint_conversion.convert("", "hf", path, str(output))

  file.write_bytes(toy_vocabulary.numbers(98))
  with pytest.raises(ValueError, match="has 98 pieces, but .* vocab_size 97: "):
    convert()
  file.write_bytes(b"pieces")
  with pytest.raises(ValueError, match="not a SentencePiece model"):
    convert()
  assert not output.exists()
  file.write_bytes(toy_vocabulary.numbers(96))
  assert any("has 96 pieces, fewer than" in n for n in convert().notes)


def test_a_dry_run_and_a_failure_leave_nothing(tmp_path, monkeypatch):
  path = _golden(tmp_path, "one_group", "model.ckpt")
  before = sorted(os.listdir(tmp_path))

  def convert(**arguments):
    output = str(tmp_path / "new" / "out")
    return checkpoint_conversion.convert("", "hf", path, output, **arguments)

  assert convert(dry_run=True).matched == 33
  assert sorted(os.listdir(tmp_path)) == before
  (tmp_path / "new").mkdir()
  monkeypatch.setattr(checkpoint_proof, "by_name", lambda a, b: 1.1e-5)
  with pytest.raises(ValueError, match="by name differ by 1.1e-05, more than"):
    convert()
  monkeypatch.setattr(checkpoint_proof, "by_name", lambda a, b: float("nan"))
  with pytest.raises(ValueError, match="the conversion is wrong"):
    convert()
  assert not os.listdir(tmp_path / "new")


def test_a_batch_with_different_outputs(tmp_path, monkeypatch):
  path = _golden(tmp_path, "one_group", "model.ckpt")
  monkeypatch.setattr(checkpoint_proof, "find_hf_python", lambda path: "it")
  wrong = 0.0

  def theirs(python, folder, batch):
    assert python == "it" and os.path.exists(f"{folder}/model.safetensors")
    if "texts" in batch:
      lengths = np.zeros([len(batch["texts"])], np.int32)
      return {"ids": np.zeros([0], np.int32), "lengths": lengths}
    checkpoint = checkpoints.READERS["hf"](folder)
    model = finetuning.registry.make_model("pretraining", checkpoint.config)
    checkpoints.fill(model, checkpoint)
    logits = model(batch)["masked_lm_logits"].numpy()
    return {"masked_lm_logits": logits + np.float32(wrong)}

  monkeypatch.setattr(checkpoint_proof, "hf_outputs", theirs)
  report = checkpoint_conversion.convert("", "hf", path, str(tmp_path / "a"))
  (what,) = set(report.proofs) - {"values read again by name"}
  assert what == "a batch through both models (masked_lm_logits)"
  assert report.proofs[what][0] == 0
  assert any("other ids than this package for 8 of" in n for n in report.notes)
  wrong = 0.001
  with pytest.raises(
    ValueError, match=r"masked_lm_logits\) differ by 0.001, more than"
  ):
    checkpoint_conversion.convert("", "hf", path, str(tmp_path / "b"))
  assert not os.path.exists(tmp_path / "b")


def test_an_existing_output(tmp_path):
  path = _golden(tmp_path, "one_group", "model.ckpt")
  output = tmp_path / "out"
  output.mkdir()
  (output / "mine").write_text("")
  with pytest.raises(FileExistsError, match="exists and is not empty"):
    checkpoint_conversion.convert("", "hf", path, str(output))
  (output / "mine").unlink()
  checkpoint_conversion.convert("", "hf", path, str(output))
  assert (output / "config.json").exists()


@pytest.mark.parametrize("output", [".", "", "../here/", "absolute"])
def test_the_current_folder_as_output(output, tmp_path, monkeypatch):
  path = _golden(tmp_path, "one_group", "model.ckpt")
  (tmp_path / "here").mkdir()
  monkeypatch.chdir(tmp_path / "here")
  before = os.stat(".").st_ino
  output = str(tmp_path / "here") if output == "absolute" else output
  with pytest.raises(FileExistsError, match="is the current folder: choose"):
    checkpoint_conversion.convert("", "hf", path, output)
  assert os.stat(tmp_path / "here").st_ino == before and not os.listdir(".")


_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def _convert_changed(tmp_path, changes, source="one_group", **kwargs):
  return checkpoint_conversion.convert(
    "tf1",
    "official_albert",
    str(_GOLDEN / source / "model.ckpt"),
    str(tmp_path / "output"),
    changes=changes,
    **kwargs,
  )


def test_default_changes_are_false():
  assert not checkpoint_conversion.Changes()
  assert not checkpoint_conversion.Changes(position_method="interpolate")
  assert checkpoint_conversion.Changes(num_hidden_groups=2)


def test_groups_and_positions_at_once(tmp_path):
  """The outputs stay the same up to the old length."""
  config = modeling.AlbertConfig.from_json_file(
    str(_GOLDEN / "one_group" / "albert_config.json")
  )
  layers, length = config.num_hidden_layers, config.max_position_embeddings
  changes = checkpoint_conversion.Changes(layers, length + 3)
  report = _convert_changed(tmp_path, changes)
  assert any(f"{layers} groups instead of 1" in n for n in report.notes)
  assert any(f"{length + 3} positions instead of" in n for n in report.notes)
  assert any("the model was changed" in note for note in report.notes)
  assert report.proofs["values read again by name"][0] == 0
  model = modeling.AlbertModel.from_checkpoint(str(tmp_path / "output"))
  assert model.config.num_hidden_groups == layers
  stored = np.load(_GOLDEN / "one_group" / "pretraining_batch.npz")
  batch = {name: tf.constant(stored[name]) for name in modeling.INPUTS}
  golden = np.load(_GOLDEN / "one_group" / "pretraining_outputs.npz")
  np.testing.assert_allclose(
    model(batch)["pooled_output"], golden["pooled_output"], atol=1e-5
  )
  longer = {"input_ids": tf.ones([1, length + 3], tf.int32)}
  assert model(longer)["sequence_output"].shape[1] == length + 3


def _write_vocabulary(path, pieces):
  path.write_text("\n".join(pieces) + "\n", encoding="utf-8")
  return checkpoints.TokenizerFile(str(path), "wordpiece")


def test_another_vocabulary(tmp_path):
  rows = modeling.AlbertConfig.from_json_file(
    str(_GOLDEN / "one_group" / "albert_config.json")
  ).vocab_size
  words = [f"w{i}" for i in range(rows - len(_SPECIAL))]
  old = _write_vocabulary(tmp_path / "old.txt", _SPECIAL + words)
  new = _write_vocabulary(tmp_path / "new.txt", [*_SPECIAL, "new", "w3", "w0"])
  changes = checkpoint_conversion.Changes(tokenizer=new)
  with pytest.raises(ValueError, match="if the old one is known"):
    _convert_changed(tmp_path, changes)
  assert not (tmp_path / "output").exists()
  report = _convert_changed(tmp_path, changes, tokenizer=old)
  assert any("7 pieces copied" in note for note in report.notes)
  before = checkpoints.read_checkpoint(
    str(_GOLDEN / "one_group" / "model.ckpt")
  )
  after = checkpoints.read_checkpoint(str(tmp_path / "output"))
  assert after.config.vocab_size == 8
  assert pathlib.Path(after.tokenizer.path).read_text() == "\n".join(
    [*_SPECIAL, "new", "w3", "w0", ""]
  )
  name = "bert/embeddings/word_embeddings"
  np.testing.assert_array_equal(after.tensors[name][6], before.tensors[name][8])


def test_an_impossible_number_of_groups(tmp_path):
  with pytest.raises(ValueError, match="group"):
    _convert_changed(
      tmp_path, checkpoint_conversion.Changes(1), source="two_groups"
    )
  assert not (tmp_path / "output").exists()


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
