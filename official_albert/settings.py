"""Dataclass fields with the help, choices and range of their flags.

tools/cli/path_flags.py generates the flags. Loads only the standard library, as
data workers use it too.
"""

from __future__ import annotations

import dataclasses
import numbers
import operator
from typing import Any, Optional, Sequence, get_args, get_type_hints

# Choices that flags offer and the package obeys. They are here because programs
# parse their flags before they load TensorFlow.
STRATEGIES = ("one_device", "mirrored", "multi_worker", "tpu")
PRECISIONS = ("auto", "float32", "mixed_bfloat16", "mixed_float16")
WRITE_FORMATS = ("tf1", "hf", "official_albert")
# The keys of `checkpoints.HEADS`.
HEADS = (
  "none",
  "pretraining",
  "masked_lm",
  "classification",
  "multi_label",
  "token_classification",
  "embedding",
  "regression",
  "multiple_choice",
  "squad1",
  "squad2",
)
# The names of texts, of which signatures take one or a pair.
TEXT, PAIR = ("text",), ("text_a", "text_b")
# How the address of a model of a hub begins.
HUBS = ("hf://", "kaggle://")
# Which signatures an export has: of texts, of ids, or both.
SELECTIONS = ("all", "text", "ids")
# The Keras policy of each precision of an export.
EXPORT_PRECISIONS = {"float32": "float32", "bfloat16": "mixed_bfloat16"}
# How a TFLite file stores weights.
QUANTIZATIONS = ("none", "float16", "int8")

# Of float32, in which all settings are computed.
_LARGEST = 3.4028234e38


def setting(
  default: Any,
  help_text: str = "",
  choices: Sequence[str] = (),
  least: Optional[float] = None,
  most: Optional[float] = None,
  above: Optional[float] = None,
  below: Optional[float] = None,
  is_path: bool = False,
) -> Any:
  """Returns a dataclass field; `check_number` describes the limits.

  A field without `help_text` has no flag. TensorFlow's integers have 32 bits,
  so these are the limits of integers unless others are given. The value of a
  path may be an address.
  """
  if most is None and type(default) is int:
    most = 2**31 - 1
  metadata = {
    "help": help_text,
    "choices": tuple(choices),
    "limits": {"least": least, "most": most, "above": above, "below": below},
    "is_path": is_path,
  }
  return dataclasses.field(default=default, metadata=metadata)


def check(settings: Any) -> None:
  """Raises ValueError if a field is out of its range, or of another type.

  Fields whose default is a number or a bool must be one, whether or not
  `setting` has made them.
  """
  for field in dataclasses.fields(settings):
    name, value = field.name, getattr(settings, field.name)
    choices = field.metadata.get("choices")
    if choices:
      check_choice(name, value, choices)
    kind = type(field.default)
    limits = field.metadata.get("limits", {})
    is_limited = any(limit is not None for limit in limits.values())
    if field.default is None and value is not None and is_limited:
      kind = derived_kind(type(settings), name)
    if kind is bool and type(value) is not bool:
      raise ValueError(f"{name} is {value!r:.80}, but must be true or false.")
    if kind in (int, float):
      check_number(name, value, whole=kind is int, **limits)


def derived_kind(settings: type, name: str) -> type:
  """Returns X for a field of the type Optional[X].

  None stands for a default that depends on other fields.
  """
  (kind,) = {*get_args(get_type_hints(settings)[name])} - {type(None)}
  return kind


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
  """Raises ValueError unless `value` is one of `choices`."""
  if value not in choices:
    raise ValueError(
      f"{name} is {value!r:.40}, but must be one of {', '.join(choices)}."
    )


def check_number(
  name: str,
  value: Any,
  least: Optional[float] = None,
  most: Optional[float] = None,
  above: Optional[float] = None,
  below: Optional[float] = None,
  whole: bool = False,
) -> None:
  """Raises ValueError unless `value` is a finite number within the limits.

  It must be at least `least`, at most `most`, more than `above` and less than
  `below`, as far as they are given, and an integer if `whole`.
  """
  kind: Any = numbers.Integral if whole else numbers.Real
  is_number = (
    isinstance(value, kind)
    and not isinstance(value, bool)
    and (whole or abs(value) <= _LARGEST)
  )
  bounds = [
    ("at least", least, operator.ge),
    ("at most", most, operator.le),
    ("more than", above, operator.gt),
    ("less than", below, operator.lt),
  ]
  bounds = [bound for bound in bounds if bound[1] is not None]
  if is_number and all(fits(value, limit) for _, limit, fits in bounds):
    return
  limits = " and ".join(f"{words} {limit}" for words, limit, _ in bounds)
  if least is not None and most is not None:
    limits = f"from {least} to {most}"
  kinds = "an integer" if whole else "a finite number"
  wanted = limits if is_number else f"{kinds} {limits}".rstrip()
  raise ValueError(f"{name} is {value!r:.80}, but must be {wanted}.")
