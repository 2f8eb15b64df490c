"""Pretraining as the training loop sees it: data, model, losses, metrics.

The objective of arXiv 1909.11942: masked LM plus sentence order, weight 1
each. Reference: google-research/albert run_pretraining.py.
"""

from __future__ import annotations

import copy
import dataclasses
from typing import Any, Mapping, Optional, Sequence

import tensorflow as tf

import tfrecords
from official_albert import modeling
from official_albert import training as training_lib
from tasks.pretraining import dynamic_masking, recipes
from tasks.pretraining import model as model_lib

# Added to the masked LM's weight, as in the original.
_EPSILON = 1e-5


class PretrainingTask:
  """Masked LM and, unless the data has none, a sentence-pair objective.

  Implements `official_albert.training.objective.Task`.

  Attributes:
    config, manifest: the model's configuration and what its data says.
    input_dir, eval_dir: the folders that it trains and is evaluated on.
    num_layers: how many layers of the model it applies; None: all.
  """

  name = "pretraining"
  num_layers: Optional[int] = None

  def __init__(
    self,
    config: modeling.AlbertConfig,
    input_dir: str,
    seed: int = 12345,
    eval_input_dir: str = "",
    recompute_activations: bool = False,
  ):
    """Checks that data and model belong together.

    Args:
      config: the model's configuration.
      input_dir: a folder that tools.create_pretraining_data wrote.
      seed: of the order of the training examples, and of their masks if they
        are drawn while training.
      eval_input_dir: another such folder to evaluate on: its held-out split,
        or all of it if it has none. "": the held-out split of `input_dir`.
      recompute_activations: see `SharedTransformerEncoder`.

    Raises:
      FileNotFoundError: a folder or one of its shards is missing.
      ValueError: the data's vocabulary, length or kind does not fit, it is
        unmasked and does not say how to mask it, or nothing is held out.
    """
    self.config = config
    self.manifest = tfrecords.read_manifest(input_dir)
    self.input_dir = input_dir
    self._seed = seed
    self._recompute_activations = recompute_activations
    check_compatible(config, self.manifest, input_dir)
    self.eval_dir, self._eval_manifest = input_dir, self.manifest
    if eval_input_dir:
      self.eval_dir = eval_input_dir
      self._eval_manifest = tfrecords.read_manifest(eval_input_dir)
      check_compatible(config, self._eval_manifest, eval_input_dir)
      check_same_kind(
        self.manifest, input_dir, self._eval_manifest, eval_input_dir
      )
    self._eval_split = "heldout"
    if not _records(self._eval_manifest, "heldout"):
      self._eval_split = "train"
      if not eval_input_dir:
        raise ValueError(
          f"{input_dir} has no held-out examples to evaluate on: make it again "
          "with --heldout_share above 0, or name a folder of other text as the "
          "eval_input_dir."
        )
    self._sentence_pair = (
      self.manifest.settings.get("sentence_pair", "sop") != "none"
    )
    self._mask_train = self._mask_heldout = None
    from_manifest = dynamic_masking.DynamicMasking.from_manifest
    if self.manifest.settings.get("masking") == "dynamic":
      self._mask_train = from_manifest(
        self.manifest, seed, dynamic_masking.TRAIN
      )
    if self._eval_manifest.settings.get("masking") == "dynamic":
      # The data's own seed: each evaluation of each run has the same masks.
      self._mask_heldout = from_manifest(
        self._eval_manifest,
        self._eval_manifest.random_seed,
        dynamic_masking.EVALUATION,
      )
    self.tokens_per_example = self.manifest.max_seq_length
    self.flops_per_example = self._flops(config)

  def _flops(self, config: modeling.AlbertConfig) -> int:
    return recipes.training_flops(
      config, self.tokens_per_example, self.manifest.max_predictions_per_seq
    )

  def at_depth(self, num_layers: int) -> PretrainingTask:
    """The same data and model, with its layers applied so many times.

    Raises:
      ValueError: the model has no other depth than its own.
    """
    task = copy.copy(self)
    task.num_layers = num_layers
    task.flops_per_example = self._flops(self.config.at_depth(num_layers))
    return task

  def build_model(self) -> model_lib.AlbertForPretraining:
    """A model with fresh weights."""
    return model_lib.AlbertForPretraining(
      self.config, self._recompute_activations, name="model"
    )

  def train_dataset(
    self,
    batch_size: int,
    start_example: int,
    context: tf.distribute.InputContext = training_lib.ONE_PIPELINE,
  ) -> tf.data.Dataset:
    """Shuffled batches without end; see `tfrecords.reader`."""
    return tfrecords.read_dataset(
      self.input_dir,
      "train",
      batch_size,
      seed=self._seed,
      start_example=start_example,
      transform=self._mask_train,
      context=context,
    )

  def eval_dataset(self, batch_size: int) -> tf.data.Dataset:
    """Each held-out example once; the last batch is padded."""
    return tfrecords.read_dataset(
      self.eval_dir,
      self._eval_split,
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
  ) -> tuple[dict[str, tf.Tensor], dict[str, training_lib.Ratio]]:
    """Sums of the losses, and the accuracies."""
    outputs = model(
      batch,
      training=training,
      dropout_seed=dropout_seed,
      logits_only=True,
      num_layers=self.num_layers,
    )
    totals = loss_totals(outputs, batch, compiled=training)
    metrics = accuracies(outputs, batch, _example_weight(batch))
    if not self._sentence_pair:
      del totals["sentence_order"], metrics["sentence_order_accuracy"]
    return totals, metrics

  def describe(self) -> dict[str, Any]:
    """The data's fingerprint, for run.json."""
    described = _describe(self.input_dir, self.manifest)
    if self.eval_dir != self.input_dir:
      described["eval"] = _describe(self.eval_dir, self._eval_manifest)
    return described


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


def _records(manifest: tfrecords.Manifest, split: str) -> int:
  return manifest.splits[split].records if split in manifest.splits else 0


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
  masked_lm = modeling.cross_entropy(
    outputs["masked_lm_logits"], batch["masked_lm_ids"], compiled
  )
  sentence_order = modeling.cross_entropy(
    outputs["sentence_order_logits"], batch["next_sentence_labels"][:, 0]
  )
  return {
    "masked_lm": tf.reduce_sum(masked_lm * batch["masked_lm_weights"]),
    "sentence_order": tf.reduce_sum(sentence_order * _example_weight(batch)),
  }


def check_compatible(
  config: modeling.AlbertConfig, manifest: tfrecords.Manifest, input_dir: str
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


def check_same_kind(
  first: tfrecords.Manifest,
  first_dir: str,
  other: tfrecords.Manifest,
  other_dir: str,
) -> None:
  """Refuses to use data together that one model cannot mean the same by.

  Raises:
    ValueError: the tokenizers or the objectives differ.
  """
  if first.tokenizer != other.tokenizer:
    raise ValueError(
      f"{other_dir} was made with another tokenizer than {first_dir}: its ids "
      "mean other pieces; make one of them again with the other's tokenizer."
    )
  pairs = [m.settings.get("sentence_pair", "sop") for m in (first, other)]
  if pairs[0] != pairs[1]:
    raise ValueError(
      f"{other_dir} was made with --sentence_pair={pairs[1]}, but {first_dir} "
      f"with --sentence_pair={pairs[0]}: make one of them again like the other."
    )


def accuracies(
  outputs: Mapping[str, tf.Tensor],
  batch: Mapping[str, tf.Tensor],
  example_weight: tf.Tensor,
) -> dict[str, training_lib.Ratio]:
  """Shares of right answers, as sums and weights.

  Args:
    outputs: `masked_lm_logits` <float32>[B, P, V], `sentence_order_logits`
      <float32>[B, 2].
    batch: `masked_lm_ids` <int32>[B, P], `masked_lm_weights` <float32>[B, P]
      (0 for padding, which does not count), `next_sentence_labels`
      <int32>[B, 1].
    example_weight: <float32>[B], 0 for rows that only fill up a batch.

  Returns:
    `masked_lm_accuracy` and `sentence_order_accuracy`.
  """

  def ratio(logits, labels, weights) -> training_lib.Ratio:
    right = tf.argmax(logits, -1, output_type=labels.dtype) == labels
    return training_lib.Ratio(
      tf.reduce_sum(tf.cast(right, tf.float32) * weights),
      tf.reduce_sum(weights),
    )

  return {
    "masked_lm_accuracy": ratio(
      outputs["masked_lm_logits"],
      batch["masked_lm_ids"],
      batch["masked_lm_weights"],
    ),
    "sentence_order_accuracy": ratio(
      outputs["sentence_order_logits"],
      batch["next_sentence_labels"][:, 0],
      example_weight,
    ),
  }


def make_tasks(
  config: modeling.AlbertConfig,
  input_dirs: Sequence[str],
  seed: int,
  eval_input_dirs: Sequence[str] = (),
  recompute_activations: bool = False,
) -> list[PretrainingTask]:
  """One task for each phase of a run; all of their data is looked at.

  Attention costs the square of the length, and most of what a model learns
  needs no long context. BERT (arXiv 1810.04805, appendix A.2) therefore spends
  90% of its steps on 128 tokens and the rest on 512, for the positions beyond
  128. The model is the same; each phase has its own folder of records.

  Args:
    config: the model's configuration.
    input_dirs: the phases' folders.
    seed: see `PretrainingTask`.
    eval_input_dirs: none, one for all phases, or one for each.
    recompute_activations: see `SharedTransformerEncoder`.

  Raises:
    FileNotFoundError: a folder or one of its shards is missing.
    ValueError: a folder does not fit the model, or was made otherwise than
      the first: with another tokenizer or objective.
  """
  if len(eval_input_dirs) not in (0, 1, len(input_dirs)):
    raise ValueError(
      f"there are {len(eval_input_dirs)} folders to evaluate on, but "
      f"{len(input_dirs)} phases: give one for all, or one for each."
    )
  eval_dirs = list(eval_input_dirs) or [""]
  if len(eval_dirs) == 1:
    eval_dirs *= len(input_dirs)
  tasks = [
    PretrainingTask(config, folder, seed, eval_dir, recompute_activations)
    for folder, eval_dir in zip(input_dirs, eval_dirs)
  ]
  first = tasks[0].manifest
  for task, folder in zip(tasks, input_dirs):
    check_same_kind(first, input_dirs[0], task.manifest, folder)
    for split in task.manifest.splits.values():
      tfrecords.check_shards(folder, split.shards)
  return tasks


def at_depths(
  task: PretrainingTask, depths: Sequence[int]
) -> list[PretrainingTask]:
  """One task for each stretch of a depth schedule, all on the same data.

  The layers are applied fewer times at first (arXiv 1909.11942, Table 11,
  trains deep models from shallow ones).

  Raises:
    ValueError: the model has no other depth than its own, or the last depth
      is not that.
  """
  own = task.config.num_hidden_layers
  if depths[-1] != own:
    raise ValueError(
      f"a depth schedule has to end at the model's num_hidden_layers {own}, "
      f"but it ends at {depths[-1]}: give {own} as its last depth."
    )
  return [task.at_depth(depth) for depth in depths]
