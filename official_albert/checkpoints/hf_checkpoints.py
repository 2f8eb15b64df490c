"""Model folders of Hugging Face: config.json and model.safetensors.

pytorch_model.bin is a pickle, which can run code. It is read only by
torch.load(weights_only=True), and only by versions in which that is safe.

Sources: configuration_albert.py and modeling_albert.py of transformers 4.57;
github.com/huggingface/safetensors.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import os
import re
from typing import Any, Mapping, Sequence

import numpy as np
import safetensors.numpy
import tensorflow  # noqa: F401  It registers NumPy's dtype bfloat16.

from official_albert import files, modeling
from official_albert.checkpoints import (
  hf_tokenizer,
  hf_tokenizer_reader,
  portable,
  tensor_bundle,
)
from official_albert.checkpoints import names as checkpoint_names

ARCHITECTURES: Mapping[str, str] = {
  "none": "AlbertModel",
  "pretraining": "AlbertForPreTraining",
  "masked_lm": "AlbertForMaskedLM",
  "classification": "AlbertForSequenceClassification",
  "regression": "AlbertForSequenceClassification",
  "multiple_choice": "AlbertForMultipleChoice",
  "squad1": "AlbertForQuestionAnswering",
}
_PROGRAM = "Hugging Face"
HF_CONFIG_FILE = "config.json"
_WEIGHTS_FILE = "model.safetensors"
_BIN_FILE = "pytorch_model.bin"
# The largest models have about a thousand variables.
_MAX_NAMES = 50_000
# Older versions of weights_only can be fooled (CVE-2025-32434).
_SAFE_TORCH = (2, 6)

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
# Three tables have the keys of config.json: those with only one value here,
# those that are obeyed, and those that change no output. Others have no effect
# on transformers' ALBERT either, and are named in a note.
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
  "cross_attention_hidden_size": None,
  "tie_encoder_decoder": False,
  "per_layer_config": None,
  "pruned_heads": {},
  "adapters": {},
  "adapter_fusion_models": [],
  # Weights that are not plain numbers.
  "quantization_config": None,
  "compression_config": None,
  # Code of the folder.
  "auto_map": None,
  "custom_pipelines": None,
  # Of Google's files, where other values are another model.
  "net_structure_type": 0,
  "gap_size": 0,
  "num_memory_blocks": 0,
  "down_scale_factor": 1,
  "layers_to_keep": [],
  "ln_type": "postln",
}
# Fields of AlbertConfig that config.json has under the same name.
_SAME = tuple(
  field.name
  for field in dataclasses.fields(modeling.AlbertConfig)
  if field.name not in ("hidden_act", "sharing", "always_project_embedding")
)
_OBEYED = (
  *_SAME,
  *("hidden_act", "architectures", "id2label", "label2id", "num_labels"),
  *("problem_type", "tie_word_embeddings", "dtype", "torch_dtype"),
  "tokenizer_class",
)
# Of those with one value.
_WRITTEN = ("layer_norm_eps", "position_embedding_type", "model_type")
_DTYPES = ("float32", "float16", "bfloat16", "float64", "auto")
# Of training, of the text that a decoder writes, and of how, not what, is
# computed. Keys that begin with "_" are transformers' own.
_WITHOUT_EFFECT = frozenset(
  """
  bad_words_ids begin_suppress_tokens bos_token_id chunk_size_feed_forward
  classifier_dropout classifier_dropout_prob decoder_start_token_id
  directionality diversity_penalty do_sample early_stopping
  encoder_no_repeat_ngram_size eos_token_id exponential_decay_length_penalty
  finetuning_task
  forced_bos_token_id forced_eos_token_id gradient_checkpointing language
  length_penalty max_length min_length model_max_length name name_or_path
  no_repeat_ngram_size num_beam_groups num_beams num_return_sequences
  output_attentions output_hidden_states output_past output_scores pad_token_id
  pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers
  pooler_size_per_head pooler_type prefix remove_invalid_values
  repetition_penalty return_dict return_dict_in_generate sep_token_id
  suppress_tokens task_specific_params temperature tf_legacy_loss
  tie_last_hidden_states top_k top_p torchscript transformers_version typical_p
  use_bfloat16 use_cache xla_device
  """.split()
)
# Files with which transformers or sentence-transformers compute other outputs.
_ADAPTER_FILE, _MODULES_FILE = "adapter_config.json", "modules.json"
# Copies of tied weights. transformers 4 computes with the originals, 5 with the
# copies if they differ.
_BIAS, _BIAS_COPY = "predictions.bias", "predictions.decoder.bias"
_COPIES = {
  "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
  _BIAS_COPY: _BIAS,
}
# Constants that Hugging Face saves with the weights.
_BUFFERS = re.compile(r"embeddings\.(position_ids|token_type_ids)$")

_Values = dict[str, tensor_bundle.LazyArray]


def read(path: str, head: str = "") -> portable.PortableCheckpoint:
  """Reads a folder, with a head of `names.HEADS`; "" detects it.

  Raises:
    ValueError, OSError: a file is missing or damaged, or the weights do not
      fit config.json.
  """
  config_path = os.path.join(path, HF_CONFIG_FILE)
  if not files.exists(config_path):
    raise FileNotFoundError(
      f"{config_path} does not exist: give the folder of a Hugging Face model."
    )
  settings = files.read_json(config_path, dict[str, Any], "copy it again")
  config = config_of(settings, config_path)
  _check_files(path)
  values, metadata = _open(path)
  values = {n: value for n, value in values.items() if not _BUFFERS.search(n)}
  if not any(name.startswith("albert.") for name in values):
    values = {f"albert.{name}": value for name, value in values.items()}
  if _BIAS_COPY in values:
    values.setdefault(_BIAS, values[_BIAS_COPY])
  notes, problem = _notes_about(settings, path), ""
  is_tied = settings.get("tie_word_embeddings", True)
  if not is_tied and not set(_COPIES) & set(values):
    problem = "tie_word_embeddings is false, but only the embeddings are there"
  for copy, original in _COPIES.items():
    both = copy in values and original in values
    if both and not np.array_equal(values.pop(copy), values[original]):
      differ = f"{copy} and {original} differ"
      if not is_tied:
        problem = f"tie_word_embeddings is false, and {differ}"
      notes.append(
        f"{differ}: {original} is used, as in transformers 4; version 5 uses "
        "the other one."
      )
  if config.embedding_size == config.hidden_size:
    config = _resolve_projection(config, values)
  stored = {}
  for row in checkpoint_names.all_rows(config):
    if row.hf in values:
      value = values.pop(row.hf)
      stored[row.tf1] = _transposed(value) if row.transposed else value
  if values:
    notes.append(
      f"the weights {files.quote(*sorted(values))} are of no model here: they "
      "have no part in its outputs."
    )
  stored.update(values)
  chosen, labels, other_problem = head_of(settings, stored, head)
  if other_problem or chosen not in ("pretraining", "masked_lm"):
    problem = other_problem
  if problem:
    if head not in ("", "none"):
      raise ValueError(f"{config_path}: {problem}; --head=none reads the rest.")
    chosen, labels = "none", ()
  elif not head and chosen == "regression" and not is_classifier(settings):
    chosen = ""  # Which adds a note.
  result = portable.select(path, config, stored, chosen)
  step = metadata.get("global_step", "")
  if re.fullmatch("[0-9]{1,18}", step):
    result.tensors[checkpoint_names.GLOBAL_STEP] = np.int64(step)
  result.notes += notes
  if config.hidden_act == "gelu_erf":
    result.notes.append(
      f"{config_path} has hidden_act {settings['hidden_act']!r}, the exact "
      "GELU, which is gelu_erf here. Google's releases were trained with the "
      "tanh form: if these weights are of a release, the file is wrong "
      "(transformers issue 2395), so write gelu_new there."
    )
  result.tokenizer = hf_tokenizer_reader.read(path, result.notes)
  if result.tokenizer:
    result.notes.append(
      f"texts are tokenized with {os.path.basename(result.tokenizer.path)} by "
      "the rules of this package; transformers may give other ids, see "
      "docs/checkpoints.md"
    )
  result.labels = labels
  if problem:
    result.head_problem = f"{config_path}: {problem}"
    result.notes.append(f"{result.head_problem}; only the encoder is used.")
  return result


def _check_files(path: str) -> None:
  """Refuses a folder whose model is more than its weights."""
  if files.exists(os.path.join(path, _ADAPTER_FILE)):
    raise ValueError(
      f"{path} has an adapter ({_ADAPTER_FILE}), which changes the weights: "
      "merge it by merge_and_unload of PEFT, and save the whole model."
    )


def _notes_about(settings: Mapping[str, Any], path: str) -> list[str]:
  """Returns notes about keys and files that are passed over."""
  notes = []
  known = {*_FIXED, *_OBEYED, *_WITHOUT_EFFECT}
  if unknown := sorted(k for k in set(settings) - known if k[:1] != "_"):
    notes.append(
      f"{HF_CONFIG_FILE} has the keys {files.quote(*unknown)}, which have no "
      "effect, as in transformers."
    )
  if files.exists(os.path.join(path, _MODULES_FILE)):
    notes.append(
      f"{path} is of sentence-transformers: the pooling and the layers that "
      f"{_MODULES_FILE} names are not applied, so choose the pooling yourself."
    )
  return notes


def _transposed(value: tensor_bundle.LazyArray) -> tensor_bundle.LazyArray:
  return tensor_bundle.LazyArray(
    value.name, value.shape[::-1], lambda: value.read().T
  )


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
  """Writes a folder for `from_pretrained`; returns the weights' path.

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
    for row in checkpoint_names.PROJECTION:
      arrays[row] = _identity(row, config)
  # In an AlbertModel, names do not begin with "albert.".
  cut = len("albert.") if head == "none" else 0
  values = {}
  for row, array in arrays.items():
    array = np.asarray(array, np.float32)
    values[row.hf[cut:]] = np.ascontiguousarray(
      array.T if row.transposed else array
    )
  metadata = {"format": "pt"}  # Required by transformers.
  if checkpoint_names.GLOBAL_STEP in checkpoint.tensors:
    metadata["global_step"] = str(checkpoint.step)
  path = os.path.join(folder, _WEIGHTS_FILE)
  try:
    safetensors.numpy.save_file(values, path, metadata)
  except safetensors.SafetensorError as error:
    raise OSError(
      f"{_WEIGHTS_FILE} cannot be written ({error}): make room and give the "
      "same command again."
    ) from error
  _sort_metadata(path)
  settings = settings_of(config, head, checkpoint.labels, checkpoint.classes)
  if checkpoint.tokenizer:
    tokenizer = checkpoint.tokenizer.open()
    settings.update(
      pad_token_id=tokenizer.pad_id,
      bos_token_id=tokenizer.cls_id,
      eos_token_id=tokenizer.sep_id,
    )
    checkpoint.notes += hf_tokenizer.write(
      checkpoint.tokenizer, folder, config.max_position_embeddings
    )
  config_path = os.path.join(folder, HF_CONFIG_FILE)
  files.write_json(config_path, settings, indent=2, sort_keys=True)
  return path


def _open(folder: str) -> tuple[_Values, Mapping[str, str]]:
  """Returns the floating-point values and the metadata of a folder."""
  path = os.path.join(folder, _WEIGHTS_FILE)
  if files.exists(path):
    return _open_safetensors(path)
  if files.exists(f"{path}.index.json"):
    raise ValueError(
      f"{folder} holds its weights in several files, which is not supported: "
      "save it with transformers' save_pretrained(max_shard_size='50GB')."
    )
  path = os.path.join(folder, _BIN_FILE)
  if not files.exists(path):
    raise FileNotFoundError(
      f"{folder} holds neither {_WEIGHTS_FILE} nor {_BIN_FILE}."
    )
  return _open_bin(path), {}


def _sort_metadata(path: str) -> None:
  """Sorts the metadata of a file; safetensors writes it in a random order."""
  with open(path, "r+b") as file:
    size = int.from_bytes(file.read(8), "little")
    header = json.loads(file.read(size))
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    file.seek(8)
    file.write(json.dumps(header, separators=(",", ":")).encode().ljust(size))


def _open_safetensors(path: str) -> tuple[_Values, Mapping[str, str]]:
  # The file stays open for its values, even if it is a temporary copy.
  with files.local_copy(path) as local_path:
    try:
      file = safetensors.safe_open(local_path, framework="numpy")
      names = file.keys()
      if len(names) > _MAX_NAMES:
        raise ValueError(f"it has {len(names):,} tensors")
      slices = {name: file.get_slice(name) for name in names}
    except Exception as error:  # SafetensorError is a plain Exception.
      raise ValueError(
        f"{path} is damaged or truncated ({str(error)[:120]}): copy it again."
      ) from error

  def read(name: str) -> np.ndarray:
    try:
      return np.asarray(file.get_tensor(name), np.float32)
    except Exception as error:  # For example a number of 8 bits.
      raise ValueError(
        f"{name} in {path} cannot be read ({error}): save the model in float32 "
        "or bfloat16."
      ) from error

  values = {
    name: tensor_bundle.LazyArray(
      name, tuple(part.get_shape()), functools.partial(read, name)
    )
    for name, part in slices.items()
    if "F" in part.get_dtype()  # F32, BF16, ...
  }
  return values, file.metadata() or {}


def _open_bin(path: str) -> _Values:
  """Opens a pickle of tensors without running any of its code."""
  advice = (
    f"{path} is a pickle, which only torch 2.6 or newer reads safely: install "
    "it (pip install torch), or save the model as model.safetensors."
  )
  try:
    # Not a requirement of this package.
    torch = importlib.import_module("torch")
  except ImportError as error:
    raise ValueError(advice) from error
  version = re.findall(r"\d+", torch.__version__)[:2]
  if tuple(map(int, version)) < _SAFE_TORCH:
    raise ValueError(advice)
  with files.local_copy(path) as local_path:
    try:
      state = torch.load(local_path, map_location="cpu", weights_only=True)
      values = dict(state.items())
    except Exception as error:  # torch does not document its exception classes.
      raise ValueError(
        f"{path} holds something other than tensors, or is damaged; no code of "
        "it was run."
      ) from error

  def read(name: str) -> np.ndarray:
    return values[name].float().numpy()

  return {
    name: tensor_bundle.LazyArray(
      name, tuple(value.shape), functools.partial(read, name)
    )
    for name, value in values.items()
    if torch.is_tensor(value) and value.is_floating_point()
  }


def config_of(values: Mapping[str, Any], path: str) -> modeling.AlbertConfig:
  """Returns the encoder configuration for the settings of a config.json.

  If E = H, only the weights show whether the projection is the identity, so
  the result has no projection.
  """
  for name, value in _FIXED.items():
    found = values.get(name, value)
    if found != value and not (_is_empty(found) and _is_empty(value)):
      raise ValueError(
        f"{path} has {name} {found!r:.80}; only {value!r} is supported."
      )
  for name in ("dtype", "torch_dtype"):
    dtype = values.get(name) or "auto"
    if str(dtype).removeprefix("torch.") not in _DTYPES:
      raise ValueError(
        f"{path} has {name} {dtype!r:.80}; supported are {', '.join(_DTYPES)}."
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
  checkpoint_names.check_groups(config, _PROGRAM, path)
  return config


def _is_empty(value: Any) -> bool:
  if isinstance(value, dict):
    return all(map(_is_empty, value.values()))
  return not value


def settings_of(
  config: modeling.AlbertConfig, head: str, labels: Sequence[str], classes: int
) -> dict[str, Any]:
  """Returns the settings for an encoder with a head of `ARCHITECTURES`.

  The special ids are those of a SentencePiece vocabulary.
  """
  checkpoint_names.check_groups(config, _PROGRAM, "the model")
  values = {name: getattr(config, name) for name in _SAME}
  values.update(
    {name: _FIXED[name] for name in _WRITTEN},
    tie_word_embeddings=True,
    architectures=[ARCHITECTURES[head]],
    classifier_dropout_prob=0.1,
    hidden_act=_TO_HF.get(config.hidden_act, config.hidden_act),
    torch_dtype="float32",
    pad_token_id=0,
    bos_token_id=2,
    eos_token_id=3,
  )
  if head in ("classification", "regression"):
    names = labels or [f"LABEL_{i}" for i in range(classes)]
    values["id2label"] = {str(i): name for i, name in enumerate(names)}
    values["label2id"] = {name: i for i, name in enumerate(names)}
    values["problem_type"] = (
      "regression" if head == "regression" else "single_label_classification"
    )
  return values


def is_classifier(settings: Mapping[str, Any]) -> bool:
  """Returns whether `architectures` names the model of a classifier."""
  return settings.get("architectures") == [ARCHITECTURES["classification"]]


def head_of(
  settings: Mapping[str, Any], stored: Mapping[str, Any], head: str = ""
) -> tuple[str, tuple[str, ...], str]:
  """Compares the settings of a config.json about the head with its weights.

  Args:
    settings: those of config.json.
    stored: the weights by their TF1 names.
    head: the user's choice, a key of `names.HEADS`; "" for none.

  Returns:
    A key of `names.HEADS`; the names of the classes, or () if they have none;
    and why no model of this package has the head, or "".
  """
  architectures = settings.get("architectures")
  if architectures is None:
    architectures = []
  if not isinstance(architectures, list) or len(architectures) > 1:
    return "", (), f"architectures is {architectures!r:.80}, not one class"
  detected = portable.detect_head(stored)
  found = head or detected
  for name in architectures:
    named = [h for h, known in ARCHITECTURES.items() if known == name]
    if not named:
      known = ", ".join(dict.fromkeys(ARCHITECTURES.values()))
      return "", (), f"{name!r:.80} is not supported, only {known} are"
    is_saved = checkpoint_names.has_head(named[0], stored)
    if not head and is_saved:
      found = detected if detected in named else named[0]
    elif not head and (named[0], detected) != ("pretraining", "masked_lm"):
      return "", (), f"{name} is named, but its head is not among the weights"
  labels, problem = tuple[str, ...](), ""
  if found in ("classification", "regression"):
    labels, problem = _labels_of(settings, portable.count_classes(stored))
  elif found in ("squad1", "pretraining"):
    problem = _other_count(settings, 2)
  if found == "regression" or labels == tuple(
    f"LABEL_{i}" for i in range(len(labels))
  ):
    labels = ()
  return found, labels, problem


def _other_count(settings: Mapping[str, Any], classes: int) -> str:
  """Returns how the settings contradict a number of classes, or ""."""
  id2label, count = settings.get("id2label"), settings.get("num_labels")
  for what, stated in (
    ("num_labels is", count),
    ("id2label has", len(id2label) if isinstance(id2label, dict) else None),
  ):
    if stated is not None and stated != classes:
      return f"the weights have {classes} classes, but {what} {stated!r:.40}"
  return ""


def _labels_of(
  values: Mapping[str, Any], classes: int
) -> tuple[tuple[str, ...], str]:
  """Returns the names of the classes, and why they cannot be used, or ""."""
  kind = values.get("problem_type")
  if kind == "multi_label_classification":
    return (), (
      f"problem_type {kind} gives several classes to one text, which is not "
      "supported"
    )
  if kind not in (None, "regression", "single_label_classification"):
    return (), f"problem_type {kind!r:.80} is unknown"
  if kind == "regression" and classes > 1:
    return (), (
      f"problem_type {kind} gives several numbers to one text, which is not "
      "supported"
    )
  if kind == "single_label_classification" and classes == 1:
    return (), f"problem_type {kind} needs two classes, but the weights have 1"
  id2label, label2id = values.get("id2label"), values.get("label2id")
  if id2label is not None and not isinstance(id2label, dict):
    return (), f"id2label is {id2label!r:.80}, not an object"
  if problem := _other_count(values, classes):
    return (), problem
  if id2label is None:
    return (), ""
  labels = {str(number): str(label) for number, label in id2label.items()}
  numbers = [str(number) for number in range(len(labels))]
  if set(numbers) != set(labels):
    keys = ", ".join(labels)
    return (), f"id2label has the keys {keys!r:.80}, but must count from 0"
  names = tuple(labels[number] for number in numbers)
  if len(set(names)) < len(names):
    twice = next(name for name in names if names.count(name) > 1)
    return (), f"id2label has the name {twice!r:.80} for several classes"
  expected = {name: number for number, name in enumerate(names)}
  # transformers writes other names where label2id was never set.
  if (
    isinstance(label2id, dict)
    and set(label2id) == set(expected)
    and label2id != expected
  ):
    return (), "id2label and label2id contradict each other"
  return names, ""
