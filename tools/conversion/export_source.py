"""From the folder of a run, or a converted checkpoint, to what is served."""

from __future__ import annotations

import dataclasses
import os
from typing import NamedTuple, Optional

import tensorflow as tf

from official_albert import (
  checkpoints,
  modeling,
  serving,
  training,
)
from official_albert.tokenization import in_graph
from tasks import common, pretraining, race, squad
from tasks.classification import glue
from tools import finetuning, prediction

ENCODER = "encoder"
# What `head` may be: all that the weights have, or the encoder alone.
HEADS = ("", ENCODER)
_SQUAD = {"squad_v1": "squad1", "squad_v2": "squad2"}


class Wanted(NamedTuple):
  """What to make of the weights.

  Attributes:
    checkpoint: of a run: "latest", "best", or a prefix; "": the best there is.
    head: one of `HEADS`.
    task: of a classifier of another format, see `text_jobs.name_task`.
    with_texts: whether signatures of texts are wanted.
    max_seq_length: 0: as trained.
    top_k: pieces for each mask.
    num_hidden_layers: how many times shared layers are applied; 0: as trained.
  """

  checkpoint: str = ""
  head: str = ""
  task: str = ""
  with_texts: bool = True
  max_seq_length: int = 0
  top_k: int = 5
  num_hidden_layers: int = 0

  def at_depth(self, config: modeling.AlbertConfig):
    """A model's configuration with the depth that is wanted.

    Raises:
      ValueError: it has no such depth.
    """
    depth = self.num_hidden_layers
    return config.at_depth(depth) if depth else config


class Source(NamedTuple):
  """Weights and what belongs to them.

  Attributes:
    module: what is served.
    task: the fine-tuned task, or the kind.
    checkpoint: the weights' prefix or folder.
    tokenizer: None if there is none.
  """

  module: serving.ServedModule
  task: str
  checkpoint: str
  tokenizer: Optional[checkpoints.TokenizerFile]


def open_source(path: str, wanted: Wanted) -> Source:
  """Reads weights, in the precision that the process computes in.

  Args:
    path: the folder of a run of tools.run_pretraining or tools.run_finetuning,
      or of several seeds of one; or whatever `AlbertModel.from_checkpoint`
      reads, but no archive.
    wanted: what to make of it.

  Raises:
    ValueError, OSError: it is none of these, or does not fit what is wanted.
  """
  path = checkpoints.run_folder(path)
  data = {}
  if os.path.exists(os.path.join(path, training.RECORD_FILE)):
    data = training.read_run(path)["data"]
  if "task" in data and wanted.task in ("", data["task"]):
    return _finetuned(path, data, wanted)
  # A conversion into a folder of ours says which head it has.
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
  model = _make_model(run, config)
  report = training.warm_start(model, checkpoint)
  if report.missing:
    raise ValueError(
      f"{checkpoint} is no checkpoint of {run.task}: it lacks "
      f"{report.missing[0]}."
    )
  tokenizer = checkpoints.recorded_tokenizer(path, data.get("tokenizer", {}))
  layer = _text_layer(tokenizer, wanted)
  length = wanted.max_seq_length or run.max_seq_length
  if wanted.head == ENCODER:
    module = serving.ServedEncoder(model.albert, layer, length)
  elif run.task in _SQUAD:
    # Imported here: nobody else needs its tokenizer with offsets.

    module = squad.served_squad(
      model, layer, length, run.settings, run.null_score_diff_threshold
    )
  elif run.task == "race":
    module = race.ServedMultipleChoice(
      model, layer, length, run.settings["max_qa_length"]
    )
  else:
    module = common.ServedTextTask(
      model,
      layer,
      length,
      run.labels,
      "text_b" in prediction.ids.roles_of(run.task),
    )
  return _source(module, run.task, checkpoint, tokenizer)


def _make_model(
  run: finetuning.trained_run.TrainedRun, config: modeling.AlbertConfig
) -> tf.keras.Model:
  """The model of a fine-tuned run, with fresh weights."""
  if run.task == "squad_v1":
    return squad.AlbertForSpans(config, name="model")
  if run.task == "squad_v2":
    recipe = squad.RECIPES[run.task]
    return squad.AlbertForSpansOrNone(
      config,
      run.settings.get("start_n_top", recipe.start_n_top),
      run.settings.get("end_n_top", recipe.end_n_top),
      name="model",
    )
  if run.task == "race":
    return race.AlbertForMultipleChoice(config, name="model")
  if run.task not in (*glue.GLUE_TASKS, *finetuning.text_jobs.OWN_TASKS):
    raise ValueError(
      f"{run.model_dir} is a run of {run.task!r}, which this version does not "
      "know: export it with the version that trained it."
    )
  classes = 1 if run.labels is None else len(run.labels)
  return modeling.AlbertForSequenceClassification(config, classes, name="model")


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
  """A checkpoint of any format, which says less about itself than a run."""
  kind, weights = checkpoints.choose(path, wanted.checkpoint)
  checkpoint = checkpoints.READERS[kind](weights)
  checkpoint = dataclasses.replace(
    checkpoint, config=wanted.at_depth(checkpoint.config)
  )
  tokenizer = checkpoint.tokenizer
  if wanted.with_texts and tokenizer is None:
    raise ValueError(
      f"no tokenizer lies beside {checkpoint.source}: put its .model or "
      "vocab.txt there, or give --signatures=ids."
    )
  layer = _text_layer(tokenizer, wanted)
  length = wanted.max_seq_length or checkpoint.config.max_position_embeddings
  if checkpoint.head == "pretraining" and wanted.head != ENCODER:
    model = pretraining.AlbertForPretraining(checkpoint.config)
    checkpoints.fill(model, checkpoint)
    module = pretraining.ServedPretraining(model, layer, length, wanted.top_k)
  elif checkpoint.head in ("none", "masked_lm") or wanted.head == ENCODER:
    if not any(name.startswith("bert/pooler/") for name in checkpoint.tensors):
      raise ValueError(
        f"{checkpoint.source} has no pooler, whose output would be served: "
        "fine-tune it first, and export the run."
      )
    model = modeling.AlbertModel(checkpoint.config)
    checkpoints.fill(model, checkpoint)
    module = serving.ServedEncoder(model, layer, length)
  elif wanted.task:
    finetuning.text_jobs.name_task(checkpoint, wanted.task)
    shapes = checkpoints.shapes_of(checkpoint.tensors)
    model = modeling.AlbertForSequenceClassification(
      checkpoint.config, shapes["output_weights"][0], name="model"
    )
    checkpoints.fill(model, checkpoint)
    module = common.ServedTextTask(
      model,
      layer,
      length,
      checkpoint.labels or None,
      "text_b" in prediction.ids.roles_of(wanted.task),
    )
    return _source(module, wanted.task, checkpoint.source, tokenizer)
  else:
    raise ValueError(
      f"{checkpoint.source} has the head {checkpoint.head}, but does not name "
      "its task: give --task, such as --task=text_classification; or "
      "--head=encoder; or the folder of the run of tools.run_finetuning."
    )
  return _source(module, module.kind, checkpoint.source, tokenizer)


def _text_layer(
  tokenizer: Optional[checkpoints.TokenizerFile], wanted: Wanted
) -> Optional[in_graph.TextLayer]:
  if not wanted.with_texts:
    return None  # Its resources would ask for tensorflow_text.
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
