"""Loads a served model from the folder of a run or from a checkpoint."""

from __future__ import annotations

import os
from typing import NamedTuple, Optional

import tensorflow as tf

from official_albert import checkpoints, modeling, serving, training
from official_albert.tokenization import in_graph
from tasks import classification, pretraining
from tools import finetuning

ENCODER = "encoder"


class Wanted(NamedTuple):
  """The options of a served model.

  Attributes:
    checkpoint: which checkpoint of a run; see `checkpoints.find_prefix`.
    head: "" for the head of the weights, or `ENCODER` for the encoder alone.
    task: the task of a classifier in another format; see `registry.name_task`.
    with_texts: whether to create signatures that take text.
    max_seq_length: the maximum length; 0 keeps the value of the run.
    top_k: the number of predicted pieces for each mask.
    num_hidden_layers: how often shared layers are applied; 0 keeps the number.
  """

  checkpoint: str = ""
  head: str = ""
  task: str = ""
  with_texts: bool = True
  max_seq_length: int = 0
  top_k: int = 5
  num_hidden_layers: int = 0


class Source(NamedTuple):
  """A model to serve.

  Attributes:
    module: the model with its signatures.
    task: the task of a fine-tuned model, else the module's kind.
    checkpoint: the prefix or folder of the weights.
    tokenizer: None if there is none.
  """

  module: serving.ServedModule
  task: str
  checkpoint: str
  tokenizer: Optional[checkpoints.TokenizerFile]


def load_run(
  model_dir: str, config: modeling.AlbertConfig, checkpoint: str = ""
) -> tuple[Optional[finetuning.trained_run.TrainedRun], tf.keras.Model, str]:
  """Loads the model of a run of tools.run_pretraining or tools.run_finetuning.

  Args:
    model_dir: the run's folder.
    config: the encoder's configuration; its number of layers may differ from
      the run's.
    checkpoint: see `checkpoints.find_prefix`.

  Returns:
    The record of a fine-tuned run, else None; the model; and the checkpoint's
    prefix.

  Raises:
    ValueError, OSError: there is no checkpoint, or it does not fit the record.
  """
  if "task" in training.read_run(model_dir)["data"]:
    run = finetuning.trained_run.read(model_dir)
    prefix = finetuning.run.find_weights(model_dir, checkpoint)
    head = finetuning.registry.find(run.task, model_dir).head
    model = finetuning.registry.make_model(
      head, config, len(run.labels or "1"), run.settings
    )
  else:
    run = None
    prefix = checkpoints.find_prefix(model_dir, checkpoint)
    model = pretraining.AlbertForPretraining(config, name="model")
  report = training.warm_start(model, prefix)
  if report.missing:
    raise ValueError(
      f"{prefix} does not fit the record in {model_dir}: it lacks "
      f"{report.missing[0]}."
    )
  return run, model, prefix


def open_source(path: str, wanted: Wanted) -> Source:
  """Reads weights in the precision that is set for this process.

  Args:
    path: the folder of a run of tools.run_pretraining or tools.run_finetuning,
      or of several seeds of one; or as in `AlbertModel.from_checkpoint`, but
      not an archive.
    wanted: what to serve.

  Raises:
    ValueError, OSError: the weights cannot be read, or are not those of the
      wanted model.
  """
  path = checkpoints.run_folder(path)
  data = {}
  if os.path.exists(os.path.join(path, training.RECORD_FILE)):
    data = training.read_run(path)["data"]
  is_finetuned = "task" in data and wanted.task in ("", data["task"])
  # Converted folders record their head; pretraining runs do not.
  is_pretrained = data and not wanted.task and not {"task", "head"} & set(data)
  open_it = _of_run if is_finetuned or is_pretrained else _of_checkpoint
  source = open_it(path, wanted)
  tokenizer = source.tokenizer
  if tokenizer and not os.path.exists(tokenizer.path):
    return source._replace(tokenizer=None)
  if tokenizer and source.module.cls_id is None:
    source.module.cls_id = tokenizer.open().cls_id
  return source


def _of_run(path: str, wanted: Wanted) -> Source:
  config_file = os.path.join(path, training.CONFIG_FILE)
  config = modeling.AlbertConfig.from_json_file(config_file)
  config = config.at_depth(wanted.num_hidden_layers or config.num_hidden_layers)
  run, model, prefix = load_run(path, config, wanted.checkpoint)
  record = training.read_run(path)
  tokenizer = checkpoints.recorded_tokenizer(
    path, record["data"].get("tokenizer", {})
  )
  layer = _text_layer(tokenizer, wanted)
  length = wanted.max_seq_length or (
    run.max_seq_length if run else pretraining.trained_length(record, prefix)
  )
  if wanted.head == ENCODER:
    module = serving.ServedEncoder(model.albert, layer, length)
  elif run:
    module = finetuning.registry.make_served(run, model, layer, length)
  else:
    module = pretraining.ServedPretraining(model, layer, length, wanted.top_k)
  return Source(module, run.task if run else module.kind, prefix, tokenizer)


def _of_checkpoint(path: str, wanted: Wanted) -> Source:
  """Opens a checkpoint of any format, whose task may not be known."""
  kind, weights = checkpoints.choose(path, wanted.checkpoint)
  checkpoint = checkpoints.READERS[kind](weights)
  config, tokenizer = checkpoint.config, checkpoint.tokenizer
  config = config.at_depth(wanted.num_hidden_layers or config.num_hidden_layers)
  if wanted.with_texts and tokenizer is None:
    raise ValueError(
      f"there is no tokenizer beside {checkpoint.source}: put its .model or "
      "vocab.txt there, or give --signatures=ids."
    )
  layer = _text_layer(tokenizer, wanted)
  length = wanted.max_seq_length or config.max_position_embeddings
  task = wanted.task
  if wanted.head == ENCODER or checkpoint.head in ("none", "masked_lm"):
    if not checkpoint.has_pooler:
      raise ValueError(
        f"{checkpoint.source} has no pooler, whose output would be served: "
        "fine-tune it first, and export the run."
      )
    model = modeling.AlbertModel(config)
    module = serving.ServedEncoder(model, layer, length)
    task = module.kind
  elif checkpoint.head == "pretraining":
    model = pretraining.AlbertForPretraining(config)
    module = pretraining.ServedPretraining(model, layer, length, wanted.top_k)
    task = module.kind
  elif task:
    finetuning.registry.name_task(checkpoint, task)
    shapes = checkpoints.shapes_of(checkpoint.tensors)
    model = modeling.AlbertForSequenceClassification(
      config, shapes["output_weights"][0], name="model"
    )
    module = classification.ServedTextTask(
      model,
      layer,
      length,
      checkpoint.labels or None,
      "text_b" in finetuning.registry.TASKS[task].roles,
    )
  else:
    raise ValueError(
      f"{checkpoint.source} has the head {checkpoint.head}, but does not name "
      "its task: give --task, such as --task=text_classification; or "
      "--head=encoder; or the folder of the run of tools.run_finetuning."
    )
  checkpoints.fill(model, checkpoint)
  return Source(module, task, checkpoint.source, tokenizer)


def _text_layer(
  tokenizer: checkpoints.TokenizerFile, wanted: Wanted
) -> Optional[in_graph.TextLayer]:
  if not wanted.with_texts:
    return None  # With its resources, a server would need tensorflow_text.
  return in_graph.make_text_layer(
    tokenizer.kind, tokenizer.path, tokenizer.lower_case
  )
