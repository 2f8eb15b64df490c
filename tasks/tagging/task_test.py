"""Tests of files of tags, records, losses and answers."""

from __future__ import annotations

import json
import time

import numpy as np
import pyarrow
import pytest
import tensorflow as tf
from pyarrow import parquet

from official_albert import tokenization
from official_albert.tasks import common, registry
from official_albert.tasks.tagging import examples as examples_lib
from official_albert.testing import toy_models

_CONLL = "-DOCSTART- -X- O\n\nEU NNP I-ORG\nsaid VB O\n\nBo NNP I-PER\n"
_NOTES: list[str] = []
_PIECES = "the sun ##ny sea was c ##old , old rain war ##m and wet .".split()


def read(
  folder, name, content, text="text", label="label", may_skip=False, labels=()
):
  path = folder / name
  if content is not None:
    path.write_bytes(content.encode("utf-8"))
  _NOTES.clear()
  columns = {"text": text, "label": label, "id": "id"}
  invalid = common.InvalidRows(may_skip)
  found = examples_lib.read_examples(
    str(path), columns, lambda _: None, invalid, _NOTES.append, labels
  )
  if found:
    invalid.finish(str(path), found, _NOTES.append)
  return found


@pytest.mark.parametrize(
  "name, text, columns",
  [
    ("a.conll", _CONLL, ()),
    ("a.txt.x", "w t\nEU I-ORG\nsaid O\n\n\nBo I-PER\n", ("w", "t")),
    ("a.tsv", "EU\tI-ORG\tx\nsaid\tO\tx\n\t\n\nBo\tI-PER\tx", ("1", "2")),
    ("a.bio", "\ufefft label\r\nEU B-ORG\r\nsaid O\r\n\r\nBo B-PER", ("1",)),
    (
      "a.conllu",
      "# text = x\n1-2\tEUs\t_\t_\n1\tEU\t_\tB-ORG\n2\tsaid\t_\tO\n"
      "2.1\tx\t_\t_\n\n1\tBo\t_\tB-PER\n",
      (),
    ),
    (
      "a.jsonl",
      '{"tokens": ["EU", "said"], "ner_tags": ["S-ORG", "O"]}\n'
      '{"tokens": ["Bo"], "ner_tags": ["U-PER"]}\n',
      (),
    ),
    (
      "b.jsonl",
      '{"text": "EU said", "spans": [{"start": 0, "end": 2, "label": "ORG"}]}\n'
      '{"text": "Bo", "spans": [[0, 2, "PER"]]}\n',
      (),
    ),
    (  # As of doccano.
      "c.jsonl",
      '{"text": "EU said", "entities": [{"id": 7, "label": "ORG", '
      '"start_offset": 0, "end_offset": 2}]}\n'
      # As of Label Studio.
      '{"text": "Bo", "entities": [{"start": 0, "end": 2, "text": "Bo", '
      '"labels": ["PER"]}]}\n',
      (),
    ),
    # A column of sentences beside blank lines.
    ("a.bio", "w sent_id t\nEU 4 B-ORG\nsaid 4 O\n\nBo 5 B-PER", ("w", "t")),
  ],
)
def test_all_formats_give_the_same(tmp_path, name, text, columns):
  found = read(tmp_path, name, text, *columns)
  assert found == [
    examples_lib.TaggedText("0", "EU said", ((0, 2), (3, 7)), ("B-ORG", "O")),
    examples_lib.TaggedText("1", "Bo", ((0, 2),), ("B-PER",)),
  ]
  is_changed = "I-ORG" in text or "S-ORG" in text
  assert is_changed == any("tags become BIO" in note for note in _NOTES)


_NUMBERED = "1\ta\tB-x\n2\tb\tO\n"
_LINE = '{"tokens": ["a"], "ner_tags": ["B-x"], "pos": ["N"]}'
_TWO_TAGS = _LINE.replace("pos", "spans")


@pytest.mark.parametrize(
  "name, text, columns, words, tags",
  [
    # Tags without names, as in BioBERT's data.
    ("a.tsv", "a\tB\nb\tI\nc\tO\nd\tB\n", (), "a b c d", "B-E I-E O B-E"),
    ("a.tsv", "a\tI\nb\tI\nc\tO\n", (), "a b c", "B-E I-E O"),
    ("a.tsv", "a\tB\nb\tI\nc\tC\n", (), "a b c", "B I C"),  # No O.
    ("a.tsv", "a\tB\nb\tC\nc\tO\n", (), "a b c", "B-B B-C O"),  # IO.
    # Numbers are no names of a header, and may be words.
    *(
      ("a.conll", "1 2\nEU O\n", columns, "1 EU", "B-2 O")
      for columns in (("1", "2"), ("1",), ())
    ),
    ("a.conll", "1996\tB-x\n1997\tO\n", (), "1996 1997", "B-x O"),
    ("a.conll", "1 B-x\n2 O\n", (), "1 2", "B-x O"),  # The other has tags.
    ("a.conll", "3 CD O\n1 CD B-x\n", (), "3 1", "O B-x"),  # A score.
    ("a.conll", "9\n9\n", (), "9 9", ""),
    ("a.conll", "9" * 5000 + " x O\n1 x O\n", (), "9" * 5000 + " 1", "O O"),
    # Outside of .conllu, hashes are words.
    ("a.conll", "#go B-x\n# O\n", (), "#go #", "B-x O"),
    # Given columns are obeyed; a misspelled one is not replaced.
    ("a.tsv", _NUMBERED, ("1",), "1 2", "B-x O"),
    ("a.tsv", _NUMBERED, ("2",), "a b", "B-x O"),
    ("a.JSONL", _LINE, (), "a", "B-x"),
    ("a.jsonl", _LINE, ("text", "pos"), "a", "N"),
    ("a.jsonl", _LINE, ("text", "poss"), "a", ""),
    ("a.jsonl", _TWO_TAGS, ("text", "ner_tags"), "a", "B-x"),
  ],
)
def test_words_and_tags(tmp_path, name, text, columns, words, tags):
  (found,) = read(tmp_path, name, text, *columns)
  assert found.text == words
  known = [x.replace("-ENTITY", "-E") for x in found.tags or ()]
  assert known == tags.split() and (found.tags is None) == (tags == "")


@pytest.mark.parametrize(
  "name, text, columns, message",
  [
    ("a.tsv", "1\ta\tB-x\n2\n", ("2",), "line 2 has another number of columns"),
    (
      "a.tsv",
      "Sentence #\ttext\tlabel\n1\ta\tO\n\tb\tO\n2\tc\tB-x\n",
      (),
      "line 1: a column numbers the sentences",
    ),
    ("a.jsonl", _TWO_TAGS, (), "'ner_tags', 'spans': name one of them"),
    ("a.jsonl", _LINE, ("words",), "there is no column 'words'"),
    ("a.txt", _LINE, (), "a.txt, line 1 is JSON: end the file's"),
    ("A.CSV", "text,label\n", (), "A.CSV must be a CoNLL file"),
    *(
      ("a.conll", "a x B-x\n", x, "line 1: there is no (other )?column")
      for x in (("w", "2"), ("1", "4"), ("0", "1"), ("2", "2"))
    ),
  ],
)
def test_columns_that_are_refused(tmp_path, name, text, columns, message):
  with pytest.raises(ValueError, match=message):
    read(tmp_path, name, text, *columns)


def test_the_training_data_tells_the_scheme_of_a_small_file(tmp_path):
  for text, expected in (
    ("a\tS\nb\tO\n", ("B-ENTITY", "O")),
    ("a\tB\nb\tE\n", ("B-ENTITY", "I-ENTITY")),
  ):
    names = ("O", "B-ENTITY", "I-ENTITY")
    (found,) = read(tmp_path, "a.tsv", text, labels=names)
    assert found.tags == expected
  (found,) = read(tmp_path, "a.tsv", "a\tB\nb\tO\n", labels=("O", "B-B"))
  assert found.tags == ("B-B", "O")


def test_parquet_has_the_names_of_its_classes(tmp_path):
  label = {"_type": "ClassLabel", "names": ["O", "B-ORG", "B-PER"]}
  features = {"ner_tags": {"_type": "List", "feature": label}}
  rows = {"tokens": [["EU", "said"], ["Bo"]], "ner_tags": [[1, 0], [2]]}
  about = {"huggingface": json.dumps({"info": {"features": features}})}
  path = f"{tmp_path}/a.parquet"
  parquet.write_table(pyarrow.table(rows, metadata=about), path)
  found = read(tmp_path, "a.parquet", None)
  assert [x.tags for x in found] == [("B-ORG", "O"), ("B-PER",)]
  assert [x.text for x in found] == ["EU said", "Bo"]


_INVALID = """{"id": 7, "text": "Bo sat", "spans": [[0, 2, "PER"]]}
no JSON
{"id": "x", "text": "Bo sat", "spans": [[0, 2, "PER"], [0, 6, "PER"]]}
{"id": 8, "text": " ", "spans": []}
{"text": "no id", "spans": []}
{"id": 9, "text": "Al", "spans": [[0, 9, "PER"]]}
"""


def test_invalid_texts_are_left_out_and_counted(tmp_path):
  (found,) = read(tmp_path, "a.jsonl", _INVALID, may_skip=True)
  assert (found.guid, found.tags) == ("7", ("B-PER", "O"))
  notes = "\n".join(_NOTES)
  assert notes.count("left out 1 rows") == 5 == len(_NOTES)
  for number in range(2, 7):
    assert f"a.jsonl, line {number}" in notes
  content = "a O x\nb O\n\nc B-y x\n\nd B-y x\ne\nf O x\n"
  (found,) = read(tmp_path, "a.conll", content, "1", "2", may_skip=True)
  assert (found.guid, found.text, found.tags) == ("1", "c", ("B-y",))
  (note,) = _NOTES
  assert "left out 2 rows" in note and "a.conll, line 2 has another" in note
  (tmp_path / "c.conll").write_bytes(b"a B-x\nb\xe9 O\n\nc B-x\n")
  (found,) = read(tmp_path, "c.conll", None, may_skip=True)
  assert found.text == "c" and "c.conll, line 2 is not UTF-8" in _NOTES[0]
  with pytest.raises(ValueError, match="c.conll, line 2 is not UTF-8"):
    read(tmp_path, "c.conll", None)
  assert read(tmp_path, "b.jsonl", "{}\n3\n", may_skip=True) == []


def test_spans_within_words_are_counted(tmp_path):
  spans = [{"start": 3, "end": 8, "label": "L"}]
  line = json.dumps({"text": "in Paris-based x", "entities": spans})
  (found,) = read(tmp_path, "a.jsonl", line)
  assert found.tags == ("O", "B-L", "O")
  assert "1 spans begin or end within a word" in _NOTES[0]
  assert "'Paris' in " in _NOTES[0] and "line 1" in _NOTES[0]


def _spans(*spans):
  return json.dumps({"text": "one two three", "spans": spans})


@pytest.mark.parametrize(
  "name, text, message",
  [
    ("a.conll", "a b O\nc O\n", "line 2 has another number.*2 instead of 3"),
    ("a.conll", "a\tB-x\nb\t\n", "line 2 has an empty word or tag"),
    ("a.conll", "a O\rb O\n", "line 1 has .* a carriage return in it"),
    ("a.conll", "", "is empty"),
    ("a.jsonl", "\n", "has no rows"),
    ("a.conllu", "1 a\n", "line 1: there is no other column 'label'"),
    ("a.jsonl", '{"tokens": ["a"], "tags": ["\\udcff"]}', "lone surrogate"),
    (
      "a.jsonl",
      '{"tokens": ["a"], "tags": ["O"], "id": [1]}',
      "'id' must be te",
    ),
    ("a.conll", "a B-x\nb y\nc O\n", "tags 'y' without B- or I-, and 'B-x'"),
    ("a.conll", "a B_x\nb I_x\nc O\n", "tags 'B_x', 'I_x': write the scheme"),
    ("a.conll", "a x-B\nb x-I\nc O\n", "tags 'x-B', 'x-I': write the scheme"),
    ("a.conll", "a W_x\nb B_y\nc E_y\nd O\n", "'B_y', 'E_y', 'W_x': write"),
    ("a.conll", "a B-x\nb I-x\nc _\n", "tags '_': write .* I-ORG and O"),
    # As of OntoNotes, brat and WikiANN.
    ("a.conll", "a (x*\nb *)\nc *\nd O\n", r"tags .*write the scheme as B-ORG"),
    ("a.ann", "T1\tx 0 2\tBo\n", "must be a CoNLL file"),
    ("a.tsv", "en:Bo\tB-x\nen::\tO\n", "line 1: words begin with en:, as"),
    ("a.tsv", "0\tBo\tB-x\n0\tis\tO\n", "line 1: column 1 numbers the words"),
    # As of GermEval and CoNLL-X.
    ("a.tsv", "1\ta\tB-x\n2\tb\tO\n", "line 1: column 1 numbers the words"),
    ("a.conll", "0 a B-x\n1 b O\n", "column 1 numbers .*--text_column=2"),
    ("a.csv", "a,b\n", "CoNLL"),
    ("a.jsonl", '{"tokens": ["a"], "tags": [3]}', "names of numbers"),
    (
      "a.jsonl",
      '{"tokens": ["a"], "tags": []}',
      "number of tags .*0 instead of 1",
    ),
    ("a.jsonl", '{"tokens": [""], "tags": ["O"]}', "none empty"),
    ("a.jsonl", '{"text": "a", "spans": "x"}', "'spans' must be a list"),
    ("a.jsonl", '{"text": "\\ud800 a", "spans": []}', "lone surrogate"),
    ("a.jsonl", _spans([0, 3, "x"], [2, 7, "y"]), "line 1: .* overlaps"),
    ("a.jsonl", _spans([0, 1, "x"], [1, 3, "y"]), "same word"),
    ("a.jsonl", _spans([0, 14, "x"]), "characters start < end from 0 to 13"),
    ("a.jsonl", _spans([3, 3, "x"]), "characters start < end"),
    ("a.jsonl", _spans([0, 3, ""]), "must have a label"),
    ("a.jsonl", _spans([3, 4, "x"]), "has no word"),
    ("a.jsonl", _spans({"start": 0, "end": 3}), "must have a label"),
    (
      "a.jsonl",
      '{"text": "a", "spans": [[0, 1, "x"]], "answer": "reject"}',
      "line 1 has the answer 'reject', as of Prodigy",
    ),
    (
      "a.jsonl",
      _spans({"start": 4, "end": 6, "label": "x", "text": "two"}),
      "another text than its characters 4 to 6: 'two', but 'tw'",
    ),
  ],
)
def test_bad_files(tmp_path, name, text, message):
  with pytest.raises(ValueError, match=f"{name}.*{message}"):
    read(tmp_path, name, text)


@pytest.mark.parametrize("longest", [5, 6, 7, 11])
def test_each_piece_is_its_own_in_one_window(tmp_path, longest):
  tokenizer = toy_models.wordpiece(tmp_path, *_PIECES)
  for count in range(25):
    ids = list(range(100, 100 + count))
    encoded = tokenization.EncodedText(ids, ids, ids)
    found = list(examples_lib.make_windows([encoded], tokenizer, longest))
    own = [i for window in found for i in window.own]
    assert own == list(range(count))
    for window in found:
      assert len(window.input_ids) <= longest
      shown = range(window.begin, window.begin + len(window.input_ids) - 2)
      for piece in window.own:
        assert window.input_ids[1 + piece - window.begin] == 100 + piece
        near = min(piece - shown[0], shown[-1] - piece)
        is_end = shown[0] == 0 or shown[-1] == count - 1
        assert is_end or near >= (longest - 2) // 4


@pytest.fixture
def make(tmp_path):
  sentence = "the sunny sea was cold , the old rain was warm and wet ."
  words = sentence.split()
  names = ["O"] * len(words)
  names[1:3], names[7] = ["B-sea", "I-sea"], "B-rain"
  lines = [f"{word} {tag}" for word, tag in zip(words, names)]
  text = "\n".join(lines) + "\n\nrain B-rain\n\nthe O\n"
  (tmp_path / "a.conll").write_text(text)
  tokenizer = toy_models.wordpiece(tmp_path, *_PIECES)

  def make_task(**changes):
    paths = {f"{x}_file": f"{tmp_path}/a.conll" for x in ("train", "dev")}
    settings = {"tokenizer": tokenizer, "max_seq_length": 8, **paths}
    options = common.TaskOptions(
      cache_dir=str(tmp_path), note=_NOTES.append, **{**settings, **changes}
    )
    return registry.make_task("token_classification", options)

  return make_task


def test_records_of_a_long_text_take_linear_time(make, tmp_path):
  (tmp_path / "b.conll").write_text("old B-rain\nsea O\n" * 20_000)
  task = make(dev_file=f"{tmp_path}/b.conll")
  begin = time.process_time()
  rows = list(task.features("dev"))
  assert sum(x > 0 for row in rows for x in row["label_ids"]) == 40_000
  # A loop over all words for each window takes much longer.
  assert len(rows) > 9_000 and time.process_time() - begin < 10


def test_the_training_data_tells_the_scheme_of_dev_data(make, tmp_path):
  for name, text in (("train", "old B\nsea E\nthe O\n"), ("dev", "sea S\n")):
    (tmp_path / f"{name}.tsv").write_text(text)
  paths = {f"{x}_file": f"{tmp_path}/{x}.tsv" for x in ("train", "dev")}
  (found,) = make(**paths).examples("dev")
  assert found.tags == ("B-ENTITY",)


def test_what_is_not_scored_or_no_entity_is_said(make, tmp_path):
  path = tmp_path / "b.jsonl"
  rows = [{"tokens": ["the"], "tags": ["O"]}, {"tokens": ["sea"], "tags": None}]
  path.write_text("".join(json.dumps(row) + "\n" for row in rows))
  task = make(test_file=str(path))
  assert len(task.examples("test")) == 2 and not task.is_labeled("test")
  assert "not scored: only 1 of its 2 examples" in _NOTES[-1]
  read(tmp_path, "c.conll", "the o\nsea b-sea\n")
  assert "'b-sea' is a tag of one word" in _NOTES[-1]


def test_records_and_losses_by_hand(make):
  task = make()
  assert task.labels == ("O", "B-rain", "I-rain", "B-sea", "I-sea")
  assert task.best_metric == "f1" and len(task.windows("train")) > 3
  rows = list(task.features("dev"))
  found = [x - 1 for row in rows for x in row["label_ids"] if x]
  gold = [tag for e in task.examples("dev") for tag in e.tags]
  assert [task.labels[i] for i in found] == gold
  # The label is at the first piece of its word.
  encoded = task.options.tokenizer.encode_with_offsets(
    task.examples("dev")[0].text
  )
  first, *_ = rows
  labeled = [i - 1 for i, x in enumerate(first["label_ids"]) if x]
  starts = [encoded.starts[i] for i in labeled]
  assert starts == [a for a, _ in task.examples("dev")[0].words][: len(starts)]
  logits = np.random.default_rng(1).normal(size=[2, 3, 5]).astype(np.float32)
  batch = {
    "label_ids": tf.constant([[0, 2, 5], [1, 0, 0]]),
    "example_weight": tf.constant([1.0, 0.0]),
    "example_id": tf.range(2),
  }
  totals, _ = task.losses(None, {"logits": tf.constant(logits)}, batch, True)
  logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
  expected = -(logs[0, 1, 1] + logs[0, 2, 4])
  loss = float(totals["token_classification"])
  assert loss == pytest.approx(expected, rel=1e-6)
  weights = task.loss_weights(batch)
  assert weights["token_classification"] == 2
  # The probabilities are equal, the logits are not.
  logits = tf.constant([[[0.0, 1e-8, 0.0, 0.0, 0.0]]])
  batch = {"example_id": tf.range(1), "input_ids": tf.zeros([1, 1])}
  found = task.predictions(None, {"logits": logits}, batch)
  assert found["classes"][0, 0] == 1


def test_right_classes_score_one(make, tmp_path):
  task = make()
  windows = task.windows("dev")
  classes = np.zeros([len(windows), 8], np.int32)
  for row, x in zip(classes, task.features("dev")):
    ids = np.array(x["label_ids"])
    row[: len(ids)] = np.maximum(ids - 1, 0)
  values = {"classes": classes, "probabilities": np.full(classes.shape, 0.5)}
  answers = task.answers("dev", values)
  assert task.score_answers("dev", answers)["f1"] == 1
  paths = task.write_answers("dev", answers, str(tmp_path))
  line = json.loads(open(paths[0], encoding="utf-8").readline())
  assert [(x["text"], x["label"]) for x in line["prediction"]] == [
    ("sunny sea", "sea"),
    ("old", "rain"),
  ]
  labels, right, found = task.decided("dev", answers)
  assert labels == ["rain", "sea"] and (right == found).all()
  assert found.sum(0).tolist() == [2, 1] and len(found) == 3
  assert task.majority("dev")["f1"] == 0


def test_unknown_and_missing_tags_are_refused(make, tmp_path):
  (tmp_path / "b.conll").write_text("a B-x\n")
  with pytest.raises(ValueError, match="b.conll, line 1: unknown label 'B-x'"):
    make(dev_file=f"{tmp_path}/b.conll").examples("dev")
  (tmp_path / "b.conll").write_text("a\n")
  with pytest.raises(ValueError, match="b.conll, line 1 has no tags"):
    make(dev_file=f"{tmp_path}/b.conll").examples("dev")
  task = make(test_file=f"{tmp_path}/b.conll")
  assert not task.is_labeled("test") and task.is_labeled("dev")
  (tmp_path / "b.conll").write_text("a O\n")
  with pytest.raises(ValueError, match="no word .* has a tag but O"):
    make(train_file=f"{tmp_path}/b.conll")
