"""Writes predictions, one line for each row, as a table or as JSON lines.

The answer to a row is a dict with the names of a SavedModel's outputs
(docs/serving.md). A layout formats it as a line:

    classes     id, prediction, probability of each label
    number      id, prediction
    options     id, prediction (A to D), probability of each option
    answers     id, prediction, probability, start, end (, null_score_diff);
                JSON lines also hold the n best answers
    masks       id, prediction: the best piece for each [MASK], probability;
                JSON lines hold the k best with their probabilities
    vector      id, the numbers of the pooled output
    swapped     id, prediction: the probability that B comes before A

A cell of a table cannot contain tabs and line breaks, so spaces replace them;
JSON lines keep the text. Numbers have nine digits, which represent a float32
exactly.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Sequence

import numpy as np

from official_albert import files

FORMATS = ("tsv", "jsonl")
STANDARD_OUTPUT = "-"
_LETTERS = "ABCD"
_CELL = str.maketrans("\t\n\r", "   ")

_Answer = Mapping[str, Any]


class Layout(NamedTuple):
  """The format of an answer in a line.

  Attributes:
    header: the columns of a table after "id".
    fields: returns the fields of a JSON line after the id.
  """

  header: tuple[str, ...]
  fields: Callable[[_Answer], dict[str, Any]]

  def cells(self, answer: _Answer) -> list[str]:
    """Returns the cells of a table after the id."""
    cells = []
    for name, value in self.fields(answer).items():
      if name == "n_best":
        continue
      if name == "masks":
        value = [mask["probabilities"][0] for mask in value]
      if isinstance(value, dict):
        cells += map(_text, value.values())
      elif isinstance(value, list):
        cells.append(" ".join(map(_text, value)))
      else:
        cells.append(_text(value))
    return cells


def layout_of(outputs: Sequence[str], labels: Sequence[str] = ()) -> Layout:
  """Returns the layout for the outputs of a model.

  Args:
    outputs: the names of the outputs.
    labels: the classes, in the order of their probabilities.

  Raises:
    ValueError: no task has such outputs.
  """
  if "choice" in outputs:
    return _probabilities(_LETTERS, lambda x: _LETTERS[x["choice"]])
  if "label" in outputs:
    return _probabilities(labels, lambda x: x["label"])
  if "score" in outputs:
    return _number("prediction", "score")
  if "answer" in outputs:
    return _answers("null_score_diff" in outputs)
  if "mask_positions" in outputs:
    return Layout(("prediction", "probability"), _mask_fields)
  if "swapped_probability" in outputs:
    return _number("prediction", "swapped_probability")
  if "pooled_output" in outputs:
    return _number("embedding", "pooled_output")
  raise ValueError(
    f"the outputs {', '.join(sorted(outputs))} fit no table: choose another "
    "--signature."
  )


def _probabilities(
  labels: Sequence[str], prediction: Callable[[_Answer], str]
) -> Layout:
  return Layout(
    ("prediction", *labels),
    lambda answer: {
      "prediction": prediction(answer),
      "probabilities": dict(zip(labels, _numbers(answer["probabilities"]))),
    },
  )


def _number(field: str, output: str) -> Layout:
  return Layout((field,), lambda answer: {field: _numbers(answer[output])})


def _answers(has_impossible: bool) -> Layout:
  names = ["probability", "start", "end"]
  if has_impossible:
    names.append("null_score_diff")

  def fields(answer: _Answer) -> dict[str, Any]:
    columns = ("answers", "probabilities", "starts", "ends")
    n_best = zip(*(answer[f"n_best_{column}"] for column in columns))
    return {
      "prediction": answer["answer"],
      **{name: _numbers(answer[name]) for name in names},
      "n_best": [
        {
          "text": text,
          "probability": _numbers(probability),
          "start": int(start),
          "end": int(end),
        }
        for place, (text, probability, start, end) in enumerate(n_best)
        if text or not place  # Rows of a batch are padded with empty answers.
      ],
    }

  return Layout(("prediction", *names), fields)


def _mask_fields(answer: _Answer) -> dict[str, Any]:
  masks = [
    {
      "position": int(position),
      "tokens": list(answer["tokens"][i]),
      "token_ids": _numbers(answer["token_ids"][i]),
      "probabilities": _numbers(answer["probabilities"][i]),
    }
    for i, position in enumerate(answer["mask_positions"])
    if position >= 0  # Rows of a batch are padded with position -1.
  ]
  return {"prediction": [mask["tokens"][0] for mask in masks], "masks": masks}


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
  return str(value) if isinstance(value, int) else f"{value:.9g}"


@contextlib.contextmanager
def writer(
  path: str, layout: Layout, output_format: str
) -> Iterator[Callable[[str, _Answer], None]]:
  """Yields a function that writes a line; the file is written atomically.

      with writer("predictions.tsv", layout, "tsv") as write:
        write("0", {"label": "good", "probabilities": [0.25, 0.75]})

  Args:
    path: the file, whose folder is created if missing; "-" is standard output;
      "" writes nothing.
    layout: the layout of the lines.
    output_format: one of `FORMATS`.

  Raises:
    OSError: the file cannot be written.
  """
  with contextlib.ExitStack() as stack:
    file = sys.stdout
    if path and path != STANDARD_OUTPUT:
      if os.path.isdir(path):  # Else the error would come after all the work.
        raise IsADirectoryError(f"{path} is a folder: name a file in it.")
      os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
      path = stack.enter_context(files.replacing(path))
    if path != STANDARD_OUTPUT:
      # Every system writes the same line ends.
      name = path or os.devnull
      file = stack.enter_context(
        open(name, "w", encoding="utf-8", newline="\n")
      )
    is_table = output_format == "tsv"

    def write(guid: str, answer: _Answer) -> None:
      if is_table:
        line = "\t".join([_text(guid), *layout.cells(answer)])
      else:
        fields = {"id": guid, **layout.fields(answer)}
        line = json.dumps(fields, ensure_ascii=False)
      file.write(f"{line}\n")

    if is_table:
      file.write("\t".join(map(_text, ["id", *layout.header])) + "\n")
    yield write
    if file is sys.stdout:
      file.flush()
