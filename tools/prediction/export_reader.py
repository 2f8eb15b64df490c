"""What an exported folder says of itself, for programs that use it.

export = read_export("exports/1")
export.kind, export.labels, export.tokenizer_file
"""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any, Mapping, Optional

from official_albert import serving


@dataclasses.dataclass(frozen=True)
class Export:
  """A folder of tools.export_saved_model.

  Attributes:
    path: the folder.
    kind: "encoder", "pretraining", "classification", "regression",
      "multiple_choice", "squad1" or "squad2".
    task: the fine-tuned task, or the kind.
    signatures: their names, but for serving_default.
    default_signature: which one of them that is.
    labels: the classes; () if there are none.
    max_seq_length: S at most, of texts.
    tokenizer_file: the path; None if there is none.
    tokenizer_kind: "sentencepiece" or "wordpiece", or None.
    lower_case: whether texts are lower-cased; None without a tokenizer.
    settings: further ones of the kind, such as top_k or doc_stride.
  """

  path: str
  kind: str
  task: str
  signatures: tuple[str, ...]
  default_signature: str
  labels: tuple[str, ...]
  max_seq_length: int
  tokenizer_file: Optional[str]
  tokenizer_kind: Optional[str]
  lower_case: Optional[bool]
  settings: Mapping[str, Any]


def read_export(path: str) -> Export:
  """Reads the record of an export.

  Raises:
    FileNotFoundError: the folder is none of an export.
    ValueError: its record is damaged.
  """
  assets = os.path.join(path, serving.ASSETS)
  file = os.path.join(assets, serving.EXPORT_FILE)
  graph = os.path.join(path, "saved_model.pb")
  for needed in (graph, file):
    if not os.path.isfile(needed):
      raise FileNotFoundError(
        f"{path} is no folder of tools.export_saved_model, as {needed} does "
        "not exist: give the folder with saved_model.pb."
      )
  try:
    with open(file, encoding="utf-8") as stream:
      record = json.load(stream)
    tokenizer = record["tokenizer"] or {}
    export = Export(
      path=path,
      kind=record["kind"],
      task=record["task"],
      signatures=tuple(record["signatures"]),
      default_signature=record[serving.DEFAULT_SIGNATURE],
      labels=tuple(record["labels"]),
      max_seq_length=record["max_seq_length"],
      tokenizer_file=tokenizer and os.path.join(assets, tokenizer["file"]),
      tokenizer_kind=tokenizer and tokenizer["kind"],
      lower_case=record["lower_case"],
      settings=record["settings"],
    )
  except (ValueError, KeyError, TypeError, AttributeError) as error:
    raise ValueError(
      f"{file} is not what tools.export_saved_model writes "
      f"({type(error).__name__}: {error}): export again."
    ) from error
  if not tokenizer:
    export = dataclasses.replace(
      export, tokenizer_file=None, tokenizer_kind=None
    )
  return export
