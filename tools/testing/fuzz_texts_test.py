"""Texts that users bring: corpora, tables, files of tasks, predictions."""

from __future__ import annotations

import functools
import gzip
import itertools
import json
import pathlib
from typing import Any, Callable, Union

import pytest
from hypothesis import strategies as st

from official_albert import modeling, tokenization
from official_albert.tasks import common, registry
from official_albert.tasks.classification import glue
from official_albert.tasks.pretraining import data
from official_albert.tools import train_vocabulary
from official_albert.tools.prediction import lines
from official_albert.tools.testing import fuzz, toy_data, toy_runs

_TEXT = "\n".join(
  f"The {word} was warm.\nIt rains.\n" for word in toy_data.NEUTRAL
).encode()
_JSON = b'{"text": "One day. It was warm."}\n{"text": "Cold."}\n'
_TSV = b"mood\treview\nbad\tso dark\ngood\twarm\nbad\tcold\n"
_CSV = _TSV.replace(b"\t", b",")
_TEXT_GZ, _CSV_GZ = (gzip.compress(x, mtime=0) for x in (_TEXT, _CSV))
_ROW = b'{"mood": "bad", "review": "so dark"}\n'
_ROWS = _ROW + b'{"mood": "good", "review": "warm"}\n' + _ROW
_PASSAGE = (
  b'{"article": "the day was warm", "questions": ["the day was _ ."], '
  b'"options": [["cold", "sunny", "a tree", "warm"]], "answers": ["D"]}\n'
)
_EXAM = b'A day\tIt was _\t["a", "b", "c", "d"]\n'
_EXAMS = b"passage\tquestion\toptions\n" + _EXAM * 3


def _target(
  file: str,
  valid: Union[bytes, Callable[[str], None]],
  damaged: Callable[[bytes], st.SearchStrategy],
  read: Callable[[str, str], Any],
) -> fuzz.Target:
  """Returns a target whose valid file is a content, or written by a function.

  `read` is called with the folder and the path of the file.
  """

  def prepare(folder: str) -> None:
    toy_runs.write_tokenizer(folder)
    if callable(valid):
      valid(folder)
    else:
      path = pathlib.Path(folder, file)
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_bytes(valid)

  return fuzz.Target(
    file, prepare, damaged, lambda folder: read(folder, f"{folder}/{file}")
  )


def _read_documents(folder: str, path: str) -> None:
  for splits in (False, True):
    list(data.DocumentReader({path: 1}, data.ReaderSettings(splits)))


def _build(folder: str, path: str) -> None:
  changes = {"input_files": path, "dupe_factor": 1, "num_shards": 1}
  toy_runs.write_records(folder, "records", 16, 0.0, **changes)


def _train_vocabulary(folder: str, path: str) -> None:
  reader = data.DocumentReader({path: 1}, data.ReaderSettings())
  sentences = itertools.chain.from_iterable(reader)
  texts = (tokenization.normalize_text(x, True, False) for x in sentences)
  try:
    train_vocabulary.train(texts, 32, 1.0, 1)
  except ValueError as error:
    raise ValueError(f"{path}: {error}") from error


@functools.cache
def _tokenizer(folder: str) -> tokenization.Tokenizer:
  return tokenization.open_tokenizer(f"{folder}/tokenizer.model", "", True)


def _train(name: str, **options: Any) -> Callable[[str, str], Any]:
  """Returns a function that makes the training records of a task."""

  def read(folder: str, path: str) -> None:
    settings = common.TaskOptions(
      data_dir=folder,
      train_file=path,
      cache_dir=f"{folder}/cache",
      tokenizer=_tokenizer(folder),
      max_seq_length=24,
      note=lambda text: None,
      **options,
    )
    task = registry.make_task(name, settings)
    config = modeling.AlbertConfig(vocab_size=_tokenizer(folder).vocab_size)
    task.with_records(["train"], config, 0)

  return read


def _glue(name: str, split: str) -> fuzz.Target:
  task = glue.GLUE_TASKS[name]
  return _target(
    f"{task.folder}/{split}.tsv",
    lambda folder: toy_data.write_glue(folder, [name]),
    fuzz.damaged_table,
    lambda folder, path: glue.read_split(folder, task, split),
  )


def _damaged_csv(valid: bytes) -> st.SearchStrategy[bytes]:
  return fuzz.damaged_table(valid, ",")


def _predict(*roles: str) -> Callable[[str, str], Any]:
  def check(folder: str, path: str) -> None:
    columns = lines.choose_columns([path], roles, {})
    for _ in lines.read_rows([path], columns):
      pass

  return check


_bytes, _json = fuzz.damaged_bytes, fuzz.damaged_json
_lines, _tsv = fuzz.damaged_json_lines, fuzz.damaged_table
_own = _train("text_classification", text_column="review", label_column="mood")
_squad = _train("squad_v2", recipe={"doc_stride": 8, "max_query_length": 8})
_race = _train("race", recipe={"max_qa_length": 8})
_exams = _predict("passage", "question", "options")
_QUESTIONS = json.dumps(toy_data.squad(3, impossible=True)).encode()
_TARGETS = {
  "corpus": _target("a.gz", _TEXT_GZ, fuzz.zipped(_bytes), _read_documents),
  "corpus_jsonl": _target("text.jsonl", _JSON, _lines, _read_documents),
  "records": _target("text.jsonl", _JSON, _lines, _build),
  "vocabulary": _target("text.txt", _TEXT, _bytes, _train_vocabulary),
  "glue_cola": _glue("cola", "train"),
  "glue_mnli": _glue("mnli", "test_matched"),
  "tsv": _target("train.tsv", _TSV, _tsv, _own),
  "csv": _target("train.csv.gz", _CSV_GZ, fuzz.zipped(_damaged_csv), _own),
  "jsonl": _target("train.jsonl", _ROWS, _lines, _own),
  "squad": _target("train.json", _QUESTIONS, _json, _squad),
  "race": _target("RACE/train/high/1.txt", _PASSAGE, _json, _race),
  "exams": _target("exams.tsv", _EXAMS, _tsv, _exams),
  "lines": _target("lines.txt", _TEXT, _bytes, _predict("text")),
}


@pytest.mark.parametrize("name", _TARGETS)
def test_target(name, tmp_path):
  fuzz.check(_TARGETS[name], str(tmp_path))
