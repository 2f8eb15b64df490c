"""Served models from the folder of a run or from a checkpoint."""

from __future__ import annotations

import os
from typing import NamedTuple, Optional

from official_albert import checkpoints, modeling, serving, training
from official_albert.tokenization import in_graph
from tasks import common, pretraining
from tools import finetuning

ENCODER = "encoder"
# Values of `Wanted.head`: the head of the weights, or the encoder alone.
HEADS = ("", ENCODER)


class Wanted(NamedTuple):
  """What to serve.

  Attributes:
    checkpoint: which checkpoint of a run, as in `checkpoints.find_prefix`.
    head: one of `HEADS`.
    task: of a classifier in another format, see `text_jobs.name_task`.
    with_texts: whether to have signatures that take text.
    max_seq_length: 0 keeps the run's.
    top_k: number of predicted pieces for each mask.
    num_hidden_layers: how often shared layers are applied; 0 keeps the number.
  """

  checkpoint: str = ""
  head: str = ""
  task: str = ""
  with_texts: bool = True
  max_seq_length: int = 0
  top_k: int = 5
  num_hidden_layers: int = 0

  def at_depth(self, config: modeling.AlbertConfig):
    """Returns the configuration with the wanted number of layers.

    Raises:
      ValueError: the layers are not shared, so their number cannot change.
    """
    depth = self.num_hidden_layers
    return config.at_depth(depth) if depth else config


class Source(NamedTuple):
  """A model to be served.

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
  if "task" in data and wanted.task in ("", data["task"]):
    return _finetuned(path, data, wanted)
  # Converted folders record their head; pretraining runs do not.
  if data and "head" not in data and not wanted.task:
    return _pretrained(path, wanted)
  return _portable(path, wanted)


def _finetuned(path: str, data, wanted: Wanted) -> Source:
  run = finetuning.trained_run.read(path)
  config = modeling.AlbertConfig.from_json_file(
    os.path.join(path, training.CONFIG_FILE)
  )
  config = wanted.at_depth(config)
  checkpoint = finetuning.run.find_weights(path, wanted.checkpoint)
  kind = finetuning.registry.find(run.task, run.model_dir)
  model = finetuning.registry.make_model(
    kind.head, config, len(run.labels or "1"), run.settings
  )
  report = training.warm_start(model, checkpoint)
  if report.missing:
    raise ValueError(
      f"{checkpoint} is not a checkpoint of {run.task}: it lacks "
      f"{report.missing[0]}."
    )
  tokenizer = checkpoints.recorded_tokenizer(path, data.get("tokenizer", {}))
  layer = _text_layer(tokenizer, wanted)
  length = wanted.max_seq_length or run.max_seq_length
  if wanted.head == ENCODER:
    module = serving.ServedEncoder(model.albert, layer, length)
  else:
    module = finetuning.registry.make_served(run, model, layer, length)
  return _source(module, run.task, checkpoint, tokenizer)


def _pretrained(path: str, wanted: Wanted) -> Source:
  run = pretraining.open_run(path, wanted.checkpoint, wanted.num_hidden_layers)
  layer = _text_layer(run.tokenizer, wanted)
  length = wanted.max_seq_length or run.max_seq_length
  if wanted.head == ENCODER:
    module = serving.ServedEncoder(run.model.albert, layer, length)
  else:
    module = pretraining.ServedPretraining(
      run.model, layer, length, wanted.top_k
    )
  return _source(module, module.kind, run.path, run.tokenizer)


def _portable(path: str, wanted: Wanted) -> Source:
  """Opens a checkpoint of any format, whose task may not be known."""
  kind, weights = checkpoints.choose(path, wanted.checkpoint)
  checkpoint = checkpoints.READERS[kind](weights)
  config = wanted.at_depth(checkpoint.config)
  tokenizer = checkpoint.tokenizer
  if wanted.with_texts and tokenizer is None:
    raise ValueError(
      f"there is no tokenizer beside {checkpoint.source}: put its .model or "
      "vocab.txt there, or give --signatures=ids."
    )
  layer = _text_layer(tokenizer, wanted)
  length = wanted.max_seq_length or config.max_position_embeddings
  task = ""
  if checkpoint.head == "pretraining" and wanted.head != ENCODER:
    model = pretraining.AlbertForPretraining(config)
    module = pretraining.ServedPretraining(model, layer, length, wanted.top_k)
  elif checkpoint.head in ("none", "masked_lm") or wanted.head == ENCODER:
    if not checkpoint.has_pooler:
      raise ValueError(
        f"{checkpoint.source} has no pooler, whose output would be served: "
        "fine-tune it first, and export the run."
      )
    model = modeling.AlbertModel(config)
    module = serving.ServedEncoder(model, layer, length)
  elif wanted.task:
    task = wanted.task
    finetuning.text_jobs.name_task(checkpoint, task)
    shapes = checkpoints.shapes_of(checkpoint.tensors)
    model = modeling.AlbertForSequenceClassification(
      config, shapes["output_weights"][0], name="model"
    )
    module = common.ServedTextTask(
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
  return _source(module, task or module.kind, checkpoint.source, tokenizer)


def _text_layer(
  tokenizer: Optional[checkpoints.TokenizerFile], wanted: Wanted
) -> Optional[in_graph.TextLayer]:
  if not wanted.with_texts:
    return None  # With its resources, a server would need tensorflow_text.
  return in_graph.make_text_layer(
    tokenizer.kind, tokenizer.path, tokenizer.lower_case
  )


def _source(
  module: serving.ServedModule,
  task: str,
  checkpoint: str,
  tokenizer: Optional[checkpoints.TokenizerFile],
) -> Source:
  if tokenizer and not os.path.exists(tokenizer.path):
    tokenizer = None
  if tokenizer and module.cls_id is None:
    module.cls_id = tokenizer.open().cls_id
  return Source(module, task, checkpoint, tokenizer)
