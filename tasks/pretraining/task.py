"""Pretraining as the training loop sees it: data, model, losses, metrics.

The objective of arXiv 1909.11942: masked LM plus sentence order, weight 1
each. Reference: google-research/albert run_pretraining.py.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping, Optional

import tensorflow as tf

from official_albert import config as config_lib
from official_albert import fused_ops, objective
from tasks.pretraining import dynamic_masking
from tasks.pretraining import metrics as metrics_lib
from tasks.pretraining import model as model_lib
from tfrecords import reader, schemas

# Added to the masked LM's weight, as in the original.
_EPSILON = 1e-5


class PretrainingTask:
  """Masked LM and, unless the data has none, a sentence-pair objective.

  Implements `official_albert.objective.Task`.
  """

  name = "pretraining"

  def __init__(
    self, config: config_lib.AlbertConfig, input_dir: str, seed: int = 12345
  ):
    """Checks that data and model belong together.

    Args:
      config: the model's configuration.
      input_dir: a folder that tools.create_pretraining_data wrote.
      seed: of the order of the training examples, and of their masks if they
        are drawn while training.

    Raises:
      FileNotFoundError: the folder or one of its shards is missing.
      ValueError: the data's vocabulary, length or kind does not fit, or it is
        unmasked and does not say how to mask it.
    """
    self.config = config
    self.manifest = schemas.read_manifest(input_dir)
    self._input_dir = input_dir
    self._seed = seed
    check_compatible(config, self.manifest, input_dir)
    settings = self.manifest.settings
    self._sentence_pair = settings.get("sentence_pair", "sop") != "none"
    self._mask_train = self._mask_heldout = None
    if settings.get("masking") == "dynamic":
      from_manifest = dynamic_masking.DynamicMasking.from_manifest
      self._mask_train = from_manifest(
        self.manifest, seed, dynamic_masking.TRAIN
      )
      # The data's own seed: each evaluation of each run has the same masks.
      self._mask_heldout = from_manifest(
        self.manifest, self.manifest.random_seed, dynamic_masking.EVALUATION
      )
    self.tokens_per_example = self.manifest.max_seq_length
    # Forward, and twice that for the gradient.
    predictions = self.manifest.max_predictions_per_seq
    head = 2 * predictions * config.embedding_size
    head *= config.hidden_size + config.vocab_size
    forward = config.forward_flops(self.tokens_per_example) + head
    self.flops_per_example = 3 * forward

  def build_model(self) -> model_lib.AlbertForPretraining:
    """A model with fresh weights."""
    return model_lib.AlbertForPretraining(self.config, name="model")

  def train_dataset(
    self,
    batch_size: int,
    start_example: int,
    context: tf.distribute.InputContext = objective.ONE_PIPELINE,
  ) -> tf.data.Dataset:
    """Shuffled batches without end; see `tfrecords.reader`."""
    return reader.read_dataset(
      self._input_dir,
      "train",
      batch_size,
      seed=self._seed,
      start_example=start_example,
      transform=self._mask_train,
      context=context,
    )

  def eval_dataset(self, batch_size: int) -> tf.data.Dataset:
    """Each held-out example once; the last batch is padded."""
    return reader.read_dataset(
      self._input_dir,
      "heldout",
      batch_size,
      seed=self._seed,
      shuffle=False,
      repeat=False,
      transform=self._mask_heldout,
    )

  def loss_weights(
    self, batch: Mapping[str, tf.Tensor]
  ) -> dict[str, tf.Tensor]:
    """Masked positions (plus 1e-5) and, with a pair objective, examples."""
    weights = loss_weights(batch)
    if not self._sentence_pair:
      del weights["sentence_order"]
    return weights

  def forward(
    self,
    model: model_lib.AlbertForPretraining,
    batch: Mapping[str, tf.Tensor],
    training: bool,
    dropout_seed: Optional[tf.Tensor],
  ) -> tuple[dict[str, tf.Tensor], dict[str, objective.Ratio]]:
    """Sums of the losses, and the accuracies."""
    outputs = model(batch, training=training, dropout_seed=dropout_seed)
    totals = loss_totals(outputs, batch, compiled=training)
    metrics = metrics_lib.accuracies(outputs, batch, _example_weight(batch))
    if not self._sentence_pair:
      del totals["sentence_order"], metrics["sentence_order_accuracy"]
    return totals, metrics

  def describe(self) -> dict[str, Any]:
    """The data's fingerprint, for run.json."""
    return {
      "input_dir": self._input_dir,
      "tokenizer": dataclasses.asdict(self.manifest.tokenizer),
      "max_seq_length": self.manifest.max_seq_length,
      "shards": {
        name: [[shard.file, shard.records, shard.bytes] for shard in s.shards]
        for name, s in self.manifest.splits.items()
      },
      "random_seed": self.manifest.random_seed,
      "settings": dict(self.manifest.settings),
    }


def _example_weight(batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
  """<float32>[B], 0 for rows that only fill up the last batch."""
  weight = batch.get("example_weight")
  if weight is None:
    return tf.ones(tf.shape(batch["input_ids"])[:1])
  return weight


def loss_weights(batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
  """What `loss_totals` are divided by, <float32>[] each."""
  return {
    "masked_lm": tf.reduce_sum(batch["masked_lm_weights"]) + _EPSILON,
    "sentence_order": tf.reduce_sum(_example_weight(batch)),
  }


def loss_totals(
  outputs: Mapping[str, tf.Tensor],
  batch: Mapping[str, tf.Tensor],
  compiled: bool = False,
) -> dict[str, tf.Tensor]:
  """Summed cross entropies in nats.

  Args:
    outputs: `masked_lm_logits` <float32>[B, P, V], `sentence_order_logits`
      <float32>[B, 2].
    batch: `masked_lm_ids` <int32>[B, P], `masked_lm_weights` <float32>[B, P],
      `next_sentence_labels` <int32>[B, 1] and perhaps `example_weight`
      <float32>[B].
    compiled: whether XLA compiles what is between products.

  Returns:
    `masked_lm` and `sentence_order`, <float32>[] each.
  """
  masked_lm = fused_ops.cross_entropy(
    outputs["masked_lm_logits"], batch["masked_lm_ids"], compiled
  )
  sentence_order = fused_ops.cross_entropy(
    outputs["sentence_order_logits"], batch["next_sentence_labels"][:, 0]
  )
  return {
    "masked_lm": tf.reduce_sum(masked_lm * batch["masked_lm_weights"]),
    "sentence_order": tf.reduce_sum(sentence_order * _example_weight(batch)),
  }


def check_compatible(
  config: config_lib.AlbertConfig, manifest: schemas.Manifest, input_dir: str
) -> None:
  """Refuses data that was made for another model.

  Raises:
    ValueError: another vocabulary size, sequences beyond the position table,
      or a folder of another task.
  """
  if manifest.task != "pretraining":
    raise ValueError(
      f"{input_dir} holds {manifest.task} data, not pretraining data."
    )
  if manifest.tokenizer.vocab_size != config.vocab_size:
    raise ValueError(
      f"{input_dir} was made with a vocabulary of "
      f"{manifest.tokenizer.vocab_size} pieces, but the model has vocab_size "
      f"{config.vocab_size}: use the configuration that belongs to the data."
    )
  if manifest.max_seq_length > config.max_position_embeddings:
    raise ValueError(
      f"{input_dir} holds sequences of {manifest.max_seq_length} tokens, but "
      f"the model has only {config.max_position_embeddings} position "
      "embeddings."
    )
