"""The pretraining task for the training loop: data, model, losses, metrics.

The objective of arXiv 1909.11942 is masked LM plus sentence order, with weight
1 each. Reference: google-research/albert run_pretraining.py.
"""

from __future__ import annotations

import copy
import dataclasses
from typing import Any, Mapping, Optional

import tensorflow as tf

from official_albert import checkpoints, modeling, tfrecords
from official_albert import training as training_lib
from official_albert.tasks.common import finetuning_task
from official_albert.tasks.pretraining import dynamic_masking
from official_albert.tasks.pretraining import model as model_lib
from official_albert.tfrecords import reader


class PretrainingTask:
  """Masked LM and, if the data has one, a sentence-pair objective.

  Implements `official_albert.training.objective.Task`.

  Attributes:
    config: the configuration of the model.
    manifest: the manifest of the training data.
    input_dir, eval_dir: the folders of the training and evaluation data.
    num_layers: the number of layers to apply; None applies all.
    position_shift: in training, the first token of a batch has a random
      position from 0 to this one.
  """

  name = "pretraining"
  num_layers: Optional[int] = None
  position_shift: int = 0

  def __init__(
    self,
    config: modeling.AlbertConfig,
    input_dir: str,
    seed: int = 12345,
    eval_input_dir: str = "",
    recompute_activations: bool = False,
    masked_lm_prob: float = 0.0,
    init_neighbor_attention: bool = False,
    init_word_vectors: bool = False,
  ):
    """Checks that the data fits the model.

    Args:
      config: the configuration of the model.
      input_dir: folder written by tools.create_pretraining_data.
      seed: the seed of the order of the training examples and of dynamic masks.
      eval_input_dir: another such folder for evaluation: its held-out split, or
        all if it has none. "" uses the held-out split of `input_dir`.
      recompute_activations: see `SharedTransformerEncoder`.
      masked_lm_prob: the share of tokens to mask in training, for records
        without masks; 0 is the share in evaluation.
      init_neighbor_attention: see `initialization.attend_to_neighbors`.
      init_word_vectors: see `initialization.embed_from_text`.
    """
    self.config = config
    self.input_dir, self.eval_dir = input_dir, eval_input_dir or input_dir
    self._seed = seed
    self._recompute_activations = recompute_activations
    self._init_neighbor_attention = init_neighbor_attention
    self._init_word_vectors = init_word_vectors
    self.manifest = self._eval_manifest = _fitting_manifest(config, input_dir)
    if eval_input_dir:
      self._eval_manifest = _fitting_manifest(config, eval_input_dir)
      check_same_kind(self.manifest, self._eval_manifest, eval_input_dir)
    heldout = self._eval_manifest.splits.get("heldout")
    self._eval_split = "heldout" if heldout and heldout.records else "train"
    if self._eval_split == "train" and not eval_input_dir:
      raise ValueError(
        f"{input_dir} has no held-out examples for the evaluation: build it "
        "again with --heldout_share above 0, or set eval_input_dir to a "
        "folder of other text."
      )
    self._sentence_pair = _sentence_pair(self.manifest) != "none"
    self._mask_train = _masking(
      self.manifest, seed, dynamic_masking.TRAIN, masked_lm_prob
    )
    if masked_lm_prob and not self._mask_train:
      raise ValueError(
        f"the records in {input_dir} have masks already, so masked_lm_prob "
        "cannot be changed: leave it out, or build them again with "
        "--masking=dynamic."
      )
    # With the seed of the data, all evaluations have the same masks.
    self._mask_heldout = _masking(
      self._eval_manifest,
      self._eval_manifest.random_seed,
      dynamic_masking.EVALUATION,
    )
    self.tokens_per_example = self.manifest.max_seq_length

  @property
  def flops_per_example(self) -> int:
    """The floating-point operations of training on an example."""
    masked = self._mask_train.settings if self._mask_train else self.manifest
    depth = self.num_layers or self.config.num_hidden_layers
    return self.config.at_depth(depth).pretraining_flops(
      self.tokens_per_example, masked.max_predictions_per_seq
    )

  def at_depth(self, num_layers: int) -> PretrainingTask:
    """Returns this task with another number of layers applied."""
    task = copy.copy(self)
    task.num_layers = num_layers
    return task

  def build_model(self) -> model_lib.AlbertForPretraining:
    """Returns a model with initial weights."""
    return model_lib.AlbertForPretraining(
      self.config, self._recompute_activations, name="model"
    )

  def begin(self, model: model_lib.AlbertForPretraining) -> None:
    """Sets the initial weights that the options ask for."""
    from official_albert.tasks.pretraining import initialization  # Loads scipy.

    if self._init_neighbor_attention:
      initialization.attend_to_neighbors(model.albert)
    if self._init_word_vectors:
      initialization.embed_from_text(
        model.albert, self.input_dir, self.manifest
      )

  def train_dataset(
    self,
    batch_size: int,
    start_example: int,
    context: tf.distribute.InputContext = training_lib.ONE_PIPELINE,
  ) -> tf.data.Dataset:
    """Returns an endless dataset of shuffled batches; see `tfrecords`."""
    return reader.read_dataset(
      self.input_dir,
      "train",
      batch_size,
      manifest=self.manifest,
      seed=self._seed,
      start_example=start_example,
      transform=self._mask_train,
      context=context,
    )

  def eval_dataset(self, batch_size: int) -> tf.data.Dataset:
    """Returns each held-out example once; the last batch is padded."""
    return reader.read_dataset(
      self.eval_dir,
      self._eval_split,
      batch_size,
      manifest=self._eval_manifest,
      training=False,
      transform=self._mask_heldout,
    )

  def loss_weights(
    self, batch: Mapping[str, tf.Tensor]
  ) -> dict[str, tf.Tensor]:
    """Returns the divisors of the summed losses."""
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
  ) -> tuple[dict[str, tf.Tensor], dict[str, training_lib.Ratio]]:
    """Returns the summed losses and the accuracies."""
    first_position = None
    if training and self.position_shift:
      first_position = tf.random.stateless_uniform(
        [],
        modeling.fold_in(dropout_seed, 2),
        maxval=self.position_shift + 1,
        dtype=tf.int32,
      )
    outputs = model(
      batch,
      training=training,
      dropout_seed=dropout_seed,
      logits_only=True,
      num_layers=self.num_layers,
      first_position=first_position,
    )
    totals, metrics = losses(outputs, batch, compiled=training)
    if not self._sentence_pair:
      del totals["sentence_order"], metrics["sentence_order_accuracy"]
    return totals, metrics

  def evaluate(
    self, model: model_lib.AlbertForPretraining, batch: Mapping[str, tf.Tensor]
  ) -> tuple[dict[str, Any], dict[str, Any], dict[str, tf.Tensor]]:
    """Returns the losses and the accuracies; nothing is predicted."""
    return *self.forward(model, batch, False, None), {}

  def warm_start(
    self, model: tf.keras.Model, path: str
  ) -> checkpoints.LoadReport:
    """Reads all weights that fit; see `checkpoints.warm_start`."""
    return checkpoints.warm_start(model, path)

  def describe(self) -> dict[str, Any]:
    """Returns a description of the data for run.json."""
    described = _describe(self.input_dir, self.manifest)
    if self.eval_dir != self.input_dir:
      described["eval"] = _describe(self.eval_dir, self._eval_manifest)
    return described


def _fitting_manifest(
  config: modeling.AlbertConfig, folder: str
) -> tfrecords.Manifest:
  """Returns the manifest of a complete folder whose data fits the model."""
  manifest = tfrecords.read_manifest(folder)
  if manifest.task != "pretraining":
    raise ValueError(
      f"{folder} holds {manifest.task} data, not pretraining data."
    )
  pieces = manifest.tokenizer.vocab_size
  if pieces != config.vocab_size:
    raise ValueError(
      f"{folder} was built with a vocabulary of {pieces} pieces, but the model "
      f"has vocab_size {config.vocab_size}: give it that of the data."
    )
  has_pairs = _sentence_pair(manifest) != "none"
  config.check_fits(pieces, manifest.max_seq_length, has_pairs)
  reader.check_shards(folder, *manifest.splits.values())
  return manifest


def _sentence_pair(manifest: tfrecords.Manifest) -> str:
  return manifest.settings.get("sentence_pair", "sop")


def check_same_kind(
  first: tfrecords.Manifest, other: tfrecords.Manifest, other_dir: str
) -> None:
  """Checks that one model can use both datasets."""
  same_pairs = _sentence_pair(first) == _sentence_pair(other)
  if first.tokenizer != other.tokenizer or not same_pairs:
    raise ValueError(
      f"{other_dir} was built with another tokenizer or --sentence_pair than "
      "the other data of the run: build it again with those of the other."
    )


def _masking(
  manifest: tfrecords.Manifest, *arguments: Any
) -> Optional[dynamic_masking.DynamicMasking]:
  if manifest.settings.get("masking") != "dynamic":
    return None
  return dynamic_masking.DynamicMasking(manifest, *arguments)


def _describe(folder: str, manifest: tfrecords.Manifest) -> dict[str, Any]:
  return {
    "input_dir": folder,
    "tokenizer": dataclasses.asdict(manifest.tokenizer),
    "max_seq_length": manifest.max_seq_length,
    "shards": {
      name: [[shard.file, shard.records, shard.bytes] for shard in s.shards]
      for name, s in manifest.splits.items()
    },
    "random_seed": manifest.random_seed,
    "settings": dict(manifest.settings),
  }


def loss_weights(batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
  """Returns the divisors of `losses`, <float32>[] each.

  They are the number of masked positions plus 1e-5, as in the original, and the
  number of examples.
  """
  return {
    "masked_lm": tf.reduce_sum(batch["masked_lm_weights"]) + 1e-5,
    "sentence_order": tf.reduce_sum(batch["example_weight"]),
  }


def losses(
  outputs: Mapping[str, tf.Tensor],
  batch: Mapping[str, tf.Tensor],
  compiled: bool = False,
) -> tuple[dict[str, tf.Tensor], dict[str, training_lib.Ratio]]:
  """Returns the summed cross entropies in nats, <float32>[], and accuracies.

  Args:
    outputs: the logits of `AlbertForPretraining`.
    batch: `masked_lm_ids` <int32>[B, P], `masked_lm_weights` <float32>[B, P],
      `next_sentence_labels` <int32>[B, 1], and `example_weight` <float32>[B],
      0 for padding rows of the last batch.
    compiled: whether XLA compiles the element-wise operations.
  """
  totals, metrics = {}, {}
  for name, labels, weights, is_compiled in (
    ("masked_lm", batch["masked_lm_ids"], batch["masked_lm_weights"], compiled),
    (
      "sentence_order",
      batch["next_sentence_labels"][:, 0],
      batch["example_weight"],
      False,
    ),
  ):
    logits = outputs[f"{name}_logits"]
    each = modeling.cross_entropy(logits, labels, is_compiled)
    totals[name] = tf.reduce_sum(each * weights)
    metrics[f"{name}_accuracy"] = finetuning_task.accuracy_sums(
      logits, labels, weights
    )
  return totals, metrics
