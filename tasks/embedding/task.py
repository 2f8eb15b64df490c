"""Training of embeddings as a task of the training loop.

In Sentence-BERT (arXiv 1908.10084), a text and one that belongs to it get
similar vectors. The other texts of the batch are examples of those that do not
belong; scores say how similar two texts are.

Letters: B examples, C candidates, K texts of an example, H numbers of a vector.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Iterator, Sequence

import numpy as np
import tensorflow as tf

from official_albert import (
  checkpoints,
  files,
  modeling,
  tfrecords,
  tokenization,
)
from official_albert.settings import check_number
from official_albert.tasks import common
from official_albert.tasks.common import finetuning_task, own_files
from official_albert.tasks.embedding import examples as examples_lib
from official_albert.tasks.embedding.examples import PAIRS, SCORES, TRIPLETS
from official_albert.tasks.embedding.model import AlbertForEmbedding
from official_albert.train_config import whole_numbers

# The metric that selects a checkpoint, by the form of the evaluated data.
_METRICS = {SCORES: "spearman", TRIPLETS: "accuracy", PAIRS: "mrr"}
_ROWS = 1024  # Of the cosines of all texts with all others, in memory.
_NEVER = -1e9  # The score of a candidate that does not count.


class EmbeddingTask(own_files.OwnFiles):
  """Vectors of texts, from the user's own tables; see `examples`."""

  recipe = examples_lib.Recipe(
    2e-5, 32, 0, 0, max_seq_length=128, num_train_epochs=3.0
  )
  has_pairs = False
  # A batch of one length would teach less: a point of Spearman on STS-B.
  window_updates = 1
  head = checkpoints.Head("embedding")

  def __init__(self, name: str, options: common.TaskOptions):
    super().__init__(name, options)
    # The columns by path, and those that it lacks.
    self._found: dict[str, tuple[dict[str, str], list[str]]] = {}

  @property
  def _columns(self) -> dict[str, str]:
    return {**self.options.columns, "text_c": self.options.text_c_column}

  def _columns_of(self, split: str) -> tuple[dict[str, str], list[str]]:
    path = self.sources(split)[0]
    if path not in self._found:
      optional = "text_c", "label", "id"
      found = own_files.find_columns(path, self._columns, optional)
      self._found[path] = found
    return self._found[path]

  def form(self, split: str) -> str:
    """Returns what the rows of a split are; see `examples.form_of`."""
    found, _ = self._columns_of(split)
    return examples_lib.form_of(self.sources(split)[0], found)

  @property
  def best_metric(self) -> str:  # type: ignore[override]
    splits = (*self.eval_splits, *self.test_splits)
    evaluated = next(filter(self.has_split, splits), self.eval_split)
    return _METRICS[self.form(evaluated)]

  @property
  def sequences_per_example(self) -> int:  # type: ignore[override]
    """K, the number of texts of an example; some files may have fewer."""
    splits = [x for x in ("train", "dev", "test") if self.options.file_of(x)]
    return 3 if any(self.form(x) == TRIPLETS for x in splits) else 2

  def read_file(
    self, split: str, path: str, invalid: common.InvalidRows
  ) -> Sequence[examples_lib.Example]:
    (found, absent), form = self._columns_of(split), self.form(split)
    self.finds_ids |= "id" in found

    def score(record):
      label = common.plain_cell(record, found["label"]).strip()
      common.check_label(record.where, label, None)
      return float(label)

    examples = own_files.read_examples(
      path,
      (found, absent),
      invalid,
      score if form == SCORES else None,
      kind=examples_lib.Example,
    )
    if split == "train" and examples:
      examples_lib.check_varied(path, form, examples)
    return examples

  def check(self, splits: Sequence[str]) -> None:
    """Also says what the training rows are, which decides about the loss."""
    super().check(splits)
    if "train" not in splits:
      return
    found = {role for x in splits for role in self._columns_of(x)[0]}
    for role, usual in (("label", "label"), ("text_c", "text_c")):
      if (name := self._columns[role]) != usual and role not in found:
        raise ValueError(f"--{role}_column={name}: none of the files has it.")
    self.options.note(
      f"{self.sources('train')[0]}: the rows are {self.form('train')}; those "
      "with scores have a column --label_column, triplets --text_c_column"
    )

  def is_labeled(self, split: str) -> bool:
    if split in self.eval_splits or self.form(split) != PAIRS:
      return True
    # Where others are scored, pairs without scores need not belong together.
    others = [x for x in ("train", "dev") if self.options.file_of(x)]
    return SCORES not in (self.options.trained_on, *map(self.form, others))

  def schema(self) -> tuple[tfrecords.Feature, ...]:
    shape = self.sequences_per_example, self.max_seq_length
    score = tfrecords.Feature("label_ids", "float32", ())
    return tfrecords.finetuning_schema(shape, score)

  def features(self, split: str) -> Iterator[dict[str, Any]]:
    tokenizer, count = self.options.tokenizer, self.sequences_per_example
    for example in self.examples(split):
      encoded = map(tokenizer.encode, [*example.texts, ""][:count])
      ends = tokenizer.cls_id, tokenizer.sep_id
      sequences = [
        tokenization.pack_pair(ids, None, self.max_seq_length, *ends)
        for ids in encoded
      ]
      yield {
        "input_ids": [ids for ids, _ in sequences],
        "segment_ids": [segments for _, segments in sequences],
        "label_ids": example.label or 0.0,
      }

  def record_settings(self, split: str) -> dict[str, Any]:
    return {**super().record_settings(split), "columns": self._columns}

  def on_records(self, records: Any, config: Any, seed: int = 12345) -> Any:
    task = super().on_records(records, config, seed)
    for name, most in (
      ("embedding_dims", config.hidden_size),
      ("embedding_depths", config.num_hidden_layers),
    ):
      for number in self._numbers(name):
        check_number(f"--{name}", number, least=1, most=most)
    return task

  def _numbers(self, name: str) -> tuple[int, ...]:
    """Returns the numbers of a field of the recipe."""
    text = getattr(self.recipe, name)
    return whole_numbers(f"--{name}", text) if text else ()

  def build_model(self) -> AlbertForEmbedding:
    return AlbertForEmbedding(
      self.config, self.recipe.pooling, **self.model_options()
    )

  @property
  def call_options(self) -> dict[str, Any]:  # type: ignore[override]
    depths = self._numbers("embedding_depths")
    most = self.num_layers or self.config.num_hidden_layers
    return {"depths": [depth for depth in depths if depth < most]}

  def losses(
    self, model: tf.keras.Model, outputs: Any, batch: Any, training: bool
  ) -> finetuning_task.Losses:
    """Returns the mean over the trained depths and dimensions."""
    form = self.form("train" if training else self.eval_split)
    if training and form != TRIPLETS and batch["label_ids"].shape[0] == 1:
      raise ValueError(
        "a batch of one row has no other rows to compare it with: give a "
        "larger --train_batch_size, for each device and micro-batch."
      )
    width = self.config.hidden_size
    widths = self._numbers("embedding_dims")
    values = [
      self._loss(form, vectors[..., :size], batch)
      for vectors in (outputs["embedding"], *outputs.get("embeddings", ()))
      for size in dict.fromkeys((width, *widths))
    ]
    return {self.name: tf.add_n(values) / len(values)}, {}

  def _loss(self, form: str, vectors: tf.Tensor, batch: Any) -> tf.Tensor:
    """Returns the sum over the examples, for vectors <float32>[B, K, H]."""
    scale, weights = self.recipe.similarity_scale, batch["example_weight"]
    first, second = vectors[:, 0], vectors[:, 1]
    if form == SCORES:
      first, second = (tf.math.l2_normalize(x, -1) for x in (first, second))
      found = tf.reduce_sum(first * second, -1)
      loss = _order(found, batch["label_ids"], scale, weights)
      return loss * tf.reduce_sum(weights)
    ids, count = batch["input_ids"], 3 if form == TRIPLETS else 2
    others = tf.concat(tf.unstack(vectors[:, 1:count], axis=1), 0)  # [C, H]
    other_ids = tf.concat(tf.unstack(ids[:, 1:count], axis=1), 0)  # [C, S]
    # A batch may have a text several times; so others belong to it, too.
    same_first = tf.pad(
      _equal(ids[:, 0], ids[:, 0]),
      [[0, 0], [0, (count - 2) * tf.shape(ids)[0]]],
    )
    same = _equal(ids[:, 1], other_ids) | same_first
    counts = ~same & (tf.tile(weights, [count - 1]) > 0)
    found = _cosines(first, others)
    return tf.reduce_sum(_contrastive(found, scale, counts) * weights)

  def predictions(
    self, model: tf.keras.Model, outputs: Any, batch: Any
  ) -> dict[str, tf.Tensor]:
    """Returns the vectors of length 1, <float32>[B, K, H]."""
    vectors = tf.math.l2_normalize(outputs["embedding"], -1)
    return {"example_id": batch["example_id"], "vectors": vectors}

  def answers(self, split: str, predictions: Any) -> np.ndarray:
    """Returns the vectors <float32>[N, K, H]."""
    return predictions["vectors"]

  def score_answers(self, split: str, answers: np.ndarray) -> dict[str, float]:
    """Returns metrics of the cosines.

    Of scores, the correlations with them; of triplets, the accuracy with which
    the text that belongs is more similar; of pairs, how often the text that
    belongs is more similar than all others, and the mean of 1 / its rank.
    """
    form, found = self.form(split), _similarities(answers)
    first, second, *others = np.moveaxis(answers, 1, 0)
    if form == SCORES:
      from scipy import stats  # It takes long.

      scores = [example.label for example in self.examples(split)]
      if np.ptp(found) == 0 or np.ptp(scores) == 0:
        return {"spearman": 0.0, "pearson": 0.0}  # SciPy's are nan.
      return {
        "spearman": float(stats.spearmanr(found, scores).statistic),
        "pearson": float(stats.pearsonr(found, scores).statistic),
      }
    if form == TRIPLETS:
      wrong = np.sum(first * others[0], -1)
      return {"accuracy": float(np.mean(found > wrong))}
    # Equal texts are one; others count if they are as similar. Otherwise, a
    # model with one vector for all texts would be perfect.
    texts = [own_files.normalize(x.texts[1]) for x in self.examples(split)]
    _, text_of = np.unique(texts, return_inverse=True)
    ranks = np.ones(len(first))
    for start in range(0, len(first), _ROWS):
      part = slice(start, start + _ROWS)
      closer = first[part] @ second.T > found[part, None] - 1e-6
      ranks[part] += (closer & (text_of[part, None] != text_of)).sum(axis=1)
    return {
      "mrr": float(np.mean(1 / ranks)),
      "accuracy_at_1": float(np.mean(ranks == 1)),
    }

  def write_answers(
    self, split: str, answers: np.ndarray, folder: str
  ) -> list[str]:
    """Writes `SPLIT.similarities.tsv`, the cosine of each row's two texts."""
    path = os.path.join(folder, f"{split}.similarities.tsv")
    lines = ["id\tsimilarity\n"]
    for example, value in zip(self.examples(split), _similarities(answers)):
      lines.append(f"{example.guid}\t{value:.9g}\n")
    files.write_text(path, "".join(lines))
    return [path]

  def describe(self) -> dict[str, Any]:
    described = super().describe()
    described["settings"] |= dataclasses.asdict(
      modeling.Pooling(self.recipe.pooling, self.recipe.normalize)
    )
    if "train" in self.records:
      described["settings"]["trained_on"] = self.form("train")
    return described

  def model_settings(self) -> dict[str, Any]:
    names = ("similarity_scale", "embedding_dims", "embedding_depths")
    settings = {name: getattr(self.recipe, name) for name in names}
    return {**super().model_settings(), **settings}


def _equal(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
  """Returns which texts are equal: <bool>[B, C] of <int>[B, S] and [C, S]."""
  return tf.reduce_all(a[:, None] == b[None], -1)


def _similarities(vectors: np.ndarray) -> np.ndarray:
  """Returns the cosines <float>[N] of the first two vectors of length 1."""
  return np.sum(vectors[:, 0] * vectors[:, 1], -1)


def _cosines(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
  """Returns the cosines <float32>[B, C] of <float32>[B, H] and [C, H]."""
  a, b = (tf.math.l2_normalize(x, -1) for x in (a, b))
  return tf.matmul(a, b, transpose_b=True)


def _contrastive(
  found: tf.Tensor, scale: float, counts: tf.Tensor
) -> tf.Tensor:
  """Returns the cross entropy <float32>[B] of each text's own candidate.

  Candidate i belongs to text i; all others count as wrong (InfoNCE, arXiv
  1807.03748, with the batch's other texts as in arXiv 1705.00652).

  Args:
    found: the cosines <float32>[B, C], with C = B, or more for candidates that
      belong to no text.
    scale: their factor.
    counts: <bool>[B, C], whether a candidate counts for a text; its own always
      does.
  """
  rows = tf.shape(found)[0]
  own = tf.eye(rows, tf.shape(found)[1], dtype=tf.bool)
  logits = tf.where(counts | own, scale * found, _NEVER)
  return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(rows), logits)


def _order(
  found: tf.Tensor, scores: tf.Tensor, scale: float, weights: tf.Tensor
) -> tf.Tensor:
  """Returns the loss <float32>[] of pairs whose cosines are in wrong order.

  It is log(1 + sum of exp(scale * (cosine i - cosine j))) over all i and j of
  which i has the lower score (CoSENT, kexue.fm/archives/8847).

  Args:
    found: the cosine of each pair of texts, <float32>[B].
    scores: how similar they are, <float32>[B].
    scale: the factor of cosines.
    weights: 1 for pairs and 0 for padding, <float32>[B].
  """
  is_lower = scores[:, None] < scores[None, :]
  counts = is_lower & (weights[:, None] * weights[None, :] > 0)
  logits = scale * (found[:, None] - found[None, :])
  logits = tf.reshape(tf.where(counts, logits, _NEVER), [-1])
  return tf.reduce_logsumexp(tf.concat([[0.0], logits], 0))
