"""Labels of texts, in the forms in which users and Keras give them.

A text has one class, or several labels (multi-label classification). Elsewhere
than in the latter task, several are refused by name, because a softmax over
them would be trained without a word.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence, Set
from typing import Any

import numpy as np

NO_MULTI_LABEL = (
  "a text has one class (multi-label: tools.run_finetuning "
  "--task=text_multi_label --label_separator=...)"
)
# What joins several labels in a cell of a table.
_SEPARATORS = re.compile("[,;|#]")
_LIST = re.compile(r"\[.*\]|\{.*\}|\(.*,.*\)", re.DOTALL)
# The inside of a list: nothing, or what begins with a text in quotation marks.
_QUOTED = re.compile(r"""(b?(['"]).*?\2\s*([,:'"b].*)?)?""", re.DOTALL)


def are_several(label: str, known: Collection[str]) -> bool:
  """Returns whether a label is a list such as "['a', 'b']", or is joined.

  Lists, sets and tuples are those of Python; {a,b} is also an array of SQL.

  >>> from official_albert import labels
  >>> labels.are_several("fun; sad", ["fun", "sad"])
  True
  >>> labels.are_several("fun, but sad", ["fun", "sad"])
  False

  The parts are quoted, or are other `known` labels, so that a name with a comma
  or in brackets is a label.
  """
  if _LIST.fullmatch(label):
    inside = label[1:-1].strip()
    others = {x.strip("[]{}()") for x in known if x != label}
    is_quoted = bool(_QUOTED.fullmatch(inside))
    return is_quoted or others.issuperset(_parts(inside))
  parts = _parts(label)
  return len(parts) > 1 and all(part in known for part in parts)


def _parts(text: str) -> list[str]:
  return [part.strip() for part in _SEPARATORS.split(text)]


def fits_cell(name: str) -> bool:
  """Returns whether a name can be in a table: without tab and line break."""
  return not set(name) & set("\t\n\r")


def names_of(labels: Any) -> tuple[str, ...]:
  """Returns the names of two or more classes as text, checked.

  Raises:
    ValueError: `labels` are not a list of different names.
  """
  names: tuple[str, ...] = ()
  # Sets and dicts have another order than the user may think.
  if (
    not isinstance(labels, (str, bytes, Mapping, Set)) and np.ndim(labels) == 1
  ):
    names = tuple(map(str, labels))
  if len(names) < 2 or len({*names}) < len(names):
    raise ValueError(
      f"labels are {labels!r:.80}, but must be the different names of two or "
      "more classes, or None for a regression."
    )
  for name in names:
    if not fits_cell(name):
      raise ValueError(
        f"the label {name!r:.80} contains a tab or a line break: rename it."
      )
  return names


def class_index(label: Any, names: Sequence[str]) -> int:
  """Returns the index of a class by what a user calls it: a name or an index.

  If the names are integers, so are the labels. A number without a fraction is
  an integer, whatever its type.

  Raises:
    ValueError: there is no such class.
  """
  name = str(label)
  if isinstance(label, bytes):
    name = label.decode("utf-8", "ignore")
  if name in names:
    return names.index(name)
  numbers = (bool, int, float, np.bool_, np.number)
  if isinstance(label, numbers) and label == np.floor(label):
    # Not nan, which differs from itself, but perhaps inf.
    index = int(label) if np.abs(label) < 2**53 else -1
    if str(index) in names:
      return names.index(str(index))
    are_indices = not any(known.lstrip("-").isdigit() for known in names)
    if are_indices and 0 <= index < len(names):
      return index
  shown = name if isinstance(label, bytes) else label
  several = f", and {NO_MULTI_LABEL}" if are_several(name, names) else ""
  raise ValueError(
    f"label {shown!r:.80} is unknown{several}: the classes are "
    f"{', '.join(names)}."
  )


def to_classes(y: Any, names: Sequence[str]) -> np.ndarray:
  """Returns labels, [N] or [N, 1] of any type, as classes <int32>[N].

  Raises:
    ValueError: a class is unknown, or a text has several.
  """
  labels = one_column(np.asarray(y, dtype=object))
  if labels.ndim != 1:
    raise ValueError(
      "labels must be a list of names or indices, because "
      f"{NO_MULTI_LABEL}, but have the shape {list(labels.shape)}."
    )
  return np.array([class_index(label, names) for label in labels], np.int32)


def to_indicators(y: Any, names: Sequence[str]) -> np.ndarray:
  """Returns 1.0 for each label of each text, else 0.0, <float32>[N, C].

  `y` is an array [N, C] of 0 and 1, or has a list of labels for each text.

  Raises:
    ValueError: a label is unknown, or a text has none but no list either.
  """
  try:
    array = np.asarray(y)
  except ValueError:  # Lists of different lengths.
    array = np.zeros(0)
  has_numbers = array.dtype.kind in "biuf" and array.shape[1:] == (len(names),)
  if has_numbers and np.isin(array, (0, 1)).all():
    return array.astype(np.float32)
  indicators = np.zeros([len(y), len(names)], np.float32)
  for row, found in zip(indicators, y):
    if not isinstance(found, (list, tuple, Set, np.ndarray)):
      raise ValueError(
        f"the labels of a text are {found!r:.80}, but must be a list of them; "
        f"or give an array of 0 and 1, [N, {len(names)}]."
      )
    classes = [class_index(label, names) for label in found]
    if len({*classes}) < len(classes):
      raise ValueError(
        f"a text has a label twice in {found!r:.80}: give each once, or an "
        f"array of 0 and 1, [N, {len(names)}]."
      )
    row[classes] = 1
  return indicators


def best_thresholds(probabilities: np.ndarray, gold: np.ndarray) -> np.ndarray:
  """Returns the thresholds <float32>[L] with the highest F1 of each label.

  Both arguments are [N, L]. A threshold lies in the middle between two
  probabilities. Labels that do not occur have 0.5.
  """
  found = []
  for values, is_label in zip(probabilities.T, gold.T > 0):
    order = np.argsort(-values, kind="stable")
    sorted_values = np.append(values[order].astype(np.float64), 0.0)
    counts = np.arange(1, len(values) + 1)
    f1 = 2 * np.cumsum(is_label[order]) / (counts + is_label.sum())
    # A threshold cannot separate equal probabilities.
    f1[sorted_values[:-1] == sorted_values[1:]] = -1
    best = int(np.argmax(f1))
    least, below = sorted_values[best : best + 2].astype(np.float32)
    # The middle of neighbors in float32 may be `below`.
    middle = max((least + below) / 2, np.nextafter(below, least))
    found.append(middle if is_label.any() else 0.5)
  return np.array(found, np.float32)


def to_numbers(y: Any) -> np.ndarray:
  """Returns the labels of a regression, [N] or [N, 1], as <float32>[N].

  Raises:
    ValueError: one is not a finite number.
  """
  try:
    numbers = one_column(np.asarray(y, np.float32))
  except (TypeError, ValueError) as error:
    raise ValueError(
      f"the labels of a regression must be numbers: {error}."
    ) from error
  if not np.isfinite(numbers).all():
    raise ValueError("a label of the regression is not a finite number.")
  return numbers


def one_column(array: np.ndarray) -> np.ndarray:
  """Returns an array [N, 1] as [N], any other one as it is."""
  return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
