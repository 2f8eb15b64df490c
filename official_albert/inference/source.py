"""Opens weights of any format, or an export, as a model that answers.

import official_albert as albert

albert.load("quickstart/run").fill_mask("The default [MASK] is None.")
albert.load("stars").classify(["Lovely.", "Never again."])
"""

from __future__ import annotations

import dataclasses
import functools
import os
from typing import Any, Callable, Literal, Optional, Union

import tensorflow as tf
from typing_extensions import NotRequired, TypedDict

from official_albert import (
  checkpoints,
  files,
  modeling,
  runs,
  serving,
  tokenization,
)
from official_albert.inference import models
from official_albert.inference.loaded_model import LoadedModel
from official_albert.settings import EXPORT_PRECISIONS
from official_albert.tasks import registry, trained_run
from official_albert.tasks.pretraining import serving as pretraining_serving

ENCODER = "encoder"


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
) -> serving.Source:
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
    tokenizer = read.choose_tokenizer(tokenizer, lower_case, keep_accents)
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
    return serving.Source(
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


class _TokenizerFile(TypedDict):
  file: str
  kind: Literal["sentencepiece", "wordpiece"]
  keep_accents: NotRequired[Optional[bool]]
  max_word_characters: NotRequired[int]
  split_chinese: NotRequired[bool]


class _Record(TypedDict):
  """What is read of export.json."""

  kind: str
  task: str
  tokenizer: Optional[_TokenizerFile]
  lower_case: Optional[bool]
  columns: dict[str, str]
  settings: dict[str, Any]


class ExportedModule:
  """The folder of an export, which is asked like a `ServedModule`.

  Attributes:
    kind, config: those of the model.
    text_signatures: the names of all signatures, the default first.
    tokenizer: the tokenizer in the assets; None if there is none.
  """

  def __init__(self, folder: str, record: _Record):
    """Loads the SavedModel; `record` is what export.json says of it."""
    try:
      model = serving.outside_strategy(tf.saved_model.load, folder)
    except Exception as error:  # TensorFlow raises errors of any class.
      reason = " ".join(str(error).split())[:80]
      raise OSError(
        f"{folder} is damaged or of another version of TensorFlow ({reason}): "
        "copy it again, or export the model again."
      ) from error
    assets = os.path.join(folder, serving.ASSETS)
    self.kind = record["kind"]
    self.config = modeling.AlbertConfig.from_json_file(
      os.path.join(assets, runs.CONFIG_FILE)
    )
    self.tokenizer = None
    if file := record["tokenizer"]:
      rules = {**file, "lower_case": record["lower_case"]}
      self.tokenizer = checkpoints.TokenizerFile(
        os.path.join(assets, file["file"]),
        file["kind"],
        tokenization.TextRules.of(rules),
      )
    self._model = model  # Owns the tables of the graph.
    self.text_signatures = tuple(
      dict.fromkeys([serving.DEFAULT_SIGNATURE, *model.signatures])
    )
    self._settings = record["settings"]

  def text_signature(self, name: str) -> Any:
    """Returns the function of a signature."""
    return self._model.signatures[name]

  def settings(self) -> dict[str, Any]:
    """Returns the settings in export.json, such as labels."""
    return self._settings


def open_export(folder: str) -> serving.Source:
  """Opens a folder of tools.export_saved_model.

  Raises:
    ValueError, OSError: the export is damaged.
  """
  path = os.path.join(folder, serving.ASSETS, serving.EXPORT_FILE)
  record: _Record = files.read_json(path, _Record, "export the model again")
  module: Any = ExportedModule(folder, record)
  return serving.Source(
    module, record["task"], folder, module.tokenizer, record["columns"]
  )


def load(
  path: Union[str, os.PathLike],
  *,
  checkpoint: str = "",
  tokenizer: Union[str, os.PathLike] = "",
  lower_case: Optional[bool] = None,
  keep_accents: Optional[bool] = None,
  max_seq_length: int = 0,
  num_hidden_layers: int = 0,
) -> LoadedModel:
  """Loads a model to ask it in Python.

  >>> import official_albert as albert
  >>> encoder = albert.load("albert_toy")
  >>> encoder.embed(["It rains.", "It is wet."]).shape == (
  ...   2, encoder.config.hidden_size)
  True

  The model computes in the precision of Keras' global policy.

  Args:
    path: the folder of a run of tools.run_pretraining or tools.run_finetuning
      (with several seeds, the best one), or one of its checkpoints; Google's
      archive, unpacked or not, or a TF1 checkpoint; the folder of a Hugging
      Face model or of tools.publish_hub_module; or the folder of an export. It
      may be at gs://.
    checkpoint: which checkpoint of a run: "latest", "best" or a prefix. "" is
      the best one if the run keeps one, else the latest.
    tokenizer: the .model file of SentencePiece or the vocabulary of WordPiece;
      by default the one in the model's folder.
    lower_case: whether text is lower-cased first; by default as recorded with
      the model, else true.
    keep_accents: whether accents and other combining marks stay; by default as
      recorded with the model, else as in the original, which loses them.
    max_seq_length: the maximum tokens of a text; 0 is the length of training.
    num_hidden_layers: how often the shared layers are applied; 0 is as trained.

  Returns:
    A `LoadedModel`. It has a method for each question that the model answers;
    `methods` names them.

  Raises:
    ValueError, OSError: there is no model, it is damaged, or an argument does
      not fit it.
  """
  path, tokenizer = os.fspath(path), os.fspath(tokenizer)
  is_sentencepiece = tokenizer.endswith(".model")
  file = checkpoints.chosen_tokenizer(
    spm_model_file=tokenizer if is_sentencepiece else "",
    vocab_file="" if is_sentencepiece else tokenizer,
  )
  return open_model(
    path,
    checkpoint=checkpoint,
    tokenizer=file,
    lower_case=lower_case,
    keep_accents=keep_accents,
    max_seq_length=max_seq_length,
    num_hidden_layers=num_hidden_layers,
  )


def open_model(path: str, **settings: Any) -> LoadedModel:
  """Opens a model of any kind, with a copy of its weights.

  Args:
    path: see `load`.
    **settings: arguments of `open_source`. An export has none.

  Raises:
    ValueError, OSError: see `load`; or exports do not have the precision.
  """
  if files.exists(os.path.join(path, serving.ASSETS, serving.EXPORT_FILE)):
    for name, value in settings.items():
      if value or isinstance(value, (bool, float)):
        raise ValueError(
          f"{path} is an export, which has a fixed {name}: leave it out, or "
          "name the run."
        )
    source = open_export(path)
    return LoadedModel(path, f"{path} is an export of {source.task}", source)

  def read() -> serving.Source:
    return open_source(path, lenient=True, **settings)

  source = serving.outside_strategy(read)
  module, policy = source.module, source.module.model.dtype_policy.name
  settings["dtype"] = policy  # The global one may change.
  precisions = {name: key for key, name in EXPORT_PRECISIONS.items()}
  if policy not in precisions:
    raise ValueError(
      f"the global policy of Keras is {policy}, but a model is loaded in "
      f"{' or '.join(precisions)}: call "
      "tf.keras.mixed_precision.set_global_policy before."
    )
  module.freeze(precisions[policy])
  about = {"pretraining": "a pretraining run", "encoder": "an encoder"}.get(
    module.kind, f"a run of {source.task}"
  )

  def read_model() -> tf.keras.Model:
    again = read()
    if again.checkpoint != source.checkpoint:
      raise ValueError(
        f"{path} has changed: {source.checkpoint} answers, but the Keras model "
        f"would be that of {again.checkpoint}. Load the model again."
      )
    return again.module.model

  return LoadedModel(path, f"{path} is {about}", source, read_model)
