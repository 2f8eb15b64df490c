"""Questions of both versions of SQuAD: as the task itself decodes them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf

from tasks import squad
from tools import finetuning
from tools.prediction import questions as prediction_questions
from tools.prediction import run as prediction_run
from tools.prediction import stream as prediction_stream
from tools.prediction.input import InputRow
from tools.testing import toy_data, toy_finetuned


def rows():
  """Contexts of one window and of several."""
  rng = np.random.default_rng(4)
  words = toy_data.BAD
  return [
    {
      "question": "the day was" * (1 + i % 2),
      "context": " ".join(
        toy_data.sentence(rng, words) for _ in range(1 + 3 * (i % 3))
      ),
    }
    for i in range(7)
  ]


def open_run(folder, **changes):
  devices = finetuning.run.Devices(tf.distribute.get_strategy(), "float32")
  settings = prediction_run.Settings(devices, 3, **changes)
  return prediction_questions.QuestionBackend(
    finetuning.trained_run.read(str(folder)),
    toy_finetuned.read_encoder(str(folder)),
    settings,
  )


def predict(backend):
  found = [InputRow("", str(i), cells) for i, cells in enumerate(rows())]
  return [said for _, said in prediction_stream.predict(backend, found, 3, 2)]


def decoded(model, tokenizer, cells):
  """One question by itself, its windows padded to one length."""
  example = squad.SquadExample("q", cells["question"], cells["context"])
  made = squad.make_windows(example, tokenizer, 19, 5, 6)
  length = max(len(window.input_ids) for window in made)
  ids, segments, mask, p_mask = (
    np.zeros([len(made), length], np.int32) for _ in range(4)
  )
  for i, window in enumerate(made):
    count = len(window.input_ids)
    ids[i, :count], segments[i, :count] = window.input_ids, window.segment_ids
    mask[i, :count], p_mask[i] = 1, squad.p_mask(window, length)
  outputs = model(
    {
      "input_ids": tf.constant(ids),
      "segment_ids": tf.constant(segments),
      "input_mask": tf.constant(mask),
      "p_mask": tf.constant(p_mask, tf.float32),
    }
  )
  contexts = {"q": cells["context"]}
  if "cls_logits" not in outputs:
    scores = outputs["start_logits"], outputs["end_logits"]
    return len(made), squad.decode_v1(made, contexts, *scores)["q"]
  names = (
    "start_top_log_probs",
    "start_top_index",
    "end_top_log_probs",
    "end_top_index",
    "cls_logits",
  )
  scores = [outputs[name] for name in names]
  return len(made), squad.decode_v2(made, contexts, *scores)["q"]


@pytest.mark.parametrize("task", ["squad_v1", "squad_v2"])
def test_like_the_task(tmp_path, task):
  folder = tmp_path / "run"
  model = toy_finetuned.write(
    str(folder), task, None, 19, doc_stride=5, max_query_length=6
  )
  backend = open_run(folder)
  tokenizer = toy_finetuned.read_encoder(str(folder)).tokenizer
  counts, odds = [], []
  for cells, said in zip(rows(), predict(backend)):
    count, expected = decoded(model, tokenizer, cells)
    counts.append(count)
    odds.append(expected.null_odds)
    assert said["n_best_answers"] == [c.text for c in expected.n_best]
    np.testing.assert_allclose(
      said["n_best_probabilities"],
      [c.probability for c in expected.n_best],
      atol=1e-5,
    )
    context = cells["context"]
    assert said["answer"] == context[said["start"] : said["end"]] != ""
    for text, start, end in zip(
      said["n_best_answers"], said["n_best_starts"], said["n_best_ends"]
    ):
      assert text == context[start:end]
  assert min(counts) == 1 and max(counts) > 5
  assert ("null_score_diff" in said) == (task == "squad_v2")
  if task == "squad_v1":
    return
  # The threshold of the flag, and that of the run.
  threshold = sorted(odds)[3]
  (folder / "eval_results.json").write_text(
    json.dumps({"dev": {"null_score_diff_threshold": threshold - 1e-3}})
  )
  for backend in (
    open_run(folder),
    open_run(folder, null_score_diff_threshold=threshold - 1e-3),
  ):
    said = predict(backend)
    assert [not answer["answer"] for answer in said] == [
      value >= threshold for value in odds
    ]
    assert {a["end"] for a in said if not a["answer"]} == {0}


def test_the_runs_own_decoding(tmp_path):
  sizes = {"doc_stride": 5, "max_query_length": 6}
  for name, more in (("old", {}), ("new", {"n_best_size": 3})):
    toy_finetuned.write(
      str(tmp_path / name), "squad_v1", None, 19, **sizes, **more
    )
  toy_finetuned.write(
    str(tmp_path / "short"), "squad_v1", None, 19, **sizes, max_answer_length=1
  )
  old, new, short = (
    predict(open_run(tmp_path / name)) for name in ("old", "new", "short")
  )
  assert max(len(said["n_best_answers"]) for said in old) == 20
  assert {len(said["n_best_answers"]) for said in new} == {3}
  # One token is one piece of a word, and some of the other answers are longer.
  assert any(" " in text for said in old for text in said["n_best_answers"])
  assert not any(
    " " in text for said in short for text in said["n_best_answers"]
  )


def test_no_candidate():
  said = prediction_questions.to_outputs(
    squad.QuestionAnswers([squad.Candidate("", 1.0)], 0.5), ""
  )
  assert said["answer"] == "" and said["start"] == said["end"] == 0
  assert said["n_best_ends"] == [0] and said["null_score_diff"] == 0.5


def test_probability_that_there_is_no_answer():
  said = squad.QuestionAnswers([squad.Candidate("a", 0.9, 2, 3, 4, 5)], 1.5)
  there = prediction_questions.to_outputs(said, said.text(2.0))
  assert (there["answer"], there["probability"]) == ("a", 0.9)
  # As exports say it: the odds are a logit.
  none = prediction_questions.to_outputs(said, said.text(1.0))
  assert (none["answer"], none["end"]) == ("", 0)
  assert none["probability"] == pytest.approx(1 / (1 + np.exp(-1.5)))
  assert none["n_best_probabilities"] == [0.9]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
