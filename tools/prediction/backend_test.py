"""Runs and exports answer rows: compared with the model, row by row."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf

from official_albert import modeling, tokenization, training
from tasks import pretraining, race, squad
from tools.prediction import backend as prediction_backend
from tools.prediction import stream as prediction_stream
from tools.prediction.input import InputRow
from tools.testing import (
  prediction_toy_models,
  toy_data,
  toy_encoder,
  toy_finetuned,
)

_TEXTS = ["a cold dark day by the sea " * 3, "the", "größe 東京", "old tree"]


def open_run(folder, **settings):
  folder = str(folder)
  encoder = toy_finetuned.read_encoder(folder)
  return prediction_backend.open_run(
    folder, *encoder, tf.distribute.get_strategy(), 4, **settings
  )


def predict(backend, rows, batch_size=4):
  found = [
    InputRow(f"a, line {i}", str(i), cells) for i, cells in enumerate(rows)
  ]
  answers = prediction_stream.predict(backend, found, batch_size, 2)
  return [answer for _, answer in answers]


def sentences(count):
  rng = np.random.default_rng(8)
  return [toy_data.sentence(rng, toy_data.GOOD) for _ in range(count)]


def features_of(*sequences):
  """Features [B, S] of sequences (ids, segments), padded."""
  ids, segments = (tf.ragged.constant(x).to_tensor() for x in zip(*sequences))
  mask = tf.sequence_mask([len(ids) for ids, _ in sequences], dtype=tf.int32)
  return {"input_ids": ids, "segment_ids": segments, "input_mask": mask}


def tokenizer_of(folder):
  return toy_finetuned.read_encoder(str(folder)).tokenizer


def test_classes_of_single_texts(tmp_path):
  model = toy_finetuned.write(
    str(tmp_path / "run"),
    "text_classification",
    ["a", "b", "c"],
    23,
    columns={"text": "review", "text_b": "text_b", "id": "key"},
  )
  backend = open_run(tmp_path / "run")
  assert backend.roles == ("text",)
  assert backend.columns["text"] == "review" and backend.columns["id"] == "key"
  assert backend.layout.header == ("prediction", "a", "b", "c")
  assert backend.source.endswith("run/model.ckpt-1")
  rows = sentences(11)
  tokenizer = tokenizer_of(tmp_path / "run")
  for text, answer in zip(rows, predict(backend, [{"text": t} for t in rows])):
    sequence = tokenization.pack_pair(tokenizer.encode(text), None, 23, 2, 3)
    logits = model(features_of(sequence))["logits"][0]
    # Padding changes the last digits.
    np.testing.assert_allclose(
      answer["probabilities"], tf.nn.softmax(logits), rtol=0, atol=2e-6
    )
    assert answer["label"] == "abc"[np.argmax(logits)]


def test_glue_pairs_and_regression(tmp_path):
  labels = ("entailment", "not_entailment")
  toy_finetuned.write(str(tmp_path / "rte"), "rte", labels)
  assert open_run(tmp_path / "rte").layout.header[1:] == labels
  model = toy_finetuned.write(str(tmp_path / "stsb"), "stsb", max_seq_length=17)
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
  model = toy_finetuned.write(
    str(tmp_path / "race"), "race", max_seq_length=23, max_qa_length=8
  )
  rows = [
    {
      "passage": text,
      "question": "the day was _ .",
      "options": ["cold", "sunny", "a tree", f"{i} by the sea"],
    }
    for i, text in enumerate(sentences(5))
  ]
  tokenizer = tokenizer_of(tmp_path / "race")
  for cells, answer in zip(rows, predict(open_run(tmp_path / "race"), rows)):
    example = race.RaceExample(
      "",
      cells["passage"],
      cells["question"],
      tuple(cells["options"]),
      None,
      "",
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
  """The number of windows and what tasks/squad decodes from them."""
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
  model = toy_finetuned.write(
    str(folder), task, None, 19, doc_stride=5, max_query_length=6
  )
  tokenizer = tokenizer_of(folder)
  counts, odds = [], []
  answers = predict(open_run(folder), questions())
  for cells, answer in zip(questions(), answers):
    count, expected = decoded(model, tokenizer, cells)
    counts.append(count)
    odds.append(expected.null_odds)
    # Rows are filled up with empty answers.
    n = len(expected.n_best)
    assert list(answer["n_best_answers"][:n]) == [
      c.text for c in expected.n_best
    ]
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
  (folder / "eval_results.json").write_text(
    json.dumps({"dev": {"null_score_diff_threshold": threshold}})
  )
  for backend in (
    open_run(folder),
    open_run(folder, null_score_diff_threshold=threshold),
  ):
    answers = predict(backend, questions())
    assert [not answer["answer"] for answer in answers] == [
      value >= threshold for value in odds
    ]
    assert {a["end"] for a in answers if not a["answer"]} == {0}


def test_the_runs_own_decoding(tmp_path):
  sizes = {"doc_stride": 5, "max_query_length": 6}
  for name, more in (
    ("old", {}),
    ("new", {"n_best_size": 3}),
    ("short", {"max_answer_length": 1}),
  ):
    toy_finetuned.write(
      str(tmp_path / name), "squad_v1", None, 19, **sizes, **more
    )
  old, new, short = (
    [a["n_best_answers"] for a in predict(open_run(tmp_path / n), questions())]
    for n in ("old", "new", "short")
  )
  assert {len(texts) for texts in old} == {20}
  assert {len(texts) for texts in new} == {3}
  # One token is one piece of a word, and some of the other answers are longer.
  assert any(" " in text for texts in old for text in texts)
  assert not any(" " in text for texts in short for text in texts)


def test_any_number_of_windows(tmp_path):
  """An export limits the windows of a request; a run does not."""
  folder = tmp_path / "run"
  toy_finetuned.write(
    str(folder), "squad_v1", None, 9, doc_stride=1, max_query_length=3
  )
  row = {"question": "the", "context": "a cold dark day " * 90}
  (answer,) = predict(open_run(folder), [row])
  assert answer["answer"]


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
  folder = toy_encoder.write(str(tmp_path_factory.mktemp("run") / "encoder"))
  config = modeling.AlbertConfig.from_json_file(f"{folder}/albert_config.json")
  model = pretraining.AlbertForPretraining(config)
  training.warm_start(model, f"{folder}/model.ckpt-1")
  return folder, model


def test_masks(pretrained):
  folder, model = pretrained
  backend = open_run(folder, top_k=4)
  tokenizer = tokenizer_of(folder)
  rows = ["the [MASK] tree", "by the sea a [MASK] day was [MASK] and old"]
  answers = predict(backend, [{"text": text} for text in rows])
  for text, answer in zip(rows, answers):
    ids = [2]
    for number, part in enumerate(text.split("[MASK]")):
      ids += [4] * (number > 0) + tokenizer.encode(part)
    ids.append(3)
    positions = [i for i, x in enumerate(ids) if x == 4]
    there = answer["mask_positions"] >= 0
    assert answer["mask_positions"][there].tolist() == positions
    features = features_of((ids, [0] * len(ids)))
    features["masked_lm_positions"] = tf.constant([positions])
    logits = model(features)["masked_lm_logits"][0]
    best, expected = tf.math.top_k(tf.nn.softmax(logits), 4)
    np.testing.assert_array_equal(answer["token_ids"][there], expected)
    np.testing.assert_allclose(answer["probabilities"][there], best, atol=1e-5)
    pieces = [tokenizer.id_to_piece(i) for i in expected[0].numpy().tolist()]
    assert answer["tokens"][0].tolist() == [p.lstrip("\u2581") for p in pieces]
  with pytest.raises(
    ValueError,
    match=r"^a, line 1: every text must have a .MASK. .*add one to each",
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
      swapped = tf.nn.softmax(expected["sentence_order_logits"])[0, 1]
      np.testing.assert_allclose(
        answer["swapped_probability"], swapped, rtol=1e-5
      )
    else:
      np.testing.assert_allclose(
        answer["pooled_output"], expected["pooled_output"][0], atol=1e-5
      )


def test_refused_runs(pretrained, tmp_path):
  folder, _ = pretrained
  with pytest.raises(ValueError, match="choose one of fill_mask, sentence_ord"):
    open_run(folder, signature="classify")
  with pytest.raises(ValueError, match="top_k must be between 1 and"):
    open_run(folder, top_k=0)
  toy_finetuned.write(str(tmp_path / "a"), "squad_v1")
  record = json.loads((tmp_path / "a" / "run.json").read_text())
  record["data"]["task"] = "stsb"
  (tmp_path / "a" / "run.json").write_text(json.dumps(record))
  with pytest.raises(
    ValueError, match="does not fit the record in .* it lacks"
  ):
    open_run(tmp_path / "a")


def test_the_best_checkpoint_unless_another_is_named(tmp_path):
  folder = str(tmp_path / "run")
  model = toy_finetuned.write(folder, "sst2", ["0", "1"])
  weights = model.classifier.output_weights
  weights.assign(-weights)
  keeper = training.BestCheckpoint(folder, model, "accuracy")
  assert keeper.offer(7, 1, {"accuracy": 0.5})
  rows = [{"text": text} for text in sentences(3)]
  answers = {}
  for checkpoint, name in (
    ("", "best/model.ckpt-7"),
    ("latest", "model.ckpt-1"),
  ):
    backend = open_run(folder, checkpoint=checkpoint)
    assert backend.source == f"{folder}/{name}"
    answers[checkpoint] = predict(backend, rows)
  assert all(
    np.abs(a["probabilities"] - b["probabilities"]).max() > 1e-3
    for a, b in zip(*answers.values())
  )


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
  path = tmp_path_factory.mktemp("saved")
  for kind in prediction_toy_models.KINDS:
    prediction_toy_models.write(str(path / kind), kind)
  prediction_toy_models.write(str(path / "bare"), ids_only=True)
  return path


def test_signatures_of_texts_and_of_ids_agree(exports):
  texts = prediction_backend.open_export(str(exports / "classify"))
  ids = prediction_backend.open_export(str(exports / "bare"))
  named = prediction_backend.open_export(str(exports / "classify"), "ids")
  assert texts.roles == ids.roles == named.roles == ("text",)
  labels = prediction_toy_models.LABELS
  assert texts.layout.header == ids.layout.header == ("prediction", *labels)
  loaded = tf.saved_model.load(str(exports / "classify"))
  expected = loaded.signatures["classify"](tf.constant(_TEXTS))
  for backend in (texts, ids, named):
    answers = predict(backend, [{"text": text} for text in _TEXTS], 2)
    assert [answer["label"] for answer in answers] == [
      label.decode() for label in expected["label"].numpy()
    ]
    np.testing.assert_allclose(
      [answer["logits"] for answer in answers], expected["logits"], rtol=1e-5
    )


def test_lengths_are_tokens(exports):
  backend = prediction_backend.open_export(str(exports / "choose"))
  rows = [
    {"passage": text, "question": "the", "options": ["a", "the", "a", "a"]}
    for text in ("the", "the old tree")
  ]
  tokenizer = tokenization.open_tokenizer(
    str(exports / "choose/assets/tokenizer.model")
  )
  assert backend.lengths(rows).tolist() == [
    len(tokenizer.encode(text)) + len(tokenizer.encode("the a the a a"))
    for text in ("the", "the old tree")
  ]


def test_all_kinds_of_exports(exports):
  def lines_of(kind, rows):
    backend = prediction_backend.open_export(str(exports / kind))
    answers = predict(backend, rows, 2)
    return backend.roles, [backend.layout.cells(x) for x in answers]

  texts = [{"text": text} for text in _TEXTS]
  roles, scores = lines_of("score", texts)
  assert roles == ("text",) and len(scores) == 4 and len(scores[0]) == 1
  _, vectors = lines_of("encode", texts)
  first = [cells[0].split()[0] for cells in vectors]
  np.testing.assert_allclose(np.float32(first), np.ravel(scores), rtol=1e-6)
  roles, choices = lines_of(
    "choose",
    [
      {"passage": "p", "question": "the day", "options": list(options)}
      for options in (("warm", "cold", "sea", "old"), ("a", "b", "c", "d"))
    ],
  )
  assert roles == ("question", "passage", "options")
  for letter, *probabilities in choices:
    assert letter == "ABCD"[int(np.argmax(probabilities))]
  roles, answers = lines_of(
    "answer",
    [
      {"question": "who", "context": "größer als"},
      {"question": "?", "context": "abcdefg"},
    ],
  )
  assert roles == ("question", "context")
  assert answers == [["öße", 0.75, 2, 5, -2.0], ["", 0.75, 0, 0, 3.0]]


def test_refused_exports(exports, tmp_path):
  def refused(folder, message, signature="", error=ValueError):
    with pytest.raises(error, match=message):
      prediction_backend.open_export(str(folder), signature)

  refused(tmp_path, "is not the folder of a SavedModel", error=OSError)
  refused(exports / "classify", "it has classify, ids, serving_default", "x")
  refused(exports / "answer", "answers come from text", "ids")
  record = exports / "bare" / "assets" / "export.json"
  kept = json.loads(record.read_text())
  record.write_text(json.dumps({**kept, "tokenizer": None}))
  refused(exports / "bare", "was exported without a tokenizer: put")
  record.write_text(json.dumps({**kept, "labels": 3}))
  refused(exports / "bare", "not what .* writes .*: export again")
  del kept["lower_case"]
  record.write_text(json.dumps(kept))
  refused(exports / "bare", r"KeyError: 'lower_case'\): export again")
  record.write_text("{")
  refused(exports / "bare", "export.json is not what .*JSON.*: export again")
  record.unlink()
  refused(exports / "bare", "have no export.json that tells .*: export it ag")
  module = tf.Module()
  module.f = tf.function(
    lambda examples: {"label": examples},
    input_signature=[tf.TensorSpec([None], tf.string, "examples")],
  )
  tf.saved_model.save(module, str(tmp_path / "new"), {"examples": module.f})
  refused(tmp_path / "new", "takes examples, which no table has", "examples")


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
