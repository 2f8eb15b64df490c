"""Writes predictions, one line for each row, as a table or as JSON lines.

The answer to a row is a dict with the names of a SavedModel's outputs
(docs/serving.md). Its fields depend on the task:

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
from typing import Any, Callable, Iterator, Mapping, Sequence

import numpy as np

from official_albert import files

FORMATS = ("tsv", "jsonl")
STANDARD_OUTPUT = "-"
# An answer has one of these outputs, by which its fields are chosen.
MAIN_OUTPUTS = (
  "choice",
  "label",
  "score",
  "answer",
  "mask_positions",
  "swapped_probability",
  "pooled_output",
)
_LETTERS = "ABCD"
_CELL = str.maketrans("\t\n\r", "   ")

_Answer = Mapping[str, Any]


def fields_of(answer: _Answer, labels: Sequence[str] = ()) -> dict[str, Any]:
  """Returns the fields of a JSON line after the id.

  Args:
    answer: the outputs of a model for one row.
    labels: the classes, in the order of their probabilities.
  """
  if "choice" in answer or "label" in answer:
    prediction = answer.get("label")
    if "choice" in answer:
      labels, prediction = _LETTERS, _LETTERS[answer["choice"]]
    probabilities = _numbers(answer["probabilities"])
    return {
      "prediction": prediction,
      "probabilities": dict(zip(labels, probabilities)),
    }
  if "answer" in answer:
    return _answer_fields(answer)
  if "mask_positions" in answer:
    return _mask_fields(answer)
  for output in ("score", "swapped_probability"):
    if output in answer:
      return {"prediction": _numbers(answer[output])}
  return {"embedding": _numbers(answer["pooled_output"])}


def _answer_fields(answer: _Answer) -> dict[str, Any]:
  names = ("probability", "start", "end", "null_score_diff")
  columns = ("answers", "probabilities", "starts", "ends")
  n_best = zip(*(answer[f"n_best_{column}"] for column in columns))
  return {
    "prediction": answer["answer"],
    **{name: _numbers(answer[name]) for name in names if name in answer},
    "n_best": [
      {
        "text": text,
        "probability": _numbers(probability),
        "start": int(start),
        "end": int(end),
      }
      for rank, (text, probability, start, end) in enumerate(n_best)
      if text or not rank  # Rows of a batch are padded with empty answers.
    ],
  }


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


def cells_of(fields: Mapping[str, Any]) -> list[tuple[str, str]]:
  """Returns the columns and cells of a table after the id."""
  cells = []
  for name, value in fields.items():
    if name == "probabilities":
      cells += [(label, _text(number)) for label, number in value.items()]
    elif name == "masks":
      best = [_text(mask["probabilities"][0]) for mask in value]
      cells.append(("probability", " ".join(best)))
    elif name != "n_best":
      cells.append((name, _text(value)))
  return cells


def _numbers(value: Any) -> Any:
  """Returns Python numbers with nine digits, in lists for arrays."""
  array = np.asarray(value)
  if array.dtype.kind in "iu":
    return array.tolist()
  if array.ndim:
    return [_numbers(x) for x in array]
  return float(f"{float(array):.9g}")


def _text(value: Any) -> str:
  if isinstance(value, list):
    return " ".join(map(_text, value))
  if isinstance(value, str):
    return value.translate(_CELL)
  return str(value) if isinstance(value, int) else f"{value:.9g}"


def check(path: str) -> None:
  """Raises OSError if `writer` cannot write to `path`; creates nothing."""
  if path == STANDARD_OUTPUT:
    return
  folder = os.path.dirname(files.absolute(path))
  if files.is_remote(path) or files.is_dir(folder):
    files.check_file(path)
  else:
    files.check_folder(folder)


@contextlib.contextmanager
def writer(
  path: str, labels: Sequence[str], output_format: str
) -> Iterator[Callable[[str, _Answer], None]]:
  """Yields a function that writes a line; the file is written atomically.

      with writer("predictions.tsv", ["bad", "good"], "tsv") as write:
        write("0", {"label": "good", "probabilities": [0.25, 0.75]})

  Args:
    path: the file, whose folder is created if missing; "-" is standard output;
      "" writes nothing.
    labels: the classes, in the order of their probabilities.
    output_format: one of `FORMATS`.

  Raises:
    OSError: the file cannot be written.
  """
  with contextlib.ExitStack() as stack:
    file = sys.stdout
    if path and path != STANDARD_OUTPUT:
      files.make_folder(os.path.dirname(files.absolute(path)))
      files.check_file(path)
      path = stack.enter_context(files.replacing(path))
    if path != STANDARD_OUTPUT:
      # Lines end in the same way on every system.
      name = path or os.devnull
      file = stack.enter_context(
        open(name, "w", encoding="utf-8", newline="\n")
      )
    has_header = False

    def write(guid: str, answer: _Answer) -> None:
      nonlocal has_header
      fields = fields_of(answer, labels)
      if output_format == "jsonl":
        line = {"id": guid, **fields}
        file.write(json.dumps(line, ensure_ascii=False) + "\n")
        return
      cells = [("id", _text(guid)), *cells_of(fields)]
      if not has_header:
        has_header = True
        columns = [_text(column) for column, _ in cells]
        file.write("\t".join(columns) + "\n")
      file.write("\t".join(text for _, text in cells) + "\n")

    yield write
    if file is sys.stdout:
      file.flush()
