"""Reads weights of any format into a model that can be served."""

from __future__ import annotations

import dataclasses
import functools
import os
from typing import Any, Callable, Mapping, NamedTuple, Optional

import tensorflow as tf

from official_albert import checkpoints, runs, serving
from official_albert.inference import models
from official_albert.tasks import registry, trained_run
from official_albert.tasks.pretraining import serving as pretraining_serving

ENCODER = "encoder"


class Source(NamedTuple):
  """A model to serve.

  Attributes:
    module: the model with its signatures.
    task: the task, or the kind of the module if it is not fine-tuned.
    checkpoint: the prefix or the folder of the weights.
    tokenizer: None if there is none.
    columns: the columns of the training data by role.
    names_task: whether the task is known; if not, `task` is a guess.
    missing: TF1 names of weights that the checkpoint lacks, which are 0.
    notes: one sentence each for users of the checkpoint.
  """

  module: serving.ServedModule
  task: str
  checkpoint: str
  tokenizer: Optional[checkpoints.TokenizerFile]
  columns: Mapping[str, str] = {}
  names_task: bool = True
  missing: tuple[str, ...] = ()
  notes: tuple[str, ...] = ()


def open_source(
  path: str,
  *,
  checkpoint: str = "",
  head: str = "",
  task: str = "",
  with_texts: bool = True,
  lenient: bool = False,
  max_seq_length: int = 0,
  top_k: int = 0,
  num_hidden_layers: int = 0,
  null_score_diff_threshold: Optional[float] = None,
  config_file: str = "",
  tokenizer: Optional[checkpoints.TokenizerFile] = None,
  lower_case: Optional[bool] = None,
  keep_accents: Optional[bool] = None,
  dtype: Any = None,
) -> Source:
  """Reads weights of any format into a model that can be served.

  Most arguments are those of `load`. `path` may also be a run of several seeds.
  `head` is `ENCODER` for the encoder alone. `task` is that of a classifier in
  another format; see `registry.name_task`. `with_texts` creates signatures that
  take text, and `top_k` is the number of pieces that they predict for each
  mask, 0 for 5. `config_file` and `tokenizer` replace the files beside the
  weights, and `null_score_diff_threshold` that of the run. `dtype` is a dtype
  or policy; None is Keras' global policy.

  With `lenient`, checkpoints are read that an export would not serve: a
  classifier that does not name its task (it is served for single texts), a
  model without a tokenizer, or one that lacks the pooler.
  """
  with checkpoints.open(path, config_file, checkpoint=checkpoint) as read:
    data, prefix = read.record.get("data") or {}, read.source
    is_finetuned = "task" in data and task in ("", data["task"])
    # Converted folders record their head; pretraining runs do not.
    is_pretrained = bool(data) and not task and not {"task", "head"} & set(data)
    is_run = is_finetuned or is_pretrained
    # Other heads have the same meaning in every task.
    is_open = read.head in ("classification", "regression")
    names_task = bool(is_run or task or read.task or not is_open)
    model_head, run = "none", None
    if is_finetuned:
      run = trained_run.read(read.folder)
      # The encoder of a task that is not registered can be opened, too.
      if head != ENCODER:
        model_head = registry.get(run.task, read.folder).head
      classes = len(run.labels or "1")
    elif is_pretrained:
      model_head, classes = "none" if head == ENCODER else "pretraining", 0
    else:
      model_head, run = _choose_head(read, head, task, lenient)
      classes = read.classes
    with tf.variable_creator_scope(_create_zeros):
      model = models.make_model(
        model_head,
        read.config.at_depth(
          num_hidden_layers or read.config.num_hidden_layers
        ),
        classes,
        run.settings if run else {},
        dtype,
      )
    missing = checkpoints.fill(model, read).missing
    if is_run and missing:
      raise ValueError(
        f"{prefix} does not fit the record in {read.folder}: it lacks "
        f"{missing[0]}."
      )
    length = max_seq_length or (_trained_length(read, run) if is_run else 0)
    length = length or read.config.max_position_embeddings
    tokenizer = checkpoints.checked_tokenizer(
      read.tokenizer,
      data.get("tokenizer") or {},
      read.folder or path,
      tokenizer,
      lower_case,
      keep_accents,
    )
    layer = None
    if with_texts and tokenizer:  # Else a server needs no tensorflow_text.
      layer = tokenizer.make_layer()
    elif with_texts and not lenient:
      raise ValueError(
        f"there is no tokenizer beside {prefix}: put its .model or vocab.txt "
        "there, or give --signatures=ids."
      )
    if run and null_score_diff_threshold is not None:
      run = dataclasses.replace(
        run, null_score_diff_threshold=null_score_diff_threshold
      )
    encoder = getattr(model, "albert", model)
    if head == ENCODER or encoder is model:
      module = serving.ServedEncoder(encoder, layer, length)
      module.has_pooler = not any(n.startswith("bert/pooler/") for n in missing)
    elif run:
      module = models.make_served(run, model, layer, length)
    else:
      module = pretraining_serving.ServedPretraining(
        model, layer, length, top_k or 5
      )
    shown = read.shown(prefix)
    task = run.task if run else module.kind
    if top_k and module.kind != "pretraining":
      raise ValueError(
        f"top_k is for models that fill masks, but {shown} is of {task}: leave "
        "it out."
      )
    if null_score_diff_threshold is not None and module.kind != "squad2":
      raise ValueError(
        "null_score_diff_threshold is for models of SQuAD 2.0, but "
        f"{shown} is of {task}: leave it out."
      )
    if tokenizer and module.cls_id is None:
      module.cls_id = tokenizer.open().cls_id
    return Source(
      module=module,
      task=task,
      checkpoint=shown,
      tokenizer=tokenizer,
      columns=run.columns if run else {},
      names_task=names_task,
      missing=missing,
      notes=() if is_run else tuple(read.notes),
    )


def _trained_length(
  read: checkpoints.PortableCheckpoint, run: Optional[trained_run.TrainedRun]
) -> int:
  """Returns the maximum length of a run's training; 0 if it is not known."""
  if run:
    length = run.max_seq_length
  else:
    try:
      length = runs.max_seq_length(read.record, runs.step_of(read.source))
    except ValueError:  # Not a checkpoint of a run.
      length = read.record["data"].get("max_seq_length", 0)
  positions = read.config.max_position_embeddings
  if not 0 <= length <= positions:
    raise ValueError(
      f"{os.path.join(read.folder, runs.RECORD_FILE)}: max_seq_length is "
      f"{length:,}, but must be from 1 to {positions:,}, the number of the "
      "model's position embeddings."
    )
  return length


def _create_zeros(create: Callable[..., tf.Variable], **options: Any) -> Any:
  """Creates a variable that a checkpoint fills.

  Random numbers for all weights of albert_base take half a second.
  """
  if callable(options["initial_value"]):
    shape, dtype = options["shape"], options["dtype"]
    options["initial_value"] = functools.partial(tf.zeros, shape, dtype)
  return create(**options)


def _choose_head(
  checkpoint: checkpoints.PortableCheckpoint,
  head: str,
  task: str,
  lenient: bool,
) -> tuple[str, Optional[trained_run.TrainedRun]]:
  """Chooses what to serve of a checkpoint whose task may not be known.

  Returns the head, "none" if there is none to serve; and the record of a
  fine-tuned model, like that of a run, else None.
  """
  source, run = checkpoint.source, None
  if checkpoint.head_problem and head != ENCODER and (task or not lenient):
    raise ValueError(
      f"{checkpoint.head_problem}: give --head={ENCODER} for the encoder alone."
    )
  head = "none" if head == ENCODER else checkpoint.head
  if not lenient and head == "masked_lm":
    head = "none"
  if head not in ("none", "masked_lm", "pretraining"):
    task = task or checkpoint.task or registry.task_of(head)
    if not task and not lenient:
      raise ValueError(
        f"{source} has the head {head}, but does not name its task: give "
        "--task, such as --task=text_classification; or --head=encoder; or the "
        "folder of the run of tools.run_finetuning."
      )
    task = task or f"text_{head}"
    if registry.TASKS[task].is_text:
      registry.name_task(checkpoint, task)
    run = trained_run.TrainedRun(
      source, task, 0, {"labels": checkpoint.labels or None}, None
    )
  return head, run
