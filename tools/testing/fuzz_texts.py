"""Texts that users bring: corpora, tables, files of tasks, predictions."""

from __future__ import annotations

import functools
import gzip
import io
import json
import os
import pathlib
import tarfile
from typing import Any, Callable, Union

from hypothesis import strategies as st

from official_albert import modeling, tokenization
from official_albert.tasks import common, squad
from official_albert.tasks.classification import glue
from official_albert.tasks.pretraining import data
from official_albert.tools.finetuning import jobs
from official_albert.tools.prediction import input as prediction_input
from official_albert.tools.testing import fuzz, mutations, toy_data, toy_runs

_TEXT = "\n".join(
  f"The {word} was warm.\nIt rains.\n" for word in toy_data.NEUTRAL
).encode()
_JSON = b'{"text": "One day. It was warm."}\n{"text": "Cold."}\n'
_TSV = b"mood\treview\nbad\tso dark\ngood\twarm\nbad\tcold\n"
_CSV = _TSV.replace(b"\t", b",")
_ROW = b'{"mood": "bad", "review": "so dark"}\n'
_ROWS = _ROW + b'{"mood": "good", "review": "warm"}\n' + _ROW
_PASSAGE = (
  b'{"article": "the day was warm", "questions": ["the day was _ ."], '
  b'"options": [["cold", "sunny", "a tree", "warm"]], "answers": ["D"]}\n'
)
_EXAM = b'A day\tIt was _\t["a", "b", "c", "d"]\n'
_EXAMS = b"passage\tquestion\toptions\n" + _EXAM * 3
_PROBABILITIES = (
  b"id\tprediction\tbad\tgood\n0\tbad\t0.75\t0.25\n1\tgood\t0\t1\n"
)
_ANSWERS = b'{"q": [{"text": "warm", "probability": 0.5}]}'
_compress = functools.partial(gzip.compress, mtime=0)


def _target(
  name: str,
  file: str,
  valid: Union[bytes, Callable[[str], Any]],
  damage: Callable[[bytes], st.SearchStrategy],
  read: Callable[[str, str], Any],
) -> fuzz.Target:
  """Returns a target.

  Args:
    name: the name of the target.
    file: the user's file.
    valid: the content of a valid file, or what writes it to a path.
    damage: see `fuzz.Target`.
    read: called with the folder and the path of the file.
  """

  def prepare(folder: str) -> None:
    toy_runs.write_tokenizer(folder)
    path = pathlib.Path(folder, file)
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(valid, bytes):
      path.write_bytes(valid)
    else:
      valid(str(path))

  def call(folder: str, content: bytes) -> None:
    read(folder, os.path.join(folder, file))

  return fuzz.Target(name, prepare, damage, call, file)


def _read_documents(folder: str, path: str) -> None:
  for splits in (False, True):
    list(data.DocumentReader([path], data.ReaderSettings(splits)))


def _build(folder: str, path: str) -> None:
  fuzz.run_program(
    "create_pretraining_data",
    f"--input_files={path}",
    f"--output_dir={folder}/records",
    f"--spm_model_file={folder}/tokenizer.model",
    *("--max_seq_length=16", "--max_predictions_per_seq=4"),
    *("--dupe_factor=1", "--num_shards=1", "--num_workers=1"),
  )


def _train_vocabulary(folder: str, path: str) -> None:
  fuzz.run_program(
    "train_vocabulary",
    f"--input_files={path}",
    f"--output_dir={folder}/vocabulary",
    *("--vocab_size=32", "--character_coverage=1"),
  )


def _gather(folder: str, path: str) -> None:
  from official_albert.tools import gather_corpus

  gather_corpus.gather(pathlib.Path(folder), ())


@functools.cache
def _tokenizer(folder: str) -> tokenization.Tokenizer:
  return tokenization.open_tokenizer(f"{folder}/tokenizer.model", "", True)


def _train(kind: str, name: str, **options: Any) -> Callable[[str, str], Any]:
  """Returns a function that makes the training records of a task."""

  def read(folder: str, path: str) -> None:
    settings = jobs.Options(
      *(folder, f"{folder}/cache", _tokenizer(folder), 24),
      files={"train": path},
      note=lambda text: None,
      **options,
    )
    job = getattr(jobs, kind)(name, settings)
    config = modeling.AlbertConfig(vocab_size=_tokenizer(folder).vocab_size)
    job.make_task(["train"], config, common.ModelSettings(), 0)

  return read


def _glue(name: str, split: str) -> fuzz.Target:
  task = glue.GLUE_TASKS[name]
  read = _train("GlueJob", name)
  if split != "train":

    def read(folder: str, path: str) -> None:
      glue.read_split(folder, task, split)

  return _target(
    f"glue_{name}",
    f"{task.folder}/{split}.tsv",
    lambda path: toy_data.write_glue(
      str(pathlib.Path(path).parents[1]), [name]
    ),
    _damage_tsv,
    read,
  )


def _damage_tsv(valid: bytes) -> st.SearchStrategy[bytes]:
  return mutations.damaged_table(valid, "\t")


def _damage_csv(valid: bytes) -> st.SearchStrategy[bytes]:
  return mutations.damaged_table(valid, ",")


_own = _train(
  "OwnJob",
  "text_classification",
  columns={"text": "review", "text_b": "", "label": "mood", "id": ""},
)


def _archive(passage: bytes) -> bytes:
  """Returns RACE.tar.gz with one passage."""
  buffer = io.BytesIO()
  with tarfile.open(fileobj=buffer, mode="w") as archive:
    member = tarfile.TarInfo("RACE/train/high/1.txt")
    member.size = len(passage)
    archive.addfile(member, io.BytesIO(passage))
  return _compress(buffer.getvalue())


def _zipped(damage: Callable[[bytes], st.SearchStrategy]) -> Callable:
  """Returns what damages a file, or its content below gzip's checksum."""

  def damage_gzip(valid: bytes) -> st.SearchStrategy[bytes]:
    content = damage(gzip.decompress(valid)).map(_compress)
    return st.one_of(content, content, mutations.damaged_bytes(valid))

  return damage_gzip


def _predict(*roles: str) -> Callable[[str, str], Any]:
  def read(folder: str, path: str) -> None:
    prediction_input.Source([path], roles, {}).check()

  return read


_bytes, _json = mutations.damaged_bytes, mutations.damaged_json
_lines = mutations.damaged_json_lines
_squad = _train(
  "SquadJob", "squad_v2", recipe={"doc_stride": 8, "max_query_length": 8}
)
_race = _train("RaceJob", "race", recipe={"max_qa_length": 8})
_exams = _predict("passage", "question", "options")
TARGETS = (
  _target("corpus", "a.gz", _compress(_TEXT), _zipped(_bytes), _read_documents),
  _target("corpus_jsonl", "text.jsonl", _JSON, _lines, _read_documents),
  _target("records", "text.jsonl", _JSON, _lines, _build),
  _target("vocabulary", "text.txt", _TEXT, _bytes, _train_vocabulary),
  _target("docstrings", "a.py", b'"""It is a day."""', _bytes, _gather),
  _glue("cola", "train"),
  _glue("stsb", "train"),
  _glue("mnli", "test_matched"),
  _target("tsv", "train.tsv", _TSV, _damage_tsv, _own),
  _target("csv", "train.csv.gz", _compress(_CSV), _zipped(_damage_csv), _own),
  _target("jsonl", "train.jsonl", _ROWS, _lines, _own),
  _target(
    "squad",
    "train.json",
    json.dumps(toy_data.squad(3, impossible=True)).encode(),
    _json,
    _squad,
  ),
  _target("race", "RACE/train/high/1.txt", _PASSAGE, _json, _race),
  _target("race_all", "RACE/train/high/all.txt", _PASSAGE * 2, _lines, _race),
  _target("race_gz", "RACE.tar.gz", _archive(_PASSAGE), _zipped(_bytes), _race),
  _target("exams", "exams.tsv", _EXAMS, _damage_tsv, _exams),
  _target("lines", "lines.txt", _TEXT, _bytes, _predict("text")),
  _target(
    "probabilities",
    "dev.tsv",
    _PROBABILITIES,
    _damage_tsv,
    lambda folder, path: common.read_probabilities(path),
  ),
  _target(
    "answers",
    squad.NBEST_FILE,
    _ANSWERS,
    _json,
    lambda folder, path: squad.read_answers(folder),
  ),
)
