"""Predictions as files: a line for each row, as a table or as JSON.

The answer to a row is a dict with the names of a SavedModel's outputs
(docs/serving.md). A layout makes a line of it:

    classes     id, prediction, probability of each label
    number      id, prediction
    options     id, prediction (A to D), probability of each option
    answers     id, prediction, probability, start, end (, null_score_diff);
                JSON lines also hold the n best answers
    masks       id, prediction: the best piece for each [MASK]; JSON lines hold
                the k best with their probabilities
    vector      id, the numbers of the pooled output
    swapped     id, prediction: the probability that B comes before A

A cell of a table cannot hold tabs and line breaks, so spaces replace them;
JSON lines keep the text. Numbers have nine digits, which restore a float32
exactly.
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
  """How an answer becomes a line.

  Attributes:
    header: the columns of a table after "id".
    cells: returns the cells of an answer after the id.
    fields: returns the fields of a JSON line after the id.
  """

  header: tuple[str, ...]
  cells: Callable[[Mapping[str, Any]], Sequence[Any]]
  fields: Callable[[Mapping[str, Any]], dict[str, Any]]


def layout_of(outputs: Sequence[str], labels: Sequence[str] = ()) -> Layout:
  """Returns the layout for the outputs of a model.

  Args:
    outputs: the names of the outputs.
    labels: the classes, in the order of their probabilities.

  Raises:
    ValueError: no task has such outputs.
  """
  for name, make in _LAYOUTS.items():
    if name in outputs:
      return make(outputs, labels)
  raise ValueError(
    f"the outputs {', '.join(sorted(outputs))} fit no table: choose another "
    "--signature."
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
    lambda answer: [to_text(answer[name]), *answer["probabilities"]],
    lambda answer: {
      "prediction": to_text(answer[name]),
      "probabilities": dict(zip(labels, _numbers(answer["probabilities"]))),
    },
  )


def _number(name: str) -> Callable[..., Layout]:
  return lambda outputs, labels: Layout(
    ("prediction",),
    lambda answer: [answer[name]],
    lambda answer: {"prediction": _numbers(answer[name])},
  )


def _answers(outputs, labels) -> Layout:
  del labels
  names = ["probability", "start", "end"]
  if "null_score_diff" in outputs:
    names.append("null_score_diff")

  def fields(answer: Mapping[str, Any]) -> dict[str, Any]:
    n_best = zip(
      answer["n_best_answers"],
      *(
        _numbers(answer[f"n_best_{name}"])
        for name in ("probabilities", "starts", "ends")
      ),
    )
    keys = ("text", "probability", "start", "end")
    return {
      "prediction": answer["answer"],
      **{name: _numbers(answer[name]) for name in names},
      # Rows of a batch are filled up with empty answers.
      "n_best": [
        dict(zip(keys, candidate))
        for place, candidate in enumerate(n_best)
        if candidate[0] or not place
      ],
    }

  return Layout(
    ("prediction", *names),
    lambda answer: [answer["answer"], *(answer[name] for name in names)],
    fields,
  )


def _masks(outputs, labels) -> Layout:
  del outputs, labels

  def there(answer: Mapping[str, Any]) -> list[int]:
    # Rows of a batch are filled up with masks at position -1.
    return [i for i, at in enumerate(answer["mask_positions"]) if at >= 0]

  def fields(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {
      "prediction": [answer["tokens"][i][0] for i in there(answer)],
      "masks": [
        {
          "position": int(answer["mask_positions"][i]),
          "tokens": list(answer["tokens"][i]),
          "token_ids": _numbers(answer["token_ids"][i]),
          "probabilities": _numbers(answer["probabilities"][i]),
        }
        for i in there(answer)
      ],
    }

  return Layout(
    ("prediction", "probability"),
    lambda answer: [
      " ".join(answer["tokens"][i][0] for i in there(answer)),
      " ".join(_text(answer["probabilities"][i][0]) for i in there(answer)),
    ],
    fields,
  )


def _vector(outputs, labels) -> Layout:
  del outputs, labels
  return Layout(
    ("embedding",),
    lambda answer: [" ".join(map(_text, answer["pooled_output"]))],
    lambda answer: {"embedding": _numbers(answer["pooled_output"])},
  )


# By the output that only this kind of answer has.
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
  """Returns Python numbers with nine digits, in lists for arrays."""
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
  """Writes lines; a file appears complete or not at all.

      with Writer("predictions.tsv", layout, "tsv") as writer:
        writer.write("0", {"label": "good", "probabilities": [0.25, 0.75]})

  Attributes:
    count: the number of lines written, without the header.
  """

  def __init__(self, path: str, layout: Layout, output_format: str):
    """Opens the output.

    Args:
      path: the file, whose folder is made if missing; "-" is standard output;
        "" writes nothing.
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
      if os.path.isdir(path):  # Else the error would come after all the work.
        raise IsADirectoryError(f"{path} is a folder: name a file in it.")
      os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
      temporary = self._stack.enter_context(files.replacing(path))
      # Every system writes the same line ends.
      self._file = self._stack.enter_context(
        open(temporary, "w", encoding="utf-8", newline="\n")
      )
    if self._is_table:
      self._write_cells("id", layout.header)

  def write(self, guid: str, answer: Mapping[str, Any]) -> None:
    """Writes the line of a row."""
    if self._is_table:
      self._write_cells(guid, self._layout.cells(answer))
    else:
      fields = {"id": guid, **self._layout.fields(answer)}
      self._file.write(json.dumps(fields, ensure_ascii=False) + "\n")
    self.count += 1

  def _write_cells(self, guid: str, cells: Sequence[Any]) -> None:
    self._file.write("\t".join(map(_text, [guid, *cells])) + "\n")

  def __enter__(self) -> Writer:
    return self

  def __exit__(self, kind, *error) -> None:
    if kind is None and self._file is sys.stdout:
      self._file.flush()
    self._stack.__exit__(kind, *error)
