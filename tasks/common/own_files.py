"""The user's own files of a fine-tuning task: one for each split.

Without a dev file, a share of the training file is held out.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence

from official_albert.tasks.common import (
  disk_list,
  finetuning_task,
  probabilities,
  rows,
)


def hold_out(examples: Any, share: float) -> tuple[Any, Any]:
  """Splits examples into those to train on and those to evaluate.

  A hash of the first two `texts` of an example decides about it; a third one is
  only a wrong candidate of embeddings. So its side depends neither on the order
  nor on the number of the others. Equal texts are on the same side, also with
  different labels. The number of held-out examples is therefore only close to
  `share`, a number between 0 and 1, and classes are not stratified. The sides
  are of the type of `examples`, a list.
  """
  sides = type(examples)(), type(examples)()
  for example in examples:
    digest = hashlib.sha256(json.dumps(example.texts[:2]).encode()).digest()
    sides[int.from_bytes(digest[:8], "big") < share * 2**64].append(example)
  return sides


def find_shared(train: Iterable[Any], others: Iterable[Any]) -> tuple[int, str]:
  """Counts the examples whose first two `texts` a training example has, too.

  Upper and lower case, spaces and compatible characters (NFKC) are the same.
  Memory holds 64 bits for each of `others`, not for each training example.

  Returns:
    Their number, and the places of the first one in both files; "" if none.
  """
  known = {_hash_texts(example) for example in others}
  shared: dict[int, str] = {}
  for example in train:
    if (key := _hash_texts(example)) in known:
      shared.setdefault(key, example.where)
  count, first = 0, ""
  for example in others if shared else ():
    if place := shared.get(_hash_texts(example)):
      count += 1
      first = first or f"{example.where}, which is {place}"
  return count, first


def _hash_texts(example: Any) -> int:
  return hash(tuple(normalize(text or "") for text in example.texts[:2]))


def normalize(text: str) -> str:
  """Returns a text by which equal ones are found."""
  return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def find_columns(
  path: str, columns: Mapping[str, str], optional: Sequence[str]
) -> tuple[dict[str, str], list[str]]:
  """Returns the columns of tables by role, and the names of those they lack.

  Only the roles of `optional` may lack one. The first valid row decides.
  """
  needed = [name for role, name in columns.items() if role not in optional]
  known = {*needed, *rows.first_record(path, needed).cells}
  # The header of an index that pandas writes is empty, too.
  columns = {role: name for role, name in columns.items() if name}
  found = {role: name for role, name in columns.items() if name in known}
  return found, [name for name in columns.values() if name not in known]


def read_examples(
  path: str,
  columns: tuple[Mapping[str, str], Sequence[str]],
  invalid: rows.InvalidRows,
  label_of: Optional[Callable[[rows.Record], Any]] = None,
  may_lack_labels: bool = False,
  kind: type[rows.TextExample] = rows.TextExample,
) -> disk_list.ExampleList:
  """Reads the examples of tables, with the columns of `find_columns`.

  Their roles are text, and perhaps text_b, text_c and id, others of labels.
  Rows without an id are numbered from 0, also those that are left out. With
  `may_lack_labels`, none of the labels may be valid; then all are None. Other
  invalid rows are left to `invalid`.
  """
  found, absent = columns
  examples = disk_list.ExampleList()
  unlabeled = rows.InvalidRows(may_lack_labels)
  table = rows.read_table(path, [*found.values()], invalid, absent)
  for record in table:
    guid, label = str(len(examples) + invalid.count), None
    with invalid:
      texts = {
        "text_a" if role == "text" else role: rows.text_cell(record, column)
        for role, column in found.items()
        if role.startswith("text")
      }
      for text in texts.values():
        if text[:2] in ("b'", 'b"') and text[1:2] == text[-1:]:
          raise rows.InvalidRow(
            record.where, " has bytes as Python shows them", ": decode them."
          )
      if "id" in found:
        guid = rows.plain_cell(record, found["id"])
      if label_of:
        rows.refuse_rejected(record, [*found.values()])
      with unlabeled:
        label = label_of(record) if label_of else None
      examples.append(kind(guid, **texts, label=label, where=record.where))
  if 0 < unlabeled.count < len(examples):
    if not invalid.may_skip:
      raise ValueError(
        f"{unlabeled.first} Correct the {unlabeled.count:,} rows of this kind, "
        "or leave out the column of the labels to predict without metrics."
      )
    invalid.found |= unlabeled.found
    known = (x for x in examples if x.label is not None)
    examples = disk_list.ExampleList(known)
  return examples


class OwnFiles(finetuning_task.FinetuningTask):
  """Reads --train_file, --dev_file or --dev_share, and --test_file.

  Its examples have a `guid`, `texts`, a list, and `where`, their place for
  messages. `read_file` sets `finds_ids` if the file has the column of the ids.
  """

  finds_ids = False

  def __init__(self, name: str, options: Any, *args: Any):
    super().__init__(name, options, *args)
    self._compared = {"train"}  # Splits of which training rows are known.
    self._left_out: dict[str, dict[str, int]] = {}

  def names(self, examples: Sequence[Any]) -> set[Any]:
    """Returns the classes that occur."""
    return set()

  def read_file(
    self, split: str, path: str, invalid: rows.InvalidRows
  ) -> Sequence[Any]:
    """Returns the examples of the file of a split."""
    raise NotImplementedError

  def read(self, split: str) -> Sequence[Any]:
    """Also logs the rows that were left out; `describe` has their numbers."""
    path = self.sources(split)[0]
    invalid = rows.InvalidRows(self.options.skip_invalid)
    examples = self.read_file(split, path, invalid)
    invalid.finish(path, examples, self.options.note)
    self._left_out[split] = {k: n for k, (n, _) in invalid.found.items()}
    return self.side(examples, split) if self.is_shared(split) else examples

  def is_shared(self, split: str) -> bool:
    """Whether a split is a part of the training file."""
    return bool(self.options.dev_share) and split not in self.test_splits

  def sources(self, split: str) -> list[str]:
    if self.is_shared(split):
      split = "train"
    advice = ", or --dev_share to hold out rows of --train_file"
    if not self.options.file_of(split):
      raise FileNotFoundError(
        f"--task={self.name} needs --{split}_file"
        f"{advice if split == 'dev' else ''}."
      )
    return [self.options.file_of(split)]

  def check(self, splits: Sequence[str]) -> None:
    """Also warns, once, of training rows in other splits."""
    super().check(splits)
    name = self.options.id_column
    if name and not self.finds_ids:
      raise ValueError(f"--id_column={name}: none of the files has it.")
    for split in splits:
      if split != "train":
        probabilities.check_ids(split, [x.guid for x in self.examples(split)])
      if split in self._compared or "train" not in splits:
        continue
      self._compared.add(split)
      examples = self.examples(split)
      count, first = find_shared(self.examples("train"), examples)
      if count:
        self.options.note(
          f"warning: {count:,} of the {len(examples):,} {split} rows are also "
          f"training rows, so the metrics of {split} are too high; the first "
          f"is {first}: leave them out of one of the files"
        )

  def side(self, examples: Sequence[Any], split: str) -> Sequence[Any]:
    """Returns the examples of the training file that belong to a split."""
    share, path = self.options.dev_share, self.sources(split)[0]
    train, dev = hold_out(examples, share)
    counts = f"{len(dev):,} of the {len(examples):,} rows of {path}"
    if not (train and dev) or self.names(dev) - self.names(train):
      raise ValueError(
        f"--dev_share={share:g} holds out {counts}, but both sides need rows, "
        "and the training rows of each label: give another share, or "
        "--dev_file."
      )
    if split == "train":
      return train
    self.options.note(f"--dev_share={share:g}: {counts} are held out")
    return dev

  def record_settings(self, split: str) -> dict[str, Any]:
    settings = super().record_settings(split)
    if self.is_shared(split):
      settings["dev_share"] = self.options.dev_share
    return settings

  def describe(self) -> dict[str, Any]:
    """Adds the numbers of the rows that were left out, by what was wrong."""
    described, left_out = super().describe(), self._left_out
    found = {split: left_out.get(split) for split in described["records"]}
    if any(found.values()):
      described["left_out"] = found
    return described
