"""Texts with labels to records: `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`.

Reference: google-research/albert classifier_utils.py
(convert_single_example).
"""

from __future__ import annotations

from typing import Any, Callable, Iterator, Optional, Sequence

import tfrecords
from official_albert import tokenization
from tasks import common
from tasks.common import TextExample

_BLOCK = 512


def make_features(
  examples: Sequence[TextExample],
  tokenizer: tokenization.Tokenizer,
  max_seq_length: int,
  labels: Optional[Sequence[str]],
) -> Iterator[dict[str, Any]]:
  """Features of one split; an example without a label gets 0.

  Args:
    examples: the split.
    tokenizer: as the model was pretrained with.
    max_seq_length: S; longer ones lose tokens at the end of the longer text.
    labels: the classes in order; None for a regression.

  Yields:
    Dicts for `finetuning_records.build`.
  """
  numbers = {label: i for i, label in enumerate(labels or ())}
  for begin in range(0, len(examples), _BLOCK):
    block = examples[begin : begin + _BLOCK]
    firsts = tokenizer.encode_batch([e.text_a for e in block])
    seconds = iter(
      tokenizer.encode_batch([e.text_b for e in block if e.text_b is not None])
    )
    for index, (example, ids_a) in enumerate(zip(block, firsts)):
      ids, segments = tokenization.pack_pair(
        ids_a,
        next(seconds) if example.text_b is not None else None,
        max_seq_length,
        tokenizer.cls_id,
        tokenizer.sep_id,
      )
      if example.label is None:
        label = 0
      elif labels is None:
        label = float(example.label)
      else:
        label = numbers[example.label]
      yield {
        "input_ids": ids,
        "segment_ids": segments,
        "example_id": begin + index,
        "label_ids": label,
      }


def build_records(
  cache_dir: str,
  task: str,
  split: str,
  examples: Sequence[TextExample],
  sources: Sequence[str],
  tokenizer: tokenization.Tokenizer,
  max_seq_length: int,
  labels: Optional[Sequence[str]],
  note: Callable[[str], None] = lambda text: None,
  **settings: Any,
) -> str:
  """Writes the records of a split, or finds them; returns their folder.

  Args:
    cache_dir: below which the folder is made.
    task: the task's name.
    split: the split's name.
    examples: its examples.
    sources: the files they were read from.
    tokenizer: as the model was pretrained with.
    max_seq_length: S.
    labels: the classes in order; None for a regression.
    note: is told what is being done.
    **settings: what else the examples depend on, such as names of columns.

  Raises:
    ValueError, OSError: see `finetuning_records.build`.
  """
  schema = (
    tfrecords.regression_schema
    if labels is None
    else tfrecords.classification_schema
  )
  return common.build_records(
    cache_dir,
    task,
    tokenizer,
    max_seq_length,
    schema(max_seq_length),
    {"labels": list(labels) if labels is not None else None, **settings},
    split,
    sources,
    lambda: make_features(examples, tokenizer, max_seq_length, labels),
    note,
  )
