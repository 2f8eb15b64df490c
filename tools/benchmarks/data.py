"""Measures the speed and the memory of making and reading records.

Also measures how fast SQuAD is split into windows, and how many of its answers
can be recovered from their tokens.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import statistics
import subprocess
import tempfile
import time
from typing import Any, NamedTuple, Optional, Sequence

from official_albert import modeling, tfrecords, tokenization
from official_albert.tasks import pretraining, squad
from official_albert.tools.cli import child_programs, printing

_MASKINGS = ("static", "dynamic")
_WORKERS = (1, 2)
_READ_SECONDS = 5.0
_MAKING_HEAD = (
  *("masking", "workers", "tokens", "seconds", "tokens/s", "written"),
  "largest process",
)
# Characters shown around an answer that is not recovered.
_CONTEXT = 12


class ProgramRun(NamedTuple):
  """One run of a program, and the memory of its largest process."""

  seconds: float
  peak_bytes: int
  output: str


def run_program(name: str, *arguments: str) -> ProgramRun:
  """Runs `tools.NAME`; see `run_command`."""
  name = f"official_albert.tools.{name}"
  return run_command(name, child_programs.command(name, *arguments))


def run_command(
  name: str, command: Sequence[str], **options: Any
) -> ProgramRun:
  """Runs a command, which a ValueError calls `name` if it fails.

  `options` are arguments of `subprocess.Popen`.
  """
  start = time.monotonic()
  with subprocess.Popen(
    command, stdout=subprocess.PIPE, text=True, **options
  ) as process:
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
  if process.returncode:
    raise ValueError(f"{name} failed; see its message above.")
  seconds = time.monotonic() - start
  return ProgramRun(seconds, usage.ru_maxrss * 1024, output)  # KiB on Linux.


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
  work_dir: Optional[str],
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
  rows = []
  for (masking, workers), runs in made.items():
    seconds = statistics.median(run.seconds for run in runs)
    tokens, peak = runs[0].tokens, max(run.peak_bytes for run in runs)
    rows.append(
      (
        *(masking, workers, f"{tokens:,}", f"{seconds:.1f}"),
        f"{tokens / seconds:,.0f}",
        f"{runs[0].written_bytes / 1e6:.0f} MB",
        f"{peak / 2**30:.2f} GiB",
      )
    )
  print(f"\n{printing.table(_MAKING_HEAD, rows)}")
  for masking in _MASKINGS:
    rounds = zip(*(made[masking, workers] for workers in _WORKERS))
    ratio = statistics.median(a.seconds / b.seconds for a, b in rounds)
    print(
      f"{masking}: {_WORKERS[1]} workers are {ratio:.2f} times as fast as "
      f"{_WORKERS[0]} (median of {repeats} rounds)"
    )
  rows = [
    (masking, f"{rate:.1f}", f"{rate * batch_size * max_seq_length:,.0f}")
    for masking, rate in rates.items()
  ]
  print(f"\n{printing.table(('read', 'batches/s', 'tokens/s'), rows)}")


def make(
  input_files: str,
  spm_model_file: str,
  max_seq_length: int,
  masking: str,
  workers: int,
  output: str,
) -> Made:
  """Runs tools.create_pretraining_data."""
  done = run_program(
    "create_pretraining_data",
    f"--input_files={input_files}",
    f"--spm_model_file={spm_model_file}",
    f"--output_dir={output}",
    f"--max_seq_length={max_seq_length}",
    f"--masking={masking}",
    f"--num_workers={workers}",
    "--dupe_factor=1",
  )
  splits = tfrecords.read_manifest(output).splits.values()
  return Made(
    done.seconds,
    done.peak_bytes,
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
  next(batches)  # Fills the reader's buffers.
  count, start = 0, time.monotonic()
  while time.monotonic() - start < _READ_SECONDS:
    next(batches)
    count += 1
  return count / (time.monotonic() - start)


class Recovered(NamedTuple):
  """How many answers equal the text of their own tokens.

  `exact` answers are equal in each character, `normalized` ones after the
  normalization of the official evaluation scripts. `reached` counts the
  questions with a normalized answer, which bounds the exact match of any model.
  `rest` has a line for each other answer.
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
  """Measures, and prints tables and the answers that are not recovered."""
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
      _share(found.exact, found.answers),
      _share(found.normalized, found.answers),
      _share(found.reached, found.questions),
    )
    print(f"\n{printing.table(head, [cells])}")
  if found.rest:
    print("\nThe other answers, which end within a piece:")
    print("\n".join(f"  {line}" for line in found.rest))


def _share(part: int, whole: int) -> str:
  """Returns text such as "1,234 (56.78%)"."""
  return f"{part:,} ({100 * part / whole:.2f}%)"


def recover(
  examples: Sequence[squad.SquadExample], tokenizer: tokenization.Tokenizer
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
