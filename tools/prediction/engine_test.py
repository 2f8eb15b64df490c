"""Runs and exports answer rows: compared with the model, row by row."""

from __future__ import annotations

import itertools
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from official_albert import training
from official_albert.inference import engine, loaded_model
from official_albert.tasks import common
from official_albert.tools.prediction import output
from official_albert.tools.testing import toy_data, toy_runs


def open_run(folder, signature="", **settings):
  """Opens a run as tools.predict does."""
  return loaded_model.open_model(str(folder), **settings).backend(signature)


def open_export(folder, signature=""):
  return engine.open_export(str(folder)).backend(signature)


def input_rows(rows):
  for i, cells in enumerate(rows):
    yield common.Record(f"a.tsv, line {i + 2}", {"id": str(i), **cells})


def predict(backend, rows, batch_size=4):
  answers = engine.predict(backend, input_rows(rows), batch_size)
  return [answer for _, answer in answers]


def sentences(count):
  """Returns texts of one to three sentences."""
  rng = np.random.default_rng(8)
  return [
    " ".join(toy_data.sentence(rng, toy_data.GOOD) for _ in range(1 + i % 3))
    for i in range(count)
  ]


def with_empty_texts(rows):
  """Returns the rows, and others with one empty text or nothing else."""
  empty = dict.fromkeys(rows[0], "")
  if "options" in empty:  # One of them, as equal ones are equally probable.
    empty["options"] = ["", *rows[0]["options"][1:]]
  others = [{**rows[0], role: text} for role, text in empty.items()]
  return [*rows, *others, empty]


def questions():
  """Returns contexts of one window and of several, no two windows alike."""
  texts = sentences(10)
  return [
    {
      "question": "the day was" * (1 + i % 2),
      "context": " ".join(texts[i : i + 1 + i % 4]),
    }
    for i in range(7)
  ]


# Labels, settings of the records, and rows of each task.
_TASKS = {
  "text_classification": (
    ["bad", "good", "so so"],
    {"columns": {"text": "review", "text_b": "text_b", "id": "key"}},
    [{"text": text} for text in sentences(11)],
  ),
  "stsb": (
    None,
    {},
    [
      {"text_a": a, "text_b": b}
      for a, b in zip(sentences(7), sentences(7)[::-1])
    ],
  ),
  "race": (
    None,
    {"max_qa_length": 8},
    [
      {
        "passage": text,
        "question": "the day was _ .",
        "options": ["cold", "größe 東京", "a tree", f"{i} by the sea"],
      }
      for i, text in enumerate(sentences(5))
    ],
  ),
  "squad_v1": (None, {"doc_stride": 5, "max_query_length": 6}, questions()),
  "squad_v2": (None, {"doc_stride": 5, "max_query_length": 6}, questions()),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """Returns a folder with a run and an export of each task."""
  path = tmp_path_factory.mktemp("models")
  for task, (labels, settings, _) in _TASKS.items():
    run = str(path / f"{task}_run")
    toy_runs.write_finetuned(run, task, labels, 19, **settings)
    toy_runs.write_export(str(path / task), run)
  toy_runs.write_export(
    str(path / "ids_only"), str(path / "text_classification_run"), "ids"
  )
  return path


def lines_of(backend, answers):
  """Returns the columns, and the words and numbers of each line."""
  lines = [
    output.cells_of(output.fields_of(x, backend.labels)) for x in answers
  ]
  columns = [column for column, _ in lines[0]]
  return columns, [" ".join(cell for _, cell in line).split() for line in lines]


def check_same_lines(first, second, rows):
  """Checks that two models give the same lines; returns the answers."""
  assert set(first.roles) == set(second.roles) == set(rows[0])
  answers = predict(first, rows)
  columns, lines = lines_of(first, answers)
  others, expected = lines_of(second, predict(second, rows))
  assert columns == others
  for found, wanted in zip(sum(lines, []), sum(expected, []), strict=True):
    try:
      # The frozen encoder and padding change the last digits.
      assert float(found) == pytest.approx(float(wanted), abs=2e-5)
    except ValueError:
      assert found == wanted
  return answers


@pytest.mark.parametrize("task", _TASKS)
def test_runs_answer_like_their_exports(folder, task):
  """Tests of tasks/ compare the exported signatures with the models."""
  run = open_run(folder / f"{task}_run")
  rows = with_empty_texts(_TASKS[task][-1])
  assert run.source == f"{folder}/{task}_run/model.ckpt-1"
  export = str(folder / task)
  opened = open_export(export)
  assert opened.columns == run.columns
  answers = check_same_lines(run, opened, rows)
  assert ("null_score_diff" in answers[0]) == (task == "squad_v2")
  if not task.startswith("squad"):
    ids = open_export(export, "ids")
    check_same_lines(run, ids, rows)
  if task == "text_classification":
    ids = open_export(str(folder / "ids_only"))
    check_same_lines(run, ids, rows)
    assert run.columns["text"] == "review" and run.columns["id"] == "key"


def test_settings_of_runs(folder):
  run, rows = folder / "stsb_run", _TASKS["stsb"][-1]
  shorter = predict(open_run(run, max_seq_length=9), rows)
  assert shorter[0]["score"] != predict(open_run(run), rows)[0]["score"]
  with pytest.raises(ValueError, match="41 exceeds the model's 40 position"):
    open_run(run, max_seq_length=41)


@pytest.mark.heavy
def test_threshold_of_the_flag_and_of_the_run(folder, tmp_path):
  run = tmp_path / "run"
  shutil.copytree(folder / "squad_v2_run", run)
  odds = [x["null_score_diff"] for x in predict(open_run(run), questions())]
  threshold = float(sorted(odds)[3]) - 1e-3
  flag = open_run(run, null_score_diff_threshold=threshold)
  results = {"dev": {"null_score_diff_threshold": threshold}}
  (run / "eval_results.json").write_text(json.dumps(results))
  for backend in (flag, open_run(run)):
    answers = predict(backend, questions())
    empty = [not answer["answer"] for answer in answers]
    assert empty == [value >= threshold for value in odds]
    assert {a["end"] for a in answers if not a["answer"]} == {0}


@pytest.mark.heavy
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
  """Returns the folders of a pretraining run and of its export."""
  path = tmp_path_factory.mktemp("pretrained")
  run, export = str(path / "run"), str(path / "export")
  toy_runs.write_pretrained(run)
  toy_runs.write_export(export, run)
  return run, export


def test_rows_are_sorted_by_their_first_tokens(pretrained):
  backend = open_run(pretrained[0], "encode_pair")
  # SentencePiece's time grows with the square of unknown characters.
  unknown = "東" * 30_000
  texts = ["", "a day", unknown, unknown + " a day" * 9, "東" + " a day" * 9]
  rows = [{"text_a": text, "text_b": "a day"} for text in texts]
  none, day, cut, longer, whole = backend.lengths(rows).tolist()
  assert 2 * none == day < whole and none < cut == longer < whole


def test_masks(pretrained):
  run, export = pretrained
  run, export = open_run(run, top_k=5), open_export(export)
  rows = ["the [MASK] tree", "by the sea a [MASK] day was [MASK] and old"]
  answers = check_same_lines(run, export, [{"text": text} for text in rows])
  assert [(x["mask_positions"] >= 0).sum() for x in answers] == [1, 2]
  (answer,) = predict(open_run(pretrained[0], top_k=3), [{"text": rows[0]}])
  assert answer["tokens"].tolist() == answers[0]["tokens"][:1, :3].tolist()
  for backend in (run, export):
    texts = input_rows({"text": text} for text in ["", rows[0], "no mask"])
    found = engine.predict(backend, texts, 4, keep_refused=True)
    *refused, answered = sorted(found, key=lambda x: "tokens" in x[1])
    assert [row.cells["text"] for row, _ in refused] == ["", "no mask"]
    for _, answer in refused:
      assert answer["error"].startswith("every text must have a [MASK] within")
    assert answered[1]["tokens"].tolist() == answers[0]["tokens"][:1].tolist()


@pytest.mark.parametrize(
  "signature, names",
  [
    ("encode", ["text"]),
    ("encode_pair", ["text_a", "text_b"]),
    ("sentence_order", ["text_a", "text_b"]),
  ],
)
def test_vectors_and_orders(pretrained, signature, names):
  run, export = pretrained
  check_same_lines(
    open_run(run, signature=signature),
    open_export(export, signature),
    [dict(zip(names, texts)) for texts in zip(sentences(5), sentences(6)[1:])],
  )


def test_refused_runs(pretrained, tmp_path):
  with pytest.raises(ValueError, match="top_k must be between 1 and"):
    open_run(pretrained[0], top_k=0)
  folder = tmp_path / "run"
  toy_runs.write_finetuned(str(folder), "squad_v1")
  record = json.loads((folder / "run.json").read_text())
  record["data"]["task"] = "stsb"
  (folder / "run.json").write_text(json.dumps(record))
  with pytest.raises(ValueError, match="model.ckpt-1 lacks output_weights"):
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


def test_refused_exports(folder, tmp_path):
  def refused(path, message, signature="", error=ValueError):
    with pytest.raises(error, match=message):
      open_export(path, signature)

  refused(tmp_path, "is not the folder of a SavedModel", error=OSError)
  classes = folder / "text_classification"
  refused(classes, r"it has classify, examples, ids, serving_default\.$", "x")
  tf.saved_model.save(tf.Module(), str(tmp_path / "none"))
  refused(tmp_path / "none", r"no signature 'serving_default': it has none\.$")
  refused(classes, "takes examples and returns .* which fit no", "examples")
  refused(folder / "squad_v2", "returns .*start_top.* fit no table", "ids")
  copy = tmp_path / "copy"
  shutil.copytree(folder / "ids_only", copy)
  record = copy / "assets" / "export.json"
  kept = json.loads(record.read_text())
  record.write_text(json.dumps({**kept, "tokenizer": None}))
  refused(copy, "its assets have no tokenizer, or no export.json")
  record.write_text("{")
  refused(copy, "export.json is not valid JSON .*: export the mod")
  record.write_text('{"kind": "encoder", "settings": {}}')
  refused(copy, "export.json has no 'task': export the model again")
  record.write_text(json.dumps({**kept, "max_seq_length": "32"}))
  refused(copy, "'max_seq_length' is '32', but must be a valid integer")
  tokenizer = {**kept["tokenizer"], "kind": "bpe"}
  record.write_text(json.dumps({**kept, "tokenizer": tokenizer}))
  refused(copy, "'tokenizer.kind' is 'bpe', but must be 'sentencepiece' or")
  record.unlink()
  refused(copy, "its assets have no tokenizer, or no export.json")
  # TensorFlow has another class of error for each.
  for name, cut in (
    ("variables/variables.data-00000-of-00001", 9),
    ("variables/variables.index", 9),
    ("saved_model.pb", 0),
    ("saved_model.pb", 99),
  ):
    (copy / name).write_bytes((folder / "ids_only" / name).read_bytes()[:cut])
    refused(
      copy, f"^{copy} is damaged .*: copy it again, or exp", error=OSError
    )


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
  for row, answer in engine.predict(model, rows, batch_size):
    yield row.cells["id"], answer["letters"]


@pytest.fixture
def small_windows(monkeypatch):
  """Sorts only two batches together."""
  monkeypatch.setattr(engine, "_WINDOW_BATCHES", 2)


@pytest.mark.usefixtures("small_windows")
def test_answers_in_order_and_batches_by_length():
  rng = np.random.default_rng(1)
  texts = ["x" * n for n in rng.integers(1, 99, 23)]
  model = Letters()
  found = list(count_letters(model, texts, 5))
  assert found == [(str(i), len(text)) for i, text in enumerate(texts)]
  # Windows of ten, ten and three rows, each from the longest to the shortest.
  assert [len(batch) for batch in model.batches] == [5, 5, 5, 5, 3]
  for first, window in ((0, texts[:10]), (2, texts[10:20])):
    batches = sum(model.batches[first : first + 2], [])
    assert batches == sorted(window, key=len, reverse=True)
  # A single batch keeps its order.
  assert model.batches[4] == texts[20:]


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
  # Rows that are too much together are answered in smaller batches.
  small = Letters(longest_shared=2)
  found = count_letters(small, ["a", "xxxx", "bb", "c"], 2)
  assert [letters for _, letters in found] == [1, 4, 2, 1]
  assert small.batches == [["xxxx"], ["bb"], ["a", "c"]]


def keep_refused(texts, batch_size):
  model = Letters()
  rows = input_rows({"text": text} for text in texts)
  found = engine.predict(model, rows, batch_size, keep_refused=True)
  return model, [
    answer.get("letters", answer.get("error")) for _, answer in found
  ]


@pytest.mark.usefixtures("small_windows")
def test_refused_rows_leave_the_others_their_answers():
  texts = ["bomb", "bc", "bc", "bomb", "bc", "a", "d"]
  model, found = keep_refused(texts, 7)
  assert found == ["boom", 2, 2, "boom", 2, 1, 1]
  # The refused batch is halved, and so are its halves that are refused.
  assert model.batches == [["bc", "bc"], ["bc"], ["a", "d"]]
  # A model that refuses all of the first window would refuse the rest too.
  with pytest.raises(ValueError) as caught:
    keep_refused(["bomb"] * 4 + ["a"], 2)
  assert str(caught.value) == "a.tsv, line 2: boom (letters is a toy)"
  _, found = keep_refused(["a"] + ["bomb"] * 4, 2)
  assert found == [1] + ["boom"] * 4


class Sums(tf.Module):
  def __init__(self):
    super().__init__()
    self.scale = tf.Variable(3.0)

  def forward(self, input_ids):
    rows = tf.shape(input_ids)[0]
    sums = tf.reduce_sum(tf.cast(input_ids, tf.float32), -1)
    return {"sum": self.scale * sums, "rows": tf.fill([rows], rows)}
