r"""Builds TFRecords for pretraining (masked LM, sentence order) from raw text.

    python -m tools.create_pretraining_data --input_files='corpus/*.txt.gz' \
      --output_dir=data --spm_model_file=30k-clean.model \
      --num_workers=8

Text files have one sentence per line and a blank line between documents (with
--split_sentences, one paragraph per line). JSON lines have one document per
line, in the field `text`; Parquet and Arrow files have one in each row of a
column (--text_column). Text may be compressed. A weight after the name of a
file multiplies --dupe_factor.

The output folder gets the shards, the tokenizer and, written last,
`dataset.json` with all settings and statistics. The same documents, settings
and seed give the same shards, in any order, for any number of workers, and with
--engine=beam. After a kill, the same command resumes from the files in
OUTPUT_DIR/.unfinished. Each process holds one shard in memory. All paths may be
gs:// addresses; a bucket has no locks, so start only one build for a folder.

With --masking=dynamic the records hold the unmasked text, and training draws
new masks and swaps in each epoch. docs/data.md has more.

Flags have the names and defaults of google-research/albert
create_pretraining_data.py; docs/deviations.md lists the exceptions.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

from absl import flags

from official_albert import tfrecords, tokenization
from official_albert.tasks.pretraining import data
from official_albert.tools.cli import command_line, path_flags, printing

_INPUT_FILES = path_flags.define(
  "input_files",
  None,
  "Text, JSON lines, Parquet or Arrow: comma-separated names and globs, each "
  "with a weight if it is not 1: 'wiki/*:2,books.jsonl'.",
)
_OUTPUT_DIR = path_flags.define("output_dir", None, "Folder of the dataset.")
_SPM_MODEL_FILE = path_flags.define(
  "spm_model_file", "", "SentencePiece model; or use --vocab_file."
)
_VOCAB_FILE = path_flags.define(
  "vocab_file", "", "WordPiece vocabulary of, for example, a zh model."
)
_READER_FLAGS = path_flags.define_settings(data.ReaderSettings)
_EXAMPLE_FLAGS = path_flags.define_settings(data.ExampleSettings)
_BUILD_FLAGS = path_flags.define_settings(data.BuildSettings)
_ENGINE = flags.DEFINE_enum(
  "engine",
  "local",
  ["local", "beam"],
  "local: processes on this machine; beam: Apache Beam, with the same result "
  "(requirements-beam.txt).",
)
_RUNNER = flags.DEFINE_string(
  "runner",
  "DirectRunner",
  "Beam's runner: DirectRunner, DaskRunner, DataflowRunner, FlinkRunner...",
)
_BEAM_OPTIONS = flags.DEFINE_string(
  "beam_options",
  "",
  "Further options for Beam in one string: '--project=... --region=...'.",
)


def _settings() -> data.BuildSettings:
  """Returns the flags as checked settings."""
  reading, examples, build = (
    {name: flag.value for name, flag in defined.items()}
    for defined in (_READER_FLAGS, _EXAMPLE_FLAGS, _BUILD_FLAGS)
  )
  return data.BuildSettings(
    input_files=_INPUT_FILES.value,
    output_dir=_OUTPUT_DIR.value,
    spm_model_file=_SPM_MODEL_FILE.value,
    vocab_file=_VOCAB_FILE.value,
    reading=data.ReaderSettings(**reading),
    examples=data.ExampleSettings(**examples),
    **build,
  )


def _build_with_beam(settings: data.BuildSettings) -> tfrecords.Manifest:
  # Otherwise it lists the modules of Google Cloud that are not installed.
  logging.getLogger("apache_beam").setLevel(logging.WARNING)
  try:
    from official_albert.tasks.pretraining.data import beam_builder
  except ModuleNotFoundError as error:
    if not (error.name or "").startswith("apache_beam"):
      raise
    raise ValueError(
      "--engine=beam needs Apache Beam: python -m pip install apache-beam; "
      "requirements-beam.txt has the tested release."
    ) from error
  return beam_builder.build_dataset_with_beam(
    settings, _RUNNER.value, _BEAM_OPTIONS.value
  )


def _build_locally(settings: data.BuildSettings) -> tfrecords.Manifest:
  try:
    return data.build_dataset(settings, printing.ProgressLine().show)
  except (KeyboardInterrupt, SystemExit):
    print("Stopped: run the same command again to resume.", file=sys.stderr)
    raise


def main(_) -> None:
  is_local = _ENGINE.value == "local"
  for flag in (_RUNNER, _BEAM_OPTIONS):
    if flag.present and is_local:
      raise ValueError(f"--{flag.name} needs --engine=beam: add it.")
  settings = _settings()
  if note := tokenization.vocabulary_note(settings.open_tokenizer()):
    print(note, file=sys.stderr)
  manifest = (_build_locally if is_local else _build_with_beam)(settings)
  statistics: Any = {name: x.statistics for name, x in manifest.splits.items()}
  print(printing.statistics_table(statistics))
  tokens = statistics[data.TRAIN]["text_tokens"]
  unknown = round(statistics[data.TRAIN]["unknown_share"] * tokens)
  if note := tokenization.unknown_note(unknown, tokens, "the training text"):
    print(note, file=sys.stderr)
  files = sum(len(split.shards) for split in manifest.splits.values())
  print(f"Wrote {files} files and dataset.json to {_OUTPUT_DIR.value}")


if __name__ == "__main__":
  flags.mark_flags_as_required(["input_files", "output_dir"])
  command_line.run(main)
