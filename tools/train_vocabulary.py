"""Trains ALBERT's SentencePiece vocabulary on raw text.

    python -m tools.train_vocabulary --input_files='corpus/*.txt.gz' \\
      --output_dir=vocabulary --vocab_size=30000

Writes `tokenizer.model` and, for people, `tokenizer.vocab`. The text, in the
formats of tools.create_pretraining_data and with the same flags, is normalized
like the input of the tokenizer. The same text gives the same bytes. On a
terminal, SentencePiece's log shows the progress. Ctrl-C ends the program at
once, and nothing is written.

Options: google-research/albert README.md, "SentencePiece".
"""

from __future__ import annotations

import io
import itertools
import os
import random
import signal
import sys
from typing import Iterable, Iterator

import sentencepiece
from absl import flags

from official_albert import files, tokenization
from official_albert.tasks.pretraining import data
from official_albert.tools.cli import command_line, path_flags, printing

_READER_FLAGS = path_flags.define_settings(data.ReaderSettings)
_INPUT_FILES = path_flags.define(
  "input_files",
  None,
  "Text files or JSON lines: comma-separated names and globs.",
)
_OUTPUT_DIR = path_flags.define("output_dir", None, "Folder of the result.")
_VOCAB_SIZE = flags.DEFINE_integer(
  "vocab_size", 30000, "Pieces to learn.", lower_bound=1
)
_CHARACTER_COVERAGE = flags.DEFINE_float(
  "character_coverage",
  0.99995,
  "Share of the text's characters that get a piece; rarer ones are <unk>.",
  lower_bound=0.98,  # SentencePiece's own limit.
  upper_bound=1.0,
)
_DO_LOWER_CASE = flags.DEFINE_bool(
  "do_lower_case", True, "Lower-case the text."
)
_KEEP_ACCENTS = flags.DEFINE_bool(
  "keep_accents",
  False,
  "Keep accents and other combining marks, which the original loses; give it "
  "to tools.create_pretraining_data, too.",
)
_INPUT_SENTENCE_SIZE = flags.DEFINE_integer(
  "input_sentence_size",
  10_000_000,
  "Maximum number of parts of sentences, of about 75 characters; of more, a "
  "random sample is used.",
  lower_bound=1,
)
_RANDOM_SEED = flags.DEFINE_integer(
  "random_seed",
  12345,
  "Seed of the parts of sentences.",
  lower_bound=0,
  upper_bound=2**32 - 1,
)
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Replace a vocabulary.")

_LONG = 4096  # Characters.
_USER_PIECES = ["(", ")", '"', "-", ".", "–", "£", "€"]


def regroup(sentences: Iterable[str], seed: int) -> Iterator[str]:
  """Yields the same words in parts that end at random words.

  Deviation: SentencePiece's time grows with the sum of the lengths of all
  repeated substrings, across sentences too: 172 s for two copies of a document
  of 100 KB, and over 280 s for 200 KB. Here, copies have different parts (0.7
  and 0.9 s). A piece never spans words, so pieces and scores are the same.
  Words of over `_LONG` characters, as without spaces, are cut, too.
  """
  rng = random.Random(seed)
  part = []
  for sentence in sentences:
    for word in sentence.split(" "):
      start = 0
      while len(word) - start > _LONG:
        end = start + rng.randint(1, 128)
        yield word[start:end]
        start = end
      word = word[start:]
      part.append(word)
      # About 75 characters, and two words that are longer.
      if rng.random() < min(0.5, len(word) / 64):
        yield " ".join(part)
        part = []
  if part:
    yield " ".join(part)


def train(
  sentences: Iterable[str],
  vocab_size: int,
  character_coverage: float,
  seed: int,
  most: int = 0,
  logs: bool = False,
) -> bytes:
  """Trains a unigram model; returns the bytes of the model file.

  If there are more than `most` sentences, SentencePiece draws a sample.
  """
  model = io.BytesIO()
  sentencepiece.set_random_generator_seed(seed)
  try:
    sentencepiece.SentencePieceTrainer.train(
      sentence_iterator=regroup(sentences, seed),
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
      input_sentence_size=most,
      # Deviation: the default, 4192 bytes, silently leaves out longer lines.
      max_sentence_length=1 << 20,
      # Fixed, because sums of floats depend on it.
      num_threads=16,
      minloglevel=0 if logs else 2,
    )
  except RuntimeError as error:
    # After the place in its source, its message gives the possible sizes.
    reason = str(error).rpartition("] ")[2] or "it has no characters."
    raise ValueError(
      f"SentencePiece cannot learn {vocab_size} pieces from this text: "
      f"{reason} Change --vocab_size, --character_coverage or the text."
    ) from error
  return model.getvalue()


def write(model: bytes, prefix: str) -> None:
  """Writes PREFIX.vocab and then PREFIX.model."""
  processor = sentencepiece.SentencePieceProcessor(model_proto=model)
  lines = [
    f"{processor.id_to_piece(i)}\t{processor.get_score(i):g}\n"
    for i in range(processor.get_piece_size())
  ]
  files.write_text(f"{prefix}.vocab", "".join(lines))
  files.write_bytes(f"{prefix}.model", model)


def main(_) -> None:
  prefix = os.path.join(_OUTPUT_DIR.value, "tokenizer")
  if files.exists(f"{prefix}.model") and not _OVERWRITE.value:
    raise ValueError(
      f"{prefix}.model exists already, and data made with it would no longer "
      "fit: choose another output_dir, or replace it with --overwrite."
    )
  files.check_folder(_OUTPUT_DIR.value)
  reading = {name: flag.value for name, flag in _READER_FLAGS.items()}
  found = data.find_files(_INPUT_FILES.value, takes_weights=False)
  reader = data.DocumentReader(found, data.ReaderSettings(**reading))
  print(
    f"Training on {reader.total_bytes / 1e6:,.1f} MB of files; this may take "
    "minutes.",
    file=sys.stderr,
  )
  # SentencePiece cannot report bad text, so it is found before the training.
  line = printing.ProgressLine()
  for count, _ in enumerate(reader, 1):
    share = reader.bytes_read / reader.total_bytes
    line.show("reading", share, 0, f"{count:,} documents, {share:.0%}")
  seed = _RANDOM_SEED.value
  # SentencePiece does not return to Python while it trains, so Python could not
  # handle a signal; the default action ends the process.
  for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_DFL)
  try:
    model = train(
      (
        tokenization.normalize_text(
          sentence, _DO_LOWER_CASE.value, _KEEP_ACCENTS.value
        )
        for sentence in itertools.chain.from_iterable(reader)
      ),
      _VOCAB_SIZE.value,
      _CHARACTER_COVERAGE.value,
      seed,
      _INPUT_SENTENCE_SIZE.value,
      logs=sys.stderr.isatty(),
    )
  except ValueError as error:
    raise ValueError(
      f"{files.quote(_INPUT_FILES.value, most=200)}: {error}"
    ) from error
  files.make_folder(_OUTPUT_DIR.value)
  write(model, prefix)
  # Checks the special pieces.
  tokenizer = tokenization.SentencePieceTokenizer(f"{prefix}.model")
  print(f"Wrote {tokenizer.vocab_size:,} pieces to {prefix}.model")


if __name__ == "__main__":
  flags.mark_flags_as_required(["input_files", "output_dir"])
  command_line.run(main)
