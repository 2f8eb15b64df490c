"""Small data sets of every fine-tuning task, for tests.

Texts are about good or bad weather. Three words of each text tell which, so a
model learns the tasks in a few updates.
"""

from __future__ import annotations

import os
from typing import Any, Iterable, Sequence

import numpy as np

from official_albert import files
from official_albert.tasks.classification import glue

GOOD, BAD = ("sunny", "bright", "warm"), ("rainy", "dark", "cold")
NEUTRAL = tuple("the day at sea was by a tall old tree house".split())


def sentence(rng: np.random.Generator, words: Sequence[str]) -> str:
  """Returns five to eight words, three of them from `words`."""
  drawn = [*rng.choice(NEUTRAL, rng.integers(2, 6)), *rng.choice(words, 3)]
  return " ".join(rng.permutation(drawn))


def write_corpus(path: str, documents: int = 40) -> None:
  """Writes documents of four to eight lines with a sentence each."""
  rng = np.random.default_rng(0)
  texts = [
    "".join(
      f"{sentence(rng, GOOD + BAD)}.\n" for _ in range(rng.integers(4, 9))
    )
    for _ in range(documents)
  ]
  files.write_text(path, "\n".join(texts))


def write_table(path: str, count: int, label: str = "mood") -> None:
  """Writes a TSV of `review` and a label column, bad and good in turn.

  Files of other names have other texts; label "" omits the column.
  """
  rng = _generator(path)
  rows = [[label, "review"]]
  for i in range(count):
    rows.append([("bad", "good")[i % 2], sentence(rng, GOOD if i % 2 else BAD)])
  _write_rows(path, [row if label else row[1:] for row in rows])


def write_glue(
  folder: str, names: Iterable[str] = glue.GLUE_TASKS, train: int = 24
) -> None:
  """Writes the official files of GLUE's tasks, 7 rows except in training."""
  for name in names:
    task = glue.GLUE_TASKS[name]
    for split in ("train", *task.dev_splits, *task.test_splits):
      file = os.path.join(folder, task.folder, f"{split}.tsv")
      if split == "ax":
        file = os.path.join(folder, "AX", "diagnostic.tsv")
      files.make_folder(os.path.dirname(file))
      count = train if split == "train" else 7
      _write_rows(file, _glue_rows(task, split, count, _generator(file)))


def _glue_rows(
  task: glue.GlueTask, split: str, count: int, rng: np.random.Generator
) -> list[list[str]]:
  labels = task.labels or ("0.5", "4.5")
  has_labels = split not in task.test_splits
  kinds = (BAD, GOOD, NEUTRAL)
  if task.name == "cola":
    # Its labeled files have no header.
    head = [] if has_labels else [["index", "sentence"]]
    texts = [sentence(rng, kinds[i % 2]) for i in range(count)]
    return head + [
      ["x", labels[i % 2], "", text] if has_labels else [str(i), text]
      for i, text in enumerate(texts)
    ]
  rows = [[task.guid or "index", *task.texts, task.label]]
  for i in range(count):
    kind = i % len(labels)
    texts = [sentence(rng, kinds[kind]), sentence(rng, NEUTRAL)]
    rows.append([str(i), *texts[: len(task.texts)], labels[kind]])
  return rows if has_labels else [row[:-1] for row in rows]


def squad(
  count: int, impossible: bool = False, seed: int = 0
) -> dict[str, Any]:
  """Returns a SQuAD file of `count` paragraphs with one question each.

  With `impossible`, every third question has no answer, as in SQuAD 2.0.
  """
  rng = np.random.default_rng(seed)
  paragraphs = []
  for i in range(count):
    answer = str(rng.choice(GOOD + BAD))
    before = " ".join(rng.choice(NEUTRAL, rng.integers(3, 9)))
    context = f"{before} {answer} {' '.join(rng.choice(NEUTRAL, 5))}"
    qa = {
      "id": f"q{i}",
      "question": "the day was",
      "answers": [{"text": answer, "answer_start": len(before) + 1}],
    }
    if impossible:
      qa["is_impossible"] = i % 3 == 2
      if qa["is_impossible"]:
        context, qa["answers"] = before, []
    paragraphs.append({"context": context, "qas": [qa]})
  return {"data": [{"title": "Weather", "paragraphs": paragraphs}]}


def write_race(folder: str, train: int = 6) -> None:
  """Writes RACE: `train` passages for each school, and one in other splits."""
  for split, count in (("train", train), ("dev", 1), ("test", 1)):
    for level in ("middle", "high"):
      rng = _generator(f"{split}{level}")
      where = os.path.join(folder, split, level)
      files.make_folder(where)
      for i in range(count):
        passage = {
          "id": f"{level}{i}.txt",
          "article": sentence(rng, BAD),
          "questions": ["the day was _ .", "the old house"],
          "options": [["cold", "sunny", "a tree", "warm"]] * 2,
          "answers": ["A", "ABCD"[i % 4]],
        }
        files.write_json(os.path.join(where, f"{i}.txt"), passage)


def _generator(name: str) -> np.random.Generator:
  """Returns a generator that depends on the name of the file."""
  return np.random.default_rng(list(os.path.basename(name).encode()))


def _write_rows(path: str, rows: Sequence[Sequence[str]]) -> None:
  files.write_text(path, "".join("\t".join(row) + "\n" for row in rows))
