"""Writes predictions, one line for each row, as a table or as JSON lines.

The fields of an answer (`tasks.answer_fields`) depend on the task:

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
import sys
from typing import Any, Callable, Iterator, Mapping, Sequence, TextIO

from official_albert import files
from official_albert.tasks import common
from official_albert.tasks.answer_fields import ERROR

FORMATS = ("tsv", "jsonl", "plain")
STANDARD_OUTPUT = "-"
_CELL = str.maketrans("\t\n\r", "   ")

_Cells = Sequence[tuple[str, str]]


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
  return [
    (
      name,
      _text(x if isinstance(x, str) else json.dumps(x, ensure_ascii=False)),
    )
    for name, x in inputs.items()
  ]


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
    self._waiting: list[tuple[str, _Cells, _Cells]] = []  # For the columns.

  def write(self, guid: str, answer: _Cells, inputs: _Cells) -> None:
    """Writes a row; an empty `answer` is that of a refused row."""
    if answer and not self._columns:
      self._columns = [name for name, _ in answer]
      self._write_line("id", self._columns, [name for name, _ in inputs])
    self._waiting.append((guid, answer, inputs))
    if self._columns:
      for guid, answer, inputs in self._waiting:
        cells = [cell for _, cell in answer] or [""] * len(self._columns)
        self._write_line(guid, cells, [cell for _, cell in inputs])
      self._waiting.clear()

  def _write_line(self, *cells: Any) -> None:
    first, answer, inputs = cells
    line = "\t".join(map(_text, [first, *answer, *inputs]))
    self._file.write(line + "\n")


@contextlib.contextmanager
def writer(path: str, output_format: str) -> Iterator[Callable[..., None]]:
  """Yields a function that writes a line; the file is written atomically.

      with writer("predictions.tsv", "tsv") as write:
        write("0", {"prediction": "good", "probability": 0.75}, {})

  The third argument holds the texts of a row by role, to be repeated; give the
  same roles for all rows. A table needs an answer besides the refused rows.

  Args:
    path: the file; "-" is standard output.
    output_format: one of `FORMATS`.

  Raises:
    OSError: the file cannot be written.
  """
  with contextlib.ExitStack() as stack:
    file: TextIO = sys.stdout
    if path != STANDARD_OUTPUT:
      files.check_file(path)
      path = stack.enter_context(files.replacing(path))
      # Lines end in the same way on every system.
      file = stack.enter_context(
        open(path, "w", encoding="utf-8", newline="\n")
      )
    table = _Table(file)

    def write(
      guid: str, fields: Mapping[str, Any], texts: Mapping[str, Any]
    ) -> None:
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
        answered = () if ERROR in fields else cells_of(fields)
        table.write(guid, answered, _input_cells(inputs))

    yield write
    file.flush()
