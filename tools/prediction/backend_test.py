"""Runs and exports answer rows: compared with the model, row by row."""

from __future__ import annotations

import itertools
import json
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from official_albert import distribution, modeling, tokenization, training
from tasks import common, pretraining, race, squad
from tools.prediction import backend as prediction_backend
from tools.prediction import output
from tools.testing import toy_data, toy_runs


def open_run(folder, **settings):
  folder = str(folder)
  encoder = toy_runs.read_encoder(folder)
  return prediction_backend.open_run(
    folder, *encoder, tf.distribute.get_strategy(), 4, **settings
  )


def input_rows(rows):
  for i, cells in enumerate(rows):
    yield common.Record(f"a.tsv, line {i + 2}", {"id": str(i), **cells})


def predict(backend, rows, batch_size=4):
  answers = prediction_backend.predict(backend, input_rows(rows), batch_size)
  return [answer for _, answer in answers]


def sentences(count):
  rng = np.random.default_rng(8)
  return [toy_data.sentence(rng, toy_data.GOOD) for _ in range(count)]


def features_of(*sequences):
  """Returns features [B, S] of sequences (ids, segments), padded."""
  ids, segments = (tf.ragged.constant(x).to_tensor() for x in zip(*sequences))
  mask = tf.sequence_mask([len(ids) for ids, _ in sequences], dtype=tf.int32)
  return {"input_ids": ids, "segment_ids": segments, "input_mask": mask}


def tokenizer_of(folder):
  return toy_runs.read_encoder(str(folder)).tokenizer


def test_classes_of_single_texts(tmp_path):
  folder = tmp_path / "run"
  model = toy_runs.write_finetuned(
    str(folder),
    "text_classification",
    ["a", "b", "c"],
    23,
    columns={"text": "review", "text_b": "text_b", "id": "key"},
  )
  backend, tokenizer = open_run(folder), tokenizer_of(folder)
  assert backend.roles == ("text",)
  assert backend.columns["text"] == "review" and backend.columns["id"] == "key"
  assert backend.labels == ("a", "b", "c")
  assert backend.source == f"{folder}/model.ckpt-1"
  rows = sentences(11)
  for text, answer in zip(rows, predict(backend, [{"text": t} for t in rows])):
    sequence = tokenization.pack_pair(tokenizer.encode(text), None, 23, 2, 3)
    logits = model(features_of(sequence))["logits"][0]
    # Padding changes the last digits.
    np.testing.assert_allclose(
      answer["probabilities"], tf.nn.softmax(logits), rtol=0, atol=2e-6
    )
    assert answer["label"] == "abc"[np.argmax(logits)]


def test_regression_of_pairs(tmp_path):
  model = toy_runs.write_finetuned(
    str(tmp_path / "stsb"), "stsb", max_seq_length=17
  )
  backend = open_run(tmp_path / "stsb")
  tokenizer = tokenizer_of(tmp_path / "stsb")
  texts = sentences(7)
  rows = [{"text_a": a, "text_b": b} for a, b in zip(texts, reversed(texts))]
  answers = predict(backend, rows)
  for cells, answer in zip(rows, answers):
    ids = [tokenizer.encode(cells[name]) for name in ("text_a", "text_b")]
    sequence = tokenization.pack_pair(*ids, 17, 2, 3)
    logits = model(features_of(sequence))["logits"][0]
    np.testing.assert_allclose(answer["score"], logits[0], atol=5e-6)
  shorter = open_run(tmp_path / "stsb", max_seq_length=9)
  assert predict(shorter, rows)[0]["score"] != answers[0]["score"]
  with pytest.raises(ValueError, match="41 exceeds the model's 40 position"):
    open_run(tmp_path / "stsb", max_seq_length=41)


def test_options(tmp_path):
  model = toy_runs.write_finetuned(
    str(tmp_path / "race"), "race", max_seq_length=23, max_qa_length=8
  )
  tokenizer = tokenizer_of(tmp_path / "race")
  question = "the day was _ ."
  options = [["cold", "sunny", "a tree", f"{i} by the sea"] for i in range(5)]
  rows = [
    {"passage": text, "question": question, "options": texts}
    for text, texts in zip(sentences(5), options)
  ]
  for cells, answer in zip(rows, predict(open_run(tmp_path / "race"), rows)):
    example = race.RaceExample(
      "", cells["passage"], question, tuple(cells["options"]), None, ""
    )
    (sequences,) = race.make_all_inputs([example], tokenizer, 23, 8)
    features = {k: x[None] for k, x in features_of(*sequences).items()}
    logits = model(features)["logits"][0]
    np.testing.assert_allclose(
      answer["probabilities"], tf.nn.softmax(logits), atol=2e-6
    )
    assert answer["choice"] == np.argmax(logits)


def questions():
  """Contexts of one window and of several."""
  rng = np.random.default_rng(4)
  return [
    {
      "question": "the day was" * (1 + i % 2),
      "context": " ".join(
        toy_data.sentence(rng, toy_data.BAD) for _ in range(1 + 3 * (i % 3))
      ),
    }
    for i in range(7)
  ]


def decoded(model, tokenizer, cells):
  """Returns the number of windows and what tasks/squad decodes from them."""
  example = squad.SquadExample("q", cells["question"], cells["context"])
  made = squad.make_windows(example, tokenizer, 19, 5, 6)
  features = features_of(*((w.input_ids, w.segment_ids) for w in made))
  length = features["input_ids"].shape[1]
  p_mask = [squad.p_mask(window, length) for window in made]
  outputs = model({**features, "p_mask": tf.constant(p_mask, tf.float32)})
  contexts = {"q": cells["context"]}
  scores = {name: outputs[name].numpy() for name in model.scores}
  return len(made), squad.decode(made, contexts, scores)["q"]


@pytest.mark.parametrize("task", ["squad_v1", "squad_v2"])
def test_questions(tmp_path, task):
  folder = tmp_path / "run"
  model = toy_runs.write_finetuned(
    str(folder), task, None, 19, doc_stride=5, max_query_length=6
  )
  tokenizer = tokenizer_of(folder)
  counts, odds = [], []
  answers = predict(open_run(folder), questions())
  for cells, answer in zip(questions(), answers):
    count, expected = decoded(model, tokenizer, cells)
    counts.append(count)
    odds.append(expected.null_odds)
    # Rows are padded with empty answers.
    n = len(expected.n_best)
    texts = [candidate.text for candidate in expected.n_best]
    assert list(answer["n_best_answers"][:n]) == texts
    assert not any(answer["n_best_answers"][n:])
    np.testing.assert_allclose(
      answer["n_best_probabilities"][:n],
      [c.probability for c in expected.n_best],
      atol=1e-5,
    )
    context = cells["context"]
    assert answer["answer"] == context[answer["start"] : answer["end"]] != ""
  # More windows than the four sequences of a batch.
  assert min(counts) == 1 and max(counts) > 5
  assert ("null_score_diff" in answers[0]) == (task == "squad_v2")
  if task == "squad_v1":
    return
  # The threshold of the flag, and that of the run.
  threshold = sorted(odds)[3] - 1e-3
  flag = open_run(folder, null_score_diff_threshold=threshold)
  results = {"dev": {"null_score_diff_threshold": threshold}}
  (folder / "eval_results.json").write_text(json.dumps(results))
  for backend in (flag, open_run(folder)):
    answers = predict(backend, questions())
    empty = [not answer["answer"] for answer in answers]
    assert empty == [value >= threshold for value in odds]
    assert {a["end"] for a in answers if not a["answer"]} == {0}


def test_decoding_is_that_of_the_run(tmp_path):
  found = {}
  for name, settings in (
    ("old", {}),
    ("new", {"n_best_size": 3}),
    ("short", {"max_answer_length": 1}),
  ):
    settings |= {"doc_stride": 5, "max_query_length": 6}
    toy_runs.write_finetuned(
      str(tmp_path / name), "squad_v1", None, 19, **settings
    )
    answers = predict(open_run(tmp_path / name), questions())
    found[name] = [answer["n_best_answers"] for answer in answers]
  assert {len(texts) for texts in found["old"]} == {20}
  assert {len(texts) for texts in found["new"]} == {3}
  # One token is one piece of a word; some of the other answers are longer.
  assert any(" " in text for texts in found["old"] for text in texts)
  assert not any(" " in text for texts in found["short"] for text in texts)
  # An export limits the windows of a request; a run does not.
  folder = str(tmp_path / "run")
  toy_runs.write_finetuned(
    folder, "squad_v1", None, 9, doc_stride=1, max_query_length=3
  )
  row = {"question": "the", "context": "a cold dark day " * 90}
  assert predict(open_run(folder), [row])[0]["answer"]


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
  folder = toy_runs.write_pretrained(
    str(tmp_path_factory.mktemp("run") / "encoder")
  )
  config = modeling.AlbertConfig.from_json_file(f"{folder}/albert_config.json")
  model = pretraining.AlbertForPretraining(config)
  training.warm_start(model, f"{folder}/model.ckpt-1")
  return folder, model


def test_masks(pretrained):
  folder, model = pretrained
  backend, tokenizer = open_run(folder, top_k=4), tokenizer_of(folder)
  rows = ["the [MASK] tree", "by the sea a [MASK] day was [MASK] and old"]
  answers = predict(backend, [{"text": text} for text in rows])
  for text, answer in zip(rows, answers):
    ids = [2]
    for number, part in enumerate(text.split("[MASK]")):
      ids += [4] * (number > 0) + tokenizer.encode(part)
    ids.append(3)
    positions = [i for i, x in enumerate(ids) if x == 4]
    found = answer["mask_positions"] >= 0
    assert answer["mask_positions"][found].tolist() == positions
    features = features_of((ids, [0] * len(ids)))
    features["masked_lm_positions"] = tf.constant([positions])
    logits = model(features)["masked_lm_logits"][0]
    best, expected = tf.math.top_k(tf.nn.softmax(logits), 4)
    np.testing.assert_array_equal(answer["token_ids"][found], expected)
    np.testing.assert_allclose(answer["probabilities"][found], best, atol=1e-5)
    pieces = [tokenizer.id_to_piece(i) for i in expected[0].numpy().tolist()]
    assert answer["tokens"][0].tolist() == [p.lstrip("\u2581") for p in pieces]
  with pytest.raises(
    ValueError,
    match=r"^a.tsv, line 3: every text must have a .MASK. .*add one to each",
  ):
    predict(backend, [{"text": "a [MASK]"}, {"text": "mask"}])


def test_vectors_and_orders(pretrained):
  folder, model = pretrained
  tokenizer = tokenizer_of(folder)
  cells = {"text": "the old tree", "text_a": "a cold day", "text_b": "the sea"}
  for signature in ("encode", "encode_pair", "sentence_order"):
    backend = open_run(folder, signature=signature)
    ids = [tokenizer.encode(cells[role]) for role in backend.roles]
    sequence = tokenization.pack_pair(*(ids + [None])[:2], 64, 2, 3)
    none = {"masked_lm_positions": tf.zeros([1, 0], tf.int32)}
    expected = model({**features_of(sequence), **none})
    (answer,) = predict(backend, [cells])
    if signature == "sentence_order":
      value = answer["swapped_probability"]
      swapped = tf.nn.softmax(expected["sentence_order_logits"])[0, 1]
      np.testing.assert_allclose(value, swapped, rtol=1e-5)
    else:
      vector = expected["pooled_output"][0]
      np.testing.assert_allclose(answer["pooled_output"], vector, atol=1e-5)


def test_refused_runs(pretrained, tmp_path):
  with pytest.raises(ValueError, match="top_k must be between 1 and"):
    open_run(pretrained[0], top_k=0)
  folder = tmp_path / "run"
  toy_runs.write_finetuned(str(folder), "squad_v1")
  record = json.loads((folder / "run.json").read_text())
  record["data"]["task"] = "stsb"
  (folder / "run.json").write_text(json.dumps(record))
  with pytest.raises(ValueError, match="not fit the record in .* it lacks"):
    open_run(folder)


def test_the_best_checkpoint_unless_another_is_named(tmp_path):
  folder = str(tmp_path / "run")
  model = toy_runs.write_finetuned(folder, "sst2", ["0", "1"])
  weights = model.classifier.output_weights
  weights.assign(-weights)
  keeper = training.BestCheckpoint(folder, model, "accuracy")
  assert keeper.offer(7, 1, {"accuracy": 0.5})
  rows, probabilities = [{"text": text} for text in sentences(3)], []
  for checkpoint, name in (
    ("", "best/model.ckpt-7"),
    ("latest", "model.ckpt-1"),
  ):
    backend = open_run(folder, checkpoint=checkpoint)
    assert backend.source == f"{folder}/{name}"
    probabilities.append([x["probabilities"] for x in predict(backend, rows)])
  assert (np.ptp(probabilities, axis=0).max(axis=1) > 1e-3).all()


# Labels, settings of the records, and a row of each task.
_EXPORTS = {
  "text_classification": (["bad", "good", "so so"], {}, {"text": "cold day"}),
  "stsb": (None, {}, {"text_a": "the old tree", "text_b": "a cold day"}),
  "race": (
    None,
    {"max_qa_length": 8},
    {
      "passage": "a cold dark day by the sea",
      "question": "the day was _ .",
      "options": ["cold", "warm", "größe 東京", "a tree"],
    },
  ),
  "squad_v2": (
    None,
    {"doc_stride": 5, "max_query_length": 6},
    {"question": "the day was", "context": "a cold dark day by the sea " * 3},
  ),
}


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
  """Returns a folder with a run and an export of each task."""
  path = tmp_path_factory.mktemp("exports")
  for task, (labels, settings, _) in _EXPORTS.items():
    run = str(path / f"{task}_run")
    toy_runs.write_finetuned(run, task, labels, **settings)
    toy_runs.write_export(str(path / task), run)
  toy_runs.write_export(
    str(path / "ids_only"), str(path / "text_classification_run"), "ids"
  )
  return path


@pytest.mark.parametrize("task", _EXPORTS)
def test_exports_answer_like_their_runs(exports, task):
  row = _EXPORTS[task][-1]
  run = open_run(exports / f"{task}_run")
  backends = [prediction_backend.open_export(str(exports / task))]
  if task != "squad_v2":
    backends.append(prediction_backend.open_export(str(exports / task), "ids"))
  if task == "text_classification":
    export = str(exports / "ids_only")
    backends.append(prediction_backend.open_export(export))
  (expected,) = predict(run, [row])
  expected = output.cells_of(output.fields_of(expected, run.labels))
  for backend in backends:
    assert set(backend.roles) == set(row) and backend.labels == run.labels
    (answer,) = predict(backend, [row])
    cells = output.cells_of(output.fields_of(answer, backend.labels))
    assert [name for name, _ in cells] == [name for name, _ in expected]
    for (_, found), (_, wanted) in zip(cells, expected):
      try:
        # The frozen encoder and padding change the last digits.
        assert float(found) == pytest.approx(float(wanted), abs=2e-5)
      except ValueError:
        assert found == wanted


def test_refused_exports(exports, tmp_path):
  def refused(folder, message, signature="", error=ValueError):
    with pytest.raises(error, match=message):
      prediction_backend.open_export(str(folder), signature)

  refused(tmp_path, "is not the folder of a SavedModel", error=OSError)
  classes = exports / "text_classification"
  refused(classes, "it has classify, examples, ids, serving_default", "x")
  refused(classes, "takes examples and returns .* which fit no", "examples")
  refused(exports / "squad_v2", "returns .*start_top.* fit no table", "ids")
  folder = tmp_path / "copy"
  shutil.copytree(exports / "ids_only", folder)
  record = folder / "assets" / "export.json"
  kept = json.loads(record.read_text())
  record.write_text(json.dumps({**kept, "tokenizer": None}))
  refused(folder, "its assets have no tokenizer, or no export.json")
  record.write_text("{")
  refused(folder, "export.json is not JSON .*: export the model ag")
  for incomplete in ('["task"]', '{"kind": "encoder", "settings": {}}'):
    record.write_text(incomplete)
    refused(folder, "lacks .*lower_case, max_.*: export the model ag")
  record.unlink()
  refused(folder, "its assets have no tokenizer, or no export.json")


class Letters:
  """A backend that counts the letters of each row, and its batches."""

  about = "letters is a toy"

  def __init__(self, longest_shared=99):
    self.batches = []
    self._longest_shared = longest_shared

  def lengths(self, rows):
    return [len(row["text"]) for row in rows]

  def __call__(self, rows):
    texts = [row["text"] for row in rows]
    if "bomb" in texts:
      raise tf.errors.InvalidArgumentError(
        None, None, "{{node x}} boom\n\t [[{{node}}]]"
      )
    if len(rows) > 1 and max(map(len, texts)) > self._longest_shared:
      raise tf.errors.InvalidArgumentError(None, None, "too much")
    self.batches.append(texts)
    return [{"letters": len(text)} for text in texts]


def count_letters(model, texts, batch_size):
  rows = input_rows({"text": text} for text in texts)
  for row, answer in prediction_backend.predict(model, rows, batch_size):
    yield row.cells["id"], answer["letters"]


@pytest.fixture
def small_windows(monkeypatch):
  """Sorts only two batches together."""
  monkeypatch.setattr(prediction_backend, "_WINDOW_BATCHES", 2)


@pytest.mark.usefixtures("small_windows")
def test_answers_in_order_and_batches_by_length():
  rng = np.random.default_rng(1)
  texts = ["x" * n for n in rng.integers(1, 99, 23)]
  model = Letters()
  found = list(count_letters(model, texts, 5))
  assert found == [(str(i), len(text)) for i, text in enumerate(texts)]
  # Windows of ten, ten and three rows, each from the longest to the shortest.
  assert [len(batch) for batch in model.batches] == [5, 5, 5, 5, 3]
  for first, window in ((0, texts[:10]), (2, texts[10:20]), (4, texts[20:])):
    batches = sum(model.batches[first : first + 2], [])
    assert batches == sorted(window, key=len, reverse=True)


@pytest.mark.usefixtures("small_windows")
def test_no_more_is_read_than_a_window():
  read = []
  endless = (read.append(text) or text for text in itertools.repeat("ab"))
  answers = count_letters(Letters(), endless, 3)
  next(answers)
  assert len(read) == 6
  for _ in range(6):
    next(answers)
  assert len(read) == 12


def test_rows_that_the_model_refuses():
  with pytest.raises(ValueError) as caught:
    list(count_letters(Letters(), ["a", "bc", "bomb", "d"], 3))
  assert str(caught.value) == "a.tsv, line 4: boom (letters is a toy)"
  with pytest.raises(ValueError, match="eval_batch_size is 0"):
    list(count_letters(Letters(), ["a"], 0))
  # Rows that are too much together are answered one by one.
  small = Letters(longest_shared=2)
  found = count_letters(small, ["a", "xxxx", "bb", "c"], 2)
  assert [letters for _, letters in found] == [1, 4, 2, 1]
  assert small.batches == [["xxxx"], ["bb"], ["a", "c"]]


class Sums(tf.Module):
  def __init__(self):
    super().__init__()
    self.scale = tf.Variable(3.0)

  def forward(self, input_ids):
    rows = tf.shape(input_ids)[0]
    sums = tf.reduce_sum(tf.cast(input_ids, tf.float32), -1)
    return {"sum": self.scale * sums, "rows": tf.fill([rows], rows)}


def check_program(strategy, rows) -> None:
  """Computes batches of several sizes, the last one larger than a batch.

  Args:
    strategy: the devices.
    rows: how many rows the device of the first row gets, for each size.
  """
  with strategy.scope():
    model = Sums()
  program = prediction_backend.make_program(model.forward, strategy, 4, 9)
  for shape, count in zip(((4, 5), (1, 7), (3, 2), (11, 3)), rows):
    x = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    # The caller's device is not the program's.
    with tf.device(tf.config.list_logical_devices("CPU")[0].name):
      outputs = program(input_ids=tf.constant(x))
    np.testing.assert_array_equal(outputs["sum"], 3.0 * x.sum(1))
    assert outputs["rows"].shape == shape[:1]
    assert outputs["rows"].numpy()[0] == count


def check_two_devices() -> None:
  """Each computes its share of a batch that is filled up."""
  two = distribution.make_strategy("mirrored", 2, "")
  check_program(two, [2, 2, 2, 2])
  with pytest.raises(ValueError, match="is 3, but must be a multiple of"):
    prediction_backend.make_program(Sums().forward, two, 3, 9)


def test_program_on_one_device():
  check_program(tf.distribute.get_strategy(), [4, 1, 3, 4])


def test_program_on_two_devices():
  """Runs in a new process: devices must be created before anything else."""
  code = "from tools.prediction import backend_test as t; t.check_two_devices()"
  done = subprocess.run(
    [sys.executable, "-c", code],
    cwd=pathlib.Path(__file__).resolve().parents[2],
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
