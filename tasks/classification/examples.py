"""The rows, features and metrics for classifying the user's own texts.

Each split is a separate table (see `tasks/common/rows.py`). The classes are
those of the training data. GLUE has the same features.

Reference: google-research/albert classifier_utils.py (convert_single_example).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from typing import Any, Iterator, Mapping, Optional, Sequence

import numpy as np

from official_albert import files, tokenization
from official_albert import labels as labels_lib
from official_albert.tasks import common
from official_albert.tasks.common import TextExample

# Examples that are tokenized together.
_BLOCK = 512
# Rate, batch and dropouts are the most frequent ones for sentences and pairs in
# arXiv 1909.11942, Table 14. 128 tokens are enough for most classified texts,
# and need a quarter of the attention of 512.
RECIPE = common.Recipe(2e-5, 32, 0, 0, max_seq_length=128, num_train_epochs=3.0)


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


def find_labels(examples: Sequence[TextExample], path: str) -> tuple[str, ...]:
  """Returns the classes of training examples in the order of the outputs.

  They are sorted alphabetically, or by value if all are integers. There must be
  at least two, with names that fit into a cell of a table, and a row has one.
  `path` is the file of the examples, for messages.
  """
  labels = sorted({e.label for e in examples if e.label is not None})
  for label in labels:
    if labels_lib.are_several(label, labels):
      raise ValueError(
        f"{path}: the label {files.quote(label)} is a list of labels, but "
        f"{labels_lib.NO_MULTI_LABEL}."
      )
  if len(labels) < 2:
    raise ValueError(
      f"{path}: the training data must have at least two labels, it has "
      f"{files.quote(*labels)}."
    )
  try:
    common.check_names("label", labels)
  except ValueError as error:
    raise ValueError(f"{path}: {error}") from error
  for label in labels:
    number = re.sub(r"^([+-]?[0-9]+)\.0+$", r"\1", label)
    if number != label and number in labels:
      raise ValueError(
        f"{path}: the labels {files.quote(number, label)} are the same number: "
        "write it in one way."
      )
  if all(re.fullmatch("[+-]?[0-9]+", label) for label in labels):
    labels.sort(key=int)
  return tuple(labels)


def make_features(
  examples: Sequence[TextExample],
  tokenizer: tokenization.Tokenizer,
  max_seq_length: int,
  labels: Optional[Sequence[str]],
) -> Iterator[dict[str, Any]]:
  """Yields the features of `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`.

  A sequence that is too long loses tokens at the end of the longer text. An
  example without a label gets label 0. Without `labels`, labels are numbers.
  """
  class_of = {label: i for i, label in enumerate(labels or ())}
  for begin in range(0, len(examples), _BLOCK):
    block = examples[begin : begin + _BLOCK]
    firsts = tokenizer.encode_batch([e.text_a for e in block])
    seconds = iter(
      tokenizer.encode_batch([e.text_b for e in block if e.text_b is not None])
    )
    for number, (example, ids_a) in enumerate(zip(block, firsts), begin):
      ids, segments = tokenization.pack_pair(
        ids_a,
        next(seconds) if example.text_b is not None else None,
        max_seq_length,
        tokenizer.cls_id,
        tokenizer.sep_id,
      )
      label: float = 0
      if example.label is not None:
        label = class_of[example.label] if labels else float(example.label)
      yield {
        "input_ids": ids,
        "segment_ids": segments,
        "example_id": number,
        "label_ids": label,
      }


def of_classes(
  predictions: np.ndarray, labels: np.ndarray, num_classes: int
) -> dict[str, float]:
  """Returns accuracy and macro F1 of predictions and labels, <int>[N] each.

  For two classes, they include Matthews' coefficient.
  """
  values = {
    "accuracy": common.accuracy(predictions, labels),
    "macro_f1": common.macro_f1(predictions, labels),
  }
  if num_classes == 2:
    values["matthews"] = common.matthews(predictions, labels)
  return values


def of_numbers(predictions: np.ndarray, labels: np.ndarray) -> dict[str, float]:
  """Returns both correlations and the mean squared error of two <float>[N]."""
  return {
    "pearson": common.pearson(predictions, labels),
    "spearman": common.spearman(predictions, labels),
    "mean_squared_error": common.mean_squared_error(predictions, labels),
  }
