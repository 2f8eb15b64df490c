"""The rows of the user's own texts, and the classes in them.

Each split is a separate table (see `tasks/common/rows.py`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from typing import Iterable, Mapping, Optional, Sequence

from official_albert import files
from official_albert import labels as labels_lib
from official_albert.tasks import common
from official_albert.tasks.common import TextExample


def read_examples(
  path: str,
  columns: Mapping[str, str],
  labels: Optional[Sequence[str]] = None,
  regression: bool = False,
  may_lack_labels: bool = False,
) -> list[TextExample]:
  """Reads the examples of a file of TSV, CSV or JSON lines.

  `columns` maps the roles `text`, and optionally `text_b`, `label` and `id`, to
  names of columns. Without `id`, rows are numbered from 0. Labels must be among
  `labels`, if these are given, or finite numbers for a regression. With
  `may_lack_labels`, the column may also have no label of these at all; then all
  labels are None.
  """
  examples: list[TextExample] = []
  refused: list[ValueError] = []
  rows = common.read_table(path, list(columns.values()))
  for number, record in enumerate(rows):
    label = text_b = None
    guid = str(number)
    if "label" in columns:
      if isinstance(record.cells[columns["label"]], list):
        raise ValueError(
          f"{record.where}: {columns['label']!r} is a list, but "
          f"{labels_lib.NO_MULTI_LABEL}."
        )
      try:
        label = common.plain_cell(record, columns["label"]).strip()
        if regression or labels is not None:
          common.check_label(record.where, label, labels)
      except ValueError as error:
        refused.append(error)
        if not may_lack_labels:
          raise
    if "text_b" in columns:
      text_b = common.text_cell(record, columns["text_b"])
    if "id" in columns:
      guid = common.plain_cell(record, columns["id"])
    text_a = common.text_cell(record, columns["text"])
    examples.append(TextExample(guid, text_a, text_b, label))
  if refused and len(refused) < len(examples):
    raise ValueError(
      f"{refused[0]} Correct the {len(refused):,} rows of this kind, or leave "
      "out the column of the labels to predict without metrics."
    ) from refused[0]
  if refused:
    examples = [dataclasses.replace(x, label=None) for x in examples]
  return examples


def hold_out(
  examples: Sequence[TextExample], share: float
) -> tuple[list[TextExample], list[TextExample]]:
  """Splits examples into those to train on and those to evaluate.

  A hash of the texts decides about each example, so its side depends neither on
  the order nor on the number of the others. Equal texts are on the same side,
  also with different labels. The number of held-out examples is therefore only
  close to `share`, a number between 0 and 1, and classes are not stratified.
  """
  sides: tuple[list[TextExample], list[TextExample]] = ([], [])
  for example in examples:
    texts = json.dumps([example.text_a, example.text_b])
    digest = hashlib.sha256(texts.encode()).digest()
    sides[int.from_bytes(digest[:8], "big") < share * 2**64].append(example)
  return sides


def find_labels(found: Iterable[str], path: str) -> tuple[str, ...]:
  """Returns the classes of training examples in the order of the outputs.

  `found` are their labels.
  They are sorted alphabetically, or by value if all are integers. There must be
  at least two, with names that fit into a cell of a table, and a row has one.
  `path` is the file of the examples, for messages.
  """
  labels = sorted({*found})
  problem = ""
  if len(labels) < 2:
    problem = (
      "the training data must have at least two labels, it has "
      f"{files.quote(*labels)}"
    )
  for label in labels:
    number = re.sub(r"^([+-]?[0-9]+)\.0+$", r"\1", label)
    if number != label and number in labels:
      problem = (
        f"the labels {files.quote(number, label)} are the same number: write "
        "it in one way"
      )
    if not labels_lib.fits_cell(label):
      problem = f"the label {label!r} has a tab or a line break: rename it"
    elif labels_lib.are_several(label, labels):
      problem = (
        f"the label {files.quote(label)} is a list of labels, but "
        f"{labels_lib.NO_MULTI_LABEL}"
      )
  if problem:
    raise ValueError(f"{path}: {problem}.")
  if all(re.fullmatch("[+-]?[0-9]+", label) for label in labels):
    labels.sort(key=int)
  return tuple(labels)
