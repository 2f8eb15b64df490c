"""Reads weights of any format into a model that can be served."""

from __future__ import annotations

import dataclasses
import functools
import os
from typing import Any, Callable, Mapping, NamedTuple, Optional, Sequence

import tensorflow as tf

from official_albert import checkpoints, files, modeling, runs, serving
from official_albert.inference import models
from official_albert.tasks import registry, trained_run
from official_albert.tasks.pretraining import serving as pretraining_serving

ENCODER = "encoder"
# The tasks of heads whose rows have the same form in all tasks.
_TASK_OF_HEAD = {
  "squad1": "squad_v1",
  "squad2": "squad_v2",
  "multiple_choice": "race",
}
# The kinds of modules whose answers come from `logits` alone.
LOGITS_KINDS = ("classification", "regression", "multiple_choice")


class Source(NamedTuple):
  """A model to serve.

  Attributes:
    module: the model with its signatures.
    task: the task, or the kind of the module if it is not fine-tuned.
    checkpoint: the prefixes or folders of the weights, joined by ", ".
    tokenizer: None if there is none.
    model: the Keras model with the weights.
    columns: the columns of the training data by role.
    names_task: whether the task is known; if not, `task` is a guess.
    missing: TF1 names of weights that the checkpoint lacks, which are 0.
    notes: one sentence each for users of the checkpoint.
  """

  module: serving.ServedModule
  task: str
  checkpoint: str
  tokenizer: Optional[checkpoints.TokenizerFile]
  model: tf.keras.Model
  columns: Mapping[str, str] = {}
  names_task: bool = True
  missing: tuple[str, ...] = ()
  notes: tuple[str, ...] = ()


def load_run(
  model_dir: str,
  config: modeling.AlbertConfig,
  checkpoint: str = "",
  dtype: Any = None,
) -> tuple[Optional[trained_run.TrainedRun], tf.keras.Model, str]:
  """Loads a run of tools.run_pretraining or tools.run_finetuning.

  `config` may have another number of layers than the run's, and `dtype` is that
  of `open_source`. Returns the record
  of a fine-tuned run, else None; the model; and the checkpoint's prefix.
  """
  if "task" in runs.read_run(model_dir)["data"]:
    run = trained_run.read(model_dir)
    prefix = trained_run.find_weights(model_dir, checkpoint)
    checkpoints.check_sizes(config, prefix)
    head = registry.find(run.task, model_dir).head
    model = models.make_model(
      head, config, len(run.labels or "1"), run.settings, dtype
    )
  else:
    run = None
    prefix = runs.find_prefix(model_dir, checkpoint)
    checkpoints.check_sizes(config, prefix)
    model = models.make_model("pretraining", config, dtype=dtype)
  report = checkpoints.warm_start(model, prefix)
  if report.missing:
    raise ValueError(
      f"{prefix} does not fit the record in {model_dir}: it lacks "
      f"{report.missing[0]}."
    )
  return run, model, prefix


def open_source(
  path: str,
  *,
  checkpoint: str = "",
  head: str = "",
  task: str = "",
  with_texts: bool = True,
  lenient: bool = False,
  max_seq_length: int = 0,
  top_k: int = 5,
  num_hidden_layers: int = 0,
  null_score_diff_threshold: Optional[float] = None,
  config_file: str = "",
  tokenizer: Optional[checkpoints.TokenizerFile] = None,
  lower_case: Optional[bool] = None,
  keep_accents: Optional[bool] = None,
  dtype: Any = None,
) -> Source:
  """Reads weights of any format into a model that can be served.

  Args:
    path: the folder of a run of tools.run_pretraining or tools.run_finetuning,
      or of several seeds of one; or as in `AlbertModel.from_checkpoint`, but
      not an archive.
    checkpoint: which checkpoint of a run; see `checkpoints.find_prefix`.
    head: "" for the head of the weights, or `ENCODER` for the encoder alone.
    task: the task of a classifier in another format; see `registry.name_task`.
    with_texts: whether to create signatures that take text.
    lenient: whether to read checkpoints that an export would not serve: a
      classifier that does not name its task (it is served for single texts),
      a model without a tokenizer, or one that lacks the pooler.
    max_seq_length: 0 keeps that of the run.
    top_k: the number of predicted pieces for each mask.
    num_hidden_layers: how often shared layers are applied; 0 keeps the number.
    null_score_diff_threshold: None uses that of the run.
    config_file: the configuration; by default the file beside the weights.
    tokenizer: replaces the tokenizer beside the weights.
    lower_case: whether text is lower-cased first; None uses the value in the
      record of the model, else true.
    keep_accents: whether accents stay; None likewise, else as in the original.
    dtype: the dtype or policy of the model; None is Keras' global policy.
  """
  path = runs.run_folder(path)
  if files.exists(f"{path}.index") and not checkpoint:
    # A checkpoint in the folder of a run has the run's record.
    for folder in runs.folders_of(path):
      is_run = os.path.basename(folder) != serving.ASSETS
      if is_run and files.exists(os.path.join(folder, runs.RECORD_FILE)):
        path, checkpoint = folder, path
  record: Mapping[str, Any] = {"data": {}}
  if files.exists(os.path.join(path, runs.RECORD_FILE)):
    record = runs.read_run(path)
  data = record["data"]
  is_finetuned = "task" in data and task in ("", data["task"])
  # Converted folders record their head; pretraining runs do not.
  is_pretrained = data and not task and not {"task", "head"} & set(data)
  names_task = True
  missing: tuple[str, ...] = ()
  notes: tuple[str, ...] = ()
  if is_finetuned or is_pretrained:
    config_file = config_file or os.path.join(path, runs.CONFIG_FILE)
    config = modeling.AlbertConfig.from_json_file(config_file)
    config = config.at_depth(num_hidden_layers or config.num_hidden_layers)
    with tf.variable_creator_scope(_create_zeros):
      run, model, prefix = load_run(path, config, checkpoint, dtype)
    length = (
      run.max_seq_length
      if run
      else pretraining_serving.trained_length(record, prefix)
    ) or config.max_position_embeddings
    positions = config.max_position_embeddings
    if not max_seq_length and not 1 <= length <= positions:
      raise ValueError(
        f"{os.path.join(path, runs.RECORD_FILE)}: max_seq_length is "
        f"{length:,}, but must be from 1 to {positions:,}, the number of the "
        "model's position embeddings."
      )
    found = checkpoints.find_tokenizer([path])
  else:
    read = checkpoints.read_checkpoint(path, config_file, checkpoint=checkpoint)
    # Other heads have the same meaning in every task.
    is_open = read.head in ("classification", "regression")
    names_task = bool(task or read.task or not is_open)
    with tf.variable_creator_scope(_create_zeros):
      run, model, missing = _load_checkpoint(
        read, head, task, lenient, num_hidden_layers, dtype
      )
    prefix, found = read.source, read.tokenizer
    length = read.config.max_position_embeddings
    notes = tuple(notes_about(read))
  tokenizer = checkpoints.checked_tokenizer(
    found,
    data.get("tokenizer") or {},
    path,
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
  length = max_seq_length or length
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
    module = pretraining_serving.ServedPretraining(model, layer, length, top_k)
  if tokenizer and module.cls_id is None:
    module.cls_id = tokenizer.open().cls_id
  return Source(
    module=module,
    model=module.model,
    task=run.task if run else module.kind,
    checkpoint=prefix,
    tokenizer=tokenizer,
    columns=run.columns if run else {},
    names_task=names_task,
    missing=missing,
    notes=notes,
  )


def _create_zeros(create: Callable[..., tf.Variable], **options: Any) -> Any:
  """Creates a variable that a checkpoint fills.

  Random numbers for all weights of albert_base take half a second.
  """
  if callable(options["initial_value"]):
    shape, dtype = options["shape"], options["dtype"]
    options["initial_value"] = functools.partial(tf.zeros, shape, dtype)
  return create(**options)


def _load_checkpoint(
  checkpoint: checkpoints.PortableCheckpoint,
  head: str,
  task: str,
  lenient: bool,
  num_hidden_layers: int,
  dtype: Any,
) -> tuple[Optional[trained_run.TrainedRun], tf.keras.Model, tuple[str, ...]]:
  """Loads a checkpoint of any format, whose task may not be known.

  Returns the record of a fine-tuned model, like that of a run, else None; the
  model, an `AlbertModel` if there is no head to serve; and the names of missing
  weights.
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
    task = task or checkpoint.task or _TASK_OF_HEAD.get(head, "")
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
  config = checkpoint.config
  model = models.make_model(
    head,
    config.at_depth(num_hidden_layers or config.num_hidden_layers),
    checkpoint.classes,
    dtype=dtype,
  )
  return run, model, checkpoints.fill(model, checkpoint).missing


def notes_about(checkpoint: checkpoints.PortableCheckpoint) -> list[str]:
  """Returns what a user of the checkpoint should know."""
  notes = list(checkpoint.notes)
  if checkpoint.format == "hf" and checkpoint.tokenizer:
    notes.append(
      "texts are tokenized with "
      f"{os.path.basename(checkpoint.tokenizer.path)} by the rules of this "
      "package; transformers may give other ids, see docs/checkpoints.md"
    )
  return notes


def average(sources: Sequence[Source]) -> Source:
  """Joins models of one task to a model that averages like tools.ensemble.

  The first module is changed, and serves the mean of all. Models may differ in
  size, but not in `_meaning`, and none may occur twice.
  """
  first, *others = sources
  if not others:
    return first
  places = [files.absolute(source.checkpoint) for source in sources]
  places = [p if files.is_remote(p) else os.path.realpath(p) for p in places]
  for number, source in enumerate(sources):
    if source.module.kind not in LOGITS_KINDS:
      raise ValueError(
        f"{source.checkpoint} is exported as {source.module.kind}, but only "
        "classifications, regressions and models for RACE can be averaged: "
        "export one model; for answers to SQuAD, use tools.ensemble."
      )
    if places[number] in places[:number]:
      raise ValueError(
        f"{source.checkpoint} would be averaged with itself: give each model "
        "once."
      )
    known, found = _meaning(first), _meaning(source)
    different = [name for name in known if found.get(name) != known[name]]
    if different:
      raise ValueError(
        f"{source.checkpoint} and {first.checkpoint} cannot be averaged: they "
        f"differ in {', '.join(different)}."
      )
  first.module.average_with([source.module for source in others])
  checkpoint = ", ".join(source.checkpoint for source in sources)
  return first._replace(checkpoint=checkpoint)


def _meaning(source: Source) -> dict[str, Any]:
  """Returns what models that are averaged must have in common."""
  file = source.tokenizer
  tokenizer = file and (file.kind, file.rules, file.sha256())
  return {
    "task": source.task,
    "max_seq_length": source.module.max_seq_length,
    "tokenizer": tokenizer,
    **source.module.settings(),
  }
