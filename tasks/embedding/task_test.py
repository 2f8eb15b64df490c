"""Tests of the data, losses and metrics of embeddings, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special
import scipy.stats
import tensorflow as tf

from official_albert.tasks import common, registry
from official_albert.tasks.embedding.model import AlbertForEmbedding
from official_albert.testing import toy_models

_NOTES: list[str] = []
_PAIR = "text\ttext_b"
_TEXTS = ("the sea", "the rain", "old rain", "the sea", "a warm sea", "wet")
_TABLES = {
  "scores": [
    f"{_PAIR}\tlabel",
    *(f"{x}\t{y}\t{i % 3}" for i, (x, y) in enumerate(zip(_TEXTS, _TEXTS[1:]))),
  ],
  "triplets": [f"{_PAIR}\ttext_c", "the sea\ta sea\twet", "old\tthe old\train"],
  "pairs": [_PAIR, "the sea\ta sea", "old\tthe old", "rain\twet"],
}


@pytest.fixture
def make(tmp_path):
  tokenizer = toy_models.wordpiece(
    tmp_path, *"the sea rain old a warm wet".split()
  )

  def write(form):
    path = tmp_path / f"{form}.tsv"
    path.write_text("\n".join(_TABLES[form]) + "\n")
    return str(path)

  def make_task(train="", dev="", **changes):
    files = {"train_file": train, "dev_file": dev}
    options = common.TaskOptions(
      cache_dir=str(tmp_path / "records"),
      tokenizer=tokenizer,
      note=_NOTES.append,
      **{"length_bucketing": False, "max_seq_length": 6, **changes},
      **{k: write(v) if v in _TABLES else v for k, v in files.items()},
    )
    return registry.make_task("text_embedding", options)

  return make_task


def _batch(task, split, rows=None):
  config = toy_models.config(12, 6)
  on_records = task.with_records(["train", "dev"], config)
  data = on_records.dataset(split, rows or len(task.examples(split)))
  return on_records, next(iter(data))


def _unit(x):
  return x / np.linalg.norm(x, axis=-1, keepdims=True)


@pytest.mark.parametrize("form", ["pairs", "triplets", "scores"])
def test_loss_of_a_batch(make, form):
  recipe = {"embedding_dims": "4", "embedding_depths": "1"}
  task = make(form, form, recipe=recipe)
  count = len(task.examples("train"))
  task, batch = _batch(task, "train", count + 2)  # The last two are padding.
  assert task.sequences_per_example == (3 if form == "triplets" else 2)
  model = task.build_model()
  outputs = task.outputs(model, batch)
  vectors = [outputs["embedding"], *outputs["embeddings"]]
  assert len(vectors) == 2
  values = []
  for one in vectors:
    for size in (10, 4):
      x = _unit(one.numpy()[:count, :, :size])
      if form == "scores":
        cosines = np.sum(x[:, 0] * x[:, 1], -1)
        gold = batch["label_ids"].numpy()[:count]
        wrong = [
          np.exp(20 * (cosines[i] - cosines[j]))
          for i in range(count)
          for j in range(count)
          if gold[i] < gold[j]
        ]
        values.append(count * np.log1p(sum(wrong)))
        continue
      others = np.concatenate(
        [x[:, 1], x[:, 2]] if form == "triplets" else [x[:, 1]]
      )
      logs = scipy.special.log_softmax(20 * x[:, 0] @ others.T, axis=1)
      values.append(-np.trace(logs))
  totals, _ = task.losses(model, outputs, batch, True)
  assert float(totals["text_embedding"]) == pytest.approx(
    np.mean(values), rel=1e-4
  )
  assert float(task.loss_weights(batch)["text_embedding"]) == count


def test_equal_texts_are_no_wrong_candidates(make):
  _TABLES["twice"] = [
    _PAIR,
    "the sea\ta sea",
    "the sea\tthe rain",
    "old\ta sea",
  ]
  task, batch = _batch(make("twice", "pairs"), "train")
  model = task.build_model()
  outputs = task.outputs(model, batch)
  x = _unit(outputs["embedding"].numpy())
  logits = 20 * x[:, 0] @ x[:, 1].T
  order = [task.examples("train")[i].texts for i in batch["example_id"].numpy()]
  for i, (a, b) in enumerate(order):
    for j, (c, d) in enumerate(order):
      if i != j and (a == c or b == d):
        logits[i, j] = -np.inf
  assert np.isinf(logits).sum() == 4
  logs = scipy.special.log_softmax(logits, axis=1)
  totals, _ = task.losses(model, outputs, batch, True)
  assert float(totals["text_embedding"]) == pytest.approx(
    -np.trace(logs), rel=1e-4
  )


def test_metrics_by_hand(make, tmp_path):
  rng = np.random.default_rng(5)
  vectors = _unit(rng.normal(size=[5, 3, 4]).astype(np.float32))
  cosines = np.sum(vectors[:, 0] * vectors[:, 1], -1)
  task = make("pairs", "scores")
  assert task.best_metric == "spearman" and task.is_labeled("dev")
  answers = task.answers("dev", {"vectors": vectors})
  scores = task.score_answers("dev", answers)
  gold = [0, 1, 2, 0, 1]
  assert scores["spearman"] == pytest.approx(
    scipy.stats.spearmanr(cosines, gold)[0]
  )
  assert scores["pearson"] == pytest.approx(np.corrcoef(cosines, gold)[0, 1])
  (path,) = task.write_answers("dev", answers, str(tmp_path))
  lines = open(path).read().splitlines()
  assert lines[0] == "id\tsimilarity" and len(lines) == 6
  assert float(lines[2].split("\t")[1]) == pytest.approx(cosines[1])
  same = np.ones_like(vectors) / 2
  found = task.score_answers("dev", task.answers("dev", {"vectors": same}))
  assert found == {"spearman": 0.0, "pearson": 0.0}
  task = make("scores", "triplets")
  vectors = np.eye(4, dtype=np.float32)[np.array([[0, 0, 1], [0, 1, 0]])]
  answers = task.answers("dev", {"vectors": vectors})
  assert task.score_answers("dev", answers) == {"accuracy": 0.5}
  task = make("scores", "pairs")
  vectors = np.eye(4, dtype=np.float32)[np.array([[0, 0], [0, 1], [2, 2]])]
  answers = task.answers("dev", {"vectors": vectors})
  # One text is closer than the own one of the second row, and one as far.
  assert task.score_answers("dev", answers) == pytest.approx(
    {"mrr": (1 + 1 / 3 + 1) / 3, "accuracy_at_1": 2 / 3}
  )


def test_ties_are_not_in_favor_of_the_model(make):
  _TABLES["equal"] = [_PAIR, "wet\tOld", "rain\told ", "sea\tthe sea"]
  task = make("pairs", "equal")
  vectors = np.full([3, 2, 4], 0.5, np.float32)
  # The second texts of the first two rows are equal, that of the third is not.
  assert task.score_answers("dev", vectors) == pytest.approx(
    {"mrr": (1 / 2 + 1 / 2 + 1 / 3) / 3, "accuracy_at_1": 0}
  )


@pytest.mark.parametrize(
  "lines, message",
  [
    ([f"{_PAIR}\ttext_c\tlabel", "x\ty\tz\t1"], "of which a file can have one"),
    (["text\tlabel", "x\t1"], "line 1: there is no column 'text_b'"),
    ([f"{_PAIR}\tlabel", "x\ty\thigh"], "line 2: unknown label 'high'"),
    ([_PAIR, "x\t "], "line 2: 'text_b' is empty"),
  ],
)
def test_bad_tables_are_refused(make, lines, message):
  _TABLES["bad"] = lines
  with pytest.raises(ValueError, match=message):
    make("bad").examples("train")


@pytest.mark.parametrize(
  "lines, message",
  [
    ([f"{_PAIR}\tlabel", "x\ty\t1", "z\tx\t1"], "2 rows have the score 1.0"),
    ([_PAIR, "x\ty", "x\tz"], "all 2 rows have the text 'x'"),
    ([_PAIR, "x\ty", "z\ty"], "all 2 rows have the second text 'y'"),
    ([_PAIR, "x\ty"], "all 1 rows have the text 'x'"),
  ],
)
def test_training_needs_rows_that_differ(make, lines, message):
  _TABLES["same"] = lines
  with pytest.raises(ValueError, match=message):
    make("same", "same").check(["train", "dev"])
  make("triplets", "same").check(["train", "dev"])


def test_the_third_text_does_not_hide_a_shared_pair(make):
  pairs = [f"x{i}\ty{i}" for i in range(30)]
  lines = [f"{pair}\tz{i}" for i in range(2) for pair in pairs]
  _TABLES["negatives"] = [f"{_PAIR}\ttext_c", *lines]
  task = make("negatives", dev_share=0.3)
  train, dev = (
    [(x.text_a, x.text_b) for x in task.examples(split)]
    for split in ("train", "dev")
  )
  assert len(train) + len(dev) == 60 and not {*train} & {*dev}
  _TABLES["positives"] = [_PAIR, *pairs]
  _NOTES.clear()
  make("negatives", "positives").check(["train", "dev"])
  assert "warning: 30 of the 30 dev rows are also" in _NOTES[0]


def test_columns_that_no_file_has_are_refused(make):
  """Otherwise, pairs with scores would be trained as if all belonged."""
  files = ("scores", "scores")
  for change in ({"label_column": "sc"}, {"text_c_column": "d"}):
    with pytest.raises(ValueError, match="_column=.*: none of the files has"):
      make(*files, **change).check(["train", "dev"])
  make("pairs", "scores").check(["train", "dev"])
  assert "pairs.tsv: the rows are pairs; those" in _NOTES[-1]


@pytest.mark.parametrize("form", ["pairs", "triplets", "scores"])
def test_batches_of_one_row_are_refused(make, form):
  task, batch = _batch(make(form, form), "train", rows=1)
  model = task.build_model()
  outputs = task.outputs(model, batch)
  task.losses(model, outputs, batch, False)
  if form == "triplets":
    totals, _ = task.losses(model, outputs, batch, True)
    assert float(totals["text_embedding"]) > 0
    return
  with pytest.raises(ValueError, match="give a larger --train_batch_size"):
    task.losses(model, outputs, batch, True)


@pytest.mark.parametrize(
  "name, value", [("embedding_dims", "4,11"), ("embedding_depths", "3")]
)
def test_sizes_beyond_the_model_are_refused(make, name, value):
  task = make("pairs", "pairs", recipe={name: value})
  with pytest.raises(ValueError, match=f"--{name} is .*, but must be from 1"):
    _batch(task, "train")


def test_pairs_that_lack_scores_are_not_scored(make, tmp_path):
  path = str(tmp_path / "new.tsv")
  (tmp_path / "new.tsv").write_text("text\ttext_b\nthe sea\twet\n")
  for train, dev, is_labeled in (
    ("scores", "scores", False),
    ("pairs", "scores", False),
    ("pairs", "pairs", True),
    ("triplets", "triplets", True),
  ):
    task = make(train, dev, test_file=path)
    assert task.is_labeled("dev") and task.is_labeled("test") == is_labeled
    # A trained run predicts the file alone.
    task = task.with_records(["train", "dev"], toy_models.config(12, 6))
    trained_on = task.describe()["settings"]["trained_on"]
    task = make(test_file=path, trained_on=trained_on)
    assert task.is_labeled("test") == (train != "scores")


def test_batches_mix_lengths(make):
  rows = [("wet", "old")] * 8 + [("the sea " * 20, "the rain")] * 8
  _TABLES["long"] = [_PAIR, *("\t".join(row) for row in rows)]
  task = make("long", "pairs", length_bucketing=True, max_seq_length=64)
  on_records = task.with_records(["train", "dev"], toy_models.config(12, 64))
  (batch,) = on_records.train_dataset(8, 0).take(1)
  tokens = batch["input_mask"].numpy()[:, 0].sum(-1)
  assert {*tokens.tolist()} == {3, 42}


def test_pooling_ignores_padding():
  config = toy_models.config(31, 7)
  ids = tf.constant([[2, 13, 27, 3], [2, 7, 3, 0]])
  features = {"input_ids": ids, "input_mask": tf.sign(ids)}
  for pooling in ("mean", "max", "cls", "pooler"):
    tf.keras.utils.set_random_seed(3)
    model = AlbertForEmbedding(config, pooling)
    found = model(features)["embedding"].numpy()
    short = {k: x[1:, :3] for k, x in features.items()}
    np.testing.assert_allclose(model(short)["embedding"], found[1:], atol=1e-5)
    hidden = model.albert(short)["sequence_output"].numpy()[0]
    expected = {
      "mean": hidden.mean(0),
      "max": hidden.max(0),
      "cls": hidden[0],
      "pooler": model.albert(short)["pooled_output"][0],
    }[pooling]
    np.testing.assert_allclose(found[1], expected, atol=1e-5)
    # Two texts of an example, without a mask.
    pairs = {"input_ids": tf.stack([short["input_ids"]] * 2, 1)}
    again = model(pairs)["embedding"]
    assert again.shape == (1, 2, 10)
    np.testing.assert_allclose(again[0], found[[1, 1]], atol=1e-5)
    copy = AlbertForEmbedding.from_config(model.get_config())
    assert copy.pooling == pooling
