"""Opens checkpoints of any format; reads and writes TensorFlow's.

These are the checkpoints of google-research/albert and those of this package.
hf_checkpoints.py has the folders of Hugging Face.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import warnings
from typing import Any, Iterator, Mapping, Optional, Sequence

import numpy as np
import tensorflow as tf

from official_albert import archives, files, modeling, runs, tokenization
from official_albert.checkpoints import (
  hf_checkpoints,
  hf_config,
  loading,
  portable,
  tensor_bundle,
  tokenizer_file,
)
from official_albert.checkpoints import names as checkpoint_names

CHECKPOINT_NAME = "model.ckpt-best"
_ORIGINAL = "google-research/albert"


def _values(
  bundle: tensor_bundle.TensorBundle, config: modeling.AlbertConfig, prefix: str
) -> dict[str, tensor_bundle.LazyArray]:
  """Returns values by TF1 names; those without one have attribute paths.

  Raises:
    ValueError: google-research/albert has no such model.
  """
  found = bundle.values()
  if not bundle.is_object_based:
    checkpoint_names.check_groups(config, _ORIGINAL, prefix)
    # Names in a module of TF Hub begin with "module/".
    return {n.removeprefix("module/"): value for n, value in found.items()}
  values = {
    path: dataclasses.replace(value, name=path)
    for key, value in found.items()
    if (path := loading.path_of(key))
  }
  if not any(path.startswith("albert/") for path in values):
    values = {f"albert/{path}": value for path, value in values.items()}
  stored = {}
  for row in checkpoint_names.all_rows(config):
    if row.own in values:
      stored[row.tf1] = values.pop(row.own)
      for suffix, slot in checkpoint_names.SLOTS.items():
        key = loading.key_of(row.own, slot)
        if key in found:
          stored[f"{row.tf1}/{suffix}"] = found[key]
  if loading.ITERATIONS in found:
    stored[checkpoint_names.GLOBAL_STEP] = found[loading.ITERATIONS]
  return {**stored, **values}


def _include_scale(
  checkpoint: portable.PortableCheckpoint,
  scale: Optional[tensor_bundle.LazyArray],
) -> None:
  """Puts the scale of a regression's targets into the weights of its head."""
  tensors = checkpoint.tensors
  names = ("output_weights", "output_bias")
  if scale is None or not set(names) <= set(tensors):
    return
  mean, log_std = np.asarray(scale)
  if (mean or log_std) and checkpoint.slots:
    raise ValueError(
      f"{checkpoint.source} is a regression whose optimizer knows only "
      "standardized targets: leave out --include_optimizer."
    )
  weights, bias = (np.asarray(tensors[name]) for name in names)
  folded = modeling.fold_target_scale(weights, bias, (mean, log_std))
  checkpoint.scaled_head = dict(zip(names, (weights, bias)))
  checkpoint.scaled_head[loading.TARGET_SCALE] = np.array([mean, log_std])
  tensors.update(zip(names, folded))


def write_tf1_checkpoint(
  checkpoint: portable.PortableCheckpoint, folder: str
) -> str:
  """Writes a folder and returns the checkpoint's prefix.

  Raises:
    ValueError: google-research/albert lacks the activation or the projection,
      or assigns layers to other groups.
    OSError: the folder cannot be written.
  """
  config, source = checkpoint.config, checkpoint.source
  wrong = "the converted model would compute something else."
  if config.hidden_act == "gelu_erf":
    raise ValueError(
      f"{source} has hidden_act gelu_erf, the exact GELU, but the gelu of "
      f"{_ORIGINAL} is the tanh approximation: {wrong}"
    )
  if config.always_project_embedding:
    raise ValueError(
      f"{source} has a projection between equal widths, embedding_size and "
      f"hidden_size {config.hidden_size}, which {_ORIGINAL} does not have: "
      f"{wrong}"
    )
  checkpoint_names.check_groups(config, _ORIGINAL, source)
  prefix = os.path.join(folder, CHECKPOINT_NAME)
  # The released folders have a step, and the original's programs read it.
  tensors = {checkpoint_names.GLOBAL_STEP: np.int64(0), **checkpoint.tensors}
  tensor_bundle.write_bundle(prefix, tensors)
  config.to_json_file(os.path.join(folder, runs.CONFIG_FILE))
  if checkpoint.tokenizer:
    checkpoint.tokenizer.copy_to(folder)
  return prefix


def write_own_checkpoint(
  checkpoint: portable.PortableCheckpoint, folder: str
) -> str:
  """Writes a folder like that of a run and returns the checkpoint's prefix.

  run_pretraining, run_finetuning and export_saved_model accept the folder as
  --init_checkpoint. If it holds optimizer state, run_pretraining can resume
  from it as --model_dir.

  Raises:
    OSError: the folder cannot be written.
  """
  config, tokenizer = checkpoint.config, checkpoint.tokenizer
  data: dict[str, Any] = {"head": checkpoint.head}
  if checkpoint.labels or checkpoint.task:
    data["settings"] = {"labels": list(checkpoint.labels) or None}
  if checkpoint.task:
    data["task"] = checkpoint.task
  if tokenizer:
    data["tokenizer"] = tokenizer.record(config.vocab_size)
  rows = checkpoint.rows
  runs.write_run(folder, config, {}, data)
  if tokenizer:
    tokenizer.copy_to(folder)
  variables = {
    row.own: tf.Variable(
      np.asarray(checkpoint.tensors[row.tf1]), dtype=tf.float32
    )
    for row in rows
  }
  parts = {"model": loading.tree(variables)}
  if checkpoint.slots:
    optimizer = _LambState()
    optimizer._create_all_weights(list(variables.values()))
    optimizer.iterations.assign(checkpoint.step)
    for row in rows:
      for suffix, slot in checkpoint_names.SLOTS.items():
        value = np.asarray(checkpoint.tensors[f"{row.tf1}/{suffix}"])
        optimizer.get_slot(variables[row.own], slot).assign(value)
    # Other formats do not store the position in the training data.
    examples_seen = tf.Variable(np.int64(0))
    parts.update(optimizer=optimizer, examples_seen=examples_seen)
  elif checkpoint_names.GLOBAL_STEP in checkpoint.tensors:
    step = tf.Module()
    step.iter = tf.Variable(np.int64(checkpoint.step))
    parts["optimizer"] = step
  return tf.train.CheckpointManager(
    tf.train.Checkpoint(**parts),
    folder,
    max_to_keep=1,
    checkpoint_name=runs.CHECKPOINT_NAME,
  ).save(checkpoint_number=checkpoint.step)


class _LambState(tf.keras.optimizers.legacy.Optimizer):
  """The variables of LAMB with a schedule, as a run of this package saves them.

  A schedule replaces the learning rate, which is not saved then.
  """

  def __init__(self):
    super().__init__("converted")
    hypers = {
      "weight_decay": 0.01,
      "decay": 0.0,
      "beta_1": 0.9,
      "beta_2": 0.999,
    }
    for name, value in hypers.items():
      self._set_hyper(name, value)

  def _create_slots(self, var_list):
    for variable in var_list:
      for slot in checkpoint_names.SLOTS.values():
        self.add_slot(variable, slot)


# writer(checkpoint, folder) -> path of the weights.
WRITERS = {
  "tf1": write_tf1_checkpoint,
  "hf": hf_checkpoints.write,
  "official_albert": write_own_checkpoint,
}


def _find(
  path: str, checkpoint: str, source: str
) -> tuple[str, str, Optional[tensor_bundle.TensorBundle]]:
  """Returns a checkpoint's format, its prefix or folder, and its index.

  The index is None for a folder of Hugging Face. For the arguments see `open`.
  """
  if path in modeling.PRESETS and not files.glob(f"{path}*"):
    raise FileNotFoundError(
      f"there is no file or folder {path!r}, and the preset of this name has "
      f"no weights: AlbertModel.from_preset({path!r}) makes random ones."
    )
  path, bundle = runs.run_folder(path), None
  if not source and files.exists(os.path.join(path, hf_config.CONFIG_FILE)):
    source = "hf"
  if source != "hf":
    is_hub = files.exists(os.path.join(path, "saved_model.pb"))
    path = runs.find_prefix(path, checkpoint)
    bundle = tensor_bundle.TensorBundle(path)
    is_own = bundle.is_object_based
    if is_own and not any(map(loading.path_of, bundle.values())):
      raise ValueError(portable.no_variables(path))
    found = "tf_hub" if is_hub else "tf1"
    source = source or ("official_albert" if is_own else found)
  if checkpoint and source != "official_albert":
    raise ValueError(
      f"{path} is not the folder of a run, so there are no checkpoints to "
      "choose from: leave --checkpoint out."
    )
  return source, path, bundle


def _read_tensorflow(
  prefix: str,
  bundle: tensor_bundle.TensorBundle,
  folders: Sequence[str],
  config_file: str,
  head: str,
  include_optimizer: bool,
  model_config: Optional[modeling.AlbertConfig],
) -> portable.PortableCheckpoint:
  """Reads a checkpoint of google-research/albert, of a Hub module or of a run.

  Only the variables of a SavedModel are read, not its graph. `folders` may hold
  the other files. For the other arguments see `open`.
  """
  folder = runs.recorded_folder(folders)
  record: Mapping[str, Any] = runs.read_run(folder) if folder else {}
  data = record.get("data", {})
  recorded, settings = data.get("tokenizer") or {}, data.get("settings") or {}
  task, labels = data.get("task", ""), tuple(settings.get("labels") or ())
  head = head or data.get("head", "")
  config_file = config_file or tokenizer_file.find_only_file(
    folders, runs.CONFIG_FILE, "albert_config*.json"
  )
  if not (model_config or config_file):
    raise ValueError(
      f"no {runs.CONFIG_FILE} beside {prefix}: put it there, or "
      "give --albert_config_file."
    )
  config = model_config or modeling.AlbertConfig.from_json_file(config_file)
  stored = _values(bundle, config, prefix)
  scale = stored.pop(loading.TARGET_SCALE, None)
  if model_config:
    slots = list(filter(checkpoint_names.is_slot, stored))
    for name in slots:
      del stored[name]
    result = portable.PortableCheckpoint(
      prefix,
      config,
      stored,
      head or ("classification" if labels else "none"),
      unexpected=dict.fromkeys(slots, portable.OPTIMIZER_STATE),
    )
  else:
    result = portable.select(prefix, config, stored, head, include_optimizer)
  _include_scale(result, scale)
  if runs.is_best(prefix):
    # A best checkpoint has only weights, but its name has the step.
    with contextlib.suppress(ValueError):  # "model.ckpt-best" of others.
      step = np.int64(runs.step_of(prefix))
      result.tensors[checkpoint_names.GLOBAL_STEP] = step
  result.tokenizer = tokenizer_file.find_tokenizer(
    folders, tokenization.TextRules.of(recorded)
  )
  result.labels = labels
  if result.head in ("classification", "regression"):
    result.task = task
  if os.path.basename(folder) != runs.ASSETS:
    result.folder, result.record = folder, record
  return result


@contextlib.contextmanager
def open(
  path: str,
  config_file: str = "",
  *,
  checkpoint: str = "",
  source: str = "",
  head: str = "",
  include_optimizer: bool = False,
  model_config: Optional[modeling.AlbertConfig] = None,
) -> Iterator[portable.PortableCheckpoint]:
  """Opens a checkpoint of any format, or an archive; `fill` loads its values.

  >>> from official_albert import AlbertForSequenceClassification, checkpoints
  >>> with checkpoints.open("albert_toy_hf") as checkpoint:
  ...   model = AlbertForSequenceClassification(checkpoint.config, 3)
  ...   checkpoints.fill(model, checkpoint).missing
  ('output_bias', 'output_weights')
  >>> checkpoint.tensors["bert/pooler/dense/kernel"].shape
  (24, 24)

  Values are read when they are used. Those of an archive need the context.
  Notes, and errors of the body, name files as the user would write them.

  Args:
    path: see `AlbertModel.from_checkpoint`.
    config_file: the configuration of a TensorFlow checkpoint; the default is
      the albert_config*.json beside it.
    checkpoint: which checkpoint of a run; see `find_prefix`.
    source: one of `READ_FORMATS`; "" detects it.
    head: a key of `names.HEADS`; "" detects it.
    include_optimizer: whether to include optimizer state. As the best
      checkpoint of a run has none, the default is the latest then.
    model_config: the configuration of a model that takes what fits. Then a
      TensorFlow checkpoint needs none, it may lack weights, and `tensors` has
      all of them, those that are not in `names` by their attribute paths.

  Raises:
    ValueError, OSError: there is no valid checkpoint.
  """
  with archives.unpacked(path) as folder:
    source, found, bundle = _find(folder, checkpoint, source)
    wants_latest = include_optimizer and not checkpoint
    if bundle is None:
      if include_optimizer:
        raise ValueError(
          "a Hugging Face folder holds no optimizer state: leave out "
          "--include_optimizer."
        )
      result = hf_checkpoints.read(found, head)
    else:
      if wants_latest and runs.is_best(found):
        found = runs.find_prefix(folder, runs.LATEST)
        bundle = tensor_bundle.TensorBundle(found)
      folders = runs.folders_of(found)
      if files.is_dir(folder):  # `checkpoint` may be somewhere else.
        folders = [*folders, runs.run_folder(folder)]
      result = _read_tensorflow(
        found,
        bundle,
        folders,
        config_file,
        head,
        include_optimizer,
        model_config,
      )
    result.format = source
    result.shown = lambda text: text.replace(folder, path)
    result.notes = list(map(result.shown, result.notes))
    result.head_problem = result.shown(result.head_problem)
    file = result.tokenizer
    if folder != path and file and not file.problem:  # It outlives the archive.
      result.tokenizer = dataclasses.replace(
        file, path=result.shown(file.path), content=file.read()
      )
    yield result


def read_checkpoint(
  path: str, config_file: str = "", **kwargs: Any
) -> portable.PortableCheckpoint:
  """Opens a checkpoint that is not an archive, and needs no context."""
  with open(path, config_file, **kwargs) as checkpoint:
    return checkpoint


def from_checkpoint(
  cls: type[modeling.AlbertModel],
  path: str,
  albert_config_file: str = "",
  **kwargs: Any,
) -> modeling.AlbertModel:
  """Returns an encoder with pretrained weights of any supported format.

  A warning names the weights that the checkpoint lacks, such as a pooler's.

  >>> from official_albert import AlbertModel
  >>> model = AlbertModel.from_checkpoint("albert_toy")
  >>> print(model.load_report)
  25 variables matched, 0 missing, 7 unexpected, 1 optimizer variables ignored
    unexpected in it: cls/predictions/output_bias
  ...

  Args:
    cls: the class of the result.
    path: the folder or a checkpoint of a run, a TF1 checkpoint of
      google-research/albert or its folder, the folder of a TF1 module of TF
      Hub, of tools.publish_hub_module or of a Hugging Face model, or a
      .tar.gz or .tgz of any of these.
    albert_config_file: the configuration of a TensorFlow checkpoint. The
      default is the file beside the checkpoint.
    **kwargs: further arguments of `AlbertModel`.

  Raises:
    ValueError, OSError: there is no checkpoint, it is damaged, or it belongs
      to another model.
  """
  with open(path, albert_config_file) as checkpoint:
    model = cls(checkpoint.config, **kwargs)
    model.load_report = loading.fill(model, checkpoint)
  if missing := ", ".join(model.load_report.missing):
    warnings.warn(
      f"{path} has no weights of {missing}: they are random.", stacklevel=2
    )
  return model


# `modeling` imports no checkpoints.
modeling.AlbertModel.from_checkpoint = classmethod(from_checkpoint)  # type: ignore[assignment]
