"""Writes predictions, one line for each row, as a table or as JSON lines.

The answer to a row is a dict with the names of a SavedModel's outputs
(docs/serving.md). Its fields depend on the task:

    classes     id, prediction, probability of each label
    number      id, prediction
    options     id, prediction (A to D), probability of each option
    answers     id, prediction, probability, start, end (, null_score_diff);
                JSON lines also hold the n best answers
    masks       id, prediction: the best piece for each [MASK], probability,
                prediction_2, probability_2, ... to the k best; JSON lines hold
                a list of masks, each with its k best
    vector      id, the numbers of the pooled output
    swapped     id, prediction: the probability that B comes before A

A row without an id of its own has its number as the id, and is followed by its
texts: input_text, or input_text_a and input_text_b, or input_question (and
input_options). A row that the model refuses has empty cells in a table; in JSON
lines, the prediction null and an error.

A cell of a table cannot contain tabs and line breaks, so spaces replace them;
JSON lines keep the text. Numbers have nine digits, which represent a float32
exactly. The format `plain` is for people: each cell of a row has its own line,
after the texts, or else the id.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Any, Callable, Iterator, Mapping, Sequence, TextIO

from official_albert import files
from official_albert.tasks import common
from official_albert.tasks.answer_fields import ERROR, fields_of

FORMATS = ("tsv", "jsonl", "plain")
STANDARD_OUTPUT = "-"
_CELL = str.maketrans("\t\n\r", "   ")

_Answer = Mapping[str, Any]
_Cells = Sequence[tuple[str, str]]
_NO_TEXTS: Mapping[str, Any] = {}


def cells_of(fields: Mapping[str, Any]) -> list[tuple[str, str]]:
  """Returns the columns and cells of a table after the id."""
  cells = []
  for name, value in fields.items():
    if name == "probabilities":
      cells += [(label, _text(number)) for label, number in value.items()]
    elif name == "masks":
      for rank in range(len(value[0]["tokens"])):
        # The best pieces are the prediction.
        suffix = f"_{rank + 1}" if rank else ""
        if rank:
          pieces = [mask["tokens"][rank] for mask in value]
          cells.append((f"prediction{suffix}", _text(pieces)))
        probabilities = [mask["probabilities"][rank] for mask in value]
        cells.append((f"probability{suffix}", _text(probabilities)))
    elif name != "n_best":
      cells.append((name, _text(value)))
  return cells


def _input_cells(inputs: Mapping[str, Any]) -> list[tuple[str, str]]:
  """Returns texts; options are a JSON list, as in a table of rows."""
  cells = []
  for name, value in inputs.items():
    if not isinstance(value, str):
      value = json.dumps(value, ensure_ascii=False)
    cells.append((name, _text(value)))
  return cells


def _text(value: Any) -> str:
  if value is None:
    return ""
  if isinstance(value, list):
    return " ".join(map(_text, value))
  if isinstance(value, str):
    return value.translate(_CELL)
  return str(value) if isinstance(value, int) else f"{value:.9g}"


class _Table:
  """Writes rows below a header, which has the columns of the first answer."""

  def __init__(self, file: TextIO):
    self._file = file
    self._columns: list[str] = []  # Of an answer.
    self._refused: list[tuple[str, _Cells]] = []  # Before the first answer.

  def write(self, guid: str, answer: _Cells, inputs: _Cells) -> None:
    """Writes a row; an empty `answer` is that of a refused row."""
    if not answer and not self._columns:
      self._refused.append((guid, inputs))
      return
    if not self._columns:
      self._columns = [name for name, _ in answer]
      names = [name for name, _ in inputs]
      self._write_line(["id", *map(_text, self._columns), *names])
      for earlier_guid, earlier_inputs in self._refused:
        self.write(earlier_guid, (), earlier_inputs)
    cells = [cell for _, cell in answer] or [""] * len(self._columns)
    self._write_line([_text(guid), *cells, *(cell for _, cell in inputs)])

  def _write_line(self, cells: Sequence[str]) -> None:
    self._file.write("\t".join(cells) + "\n")


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
) -> Iterator[Callable[..., None]]:
  """Yields a function that writes a line; the file is written atomically.

      with writer("predictions.tsv", ["bad", "good"], "tsv") as write:
        write("0", {"label": "good", "probabilities": [0.25, 0.75]})

  A third argument holds the texts of a row by role, to be repeated; give the
  same roles for all rows. A table needs an answer besides the refused rows.

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
    table = _Table(file)

    def write(
      guid: str, answer: _Answer, texts: Mapping[str, Any] = _NO_TEXTS
    ) -> None:
      fields = fields_of(answer, labels)
      inputs = {f"{common.INPUT_PREFIX}{x}": text for x, text in texts.items()}
      if output_format == "jsonl":
        line = {"id": guid, **fields, **inputs}
        file.write(json.dumps(line, ensure_ascii=False) + "\n")
      elif output_format == "plain":
        cells = [*_input_cells(texts or {"id": guid}), *cells_of(fields)]
        width = max(len(name) for name, _ in cells)
        lines = [f"{name:{width}}  {cell}\n" for name, cell in cells]
        file.write("".join([*lines, "\n"]))
      else:
        answered = () if ERROR in answer else cells_of(fields)
        table.write(guid, answered, _input_cells(inputs))

    yield write
    if file is sys.stdout:
      file.flush()
