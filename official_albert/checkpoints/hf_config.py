"""The config.json of Hugging Face: what it says is obeyed or refused.

Source: configuration_albert.py and modeling_albert.py of transformers 4.57.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal, Mapping, Optional, Sequence

import annotated_types
from typing_extensions import TypedDict

from official_albert import files, modeling
from official_albert import labels as labels_lib
from official_albert.checkpoints import names as checkpoint_names
from official_albert.checkpoints import portable

ARCHITECTURES: Mapping[str, str] = {
  "none": "AlbertModel",
  "pretraining": "AlbertForPreTraining",
  "masked_lm": "AlbertForMaskedLM",
  "classification": "AlbertForSequenceClassification",
  "regression": "AlbertForSequenceClassification",
  "multiple_choice": "AlbertForMultipleChoice",
  "squad1": "AlbertForQuestionAnswering",
}
CONFIG_FILE = "config.json"

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
  if field.name not in ("hidden_act", "sharing", "always_project_embedding")
)
# Of those with one value.
_WRITTEN = ("layer_norm_eps", "position_embedding_type", "model_type")


class _HeadSettings(TypedDict, total=False):
  """What config.json says of the head."""

  architectures: Optional[Annotated[list[str], annotated_types.Len(0, 1)]]
  id2label: Optional[dict[str, Any]]
  label2id: Optional[dict[str, Any]]
  num_labels: Optional[int]
  problem_type: Optional[Literal["regression", "single_label_classification"]]


class NoHead(Exception):
  """The reason why no model of this package has a folder's head."""


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
  if head in ("classification", "regression"):
    names = labels or [f"LABEL_{i}" for i in range(classes)]
    values["id2label"] = {str(i): name for i, name in enumerate(names)}
    values["label2id"] = {name: i for i, name in enumerate(names)}
    values["problem_type"] = (
      "regression" if head == "regression" else "single_label_classification"
    )
  return values


def head_of(
  path: str, stored: Mapping[str, Any], head: str
) -> tuple[str, tuple[str, ...]]:
  """Returns the head, a key of `names.HEADS`, and the names of its classes.

  Args:
    path: the config.json.
    stored: the weights by their TF1 names.
    head: the user's choice; "" for none.

  Raises:
    NoHead: the settings contradict the weights, or ask for another head.
  """
  try:
    settings = files.read_json(path, _HeadSettings, "no such head is known")
  except ValueError as error:
    raise NoHead(str(error).removesuffix(".")) from error
  detected = portable.detect_head(stored)
  found = head or detected
  (name,) = settings.get("architectures") or [""]
  if name:
    named = [h for h, known in ARCHITECTURES.items() if known == name]
    if not named:
      known = ", ".join(dict.fromkeys(ARCHITECTURES.values()))
      raise NoHead(f"{path} names {name!r:.80}; supported are {known}")
    is_saved = checkpoint_names.has_head(named[0], stored)
    if not head and is_saved:
      found = detected if detected in named else named[0]
    elif not head and (named[0], detected) != ("pretraining", "masked_lm"):
      raise NoHead(f"{path} names {name}, whose head is not among the weights")
  labels: tuple[str, ...] = ()
  if found in ("classification", "regression"):
    labels = _labels_of(settings, portable.count_classes(stored), path)
  elif found in ("squad1", "pretraining"):
    _check_count(settings, 2, path)
  if found == "regression" and not (name or head):
    found = ""  # It may score options, of which `portable.select` tells.
  return found, labels if found == "classification" else ()


def _check_count(settings: _HeadSettings, classes: int, path: str) -> None:
  """Refuses settings that contradict the number of classes."""
  id2label = settings.get("id2label")
  for count in (settings.get("num_labels"), id2label and len(id2label)):
    if count is not None and count != classes:
      raise NoHead(
        f"{path} has num_labels or id2label for {count} classes, the weights "
        f"have {classes}"
      )


def _labels_of(
  settings: _HeadSettings, classes: int, path: str
) -> tuple[str, ...]:
  """Returns the names of the classes, or () if they have none."""
  kind = settings.get("problem_type")
  if kind and (kind == "regression") != (classes == 1):
    raise NoHead(f"{path} has problem_type {kind} for {classes} outputs")
  _check_count(settings, classes, path)
  id2label = settings.get("id2label") or {}
  # Without the number, the name is one with a line break.
  names = tuple(str(id2label.get(str(i), "\n")) for i in range(len(id2label)))
  if len({*names}) < len(names) or not all(map(labels_lib.fits_cell, names)):
    raise NoHead(
      f"{path} has id2label {id2label!s:.120}, but it must number different "
      "names without tabs and line breaks from 0"
    )
  unnamed = tuple(f"LABEL_{i}" for i in range(classes))
  label2id, expected = (
    settings.get("label2id"),
    dict(zip(names, range(classes))),
  )
  # transformers writes other names where label2id was never set.
  if label2id and {*label2id} == {*expected} and label2id != expected:
    raise NoHead(f"{path} has an id2label and a label2id that contradict")
  return () if names == unnamed else names
