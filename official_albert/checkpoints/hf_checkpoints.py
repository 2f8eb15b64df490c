"""Model folders of Hugging Face: config.json and model.safetensors.

tf_model.h5 and presets of KerasHub are read, too; see keras_files.py. What
config.json says is obeyed or refused. pytorch_model.bin is a pickle, which can
run code, and is refused.

Source: github.com/huggingface/safetensors; configuration_albert.py and
modeling_albert.py of transformers 4.57.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from typing import Annotated, Any, Literal, Mapping, Optional, Sequence

import annotated_types
import numpy as np
import safetensors.numpy
import tensorflow  # noqa: F401  It registers NumPy's dtype bfloat16.
from typing_extensions import TypedDict

from official_albert import config as config_lib
from official_albert import files, modeling
from official_albert import labels as labels_lib
from official_albert.checkpoints import (
  hf_tokenizer,
  hf_tokenizer_reader,
  keras_files,
  portable,
  sentence_transformers,
)
from official_albert.checkpoints import names as checkpoint_names

ARCHITECTURES: Mapping[str, str] = {
  "none": "AlbertModel",
  "pretraining": "AlbertForPreTraining",
  "masked_lm": "AlbertForMaskedLM",
  "classification": "AlbertForSequenceClassification",
  "multi_label": "AlbertForSequenceClassification",
  "token_classification": "AlbertForTokenClassification",
  "regression": "AlbertForSequenceClassification",
  "embedding": "AlbertModel",
  "multiple_choice": "AlbertForMultipleChoice",
  "squad1": "AlbertForQuestionAnswering",
}
CONFIG_FILE = "config.json"
_PROBLEM_TYPES = {
  "classification": "single_label_classification",
  "multi_label": "multi_label_classification",
  "regression": "regression",
}
# The heads whose classes config.json names.
_NAMED = (*_PROBLEM_TYPES, "token_classification")

# "gelu" in Google's JSON is the tanh form, which Hugging Face calls gelu_new;
# their "gelu" is the exact one, which no release of ALBERT was trained with.
_TO_HF = {"gelu": "gelu_new", "gelu_erf": "gelu"}
_FROM_HF = {
  "gelu": "gelu_erf",
  "gelu_python": "gelu_erf",
  "gelu_new": "gelu",
  "gelu_pytorch_tanh": "gelu",
  "gelu_python_tanh": "gelu",
  "gelu_accurate": "gelu",
  "gelu_fast": "gelu",
  "relu": "relu",
  "tanh": "tanh",
  "linear": "linear",
}
# The keys of config.json with only one value here. Those that are neither here
# nor read below have no effect on transformers' ALBERT either.
#
# All empty values count as one. Whether is_decoder and position_embedding_type
# have an effect depends on the version of transformers.
_FIXED: Mapping[str, Any] = {
  "model_type": "albert",
  "layer_norm_eps": 1e-12,
  "position_embedding_type": "absolute",
  "is_decoder": False,
  "is_encoder_decoder": False,
  "add_cross_attention": False,
  "per_layer_config": None,
  "pruned_heads": {},
  # Weights that are not plain numbers.
  "quantization_config": None,
  "compression_config": None,
  # Code of the folder.
  "auto_map": None,
  "custom_pipelines": None,
}
# Fields of AlbertConfig that config.json has under the same name.
_SAME = tuple(
  field.name
  for field in dataclasses.fields(modeling.AlbertConfig)
  if field.name not in ("hidden_act", *config_lib.OWN_KEYS)
)
# Of those with one value.
_WRITTEN = ("layer_norm_eps", "position_embedding_type", "model_type")
_WEIGHTS_FILE = "model.safetensors"
# Beside weights in several files.
_INDEX_FILE = f"{_WEIGHTS_FILE}.index.json"
# The largest models have about a thousand variables.
_MAX_NAMES = 50_000

# A file with which transformers computes other outputs.
_ADAPTER_FILE = "adapter_config.json"
# Copies of tied weights. transformers 4 computes with the originals, 5 with the
# copies if they differ.
_BIAS, _BIAS_COPY = "predictions.bias", "predictions.decoder.bias"
_COPIES = {
  "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
  _BIAS_COPY: _BIAS,
}
# What torch.compile and DistributedDataParallel put into names.
_WRAPPERS = re.compile(r"(?:^|(?<=\.))(?:_orig_mod|module)\.")
# Constants that Hugging Face saves with the weights.
_BUFFERS = re.compile(r"embeddings\.(position_ids|token_type_ids)$")

_Values = dict[str, np.ndarray]


class _HeadSettings(TypedDict, total=False):
  """What config.json says of the head."""

  architectures: Optional[Annotated[list[str], annotated_types.Len(0, 1)]]
  id2label: Optional[dict[str, Any]]
  label2id: Optional[dict[str, Any]]
  num_labels: Optional[int]
  problem_type: Optional[
    Literal[
      "regression", "single_label_classification", "multi_label_classification"
    ]
  ]
  # Of CrossEncoder of sentence-transformers; versions 4 and 5, and before.
  sentence_transformers: Optional[dict[str, Any]]
  sbert_ce_default_activation_function: Optional[str]


class _Index(TypedDict):
  """What the index of several files says: the file of each weight."""

  weight_map: dict[str, str]


class _NoHead(Exception):
  """The reason why no model of this package has a folder's head."""


def is_folder(path: str) -> bool:
  """Returns whether a folder has a file of Hugging Face."""
  names = CONFIG_FILE, _WEIGHTS_FILE, _ADAPTER_FILE
  return any(files.exists(os.path.join(path, name)) for name in names)


def read(path: str, head: str = "") -> portable.PortableCheckpoint:
  """Reads a folder, with a head of `names.HEADS`; "" detects it.

  Raises:
    ValueError, OSError: a file is missing or damaged, or the weights do not
      fit config.json.
  """
  modules_path = os.path.join(path, sentence_transformers.MODULES_FILE)
  is_embedding = head in ("", "embedding") and files.exists(modules_path)
  whole, path = path, sentence_transformers.encoder_folder(path)
  if files.exists(os.path.join(path, _ADAPTER_FILE)):
    raise ValueError(
      f"{path} has an adapter ({_ADAPTER_FILE}), which changes the weights: "
      "merge it by merge_and_unload of PEFT, and save the whole model."
    )
  config_path = os.path.join(path, CONFIG_FILE)
  if not files.exists(config_path):
    raise FileNotFoundError(
      f"{path} has {_WEIGHTS_FILE}, but no {CONFIG_FILE}: save the model by "
      "save_pretrained of transformers."
    )
  settings = files.read_json(config_path, dict[str, Any], "copy it again")
  is_preset = "class_name" in settings  # Of KerasHub.
  if is_preset:
    settings, values = keras_files.read_preset(path, settings)
  config = config_of(settings, config_path)
  notes = []
  if is_preset and files.exists(os.path.join(path, keras_files.TASK_FILE)):
    notes.append(f"the head of {path}, {keras_files.TASK_FILE}, is not read.")
  is_torch = False  # Else transformers' torch class has no such names.
  if not is_preset:
    found, program = _open(path)
    is_torch = program != "tf" and not any(map(_WRAPPERS.search, found))
    if program == "tf":
      found = keras_files.from_tensorflow(found)
    values = {_plain(x): found[x] for x in found if not _BUFFERS.search(x)}
  parts = {name.partition(".")[0] for name in values}
  if "albert" not in parts and "embeddings" in parts:
    values = {f"albert.{name}": value for name, value in values.items()}
  if _BIAS_COPY in values:
    values.setdefault(_BIAS, values[_BIAS_COPY])
  copies = [x for x in _COPIES if x in values and _COPIES[x] in values]
  differing = [
    copy
    for copy in copies
    if not np.array_equal(values.pop(copy), values[_COPIES[copy]])
  ]
  is_tied = settings.get("tie_word_embeddings", True)
  if differing and is_tied:
    notes.append(
      f"{files.quote(*differing)} differ from what they copy, which is used, "
      "as in transformers 4; version 5 uses the copies."
    )
  is_tied = is_tied or bool(copies and not differing)
  if config.embedding_size == config.hidden_size:
    config = _resolve_projection(config, values)
  stored = {}
  for row in checkpoint_names.rows(config, *checkpoint_names.HEADS):
    if row.hf in values:
      value = values.pop(row.hf)
      stored[row.tf1] = value.T if row.transposed else value
  if values:
    notes.append(
      f"the weights {files.quote(*sorted(values))} are of no model here: they "
      "have no part in its outputs."
    )
  stored.update(values)
  problem, chosen = "", "embedding"
  labels: tuple[str, ...] = ()
  try:
    if not is_embedding:
      chosen, labels = _head_of(config_path, stored, head)
    if not is_tied and chosen in ("pretraining", "masked_lm"):
      raise _NoHead(f"{config_path} has tie_word_embeddings false")
    says = ("problem_type", "sentence_transformers")
    if chosen == "regression" and not any(map(settings.get, says)):
      notes.append(
        f"{config_path} has no problem_type: score gives the output itself, a "
        "CrossEncoder or a pipeline of transformers its sigmoid."
      )
  except _NoHead as error:
    problem, chosen, labels = str(error), "none", ()
    if head not in ("", "none"):
      raise ValueError(f"{problem}; --head=none reads the rest.") from error
  result = portable.select(path, config, stored, chosen)
  result.format = "hf" if is_torch else "keras"
  step = settings.get(checkpoint_names.GLOBAL_STEP)
  if type(step) is int and 0 <= step < 2**63:
    result.tensors[checkpoint_names.GLOBAL_STEP] = np.int64(step)
  result.notes += notes
  if config.hidden_act == "gelu_erf":
    result.notes.append(
      f"{config_path} has hidden_act {settings['hidden_act']!r}, the exact "
      "GELU. Google's releases were trained with the tanh form: write gelu_new "
      "there if these weights are of one (transformers issue 2395)."
    )
  result.tokenizer = (
    keras_files.preset_tokenizer(path)
    if is_preset
    else hf_tokenizer_reader.read(path, result.notes)
  )
  result.labels = labels
  of_format = keras_files if is_preset else hf_tokenizer_reader
  result.max_seq_length = min(
    of_format.max_length(path), config.max_position_embeddings
  )
  if is_embedding:
    try:
      sentence_transformers.read(whole, result)
    except ValueError as error:
      problem = str(error).removesuffix(".")
      if head:
        raise ValueError(f"{problem}; --head=none reads the rest.") from error
  if problem:
    result.head_problem = problem
    result.notes.append(f"{problem}; only the encoder is used.")
  return result


def _identity(
  row: checkpoint_names.Row, config: modeling.AlbertConfig
) -> np.ndarray:
  """Returns the kernel or the bias of an identity projection."""
  size = config.hidden_size
  return np.eye(size) if row.transposed else np.zeros(size)


def _resolve_projection(
  config: modeling.AlbertConfig, values: _Values
) -> modeling.AlbertConfig:
  """Removes a projection E -> E that is the identity; else enables it."""
  rows = [row for row in checkpoint_names.PROJECTION if row.hf in values]
  for row in rows:
    value = values[row.hf]
    # The shape first, because a wrong configuration may fill the memory.
    if {*value.shape} != {config.hidden_size} or not np.array_equal(
      value, _identity(row, config)
    ):
      return dataclasses.replace(config, always_project_embedding=True)
  for row in rows:
    del values[row.hf]
  return config


def write(checkpoint: portable.PortableCheckpoint, folder: str) -> str:
  """Writes a local folder for `from_pretrained`; returns the weights' path.

  The head of the checkpoint must be in `ARCHITECTURES`.

  Raises:
    ValueError: transformers would assign layers to other groups.
    OSError: it cannot be written.
  """
  config, head = checkpoint.config, checkpoint.head
  arrays: dict[checkpoint_names.Row, portable.Array] = {
    row: checkpoint.tensors[row.tf1]
    for row in checkpoint.rows
    if not checkpoint_names.may_lack(head, row.tf1)
  }
  if not config.has_projection:
    # transformers always has a projection, so write an identity.
    arrays |= {x: _identity(x, config) for x in checkpoint_names.PROJECTION}
  # In an AlbertModel, names do not begin with "albert.".
  cut = len("albert.") if head in ("none", "embedding") else 0
  values = {}
  for row, value in arrays.items():
    array = np.asarray(value, np.float32)
    array = array.T if row.transposed else array
    values[row.hf[cut:]] = np.ascontiguousarray(array)
  path = os.path.join(folder, _WEIGHTS_FILE)
  try:
    # transformers requires the metadata.
    safetensors.numpy.save_file(values, path, {"format": "pt"})
  except safetensors.SafetensorError as error:
    raise OSError(
      f"{_WEIGHTS_FILE} cannot be written ({error}): make room and give the "
      "same command again."
    ) from error
  settings = settings_of(config, head, checkpoint.labels, checkpoint.classes)
  if checkpoint_names.GLOBAL_STEP in checkpoint.tensors:
    settings[checkpoint_names.GLOBAL_STEP] = checkpoint.step
  length = checkpoint.max_seq_length or config.max_position_embeddings
  if head == "embedding":
    sentence_transformers.write(checkpoint, folder, length)
  if checkpoint.tokenizer:
    python = checkpoint.tokenizer.open()  # Each pads with id 0.
    settings.update(bos_token_id=python.cls_id, eos_token_id=python.sep_id)
    hf_tokenizer.write(checkpoint.tokenizer, folder, length)
  config_path = os.path.join(folder, CONFIG_FILE)
  files.write_json(config_path, settings, indent=2, sort_keys=True)
  # safetensors writes for its user alone; other files have the user's umask.
  shutil.copymode(config_path, path)
  return path


def _plain(name: str) -> str:
  """Returns the name that transformers gives a weight today."""
  name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
  name = re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)
  return _WRAPPERS.sub("", name)


def _open(folder: str) -> tuple[_Values, str]:
  """Returns the floating-point values of a folder; see `_read_file`."""
  path, index = (os.path.join(folder, x) for x in (_WEIGHTS_FILE, _INDEX_FILE))
  if files.exists(path):
    return _read_file(path)
  is_sharded = files.exists(index)
  if not is_sharded and files.exists(os.path.join(folder, keras_files.TF_FILE)):
    return keras_files.read_tf_model(folder), "tf"
  if not is_sharded:
    raise FileNotFoundError(
      f"{folder} has no {_WEIGHTS_FILE}: save other files of weights, such as "
      "pytorch_model.bin (a pickle), again by save_pretrained of transformers; "
      "of a TensorFlow checkpoint, give the prefix."
    )
  file_of = files.read_json(index, _Index, "copy it again")["weight_map"]
  values: _Values = {}
  program = ""
  for name in sorted({*file_of.values()}):
    if os.path.basename(name) != name or not name.endswith(".safetensors"):
      raise ValueError(f"{index} names {name!r:.80}, not a file beside it.")
    found, program = _read_file(os.path.join(folder, name))
    values |= {x: found[x] for x in found if file_of.get(x) == name}
  return values, program


def _read_file(path: str) -> tuple[_Values, str]:
  """Returns the floating-point values of a file.

  The text is the program whose names they have: "tf", else torch's.
  """
  with files.local_copy(path) as local_path:
    name, values = "the header", {}
    try:
      file = safetensors.safe_open(local_path, framework="numpy")
      program = (file.metadata() or {}).get("format", "")
      names = file.keys()
      if len(names) > _MAX_NAMES:
        raise ValueError(f"it has {len(names):,} tensors")
      for name in names:
        if "F" in file.get_slice(name).get_dtype():  # F32, BF16, ...
          values[name] = np.asarray(file.get_tensor(name), np.float32)
    except Exception as error:  # SafetensorError is a plain Exception.
      raise ValueError(
        f"{path} is damaged, truncated, or not in float32, float16 or bfloat16 "
        f"({name:.80}: {str(error)[:120]}): copy it again, or save it so."
      ) from error
  if program == "flax":
    raise ValueError(
      f"{path} has the names of Flax: load it by the torch class of "
      "transformers 4, with from_flax=True, and save it again."
    )
  return values, program


def config_of(values: Mapping[str, Any], path: str) -> modeling.AlbertConfig:
  """Returns the encoder configuration for the settings of a config.json.

  If E = H, only the weights show whether the projection is the identity, so
  the result has no projection.
  """
  for name, value in _FIXED.items():
    found = values.get(name, value)
    if found != value and (found or value):
      raise ValueError(
        f"{path} has {name} {found!r:.80}; only {value!r} is supported."
      )
  act = values.get("hidden_act", "gelu_new")
  if act not in list(_FROM_HF):
    raise ValueError(
      f"{path} has hidden_act {act!r:.80}; supported are {', '.join(_FROM_HF)}."
    )
  # transformers has the same defaults as AlbertConfig.
  given = {name: values[name] for name in _SAME if name in values}
  try:
    config = modeling.AlbertConfig(**given, hidden_act=_FROM_HF[act])
  except ValueError as error:
    raise ValueError(f"{path}: {error}") from error
  checkpoint_names.check_groups(config, path)
  return config


def settings_of(
  config: modeling.AlbertConfig, head: str, labels: Sequence[str], classes: int
) -> dict[str, Any]:
  """Returns the settings for an encoder with a head of `ARCHITECTURES`.

  The special ids are those of a SentencePiece vocabulary.
  """
  checkpoint_names.check_groups(config, "the model")
  values = {
    **{name: getattr(config, name) for name in _SAME},
    **{name: _FIXED[name] for name in _WRITTEN},
    "hidden_act": _TO_HF.get(config.hidden_act, config.hidden_act),
    "tie_word_embeddings": True,
    "architectures": [ARCHITECTURES[head]],
    "classifier_dropout_prob": 0.1,
    "torch_dtype": "float32",
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
  }
  if head in _NAMED:
    names = labels or [f"LABEL_{i}" for i in range(classes)]
    values["id2label"] = {str(i): name for i, name in enumerate(names)}
    values["label2id"] = {name: i for i, name in enumerate(names)}
    values["problem_type"] = _PROBLEM_TYPES.get(head)
  return values


def _head_of(
  path: str, stored: Mapping[str, Any], head: str
) -> tuple[str, tuple[str, ...]]:
  """Returns the head, a key of `names.HEADS`, and the names of its classes.

  Args:
    path: the config.json.
    stored: the weights by their TF1 names.
    head: the user's choice; "" for none.

  Raises:
    _NoHead: the settings contradict the weights, or ask for another head.
  """
  try:
    settings = files.read_json(path, _HeadSettings, "no such head is known")
  except ValueError as error:
    raise _NoHead(str(error).removesuffix(".")) from error
  detected = portable.detect_head(stored)
  found = head or detected
  (name,) = settings.get("architectures") or [""]
  if name:
    named = [h for h, known in ARCHITECTURES.items() if known == name]
    if not named:
      known = ", ".join(dict.fromkeys(ARCHITECTURES.values()))
      raise _NoHead(f"{path} names {name!r:.80}; supported are {known}")
    is_saved = checkpoint_names.has_head(named[0], stored)
    if not head and is_saved:
      found = detected if detected in named else named[0]
    elif not head and (named[0], detected) != ("pretraining", "masked_lm"):
      raise _NoHead(f"{path} names {name}, whose head is not among the weights")
  labels: tuple[str, ...] = ()
  id2label = settings.get("id2label") or {}
  kind = settings.get("problem_type")
  activation = str(
    (settings.get("sentence_transformers") or {}).get("activation_fn")
    or settings.get("sbert_ce_default_activation_function")
    or ""
  ).rpartition(".")[2]
  has_classes = found in _NAMED
  if has_classes and activation not in ("", "Identity", "Sigmoid"):
    raise _NoHead(f"{path} has activation_fn {activation!r:.80}")
  is_multi_label = kind == _PROBLEM_TYPES["multi_label"]
  if (is_multi_label or activation == "Sigmoid") and not head:
    found = "multi_label" if found in _PROBLEM_TYPES else found
  classes = portable.count_classes(stored) if has_classes else 2
  if has_classes or found in ("squad1", "pretraining"):
    for count in (settings.get("num_labels"), len(id2label) or None):
      if count not in (None, classes):
        raise _NoHead(
          f"{path} has num_labels or id2label for {count} classes, the weights "
          f"have {classes}"
        )
  if has_classes:
    if kind not in (None, _PROBLEM_TYPES.get(found, kind)):
      raise _NoHead(
        f"{path} has problem_type {kind}, but {classes} outputs or another "
        f"--head, which is read as {found}"
      )
    labels = _labels_of(settings, id2label, classes, path)
  if found == "regression" and not (name or head):
    found = ""  # It may score options, of which `portable.select` tells.
  return found, () if found == "regression" else labels


def _labels_of(
  settings: _HeadSettings, id2label: Mapping[str, Any], classes: int, path: str
) -> tuple[str, ...]:
  """Returns the names of the classes, or () if they have none."""
  # Without the number, the name is one with a line break.
  names = tuple(str(id2label.get(str(i), "\n")) for i in range(len(id2label)))
  if len({*names}) < len(names) or not all(map(labels_lib.fits_cell, names)):
    raise _NoHead(
      f"{path} has id2label {id2label!s:.120}, but it must number different "
      "names without tabs and line breaks from 0"
    )
  expected = {name: i for i, name in enumerate(names)}
  label2id = settings.get("label2id")
  # transformers writes other names where label2id was never set.
  is_same = {*(label2id or {})} == {*expected}
  if is_same and any(
    label2id[x] not in (i, str(i)) for x, i in expected.items()
  ):
    raise _NoHead(f"{path} has an id2label and a label2id that contradict")
  unnamed = tuple(f"LABEL_{i}" for i in range(classes))
  return () if names == unnamed else names
