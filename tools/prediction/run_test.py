"""Runs with a head over the pooler: as the model says row by row."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from official_albert import checkpoints, tokenization, training
from tasks import common, race
from tools import finetuning
from tools.prediction import run as prediction_run
from tools.prediction import stream as prediction_stream
from tools.prediction.input import InputRow
from tools.testing import many_commands, toy_data, toy_finetuned


def settings(**changes):
  devices = finetuning.run.Devices(tf.distribute.get_strategy(), "float32")
  return prediction_run.Settings(devices, 4, **changes)


def texts(count):
  rng = np.random.default_rng(8)
  return [toy_data.sentence(rng, toy_data.GOOD) for _ in range(count)]


def predict(backend, rows):
  found = [InputRow("", str(i), cells) for i, cells in enumerate(rows)]
  return [said for _, said in prediction_stream.predict(backend, found, 4, 2)]


def open_run(folder, **changes):
  folder = str(folder)
  encoder = toy_finetuned.read_encoder(folder)
  backend = prediction_run.TextBackend(
    finetuning.trained_run.read(folder), encoder, settings(**changes)
  )
  return backend, encoder.tokenizer


def logits_of(model, sequence):
  ids, segments = (tf.constant([x]) for x in sequence)
  features = {"input_ids": ids, "segment_ids": segments}
  return model({**features, "input_mask": tf.ones_like(ids)})["logits"][0]


def test_the_best_checkpoint_unless_another_is_named(tmp_path):
  folder = str(tmp_path / "run")
  model = toy_finetuned.write(folder, "sst2", ["0", "1"])
  weights = model.classifier.output_weights
  weights.assign(-weights)
  keeper = training.BestCheckpoint(folder, model, "accuracy")
  assert keeper.offer(7, 1, {"accuracy": 0.5})
  rows = [{"text": text} for text in texts(3)]
  said = {}
  for checkpoint, name in (
    ("", "best/model.ckpt-7"),
    ("latest", "model.ckpt-1"),
  ):
    backend, _ = open_run(folder, checkpoint=checkpoint)
    assert backend.source == f"{folder}/{name}"
    said[checkpoint] = predict(backend, rows)
  assert all(
    np.abs(a["probabilities"] - b["probabilities"]).max() > 1e-3
    for a, b in zip(*said.values())
  )


def test_classes_of_single_texts(tmp_path):
  model = toy_finetuned.write(
    str(tmp_path / "run"),
    "text_classification",
    ["a", "b", "c"],
    23,
    columns={"text": "review", "text_b": "text_b", "id": "key"},
  )
  backend, tokenizer = open_run(tmp_path / "run")
  assert backend.roles == ("text",)
  assert backend.columns == {"text": "review", "id": "key"}
  assert backend.layout.header == ("prediction", "a", "b", "c")
  assert backend.source.endswith("run/model.ckpt-1")
  rows = texts(11)
  said = predict(backend, [{"text": text} for text in rows])
  for text, answer in zip(rows, said):
    sequence = tokenization.pack_pair(tokenizer.encode(text), None, 23, 2, 3)
    logits = logits_of(model, sequence)
    # Padding changes the last digits.
    np.testing.assert_allclose(
      answer["probabilities"], tf.nn.softmax(logits), rtol=0, atol=2e-6
    )
    assert answer["label"] == "abc"[np.argmax(logits)]


def test_glue_pairs_and_regression(tmp_path):
  labels = ("entailment", "not_entailment")
  toy_finetuned.write(str(tmp_path / "rte"), "rte", labels)
  backend, _ = open_run(tmp_path / "rte")
  assert backend.layout.header[1:] == labels
  model = toy_finetuned.write(str(tmp_path / "stsb"), "stsb", max_seq_length=17)
  backend, tokenizer = open_run(tmp_path / "stsb")
  rows = [
    {"text_a": a, "text_b": b} for a, b in zip(texts(7), reversed(texts(7)))
  ]
  said = predict(backend, rows)
  for cells, answer in zip(rows, said):
    ids = [tokenizer.encode(cells[name]) for name in ("text_a", "text_b")]
    logits = logits_of(model, tokenization.pack_pair(*ids, 17, 2, 3))
    np.testing.assert_allclose(answer["score"], logits[0], atol=5e-6)
  shorter, _ = open_run(tmp_path / "stsb", max_seq_length=9)
  assert predict(shorter, rows)[0]["score"] != said[0]["score"]
  with pytest.raises(ValueError, match="max_seq_length 41 is more than"):
    open_run(tmp_path / "stsb", max_seq_length=41)


def test_options(tmp_path):
  model = toy_finetuned.write(
    str(tmp_path / "race"), "race", max_seq_length=23, max_qa_length=8
  )
  backend, tokenizer = open_run(tmp_path / "race")
  rows = [
    {
      "passage": text,
      "question": "the day was _ .",
      "options": ["cold", "sunny", "a tree", f"{i} by the sea"],
    }
    for i, text in enumerate(texts(5))
  ]
  for cells, answer in zip(rows, predict(backend, rows)):
    example = race.RaceExample(
      "",
      cells["passage"],
      cells["question"],
      tuple(cells["options"]),
      None,
      "",
    )
    sequences = race.make_inputs(example, tokenizer, 23, 8)
    ids = [tf.ragged.constant(x).to_tensor()[None] for x in zip(*sequences)]
    mask = tf.cast(ids[0] > 0, tf.int32)
    logits = model(
      {"input_ids": ids[0], "segment_ids": ids[1], "input_mask": mask}
    )["logits"][0]
    np.testing.assert_allclose(
      answer["probabilities"], tf.nn.softmax(logits), atol=2e-6
    )
    assert answer["choice"] == np.argmax(logits)


def test_another_models_checkpoint(tmp_path):
  toy_finetuned.write(str(tmp_path / "a"), "squad_v1")
  run = dict(task="stsb", model_dir=str(tmp_path / "a"))
  found = finetuning.trained_run.read(str(tmp_path / "a"))
  wrong = finetuning.trained_run.TrainedRun(
    **run,
    max_seq_length=9,
    settings=found.settings,
    null_score_diff_threshold=None,
  )
  encoder = toy_finetuned.read_encoder(str(tmp_path / "a"))
  with pytest.raises(ValueError, match="is no checkpoint of what .* it lacks"):
    prediction_run.TextBackend(wrong, encoder, settings())


def test_a_classifier_of_another_format(tmp_path):
  run, hf = str(tmp_path / "run"), tmp_path / "hf"
  toy_finetuned.write(run, "text_classification", ["x", "y", "z"])
  hf.mkdir()
  read = checkpoints.read_checkpoint(run)
  checkpoints.WRITERS["hf"](read, str(hf))
  read.task = ""  # As an older version, which did not carry it.
  (tmp_path / "own").mkdir()
  checkpoints.WRITERS["official_albert"](read, str(tmp_path / "own"))
  (tmp_path / "textless").mkdir()
  checkpoints.WRITERS["hf"](read, str(tmp_path / "textless"))
  (tmp_path / "textless" / "spiece.model").unlink()
  (tmp_path / "tf1").mkdir()
  checkpoints.WRITERS["tf1"](read, str(tmp_path / "tf1"))
  (tmp_path / "new.txt").write_text("\n".join(texts(5)) + "\n")

  def line(model_dir, *more):
    output = tmp_path / f"{model_dir}.tsv"
    return [
      f"--model_dir={tmp_path / model_dir}",
      f"--input_file={tmp_path / 'new.txt'}",
      f"--output_file={output}",
      *more,
    ]

  task = "--task=text_classification"
  *good, unnamed, other, wrong, textless = many_commands.run(
    "predict",
    [
      line("run"),
      line("hf", task),
      line("own", task),
      line("tf1", task),
      line("hf"),
      line("run", "--task=text_pair_classification"),
      line("hf", "--task=text_regression"),
      line("textless", task),
    ],
  )
  for result in good:
    assert result.code == 0, result.err
  assert good[1].out.endswith(f"predicted with {hf}\n")
  tokenized = "tokenized with spiece.model by the rules of this package"
  assert [tokenized in result.err for result in good] == [0, 1, 0, 0]
  said = {
    name: common.read_probabilities(str(tmp_path / f"{name}.tsv"))
    for name in ("run", "hf", "own", "tf1")
  }
  assert said["hf"].labels == ("x", "y", "z")
  # TF1 does not name its classes.
  assert said["tf1"].labels == ("LABEL_0", "LABEL_1", "LABEL_2")
  for name in ("hf", "own"):
    assert said[name].predictions == said["run"].predictions
  for name in ("hf", "own", "tf1"):
    np.testing.assert_allclose(said[name].values, said["run"].values, atol=1e-6)
  for result, message in (
    (
      unnamed,
      "does not name its task: give --task, such as --task=te",
    ),
    (other, "is a run of text_classification, not of text_pair_classification"),
    (
      wrong,
      "has the head classification, but --task=text_regression needs reg",
    ),
    # Not in the temporary copy, where nobody can look.
    (textless, f"no tokenizer in {tmp_path / 'textless'}: give --spm_model"),
  ):
    assert result.code == 1 and message in result.err


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
