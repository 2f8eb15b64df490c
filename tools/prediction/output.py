"""Writes predictions, one line for each row, as a table or as JSON lines.

The fields of an answer (`tasks.answer_fields`) depend on the task:

    classes     id, prediction, probability of each label
    number      id, prediction
    options     id, prediction (A to D), probability of each option
    answers     id, prediction, probability, start, end (, null_score_diff);
                JSON lines also hold the n best answers
    masks       id, prediction: the best piece for each [MASK], probability;
                JSON lines hold a list of masks, each with its k best
    vector      id, the numbers of the pooled output
    swapped     id, prediction: the probability that B comes before A

A row without an id of its own has its number as the id, and is followed by its
texts: input_text, or input_text_a and input_text_b, or input_question (and
input_options). A row that the model refuses has empty cells in a table; in JSON
lines, the prediction null and an error.

A cell of a table cannot contain tabs and line breaks, so spaces replace them;
JSON lines keep the text. Numbers have nine digits, which represent a float32
exactly.
"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any, Callable, Iterator, Mapping, TextIO

from official_albert import files, text_files
from official_albert.tasks import common
from official_albert.tasks.answer_fields import ERROR

STANDARD_OUTPUT = "-"
_OTHER_FORMATS = (*text_files.ENDINGS, ".csv", ".json", ".parquet", ".xlsx")
_CELL = str.maketrans("\t\n\r", "   ")


def cells_of(fields: Mapping[str, Any]) -> list[tuple[str, str]]:
  """Returns the columns and cells of a table after the id."""
  cells = []
  for name, value in fields.items():
    if name == "probabilities":
      cells += [(label, _text(number)) for label, number in value.items()]
    elif name == "masks":  # The best pieces are the prediction.
      best = [mask["probabilities"][0] for mask in value]
      cells.append(("probability", _text(best)))
    elif name != "n_best":
      cells.append((name, _text(value)))
  return cells


def _text(value: Any) -> str:
  if isinstance(value, list):
    return " ".join(map(_text, value))
  if isinstance(value, str):
    return value.translate(_CELL)
  return str(value) if isinstance(value, int) else f"{value:.9g}"


@contextlib.contextmanager
def writer(path: str) -> Iterator[Callable[..., None]]:
  """Yields a function that writes a line; the file is written atomically.

      with writer("predictions.tsv") as write:
        write("0", {"prediction": "good", "probability": 0.75}, {})

  The third argument holds the texts of a row by role, to be repeated; give the
  same roles for all rows. A table has the columns of its first answer. Standard
  output ("-") and names that end in .jsonl get JSON lines.
  """
  with contextlib.ExitStack() as stack:
    file: TextIO = sys.stdout
    is_table = path != STANDARD_OUTPUT and not path.endswith(".jsonl")
    if path != STANDARD_OUTPUT:
      if path.lower().endswith(_OTHER_FORMATS):
        raise ValueError(
          f"{path} would be another format: end the name in .tsv for a table, "
          "or in .jsonl for JSON lines."
        )
      files.check_file(path)
      path = stack.enter_context(files.replacing(path))
      # Lines end in the same way on every system.
      file = stack.enter_context(
        open(path, "w", encoding="utf-8", newline="\n")
      )
    columns: list[str] = []  # Of an answer.
    waiting: list[Any] = []  # Rows before the first answer.

    def write_table(guid: str, fields: Any, inputs: Any) -> None:
      answer = [] if ERROR in fields else cells_of(fields)
      waiting.append((guid, [cell for _, cell in answer], inputs.values()))
      if answer and not columns:
        columns.extend(column for column, _ in answer)
        print("id", *columns, *inputs, sep="\t", file=file)
      if columns:
        for guid, cells, values in waiting:
          texts = (
            x if isinstance(x, str) else json.dumps(x, ensure_ascii=False)
            for x in values
          )
          cells = cells or [""] * len(columns)
          print(*map(_text, [guid, *cells, *texts]), sep="\t", file=file)
        waiting.clear()

    def write(
      guid: str, fields: Mapping[str, Any], texts: Mapping[str, Any]
    ) -> None:
      inputs = {f"{common.INPUT_PREFIX}{x}": text for x, text in texts.items()}
      if is_table:
        write_table(guid, fields, inputs)
      else:
        line = {"id": guid, **fields, **inputs}
        print(json.dumps(line, ensure_ascii=False), file=file)

    yield write
    file.flush()
