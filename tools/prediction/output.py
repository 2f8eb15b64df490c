"""Predictions as files: a line for each row, as a table or as JSON.

What a model says of a row is a dict with the names of a SavedModel's outputs
(docs/serving.md). A layout makes a line of it:

    classes     id, prediction, probability of each label
    number      id, prediction
    options     id, prediction (A to D), probability of each
    answers     id, prediction, probability, start, end (, null_score_diff);
                JSON lines have the n best besides
    masks       id, prediction: the best piece of each [MASK]; JSON lines have
                the k best with their probabilities
    vector      id, the numbers of the pooled output
    swapped     id, prediction: the probability that B comes before A

A cell of a table cannot hold a tab or a line break: spaces stand for them
there, while JSON lines have the text as it is. Nine digits, so that a float32
is read as it was written.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Any, Callable, Mapping, NamedTuple, Sequence, TextIO

import numpy as np

from official_albert import files

FORMATS = ("tsv", "jsonl")
STANDARD_OUTPUT = "-"
LETTERS = "ABCD"
_CELL = str.maketrans("\t\n\r", "   ")


class Layout(NamedTuple):
  """How what is said of a row becomes a line.

  Attributes:
    header: of a table, behind "id".
    cells: of a row, behind its id.
    fields: of a JSON line, behind its id.
  """

  header: tuple[str, ...]
  cells: Callable[[Mapping[str, Any]], Sequence[Any]]
  fields: Callable[[Mapping[str, Any]], dict[str, Any]]


def layout_of(outputs: Sequence[str], labels: Sequence[str] = ()) -> Layout:
  """The layout for the outputs of a model.

  Args:
    outputs: their names.
    labels: of a classification, in the order of its probabilities.

  Raises:
    ValueError: the outputs are none of a task's.
  """
  for name, make in _LAYOUTS.items():
    if name in outputs:
      return make(outputs, labels)
  raise ValueError(
    f"no table is made of the outputs {', '.join(sorted(outputs))}: name "
    "another --signature."
  )


def _classes(outputs, labels: Sequence[str]) -> Layout:
  del outputs
  return _probabilities("label", tuple(labels), lambda label: label)


def _options(outputs, labels) -> Layout:
  del outputs, labels
  return _probabilities("choice", tuple(LETTERS), lambda i: LETTERS[int(i)])


def _probabilities(
  name: str, labels: tuple[str, ...], to_text: Callable[[Any], str]
) -> Layout:
  return Layout(
    ("prediction", *labels),
    lambda said: [to_text(said[name]), *said["probabilities"]],
    lambda said: {
      "prediction": to_text(said[name]),
      "probabilities": dict(zip(labels, _numbers(said["probabilities"]))),
    },
  )


def _number(name: str) -> Callable[..., Layout]:
  return lambda outputs, labels: Layout(
    ("prediction",),
    lambda said: [said[name]],
    lambda said: {"prediction": _numbers(said[name])},
  )


def _answers(outputs, labels) -> Layout:
  del labels
  names = ["probability", "start", "end"]
  if "null_score_diff" in outputs:
    names.append("null_score_diff")

  def fields(said: Mapping[str, Any]) -> dict[str, Any]:
    n_best = zip(
      said["n_best_answers"],
      *(
        _numbers(said[f"n_best_{name}"])
        for name in ("probabilities", "starts", "ends")
      ),
    )
    keys = ("text", "probability", "start", "end")
    return {
      "prediction": said["answer"],
      **{name: _numbers(said[name]) for name in names},
      # Of an export, rows are filled up with no text.
      "n_best": [
        dict(zip(keys, candidate))
        for place, candidate in enumerate(n_best)
        if candidate[0] or not place
      ],
    }

  return Layout(
    ("prediction", *names),
    lambda said: [said["answer"], *(said[name] for name in names)],
    fields,
  )


def _masks(outputs, labels) -> Layout:
  del outputs, labels

  def there(said: Mapping[str, Any]) -> list[int]:
    # Rows of a batch are filled up with masks at -1.
    return [i for i, at in enumerate(said["mask_positions"]) if at >= 0]

  def fields(said: Mapping[str, Any]) -> dict[str, Any]:
    return {
      "prediction": [said["tokens"][i][0] for i in there(said)],
      "masks": [
        {
          "position": int(said["mask_positions"][i]),
          "tokens": list(said["tokens"][i]),
          "token_ids": _numbers(said["token_ids"][i]),
          "probabilities": _numbers(said["probabilities"][i]),
        }
        for i in there(said)
      ],
    }

  return Layout(
    ("prediction", "probability"),
    lambda said: [
      " ".join(said["tokens"][i][0] for i in there(said)),
      " ".join(_text(said["probabilities"][i][0]) for i in there(said)),
    ],
    fields,
  )


def _vector(outputs, labels) -> Layout:
  del outputs, labels
  return Layout(
    ("embedding",),
    lambda said: [" ".join(map(_text, said["pooled_output"]))],
    lambda said: {"embedding": _numbers(said["pooled_output"])},
  )


# By the output that says which it is.
_LAYOUTS = {
  "choice": _options,
  "label": _classes,
  "score": _number("score"),
  "answer": _answers,
  "mask_positions": _masks,
  "swapped_probability": _number("swapped_probability"),
  "pooled_output": _vector,
}


def _numbers(value: Any) -> Any:
  """Python's numbers, of nine digits, in lists where there are several."""
  array = np.asarray(value)
  if array.dtype.kind in "iu":
    return array.tolist()
  if array.ndim:
    return [_numbers(x) for x in array]
  return float(f"{float(array):.9g}")


def _text(value: Any) -> str:
  if isinstance(value, str):
    return value.translate(_CELL)
  if isinstance(value, (int, np.integer)):
    return str(int(value))
  return f"{float(value):.9g}"


class Writer:
  """Writes lines; a file is whole in the end, or not there.

      with Writer("predictions.tsv", layout, "tsv") as writer:
        writer.write("0", {"label": "good", "probabilities": [0.25, 0.75]})

  Attributes:
    count: lines that were written, the header not counted.
  """

  def __init__(self, path: str, layout: Layout, output_format: str):
    """Opens what is written to.

    Args:
      path: of the file, whose folder is made if missing; "-" is the standard
        output; "" is nowhere.
      layout: of the lines.
      output_format: one of `FORMATS`.

    Raises:
      OSError: the file cannot be written.
    """
    self.count = 0
    self._layout = layout
    self._is_table = output_format == "tsv"
    self._stack = contextlib.ExitStack()
    self._file: TextIO = sys.stdout
    if not path:
      self._file = self._stack.enter_context(
        open(os.devnull, "w", encoding="utf-8")
      )
    elif path != STANDARD_OUTPUT:
      if os.path.isdir(path):  # Before an hour's work has no place.
        raise IsADirectoryError(f"{path} is a folder: name a file in it.")
      os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
      temporary = self._stack.enter_context(files.replacing(path))
      # Line ends are those of the format on every system.
      self._file = self._stack.enter_context(
        open(temporary, "w", encoding="utf-8", newline="\n")
      )
    if self._is_table:
      self._write_cells("id", layout.header)

  def write(self, guid: str, said: Mapping[str, Any]) -> None:
    """Writes a row's line."""
    if self._is_table:
      self._write_cells(guid, self._layout.cells(said))
    else:
      fields = {"id": guid, **self._layout.fields(said)}
      self._file.write(json.dumps(fields, ensure_ascii=False) + "\n")
    self.count += 1

  def flush(self) -> None:
    """Lets readers of a pipe see what was written."""
    self._file.flush()

  def _write_cells(self, guid: str, cells: Sequence[Any]) -> None:
    self._file.write("\t".join(map(_text, [guid, *cells])) + "\n")

  def __enter__(self) -> Writer:
    return self

  def __exit__(self, kind, *error) -> None:
    if kind is None and self._file is sys.stdout:
      self._file.flush()
    self._stack.__exit__(kind, *error)
