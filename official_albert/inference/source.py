"""Opens weights of any format, or an export, as a model that answers.

import official_albert as albert

albert.load("quickstart/run").fill_mask("The default [MASK] is None.")
albert.load("stars").classify(["Lovely.", "Never again."])
"""

from __future__ import annotations

import dataclasses
import functools
import os
import warnings
from typing import Any, Callable, Mapping, Optional, Union

import tensorflow as tf

from official_albert import (
  checkpoints,
  files,
  modeling,
  runs,
  serving,
  tokenization,
)
from official_albert.inference.loaded_model import LoadedModel
from official_albert.tasks import race, registry, squad, trained_run
from official_albert.tasks.embedding import model as embedding_model
from official_albert.tasks.pretraining import model as pretraining_model
from official_albert.tasks.pretraining import serving as pretraining_serving
from official_albert.tasks.race import model as race_model
from official_albert.tasks.squad import model as squad_model
from official_albert.tasks.squad import serving as squad_serving
from official_albert.tasks.tagging import serving as tagging_serving
from official_albert.tokenization import in_graph

ENCODER = "encoder"
_MODELS = {
  "none": modeling.AlbertModel,
  "pretraining": pretraining_model.AlbertForPretraining,
  "masked_lm": pretraining_model.AlbertForPretraining,
  "classification": modeling.AlbertForSequenceClassification,
  "multi_label": modeling.AlbertForSequenceClassification,
  "token_classification": modeling.AlbertForTokenClassification,
  "regression": modeling.AlbertForSequenceClassification,
  "embedding": embedding_model.AlbertForEmbedding,
  "multiple_choice": race_model.AlbertForMultipleChoice,
  "squad1": squad_model.AlbertForSpans,
  "squad2": squad_model.AlbertForSpansOrNone,
}


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
  config_file: str = "",
  tokenizer: checkpoints.TokenizerChoice = checkpoints.OWN_TOKENIZER,
  dtype: Any = None,
) -> serving.Source:
  """Reads weights of any format into a model that can be served.

  Most arguments are those of `load`. `path` may also be a run of several seeds.
  `head` is `ENCODER` for the encoder alone. `task` is that of a classifier in
  another format; see `registry.name_task`. `with_texts` creates signatures that
  take text, and `top_k` is the number of pieces that they predict for each
  mask, 0 for 5. `config_file` and `tokenizer` replace the files beside the
  weights. `dtype` is a dtype or policy; None is Keras' global policy.

  With `lenient`, checkpoints are read that an export would not serve: a
  classifier that does not name its task (it is served for single texts), a
  model without a tokenizer, or one that lacks the pooler.
  """
  with checkpoints.open(path, config_file, checkpoint=checkpoint) as read:
    prefix = read.source
    # Other heads have the same meaning in every task.
    is_open = read.head in registry.TEXT_HEADS
    names_task = bool(task or read.task or not is_open)
    model_head, run, is_run = _find_head(read, head, task, lenient)
    depth = num_hidden_layers or read.config.num_hidden_layers
    with tf.variable_creator_scope(_create_zeros):
      model = make_model(
        model_head,
        read.config.at_depth(depth),
        read.classes or 1,
        run.settings if run else {},
        dtype,
      )
    missing = checkpoints.fill(model, read).missing
    if is_run and missing:
      raise ValueError(
        f"{prefix} does not fit the record in {read.folder}: it lacks "
        f"{missing[0]}."
      )
    trained = run.max_seq_length if run else read.max_seq_length
    length = max_seq_length or trained or read.config.max_position_embeddings
    file = read.choose_tokenizer(tokenizer)
    layer = None
    if with_texts and file:  # Else a server needs no tensorflow_text.
      layer = file.make_layer()
    elif with_texts and not lenient:
      raise ValueError(
        f"there is no tokenizer beside {prefix}: put its .model or vocab.txt "
        "there, or give --signatures=ids."
      )
    encoder = getattr(model, "albert", model)
    module: serving.ServedModule
    if head == ENCODER or encoder is model:
      module = serving.ServedEncoder(encoder, layer, length)
    elif run:
      module = make_served(run, model, layer, length)
    else:
      module = pretraining_serving.ServedPretraining(
        model, layer, length, top_k or 5
      )
    module.has_pooler = not any(n.startswith("bert/pooler/") for n in missing)
    if any(name.startswith("cls/seq_relationship/") for name in missing):
      names = module.text_signatures
      module.text_signatures = tuple(x for x in names if x != "sentence_order")
    shown = read.shown(prefix)
    task = run.task if run else module.kind
    if top_k and module.kind != "pretraining":
      raise ValueError(
        f"top_k is for models that fill masks, but {shown} is of {task}: leave "
        "it out."
      )
    if file and module.cls_id is None:
      module.cls_id = file.open().cls_id
    return serving.Source(
      module=module,
      task=task,
      checkpoint=shown,
      tokenizer=file,
      # The columns of CoNLL files are not those of tables.
      columns=run.columns if run and model_head != registry.TAGS_HEAD else {},
      names_task=is_run or names_task,
      notes=() if is_run else tuple(read.notes),
    )


def _create_zeros(create: Callable[..., tf.Variable], **options: Any) -> Any:
  """Creates a variable that a checkpoint fills.

  Random numbers for all weights of albert_base take half a second.
  """
  if callable(options["initial_value"]):
    shape, dtype = options["shape"], options["dtype"]
    options["initial_value"] = functools.partial(tf.zeros, shape, dtype)
  return create(**options)


def _find_head(
  read: checkpoints.PortableCheckpoint, head: str, task: str, lenient: bool
) -> tuple[str, Optional[trained_run.TrainedRun], bool]:
  """Finds what to serve of a checkpoint.

  Returns the head, "none" for the encoder alone; the record of a fine-tuned
  model, else None; and whether the checkpoint is of a run.
  """
  is_encoder, data = head == ENCODER, read.record.get("data") or {}
  if "task" in data and task in ("", data["task"]):
    run = trained_run.read(read.folder)
    if is_encoder:  # Even of a task that is not registered.
      return "none", run, True
    return registry.get(run.task, read.folder).head, run, True
  # Converted folders record their head; pretraining runs do not.
  if data and not task and not {"task", "head"} & {*data}:
    return "none" if is_encoder else "pretraining", None, True
  # Another head may be left out, but not what makes the vectors.
  is_needed = task or not lenient or read.head == "embedding"
  if read.head_problem and not is_encoder and is_needed:
    raise ValueError(
      f"{read.head_problem}: give --head={ENCODER} for the encoder alone."
    )
  head = "none" if is_encoder else read.head
  if head == "masked_lm" and not lenient:
    head = "none"
  if head in ("none", "masked_lm", "pretraining"):
    return head, None, False
  task = task or read.task or registry.task_of(head)
  if not task and not lenient:
    raise ValueError(
      f"{read.source} has the head {head}, but does not name its task: give "
      "--task, such as --task=text_classification; or --head=encoder; or the "
      "folder of the run of tools.run_finetuning."
    )
  task = task or f"text_{head}"
  if registry.TASKS[task].is_text:
    registry.name_task(read, task)
  settings: dict[str, Any] = {"labels": read.labels or None}
  if read.pooling:
    settings |= dataclasses.asdict(read.pooling)
  length = read.max_seq_length
  run = trained_run.TrainedRun(read.source, task, length, settings, None)
  return head, run, False


def make_model(
  head: str,
  config: modeling.AlbertConfig,
  classes: int = 1,
  settings: Optional[Mapping[str, Any]] = None,
  dtype: Any = None,
) -> tf.keras.Model:
  """Returns a model with random weights; `head` is one of `checkpoints.HEADS`.

  `settings` are those of a run: start_n_top and end_n_top for SQuAD 2.0,
  pooling for embeddings.
  """
  arguments: list[Any] = [config]
  if head in (*registry.TEXT_HEADS, registry.TAGS_HEAD):
    arguments.append(classes)
  elif head == "embedding":
    arguments.append(modeling.Pooling.of(settings or {}).pooling)
  elif head == "squad2":
    recipe, settings = squad.RECIPES["squad_v2"], settings or {}
    for name in ("start_n_top", "end_n_top"):
      arguments.append(settings.get(name, getattr(recipe, name)))
  return _MODELS[head](*arguments, name="model", dtype=dtype)


def make_served(
  run: trained_run.TrainedRun,
  model: tf.keras.Model,
  text_layer: Optional[in_graph.TextLayer],
  max_seq_length: int,
) -> serving.ServedModule:
  """Returns the module that serves a model of a run; see `ServedModule`."""
  kind = registry.get(run.task, run.model_dir)
  arguments = model, text_layer, max_seq_length
  if kind.is_text:
    of_texts = *arguments, run.labels, kind.roles == registry.PAIR
    if kind.head == "multi_label":
      return serving.ServedMultiLabel(*of_texts, thresholds=run.thresholds)
    return serving.ServedTextTask(*of_texts)
  if kind.head == registry.TAGS_HEAD:
    return tagging_serving.ServedTags(*arguments, run.labels)
  if kind.head == "embedding":
    normalize = modeling.Pooling.of(run.settings).normalize
    return embedding_model.ServedEmbedding(*arguments, normalize)
  if kind.head == "multiple_choice":
    default = race.RECIPES["race"].max_qa_length
    if max_seq_length < default + 4:  # No room for [CLS], [SEP] and a passage.
      default = max_seq_length // 2
    return race_model.ServedMultipleChoice(
      *arguments, run.settings.get("max_qa_length", default)
    )
  return squad_serving.AnswerQuestions(
    *arguments, run.settings, run.null_score_diff_threshold
  )


class ExportedModule:
  """The folder of an export, which is asked like a `ServedModule`.

  Attributes:
    kind, config: those of the model.
    text_signatures: the names of those that take texts, the default first.
    depth_signatures: the names of those that take the depth, too.
    has_pooler: whether vectors can be those of the pooler.
    tokenizer: the tokenizer in the assets; None if there is none.
  """

  def __init__(self, folder: str, record: Mapping[str, Any]):
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
    names = dict.fromkeys([serving.DEFAULT_SIGNATURE, *model.signatures])
    self.text_signatures = tuple(
      x for x in names if {*self.text_function(x)[0]} <= {*registry.ROLES}
    )
    self.depth_signatures = {x for x in names if x.endswith(serving.AT_DEPTH)}
    encode = model.signatures.get("encode")
    self.has_pooler = not encode or "pooled_output" in encode.structured_outputs
    self._settings = record["settings"]

  def text_function(self, name: str) -> serving.TextFunction:
    """Returns the inputs of a signature, and its function."""
    function = self.text_signature(name)
    return tuple(function.structured_input_signature[1]), function

  def text_signature(self, name: str) -> Any:
    """Returns the function of a signature."""
    return self._model.signatures[name]

  def settings(self) -> dict[str, Any]:
    """Returns the settings in export.json, such as labels."""
    return self._settings


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

  The model computes in float32, and an export in its own precision. What a
  checkpoint of another program says, and is not done here, is a warning.

  Args:
    path: the folder of a run of tools.run_pretraining or tools.run_finetuning
      (of several seeds or trials, the best one), or one of its checkpoints;
      Google's archive, unpacked or not, or a TF1 checkpoint; the folder of a
      Hugging Face model, or its name on their Hub; that of
      tools.publish_hub_module; or the folder of an export. It may be at gs://,
      or a handle of Kaggle.
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
  choice = checkpoints.TokenizerChoice(
    spm_model_file=tokenizer if is_sentencepiece else "",
    vocab_file="" if is_sentencepiece else tokenizer,
    lower_case=lower_case,
    keep_accents=keep_accents,
  )
  model = open_model(
    path,
    checkpoint=checkpoint,
    tokenizer=choice,
    max_seq_length=max_seq_length,
    num_hidden_layers=num_hidden_layers,
  )
  for note in model.source.notes:
    warnings.warn(f"{path}: {note}", stacklevel=2)
  return model


def open_model(path: str, **settings: Any) -> LoadedModel:
  """Opens a model of any kind; see `load`.

  `settings` are arguments of `open_source`. An export has none.
  """
  folder = checkpoints.downloaded(path)
  export = os.path.join(folder, serving.ASSETS, serving.EXPORT_FILE)
  if files.exists(export):
    choice = settings.pop("tokenizer", checkpoints.OWN_TOKENIZER)
    given = {**vars(choice), **settings}
    # Both are `tokenizer` in Python.
    given["tokenizer"] = given.pop("spm_model_file") or given.pop("vocab_file")
    for name, value in given.items():
      if value or value is False:
        raise ValueError(
          f"{path} is an export, which has a fixed {name}: leave it out, or "
          "name the run."
        )
    record = files.read_json(export, dict[str, Any], "export the model again")
    module: Any = ExportedModule(folder, record)
    source = serving.Source(
      module, record["task"], path, module.tokenizer, record["columns"]
    )
    return LoadedModel(path, f"{path} is an export of {source.task}", source)

  source = serving.outside_strategy(
    functools.partial(
      open_source, path, lenient=True, dtype="float32", **settings
    )
  )
  source.module.freeze("float32")
  about = {"pretraining": "a pretraining run", "encoder": "an encoder"}.get(
    source.module.kind, f"a run of {source.task}"
  )
  return LoadedModel(path, f"{path} is {about}", source)
