"""The user's own files of a fine-tuning task: one for each split.

Without a dev file, a share of the training file is held out.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from typing import Any, Iterable, Sequence

from official_albert.tasks.common import finetuning_task, rows


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
  return hash(
    tuple(
      " ".join(unicodedata.normalize("NFKC", text or "").casefold().split())
      for text in example.texts[:2]
    )
  )


class OwnFiles(finetuning_task.FinetuningTask):
  """Reads --train_file, --dev_file or --dev_share, and --test_file.

  Its examples have `texts`, a list, and `where`, their place for messages.
  `read` sets `finds_ids` if a file has the column of the ids.
  """

  finds_ids = False

  def __init__(self, name: str, options: Any, *args: Any):
    super().__init__(name, options, *args)
    self._compared = {"train"}  # Splits of which training rows are known.
    self._left_out: dict[str, dict[str, int]] = {}

  def names(self, examples: Sequence[Any]) -> set[Any]:
    """Returns the classes that occur."""
    raise NotImplementedError

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
    for split in splits if "train" in splits else ():
      if split in self._compared:
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

  def leave_out(self, split: str, invalid: rows.InvalidRows) -> None:
    """Logs the rows that were left out; `describe` has their numbers."""
    for line in invalid.describe():
      self.options.note(line)
    self._left_out[split] = {k: n for k, (n, _) in invalid.found.items()}

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
