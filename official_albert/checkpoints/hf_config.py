"""The config.json of Hugging Face: what it says is obeyed or refused.

Source: configuration_albert.py and modeling_albert.py of transformers 4.57.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Mapping, Sequence

from official_albert import labels as labels_lib
from official_albert import modeling
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
_PROGRAM = "Hugging Face"
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
# Of those with one value.
_WRITTEN = ("layer_norm_eps", "position_embedding_type", "model_type")
_DTYPES = ("float32", "float16", "bfloat16", "float64", "auto")
# The fewest and the most outputs of each problem_type.
_PROBLEM_TYPES: Mapping[Any, tuple[float, float]] = {
  None: (1, math.inf),
  "regression": (1, 1),
  "single_label_classification": (2, math.inf),
}


class NoHead(Exception):
  """The reason why no model of this package has a folder's head."""


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


def head_of(
  settings: Mapping[str, Any], stored: Mapping[str, Any], head: str
) -> tuple[str, tuple[str, ...]]:
  """Returns the head, a key of `names.HEADS`, and the names of its classes.

  The head is "" if it is what the weights look like, but not certain.

  Args:
    settings: those of config.json.
    stored: the weights by their TF1 names.
    head: the user's choice; "" for none.

  Raises:
    NoHead: the settings contradict the weights, or ask for another head.
  """
  architectures = settings.get("architectures")
  if architectures is None:
    architectures = []
  if not isinstance(architectures, list) or len(architectures) > 1:
    raise NoHead(f"architectures is {architectures!r:.80}, not one class")
  detected = portable.detect_head(stored)
  found = head or detected
  for name in architectures:
    named = [h for h, known in ARCHITECTURES.items() if known == name]
    if not named:
      known = ", ".join(dict.fromkeys(ARCHITECTURES.values()))
      raise NoHead(f"{name!r:.80} is not supported, only {known} are")
    is_saved = checkpoint_names.has_head(named[0], stored)
    if not head and is_saved:
      found = detected if detected in named else named[0]
    elif not head and (named[0], detected) != ("pretraining", "masked_lm"):
      raise NoHead(f"{name} is named, but its head is not among the weights")
  labels: tuple[str, ...] = ()
  if found in ("classification", "regression"):
    labels = _labels_of(settings, portable.count_classes(stored))
  elif found in ("squad1", "pretraining"):
    _check_count(settings, 2)
  if labels == tuple(f"LABEL_{i}" for i in range(len(labels))):
    labels = ()
  if found != "regression":
    return found, labels
  # It may be a head for options if nothing says that it is a classifier's.
  is_named = architectures == [ARCHITECTURES["classification"]]
  return found if head or is_named else "", ()


def _check_count(settings: Mapping[str, Any], classes: int) -> None:
  """Refuses settings that contradict the number of classes."""
  id2label, count = settings.get("id2label"), settings.get("num_labels")
  for what, stated in (
    ("num_labels is", count),
    ("id2label has", len(id2label) if isinstance(id2label, dict) else None),
  ):
    if stated is not None and stated != classes:
      raise NoHead(
        f"the weights have {classes} classes, but {what} {stated!r:.40}"
      )


def _labels_of(values: Mapping[str, Any], classes: int) -> tuple[str, ...]:
  """Returns the names of the classes, or () if they have none."""
  kind = values.get("problem_type")
  if kind not in list(_PROBLEM_TYPES):
    raise NoHead(f"problem_type {kind!s:.80} is not supported")
  fewest, most = _PROBLEM_TYPES[kind]
  if not fewest <= classes <= most:
    raise NoHead(
      f"problem_type {kind} is not supported for the {classes} classes of the "
      "weights"
    )
  id2label, label2id = values.get("id2label"), values.get("label2id")
  if id2label is not None and not isinstance(id2label, dict):
    raise NoHead(f"id2label is {id2label!r:.80}, not an object")
  _check_count(values, classes)
  if id2label is None:
    return ()
  labels = {str(number): str(label) for number, label in id2label.items()}
  numbers = [str(number) for number in range(len(labels))]
  if set(numbers) != set(labels):
    keys = ", ".join(labels)
    raise NoHead(f"id2label has the keys {keys!r:.80}, but must count from 0")
  names = tuple(labels[number] for number in numbers)
  if len(set(names)) < len(names):
    twice = next(name for name in names if names.count(name) > 1)
    raise NoHead(f"id2label has the name {twice!r:.80} for several classes")
  for name in names:
    if not labels_lib.fits_cell(name):
      raise NoHead(f"id2label has a tab or a line break in {name!r:.80}")
  expected = {name: number for number, name in enumerate(names)}
  # transformers writes other names where label2id was never set.
  if (
    isinstance(label2id, dict)
    and set(label2id) == set(expected)
    and label2id != expected
  ):
    raise NoHead("id2label and label2id contradict each other")
  return names
