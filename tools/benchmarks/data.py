"""Measures the speed and the memory of making and reading records.

Also how fast SQuAD is cut into windows, and how many answers survive.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple, Optional, Sequence

import tfrecords
from official_albert import modeling, tokenization
from tasks import pretraining, squad
from tools.cli import printing

_MASKINGS = ("static", "dynamic")
_WORKERS = (1, 2)
_READ_SECONDS = 5.0
_ROOT = pathlib.Path(__file__).resolve().parents[2]
_MAKING_HEAD = (
  *("masking", "workers", "tokens", "seconds", "tokens/s", "written"),
  "largest process",
)
# Characters shown around an answer that is not recovered.
_CONTEXT = 12


class Made(NamedTuple):
  """The measurements of one run of tools.create_pretraining_data."""

  seconds: float
  peak_bytes: int
  tokens: int
  written_bytes: int


def run(
  input_files: str,
  spm_model_file: str,
  max_seq_length: int,
  batch_size: int,
  repeats: int,
  work_dir: Optional[str] = None,
) -> None:
  """Measures in turns, and prints two tables; see the flags of the program."""
  made = {pair: [] for pair in itertools.product(_MASKINGS, _WORKERS)}
  rates = {}
  with tempfile.TemporaryDirectory(dir=work_dir) as folder:
    for repeat in range(repeats):
      for (masking, workers), runs in made.items():
        output = os.path.join(folder, f"{masking}-{workers}-{repeat}")
        runs.append(
          make(
            *(input_files, spm_model_file, max_seq_length),
            *(masking, workers, output),
          )
        )
        print(f"  {masking}, {workers} workers: {runs[-1]}")
    for masking in _MASKINGS:
      output = os.path.join(folder, f"{masking}-{_WORKERS[0]}-0")
      rates[masking] = read(output, batch_size)
  rows = [making_row(*pair, runs) for pair, runs in made.items()]
  print(f"\n{printing.table(_MAKING_HEAD, rows)}")
  for masking in _MASKINGS:
    print(speedup(masking, *(made[masking, workers] for workers in _WORKERS)))
  rows = [
    (masking, f"{rate:.1f}", f"{rate * batch_size * max_seq_length:,.0f}")
    for masking, rate in rates.items()
  ]
  print(f"\n{printing.table(('read', 'batches/s', 'tokens/s'), rows)}")


def making_row(
  masking: str, workers: int, runs: Sequence[Made]
) -> tuple[str, ...]:
  """Returns the cells of a row: medians, and the largest memory."""
  seconds = statistics.median(run.seconds for run in runs)
  tokens = runs[0].tokens
  return (
    masking,
    str(workers),
    f"{tokens:,}",
    f"{seconds:.1f}",
    f"{tokens / seconds:,.0f}",
    f"{runs[0].written_bytes / 1e6:.0f} MB",
    f"{max(run.peak_bytes for run in runs) / 2**30:.2f} GiB",
  )


def speedup(masking: str, one: Sequence[Made], more: Sequence[Made]) -> str:
  """Returns the speedup by workers: the median of the rounds' ratios.

  The runs of a round follow each other, so a change of the machine's speed
  between rounds matters little.
  """
  ratio = statistics.median(a.seconds / b.seconds for a, b in zip(one, more))
  return (
    f"{masking}: {_WORKERS[1]} workers are {ratio:.2f} times as fast as "
    f"{_WORKERS[0]} (median of {len(one)} rounds)"
  )


def make(
  input_files: str,
  spm_model_file: str,
  max_seq_length: int,
  masking: str,
  workers: int,
  output: str,
) -> Made:
  """Runs tools.create_pretraining_data."""
  patterns = map(os.path.abspath, input_files.split(","))
  command = [
    *(sys.executable, "-m", "tools.create_pretraining_data"),
    f"--input_files={','.join(patterns)}",
    f"--spm_model_file={os.path.abspath(spm_model_file)}",
    f"--output_dir={os.path.abspath(output)}",
    f"--max_seq_length={max_seq_length}",
    f"--max_predictions_per_seq={int(max_seq_length * 0.15)}",
    f"--masking={masking}",
    f"--num_workers={workers}",
    "--dupe_factor=1",
  ]
  start = time.monotonic()
  process = subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.DEVNULL)
  _, status, usage = os.wait4(process.pid, 0)
  seconds = time.monotonic() - start
  process.returncode = os.waitstatus_to_exitcode(status)
  if process.returncode:
    raise ValueError(f"{' '.join(command)} failed; see its output above.")
  splits = tfrecords.read_manifest(output).splits.values()
  return Made(
    seconds,
    usage.ru_maxrss * 1024,  # Of the largest descendant, in KiB on Linux.
    sum(split.statistics["tokens"] for split in splits),
    sum(shard.bytes for split in splits for shard in split.shards),
  )


def read(input_dir: str, batch_size: int) -> float:
  """Returns training batches per second."""
  config = dataclasses.replace(
    modeling.AlbertConfig.from_preset("albert_base_v2"),
    vocab_size=tfrecords.read_manifest(input_dir).tokenizer.vocab_size,
  )
  task = pretraining.PretrainingTask(config, input_dir)
  batches = iter(task.train_dataset(batch_size, 0))
  next(batches)  # Fills the first block.
  count, start = 0, time.monotonic()
  while time.monotonic() - start < _READ_SECONDS:
    next(batches)
    count += 1
  return count / (time.monotonic() - start)


class Recovered(NamedTuple):
  """How many answers equal the text of their own tokens.

  Attributes:
    answers: all of them; held-out questions have several.
    exact: equal in each character.
    normalized: equal after the normalization of the official scripts.
    questions: questions with answers.
    reached: questions with a normalized answer, which bounds the exact match
      of any model.
    rest: a line for each other answer.
  """

  answers: int
  exact: int
  normalized: int
  questions: int
  reached: int
  rest: list[str]


def run_squad(
  squad_file: str, spm_model_file: str, max_seq_length: int, repeats: int
) -> None:
  """Measures, prints tables, then the answers that are not recovered."""
  examples = squad.read_examples(squad_file)
  tokenizer = tokenization.SentencePieceTokenizer(spm_model_file)
  seconds = []
  for _ in range(repeats):
    start = time.perf_counter()
    made = squad.make_all_windows(examples, tokenizer, max_seq_length)
    windows = sum(1 for _ in made)
    seconds.append(time.perf_counter() - start)
  median, questions = statistics.median(seconds), len(examples)
  cells = f"{questions:,}", f"{windows:,}", f"{median:.2f}"
  head = ("questions", "windows", "seconds", "questions/s")
  print(f"\n{printing.table(head, [(*cells, f'{questions / median:,.0f}')])}")
  found = recover(examples, tokenizer)
  if found.answers:
    head = ("answers", "exact", "normalised", "questions with one")
    cells = (
      f"{found.answers:,}",
      share(found.exact, found.answers),
      share(found.normalized, found.answers),
      share(found.reached, found.questions),
    )
    print(f"\n{printing.table(head, [cells])}")
  if found.rest:
    print("\nThe others, whose pieces are longer than the answer:")
    print("\n".join(f"  {line}" for line in found.rest))


def share(part: int, whole: int) -> str:
  """Returns text such as "1,234 (56.78%)"."""
  return f"{part:,} ({100 * part / whole:.2f}%)"


def recover(
  examples: Sequence[squad.SquadExample],
  tokenizer: tokenization.Tokenizer,
) -> Recovered:
  """Converts each answer to its tokens and back."""
  answers = exact = 0
  reached = set()
  rest = []
  contexts = {example.context for example in examples}
  encoded = {text: tokenizer.encode_with_offsets(text) for text in contexts}
  for example in examples:
    context = encoded[example.context]
    for text, start in example.answers:
      answers += 1
      tokens = squad.answer_tokens(context, text, start)
      begin, end = start, start
      if tokens is not None:
        begin, end = context.starts[tokens[0]], context.ends[tokens[1]]
      found = example.context[begin:end].strip()
      exact += found == text
      if squad.normalize_answer(found) == squad.normalize_answer(text):
        reached.add(example.question_id)
      else:
        after = start + len(text)
        around = example.context[max(0, start - _CONTEXT) : after + _CONTEXT]
        rest.append(
          f"{example.question_id}: {text!r} became {found!r} in {around!r}"
        )
  return Recovered(
    answers,
    exact,
    answers - len(rest),
    sum(bool(example.answers) for example in examples),
    len(reached),
    rest,
  )
