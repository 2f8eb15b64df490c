"""Detects the format of a checkpoint; reads and writes TensorFlow checkpoints.

These are the checkpoints of google-research/albert and those of this package.
hf_checkpoints.py has the folders of Hugging Face.
"""

from __future__ import annotations

import builtins
import contextlib
import dataclasses
import math
import os
import shutil
import tarfile
import tempfile
import warnings
from typing import (
  IO,
  Any,
  Callable,
  Iterator,
  Mapping,
  NamedTuple,
  Optional,
  Sequence,
)

import numpy as np
import tensorflow as tf

from official_albert import archives, files, modeling, runs, tokenization
from official_albert.checkpoints import (
  hf_checkpoints,
  hf_tokenizer_reader,
  loading,
  portable,
  tensor_bundle,
  tokenizer_file,
)
from official_albert.checkpoints import names as checkpoint_names

CHECKPOINT_NAME = "model.ckpt-best"
_ORIGINAL = "google-research/albert"
# Heads of run_finetuning's tasks that the weights alone do not identify.
_TASK_HEADS = {
  "race": "multiple_choice",
  "stsb": "regression",
  "text_regression": "regression",
  "text_pair_regression": "regression",
}
_MAX_FILES = 1000
# An archive may unpack to this size, or to that many times its own. Weights
# hardly compress; zeros do by a factor of 1,000.
_FREE_BYTES, _MAX_RATIO = 1 << 28, 20


def _read_tensorflow(
  prefix: str,
  folders: Sequence[str],
  data: Mapping[str, Any],
  config_file: str,
  head: str,
  include_optimizer: bool,
) -> portable.PortableCheckpoint:
  """Reads a checkpoint of google-research/albert, of a Hub module or of a run.

  Only the variables of a SavedModel are read, not its graph. If the layers of a
  group do not share all weights, head and optimizer state stay unknown.
  `folders` may hold the other files; `data` is that of the record.
  """
  bundle = tensor_bundle.TensorBundle(prefix)
  own = _by_path(bundle, prefix) if bundle.is_object_based else None
  config_file = config_file or tokenizer_file.find_only_file(
    folders, runs.CONFIG_FILE, "albert_config*.json"
  )
  if not config_file:
    raise ValueError(
      f"no {runs.CONFIG_FILE} beside {prefix}: put it there, or "
      "give --albert_config_file."
    )
  config = modeling.AlbertConfig.from_json_file(config_file)
  recorded, settings = data.get("tokenizer") or {}, data.get("settings") or {}
  tokenizer = tokenizer_file.find_tokenizer(
    folders, tokenization.TextRules.of(recorded)
  )
  task, labels = data.get("task", ""), tuple(settings.get("labels") or ())
  scale = None
  if own is None:
    checkpoint_names.check_groups(config, _ORIGINAL, prefix)
    stored = loading.tf1_values(bundle)
  else:
    stored = own
    scale = stored.pop(loading.TARGET_SCALE, None)
    _check_shapes(config, stored, prefix)
    if config.sharing != "all":
      result = portable.PortableCheckpoint(
        prefix, config, stored, "none", tokenizer, labels
      )
      _include_scale(result, scale)
      return result
    stored = _by_tf1_name(config, stored, bundle)
  head = head or data.get("head", "") or _TASK_HEADS.get(task, "")
  result = portable.select(prefix, config, stored, head, include_optimizer)
  _include_scale(result, scale)
  if runs.is_best(prefix):
    # A best checkpoint has only weights, but its name has the step.
    with contextlib.suppress(ValueError):  # "model.ckpt-best" of others.
      step = np.int64(runs.step_of(prefix))
      result.tensors[checkpoint_names.GLOBAL_STEP] = step
  result.tokenizer = tokenizer
  result.labels = labels
  if result.head in ("classification", "regression"):
    result.task = task
  return result


def _include_scale(
  checkpoint: portable.PortableCheckpoint,
  scale: Optional[tensor_bundle.LazyArray],
) -> None:
  """Puts the scale of a regression's targets into the weights of its head."""
  tensors = checkpoint.tensors
  for prefix in ("", "classifier/"):
    names = [f"{prefix}output_{name}" for name in ("weights", "bias")]
    if scale is None or not set(names) <= set(tensors):
      continue
    mean, log_std = np.asarray(scale)
    if (mean or log_std) and checkpoint.slots:
      raise ValueError(
        f"{checkpoint.source} is a regression whose optimizer knows only "
        "standardized targets: leave out --include_optimizer."
      )
    weights, bias = (np.asarray(tensors[name]) for name in names)
    folded = modeling.fold_target_scale(weights, bias, (mean, log_std))
    checkpoint.scaled_head = {names[0]: weights, names[1]: bias}
    checkpoint.scaled_head[loading.TARGET_SCALE] = np.array([mean, log_std])
    tensors.update(zip(names, folded))


def _check_shapes(
  config: modeling.AlbertConfig,
  stored: Mapping[str, tensor_bundle.LazyArray],
  prefix: str,
) -> None:
  # All sizes occur in the first block, whatever the layers share.
  one_block = dataclasses.replace(
    config, num_hidden_groups=1, inner_group_num=1, sharing="all"
  )
  for row in checkpoint_names.encoder_rows(one_block):
    value = stored.get(row.own) or stored.get(row.tf1)
    expected = row.shape_in(config)
    if value and value.shape != expected:
      raise ValueError(portable.other_shape(value, expected, prefix))
  # Leaving weights out must not let a small file ask for a large model.
  weights = [x for n, x in stored.items() if not checkpoint_names.is_slot(n)]
  if not weights:
    raise ValueError(portable.no_variables(prefix))
  held = sum(math.prod(value.shape) for value in weights)
  parts = config.parameters_by_part()
  needed = sum(parts.values()) - parts["pooler"]
  if held < needed:
    raise ValueError(
      f"{prefix} holds {held:,} numbers, but the configuration has {needed:,} "
      "parameters: they belong to different models, or the checkpoint is "
      "incomplete."
    )


def _by_path(
  bundle: tensor_bundle.TensorBundle, prefix: str
) -> dict[str, tensor_bundle.LazyArray]:
  """Returns the weights by their paths in a model with an `albert`.

  Raises:
    ValueError: there is none.
  """
  values = {loading.path_of(key): value for key, value in bundle.values.items()}
  values.pop(None, None)
  if not values:
    raise ValueError(portable.no_variables(prefix))
  if not any(path.startswith("albert/") for path in values):
    values = {f"albert/{path}": value for path, value in values.items()}
  return values


def _by_tf1_name(
  config: modeling.AlbertConfig,
  values: dict[str, tensor_bundle.LazyArray],
  bundle: tensor_bundle.TensorBundle,
) -> dict[str, tensor_bundle.LazyArray]:
  """Renames values to TF1 names; values without one keep their paths."""
  stored = {}
  for row in checkpoint_names.all_rows(config):
    if row.own in values:
      stored[row.tf1] = values.pop(row.own)
      for suffix, slot in checkpoint_names.SLOTS.items():
        key = loading.key_of(row.own, slot)
        if key in bundle.values:
          stored[f"{row.tf1}/{suffix}"] = bundle.values[key]
  if loading.ITERATIONS in bundle.values:
    stored[checkpoint_names.GLOBAL_STEP] = bundle.values[loading.ITERATIONS]
  return {**stored, **values}


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
    ValueError: the layers of a group do not share all weights.
    OSError: the folder cannot be written.
  """
  config, tokenizer = checkpoint.config, checkpoint.tokenizer
  data: dict[str, Any] = {
    "head": checkpoint.head,
    "max_seq_length": config.max_position_embeddings,
  }
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


def _choose(path: str, checkpoint: str, source: str) -> tuple[str, str]:
  """Returns the format and the path of the weights; see `open`."""
  if path in modeling.PRESETS and not files.glob(f"{path}*"):
    raise FileNotFoundError(
      f"there is no file or folder {path!r}, and the preset of this name has "
      f"no weights: AlbertModel.from_preset({path!r}) makes random ones."
    )
  path = runs.run_folder(path)
  if not source:
    if files.exists(os.path.join(path, hf_checkpoints.HF_CONFIG_FILE)):
      source = "hf"
    else:
      prefix = runs.find_prefix(path)
      is_own = tensor_bundle.TensorBundle(prefix).is_object_based
      source = "official_albert" if is_own else "tf1"
      if not is_own and files.exists(os.path.join(path, "saved_model.pb")):
        source = "tf_hub"
      if is_own and not checkpoint:
        return source, prefix
  if source == "official_albert":
    return source, runs.find_prefix(path, checkpoint)
  if checkpoint:
    raise ValueError(
      f"{path} is not the folder of a run, so there are no checkpoints to "
      "choose from: leave --checkpoint out."
    )
  return source, path


class Located(NamedTuple):
  """Where a checkpoint is.

  Attributes:
    path: the given path, or the temporary folder of an archive.
    weights: the prefix or the folder of the weights.
    format: one of `READ_FORMATS`.
    shown: returns a text in which paths are as the user would write them.
  """

  path: str
  weights: str
  format: str
  shown: Callable[[str], str] = str


@contextlib.contextmanager
def located(
  path: str, checkpoint: str = "", source: str = ""
) -> Iterator[Located]:
  """Finds a checkpoint; for the arguments see `open`."""
  with unpacked_archive(path) as folder:
    format, weights = _choose(folder, checkpoint, source)
    yield Located(
      folder, weights, format, lambda text: text.replace(folder, path)
    )


def read(
  found: Located,
  config_file: str = "",
  checkpoint: str = "",
  head: str = "",
  include_optimizer: bool = False,
) -> portable.PortableCheckpoint:
  """Reads a checkpoint; for the arguments see `open`."""
  path, weights, format, shown = found
  if format == "hf":
    if include_optimizer:
      raise ValueError(
        "a Hugging Face folder holds no optimizer state: leave out "
        "--include_optimizer."
      )
    result = hf_checkpoints.read(weights, head)
  else:
    wants_latest = include_optimizer and not checkpoint
    if wants_latest and runs.is_best(weights):
      weights = runs.find_prefix(path, runs.LATEST)
    prefix = runs.find_prefix(weights)
    folders = runs.folders_of(prefix)
    if files.is_dir(path):  # `checkpoint` may be somewhere else.
      folders = [*folders, runs.run_folder(path)]
    folder = runs.recorded_folder(folders)
    record: Mapping[str, Any] = runs.read_run(folder) if folder else {}
    result = _read_tensorflow(
      prefix,
      folders,
      record.get("data", {}),
      config_file,
      head,
      include_optimizer,
    )
    if os.path.basename(folder) != runs.ASSETS:
      result.folder, result.record = folder, record
  result.format, result.shown = format, shown
  result.notes = list(map(shown, result.notes))
  result.head_problem = shown(result.head_problem)
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

  Raises:
    ValueError, OSError: there is no valid checkpoint.
  """
  with located(path, checkpoint, source) as found:
    yield read(found, config_file, checkpoint, head, include_optimizer)


def read_checkpoint(
  path: str, config_file: str = "", **kwargs: Any
) -> portable.PortableCheckpoint:
  """Opens a checkpoint that is not an archive, and needs no context."""
  with open(path, config_file, **kwargs) as checkpoint:
    return checkpoint


def tokenizer_sha256(path: str) -> str:
  """Returns the hash of the tokenizer beside weights; "" if there is none.

  For `path` see `AlbertModel.from_checkpoint`.
  """
  with located(path) as found:
    if found.format == "hf":
      file = hf_tokenizer_reader.read(found.weights, [])
    else:
      folders = runs.folders_of(runs.find_prefix(found.weights))
      file = tokenizer_file.find_tokenizer(folders)
    return file.sha256() if file else ""


def is_archive(path: str) -> bool:
  """Returns whether a path is a file with the extension of an archive."""
  return path.endswith((".tar.gz", ".tgz")) and files.is_file(path)


@contextlib.contextmanager
def unpacked_archive(path: str, max_bytes: int = 2**34) -> Iterator[str]:
  """Unpacks an archive; yields the temporary folder, or any other path as is.

  If the archive holds a single folder, that folder is yielded. An archive from
  an untrusted source writes nothing outside of the folder, and little memory is
  used. Errors of the body that name the folder name the archive instead.

  Raises:
    ValueError: the archive is damaged, too large, or holds a link, a device, a
      path outside of the folder or two files of one name.
    OSError: the archive cannot be read, or the disk is full.
  """
  if not is_archive(path):
    yield path
    return
  if not hasattr(tarfile, "data_filter"):
    raise ValueError(
      f"{path} cannot be unpacked safely by this Python: use 3.10.12, 3.11.4 "
      "or newer, or unpack the archive and give its folder."
    )
  size, _ = files.stat(path)
  max_bytes = min(max_bytes, max(_FREE_BYTES, _MAX_RATIO * size))
  with tempfile.TemporaryDirectory(prefix="checkpoint-") as folder:
    try:
      with files.open(path, "rb") as packed:
        _extract(packed, folder, max_bytes)
    except archives.ERRORS as error:
      raise ValueError(
        f"{path} is not a .tar.gz of a checkpoint, or is damaged "
        f"({str(error)[:120]})."
      ) from error
    except OSError as error:
      raise OSError(
        f"{path} cannot be unpacked into {tempfile.gettempdir()}: "
        f"{error.strerror or error}."
      ) from error
    inside = files.list_dir(folder)
    only = os.path.join(folder, inside[0]) if len(inside) == 1 else ""
    try:
      yield only if files.is_dir(only) else folder
    except (ValueError, OSError) as error:
      # The temporary folder would not help the user.
      error.args = tuple(
        arg.replace(folder, path) if isinstance(arg, str) else arg
        for arg in error.args
      )
      if isinstance(error, OSError) and isinstance(error.filename, str):
        error.filename = error.filename.replace(folder, path)
      raise


def _extract(packed: IO[bytes], folder: str, max_bytes: int) -> None:
  for archive, member in archives.members(packed, _MAX_FILES, max_bytes):
    name = repr(member.name)[:80]
    if not (member.isreg() or member.isdir()) or member.issparse():
      raise tarfile.TarError(f"{name} is neither a file nor a folder")
    try:
      inside = tarfile.data_filter(member, folder).name
      target = os.path.join(folder, inside)
      files.make_folder(target if member.isdir() else os.path.dirname(target))
      if member.isreg():
        with builtins.open(target, "xb") as file:
          shutil.copyfileobj(archive.extractfile(member), file)
    except tarfile.FilterError as error:
      raise tarfile.TarError(f"{name} is outside of its folder") from error
    except (FileExistsError, NotADirectoryError) as error:
      raise tarfile.TarError(f"{name} is in it twice") from error


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
