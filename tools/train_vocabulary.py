"""Trains ALBERT's SentencePiece vocabulary on raw text.

    python -m tools.train_vocabulary --input_files='corpus/*.txt.gz' \\
      --output_dir=vocabulary --vocab_size=30000

Writes `tokenizer.model` and, to look at, `tokenizer.vocab`. The text (in the
forms that tools.create_pretraining_data reads, with the same flags) is first
put in the form in which the tokenizer will see it. The same text gives the same
bytes. A line on stderr shows the progress; Ctrl-C ends the program at once and
writes nothing.

Options: google-research/albert README.md, "SentencePiece".
"""

from __future__ import annotations

import collections
import contextlib
import io
import itertools
import multiprocessing
import os
import re
import signal
import sys
import time
from multiprocessing import connection
from typing import Callable, Iterable, Iterator, Sequence

import numpy as np
import sentencepiece
from absl import flags

from official_albert import files, tokenization
from tasks.pretraining import data
from tools.cli import command_line, path_flags, progress_line, reading_flags

_INPUT_FILES = path_flags.define(
  "input_files",
  None,
  "Text or JSON lines: names and globs, comma-separated.",
  remote=True,
)
_OUTPUT_DIR = path_flags.define("output_dir", "", "Folder of the result.")
_MODEL_PREFIX = path_flags.define(
  "model_prefix",
  "tokenizer",
  "The result is PREFIX.model and PREFIX.vocab, in output_dir if it is given.",
)
_VOCAB_SIZE = flags.DEFINE_integer("vocab_size", 30000, "Pieces to learn.")
_CHARACTER_COVERAGE = flags.DEFINE_float(
  "character_coverage",
  0.99995,
  "Share of the text's characters that get a piece; rarer ones are <unk>.",
)
_DO_LOWER_CASE = flags.DEFINE_bool(
  "do_lower_case", True, "Lower-case the text."
)
_INPUT_SENTENCE_SIZE = flags.DEFINE_integer(
  "input_sentence_size",
  10_000_000,
  "Train on a random sample of so many sentences if there are more.",
)
_RANDOM_SEED = flags.DEFINE_integer("random_seed", 12345, "Of the sample.")
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Replace a vocabulary.")

_USER_PIECES = ["(", ")", '"', "-", ".", "–", "£", "€"]
_TOO_HIGH = re.compile(r"Vocabulary size too high.* <= (\d+)")
_TOO_LOW = re.compile(r"Vocabulary size is smaller than .* vs (\d+)")
# What SentencePiece's log says when a stage of the training begins.
_STAGES = {
  "Normalizing sentences": "normalizing",
  "Making suffix array": "sorting suffixes",
  "Extracting frequent sub strings": "counting substrings",
  "sentences for EM training": "EM iteration 1",
}
_EM_ITERATION = re.compile(r"EM sub_iter=\d+ size=(\d+)")


def sample(
  sentences: Iterable[str], count: int, size: int, seed: int
) -> Iterator[str]:
  """Yields `size` of `count` sentences, each set of them equally likely.

  Like SentencePiece's own sample, but the same one each time.
  """
  rng = np.random.default_rng(seed)
  for seen, sentence in enumerate(sentences):
    if rng.random() * (count - seen) < size:
      size -= 1
      yield sentence


def train(
  sentences: Iterator[str],
  vocab_size: int,
  character_coverage: float,
  input_sentence_size: int,
  seed: int,
  logs: bool = False,
) -> bytes:
  """Trains a unigram model; returns the bytes of the model file.

  Args:
    sentences: normalised text.
    vocab_size: V.
    character_coverage: share of characters with pieces.
    input_sentence_size: of more sentences SentencePiece would take a sample
      of its own, whose seed cannot be set: `sample` them before.
    seed: of the order of sentences.
    logs: whether SentencePiece writes its log to stderr.

  Raises:
    ValueError: no text, or too little or too much of it for `vocab_size`.
    Exception: what `sentences` raises.
  """
  model = io.BytesIO()
  failures = []

  def remembered() -> Iterator[str]:
    try:
      yield from sentences
    except Exception as error:
      failures.append(error)
      raise

  sentencepiece.set_random_generator_seed(seed)
  try:
    sentencepiece.SentencePieceTrainer.train(
      sentence_iterator=remembered(),
      model_writer=model,
      model_type="unigram",
      vocab_size=vocab_size,
      character_coverage=character_coverage,
      pad_id=0,
      unk_id=1,
      bos_id=-1,
      eos_id=-1,
      control_symbols=["[CLS]", "[SEP]", "[MASK]"],
      user_defined_symbols=_USER_PIECES,
      shuffle_input_sentence=True,
      input_sentence_size=input_sentence_size,
      # Deviation: the default, 4192 bytes, silently leaves out longer lines.
      max_sentence_length=1 << 20,
      # Fixed, for sums of floats depend on it.
      num_threads=16,
      minloglevel=0 if logs else 2,
    )
  except RuntimeError as error:
    if failures:  # SentencePiece buries it in a text of its own.
      raise failures[0] from None
    raise ValueError(_explain(str(error), vocab_size)) from error
  return model.getvalue()


def train_in_child(
  sentences: Iterator[str],
  *arguments,
  show: Callable[[str], None] = lambda stage: None,
) -> bytes:
  """`train` in a process of its own.

  SentencePiece holds Python's lock while it trains, so that in this process
  neither Ctrl-C nor a progress line would work.

  Args:
    sentences: see `train`; read by the child.
    *arguments: the others of `train`.
    show: gets the stage of the training, twice a second.

  Raises:
    ValueError: as `train`.
    OSError: the child was killed.
  """
  context = multiprocessing.get_context("fork")
  receiver, sender = context.Pipe(duplex=False)
  log, log_end = os.pipe()
  child = context.Process(
    target=_train_and_send,
    args=(sentences, arguments, sender, log_end, (receiver.fileno(), log)),
    daemon=True,
  )
  child.start()
  sender.close()
  os.close(log_end)
  try:
    trainer_log, open_ends = _TrainerLog(), [receiver, log]
    while open_ends != [receiver]:  # Until the log has ended.
      ready = connection.wait(open_ends, timeout=0.5)
      show(trainer_log.stage)
      if receiver in ready:
        break
      if log in ready:
        text = os.read(log, 1 << 16).decode("utf-8", "replace")
        trainer_log.add(text)
        if not text:
          open_ends.remove(log)
    try:
      result = receiver.recv()
    except EOFError:
      child.join()
      if child.exitcode < 0:
        raise OSError(
          f"the training process was killed by signal {-child.exitcode}, most "
          "likely because the memory was full: give less text, or a smaller "
          "--input_sentence_size."
        ) from None
      raise RuntimeError("\n".join(trainer_log.lines)) from None
  finally:
    child.kill()
    child.join()
    receiver.close()
    os.close(log)
  if isinstance(result, Exception):
    raise result
  return result


def _train_and_send(
  sentences, arguments, sender, log_end, parents_ends
) -> None:
  """Runs `train` in a child; sends the model, or the error."""
  # Ctrl-C reaches all processes of the terminal; the parent kills this one.
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  signal.signal(signal.SIGTERM, signal.SIG_DFL)
  # If the parent is gone, the next line of the log ends this process.
  signal.signal(signal.SIGPIPE, signal.SIG_DFL)
  for end in parents_ends:
    os.close(end)
  os.dup2(log_end, 2)
  try:
    result = train(sentences, *arguments, logs=True)
  except (ValueError, OSError) as error:
    result = error
  sender.send(result)


class _TrainerLog:
  """Follows SentencePiece's log.

  Attributes:
    stage: what the training does, in words.
    lines: the last ones.
  """

  def __init__(self):
    self.stage = "loading sentences"
    self.lines = collections.deque(maxlen=20)
    self._iterations = 0
    self._rest = ""

  def add(self, text: str) -> None:
    """Takes the next part, which may end within a line."""
    *lines, self._rest = (self._rest + text).split("\n")
    for line in lines:
      self.lines.append(line)
      for beginning, stage in _STAGES.items():
        if beginning in line:
          self.stage = stage
      iteration = _EM_ITERATION.search(line)
      if iteration:
        self._iterations += 1
        self.stage = (
          f"EM iteration {self._iterations}, {int(iteration[1]):,} pieces left"
        )


def _explain(message: str, vocab_size: int) -> str:
  """SentencePiece's complaint in terms of the flags."""
  too_high, too_low = _TOO_HIGH.search(message), _TOO_LOW.search(message)
  if too_high:
    return (
      f"the text is too little for {vocab_size} pieces: give more text, or "
      f"--vocab_size={too_high[1]}, the largest that it can fill."
    )
  if too_low:
    return (
      f"{vocab_size} pieces are fewer than the text's characters: give "
      f"--vocab_size={too_low[1]} at least, or a lower --character_coverage."
    )
  if "sentences_.empty()" in message or "all_chars_count" in message:
    return "the input files hold no text."
  return f"SentencePiece failed: {message}"


def write(model: bytes, prefix: str) -> None:
  """Writes PREFIX.model and PREFIX.vocab, each in one step, model last."""
  processor = sentencepiece.SentencePieceProcessor()
  processor.LoadFromSerializedProto(model)
  lines = [
    f"{processor.id_to_piece(i)}\t{processor.get_score(i):g}\n"
    for i in range(processor.get_piece_size())
  ]
  vocab = "".join(lines).encode("utf-8")
  for ending, content in ((".vocab", vocab), (".model", model)):
    files.write_bytes(prefix + ending, content)


def check_flags() -> None:
  """Refuses values that SentencePiece would misunderstand."""
  for flag in (_VOCAB_SIZE, _INPUT_SENTENCE_SIZE):
    if flag.value < 1:
      raise ValueError(f"--{flag.name} is {flag.value}; must be at least 1.")
  # SentencePiece's own limits.
  if not 0.98 <= _CHARACTER_COVERAGE.value <= 1:
    raise ValueError(
      f"--character_coverage is {_CHARACTER_COVERAGE.value}; must be from "
      "0.98 to 1."
    )
  if not 0 <= _RANDOM_SEED.value < 2**32:
    raise ValueError(
      f"--random_seed is {_RANDOM_SEED.value}; must be from 0 to 2^32 - 1."
    )


def main(argv: Sequence[str]) -> None:
  del argv
  check_flags()
  prefix = os.path.join(_OUTPUT_DIR.value, _MODEL_PREFIX.value)
  if os.path.exists(f"{prefix}.model") and not _OVERWRITE.value:
    raise ValueError(
      f"{prefix}.model exists already, and data made with it would no longer "
      "fit: name another output_dir, or replace it with --overwrite."
    )
  files.check_folder(os.path.dirname(prefix))
  reader = data.DocumentReader(
    data.find_files(_INPUT_FILES.value), reading_flags.reader_settings()
  )
  print(
    f"Training on {reader.total_bytes / 1e6:,.1f} MB of files; this may take "
    "minutes.",
    file=sys.stderr,
  )
  # Else the child would outlive a terminated program for a while.
  signal.signal(signal.SIGTERM, lambda *unused: sys.exit(143))
  size, seed = _INPUT_SENTENCE_SIZE.value, _RANDOM_SEED.value
  begun = time.monotonic()
  with contextlib.closing(progress_line.ProgressLine(sys.stderr)) as line:

    def show(stage: str) -> None:
      seconds = progress_line.format_seconds(time.monotonic() - begun)
      line.show("vocabulary", 0, 0, f"{seconds}, {stage}")

    # Read twice, so that the text need not fit into memory.
    count = 0
    for document in reader:
      count += len(document)
      show(f"reading, {reader.bytes_read / reader.total_bytes:.0%}")
    skipped = reader.skipped
    sentences = itertools.chain.from_iterable(reader)
    if count > size:
      sentences = sample(sentences, count, size, seed)
    model = train_in_child(
      (
        tokenization.normalize_text(sentence, _DO_LOWER_CASE.value)
        for sentence in sentences
      ),
      _VOCAB_SIZE.value,
      _CHARACTER_COVERAGE.value,
      size,
      seed,
      show=show,
    )
  files.make_folder(os.path.dirname(prefix) or ".")
  write(model, prefix)
  # As the other tools will load it, which checks the special pieces.
  tokenizer = tokenization.SentencePieceTokenizer(f"{prefix}.model")
  if skipped.count:
    print(skipped.describe(), file=sys.stderr)
  print(f"Wrote {tokenizer.vocab_size:,} pieces to {prefix}.model")


if __name__ == "__main__":
  flags.mark_flags_as_required(["input_files"])
  command_line.run(main)
