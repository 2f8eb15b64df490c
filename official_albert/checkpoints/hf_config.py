"""Translation between config.json of Hugging Face's ALBERT and `AlbertConfig`.

Source: configuration_albert.py of transformers 4.57.
"""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any, Mapping, Sequence

from official_albert import modeling
from official_albert.checkpoints import names as checkpoint_names
from official_albert.checkpoints.checkpoint_files import HF_CONFIG_FILE

_PROGRAM = "Hugging Face"
# "gelu" in Google's JSON is the tanh form, which Hugging Face calls gelu_new;
# their "gelu" is the exact one, which no release of ALBERT was trained with.
_TO_HF = {"gelu": "gelu_new", "gelu_erf": "gelu"}
_FROM_HF = {
  "gelu": "gelu_erf",
  "gelu_python": "gelu_erf",
  "gelu_new": "gelu",
  "gelu_pytorch_tanh": "gelu",
  "gelu_fast": "gelu",
  "relu": "relu",
  "tanh": "tanh",
  "linear": "linear",
}
# Settings that are constants in this package's layers.
_FIXED = {
  "layer_norm_eps": 1e-12,
  "position_embedding_type": "absolute",
  "model_type": "albert",
}
ARCHITECTURES: Mapping[str, str] = {
  "none": "AlbertModel",
  "pretraining": "AlbertForPreTraining",
  "masked_lm": "AlbertForMaskedLM",
  "classification": "AlbertForSequenceClassification",
  "regression": "AlbertForSequenceClassification",
  "multiple_choice": "AlbertForMultipleChoice",
  "squad1": "AlbertForQuestionAnswering",
}
# Fields of AlbertConfig that config.json has under the same name.
_SAME = tuple(
  field.name
  for field in dataclasses.fields(modeling.AlbertConfig)
  if field.name not in ("hidden_act", "sharing", "always_project_embedding")
)
# The defaults of transformers for settings that config.json omits.
_DEFAULTS = {
  "hidden_act": "gelu_new",
  "hidden_dropout_prob": 0,
  "attention_probs_dropout_prob": 0,
  "type_vocab_size": 2,
  "num_hidden_groups": 1,
  "inner_group_num": 1,
  "initializer_range": 0.02,
  "max_position_embeddings": 512,
}


def read(folder: str) -> dict[str, Any]:
  """Reads the settings in a folder.

  Raises:
    FileNotFoundError: there is no config.json.
    ValueError: it is not a JSON object.
  """
  path = os.path.join(folder, HF_CONFIG_FILE)
  if not os.path.exists(path):
    raise FileNotFoundError(
      f"{path} does not exist: give the folder of a Hugging Face model."
    )
  with open(path, encoding="utf-8") as file:
    try:
      values = json.load(file)
    except ValueError as error:
      raise ValueError(f"{path} is not valid JSON: {error}.") from error
  if not isinstance(values, dict):
    raise ValueError(f"{path} must hold a JSON object of settings.")
  return values


def from_hf(values: Mapping[str, Any], path: str) -> modeling.AlbertConfig:
  """Returns the configuration of the encoder that a config.json describes.

  Where E = H, only the weights show whether the projection changes values, so
  none is assumed here; see `hf_checkpoints.read`.

  Args:
    values: the settings.
    path: of the file, for messages.

  Raises:
    ValueError: a setting is missing, of the wrong type or not supported.
  """
  for name, value in _FIXED.items():
    if values.get(name, value) != value:
      raise ValueError(
        f"{path} has {name} {values[name]!r}; only {value!r} is supported."
      )
  act = values.get("hidden_act", _DEFAULTS["hidden_act"])
  if not isinstance(act, str) or act not in _FROM_HF:
    raise ValueError(
      f"{path} has hidden_act {act!r}; supported are {', '.join(_FROM_HF)}."
    )
  picked = {name: values.get(name, _DEFAULTS.get(name)) for name in _SAME}
  lacking = [name for name, value in picked.items() if value is None]
  if lacking:
    raise ValueError(f"{path} lacks {lacking[0]}.")
  try:
    config = modeling.AlbertConfig(**picked, hidden_act=_FROM_HF[act])
  except ValueError as error:
    raise ValueError(f"{path}: {error}") from error
  checkpoint_names.check_groups(config, _PROGRAM, path)
  return config


def to_hf(
  config: modeling.AlbertConfig,
  head: str,
  labels: Sequence[str],
  classes: int,
  special_ids: Mapping[str, int],
) -> dict[str, Any]:
  """Returns the settings for an encoder with a head.

  Args:
    config: the encoder.
    head: a key of `ARCHITECTURES`.
    labels: names of the classes; () for LABEL_0, LABEL_1, ...
    classes: their number.
    special_ids: pad_token_id, bos_token_id, eos_token_id.

  Raises:
    ValueError: transformers would use other groups.
  """
  checkpoint_names.check_groups(config, _PROGRAM, "the model")
  values = {name: getattr(config, name) for name in _SAME}
  values.update(
    _FIXED,
    architectures=[ARCHITECTURES[head]],
    classifier_dropout_prob=0.1,
    hidden_act=_TO_HF.get(config.hidden_act, config.hidden_act),
    torch_dtype="float32",
    **special_ids,
  )
  if head in ("classification", "regression"):
    names = list(labels) or [f"LABEL_{i}" for i in range(classes)]
    values["id2label"] = {str(i): name for i, name in enumerate(names)}
    values["label2id"] = {name: i for i, name in enumerate(names)}
    values["problem_type"] = (
      "regression" if head == "regression" else "single_label_classification"
    )
  return values


def head_of(values: Mapping[str, Any]) -> str:
  """Returns the head of the settings' `architectures`; "" if not known.

  Raises:
    ValueError: `architectures` is not a list of names.
  """
  names = values.get("architectures") or [""]
  if not isinstance(names, list) or not all(
    isinstance(name, str) for name in names
  ):
    raise ValueError(
      f"{HF_CONFIG_FILE} has architectures {names!r}, which is not a list of "
      'names: write for example ["AlbertModel"].'
    )
  head = {name: head for head, name in ARCHITECTURES.items()}.get(names[0], "")
  if head == "regression":  # Classification has the same architecture.
    labels = values.get("id2label")
    count = len(labels) if labels and isinstance(labels, dict) else 2
    return "regression" if count == 1 else "classification"
  return head


def labels_of(values: Mapping[str, Any]) -> tuple[str, ...]:
  """Returns the classes' names in order; () if missing or only numbers."""
  names = values.get("id2label")
  if not isinstance(names, dict):
    return ()
  try:
    labels = tuple(str(names[str(i)]) for i in range(len(names)))
  except KeyError:
    return ()
  numbered = tuple(f"LABEL_{i}" for i in range(len(labels)))
  return () if labels == numbered else labels


def is_multi_label(values: Mapping[str, Any]) -> bool:
  """Returns whether a text can have several classes or several numbers."""
  kind, labels = values.get("problem_type"), values.get("id2label")
  several = isinstance(labels, dict) and len(labels) > 1
  return kind == "multi_label_classification" or (
    kind == "regression" and several
  )
