"""Texts of users: corpora, tables and task files."""

from __future__ import annotations

import os
from typing import Any, Sequence

from tasks import classification, squad
from tools.testing import fuzz, mutations, toy_data


def _read(folder: str, name: str) -> bytes:
  with open(os.path.join(folder, name), "rb") as file:
    return file.read()


def _prepare_table(folder: str) -> Sequence[bytes]:
  toy_data.write_table(os.path.join(folder, "table.tsv"), 6)
  return [_read(folder, "table.tsv")]


def _read_table(folder: str, content: Any) -> None:
  columns = {"text": "review", "label": "mood"}
  classification.read_examples(os.path.join(folder, "table.tsv"), columns)


def _prepare_squad(folder: str) -> Sequence[bytes]:
  toy_data.write_squad(os.path.join(folder, "squad.json"), 3, impossible=True)
  return [_read(folder, "squad.json")]


def _read_squad(folder: str, content: Any) -> None:
  squad.read_examples(os.path.join(folder, "squad.json"))


TARGETS = (
  fuzz.Target(
    "table_tsv",
    _prepare_table,
    lambda valid: mutations.damaged_table(valid, "\t"),
    _read_table,
    "table.tsv",
  ),
  fuzz.Target(
    "squad",
    _prepare_squad,
    mutations.damaged_json,
    _read_squad,
    "squad.json",
  ),
)
