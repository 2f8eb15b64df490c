r"""Builds TFRecords for pretraining (masked LM, sentence order) from raw text.

    python -m tools.create_pretraining_data --input_files='corpus/*.txt.gz' \
      --output_dir=data --spm_model_file=30k-clean.model \
      --max_predictions_per_seq=76 --num_workers=8

Text files have one sentence on a line and a blank line between documents (with
--split_sentences, one paragraph on a line). JSON lines have one document on a
line, in the field `text`. Both may be compressed (.gz, .zst) and have gs://
addresses. The output folder gets the shards, the tokenizer and, written last,
`dataset.json` with all settings and statistics. The same text, settings and
seed give the same bytes for any number of workers. After a kill, the same
command resumes with what it finds in OUTPUT_DIR/.unfinished. Intermediate
results are files there, so memory does not grow with the text.

If one machine is too slow, --engine=beam gives the same bytes with Apache Beam
(requirements-beam.txt), for example on Dataflow.

With --masking=dynamic the records hold the unmasked text, and training draws
new masks and swaps in each epoch. One pass replaces --dupe_factor=40.

Flags have the names and defaults of google-research/albert
create_pretraining_data.py, with these exceptions:
  --input_file, --output_file: now --input_files and --output_dir.
  --vocab_file: only for WordPiece, which the released zh models use; not needed
    with --spm_model_file.
  --do_permutation: removed; no reader could use the additional predictions.
  --random_next_sentence: now --sentence_pair=nsp.
  --input_file_mode, --meta_data_file_path, --num_outputs and others: removed;
    they were for the authors' own cluster.
"""

from __future__ import annotations

import logging
import signal
import sys
from typing import Sequence

from absl import flags

import tfrecords
from tasks.pretraining import data
from tools.cli import command_line, path_flags, progress_line, reading_flags

# With 128 tokens, one sentence on a line loses 12%, one paragraph 35%.
_NOTABLE_TRUNCATED_SHARE = 0.1
# The mean of a corpus; it is 30 for Wikipedia's sentences, 75 for paragraphs.
_MANY_TOKENS_IN_A_SENTENCE = 50

_INPUT_FILES = path_flags.define(
  "input_files",
  None,
  "Text files or JSON lines: comma-separated names and globs.",
  remote=True,
)
_OUTPUT_DIR = path_flags.define(
  "output_dir", None, "Folder of the dataset.", remote=True
)
_SPM_MODEL_FILE = path_flags.define(
  "spm_model_file", None, "SentencePiece model; or use --vocab_file."
)
_VOCAB_FILE = path_flags.define(
  "vocab_file", None, "WordPiece vocabulary of, for example, a zh model."
)
_DO_LOWER_CASE = flags.DEFINE_bool(
  "do_lower_case", True, "Lower-case the text, as for training the model."
)
_MAX_SEQ_LENGTH = flags.DEFINE_integer(
  "max_seq_length", 512, "Tokens of an example, including [CLS] and [SEP]."
)
_MAX_PREDICTIONS_PER_SEQ = flags.DEFINE_integer(
  "max_predictions_per_seq",
  20,
  "Maximum number of masked tokens of an example; should be at least "
  "masked_lm_prob x max_seq_length.",
)
_MASKED_LM_PROB = flags.DEFINE_float(
  "masked_lm_prob", 0.15, "Share of tokens to mask."
)
_NGRAM = flags.DEFINE_integer("ngram", 3, "Maximum length of an n-gram.")
_FAVOR_SHORTER_NGRAM = flags.DEFINE_bool(
  "favor_shorter_ngram", True, "Draw n with p(n) ~ 1/n, or in reverse."
)
_DO_WHOLE_WORD_MASK = flags.DEFINE_bool(
  "do_whole_word_mask", True, "Mask all pieces of a word or none."
)
_SHORT_SEQ_PROB = flags.DEFINE_float(
  "short_seq_prob", 0.1, "Share of documents cut to a random shorter length."
)
_DUPE_FACTOR = flags.DEFINE_integer(
  "dupe_factor",
  None,
  "How often each document is used, with different cuts and masks; default: "
  "40, or 1 with --masking=dynamic.",
)
_RANDOM_SEED = flags.DEFINE_integer(
  "random_seed", 12345, "Seed of all choices."
)
_MASKING = flags.DEFINE_enum(
  "masking",
  "static",
  list(data.MASKING_KINDS),
  "static: masks are drawn here, once for each duplicate; dynamic: in each "
  "epoch of the training; compat: here, with the original's quirks.",
)
_SENTENCE_PAIR = flags.DEFINE_enum(
  "sentence_pair",
  "sop",
  list(data.PAIR_KINDS),
  "sop: in order or swapped; nsp: in order or random; none: in order.",
)
_NUM_SHARDS = flags.DEFINE_integer(
  "num_shards", 8, "Files of the training split."
)
_NUM_HELDOUT_SHARDS = flags.DEFINE_integer(
  "num_heldout_shards", 1, "Files of the held-out split."
)
_HELDOUT_SHARE = flags.DEFINE_float(
  "heldout_share",
  0.01,
  "Share of documents for evaluation, each used once; 0.01 is enough for a "
  "large corpus.",
)
_NUM_WORKERS = flags.DEFINE_integer(
  "num_workers", 0, "Number of processes; 0 is one for each processor."
)
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
  "Beam's runner: DirectRunner, DataflowRunner, FlinkRunner, SparkRunner...",
)
_BEAM_OPTIONS = flags.DEFINE_string(
  "beam_options",
  "",
  "Further options for Beam in one string: '--project=... --region=...'.",
)
_OVERWRITE = flags.DEFINE_bool(
  "overwrite", False, "Replace the dataset in output_dir."
)


def settings_from_flags() -> data.BuildSettings:
  """Returns the settings given by the flags.

  Raises:
    ValueError: a flag is out of range.
  """
  dupe_factor = _DUPE_FACTOR.value
  if dupe_factor is None:
    dupe_factor = 1 if _MASKING.value == "dynamic" else 40
  return data.BuildSettings(
    input_files=_INPUT_FILES.value,
    output_dir=_OUTPUT_DIR.value,
    spm_model_file=_SPM_MODEL_FILE.value or "",
    vocab_file=_VOCAB_FILE.value or "",
    do_lower_case=_DO_LOWER_CASE.value,
    reading=reading_flags.reader_settings(),
    examples=data.ExampleSettings(
      max_seq_length=_MAX_SEQ_LENGTH.value,
      max_predictions_per_seq=_MAX_PREDICTIONS_PER_SEQ.value,
      masked_lm_prob=_MASKED_LM_PROB.value,
      ngram=_NGRAM.value,
      favor_shorter_ngram=_FAVOR_SHORTER_NGRAM.value,
      do_whole_word_mask=_DO_WHOLE_WORD_MASK.value,
      short_seq_prob=_SHORT_SEQ_PROB.value,
      masking=_MASKING.value,
      sentence_pair=_SENTENCE_PAIR.value,
    ),
    dupe_factor=dupe_factor,
    random_seed=_RANDOM_SEED.value,
    heldout_share=_HELDOUT_SHARE.value,
    num_shards=_NUM_SHARDS.value,
    num_heldout_shards=_NUM_HELDOUT_SHARDS.value,
    num_workers=_NUM_WORKERS.value,
    overwrite=_OVERWRITE.value,
  )


def advice(settings: data.ExampleSettings) -> str:
  """Returns a note if full examples get too few predictions, or ""."""
  length = settings.max_seq_length
  wanted = int(settings.masked_lm_prob * length)  # The usual 76 of 512.
  if settings.max_predictions_per_seq >= wanted:
    return ""
  limit = settings.max_predictions_per_seq
  return (
    f"Note: full examples get {limit} predictions, {limit / length:.1%} of "
    f"their tokens. For masked_lm_prob={settings.masked_lm_prob:g} of "
    f"{length}, use --max_predictions_per_seq={wanted}."
  )


def truncation_note(manifest: tfrecords.Manifest) -> str:
  """Returns a note if lines seem to be truncated paragraphs, or ""."""
  statistics = manifest.split(data.TRAIN).statistics
  share = statistics["truncated_share"]
  mean_tokens = statistics["text_tokens"] / statistics["segments"]
  if (
    manifest.settings["split_sentences"]
    or share < _NOTABLE_TRUNCATED_SHARE
    or mean_tokens < _MANY_TOKENS_IN_A_SENTENCE
  ):
    return ""
  return (
    f"Note: {share:.1%} of the text's tokens are in no example, because each "
    f"line counts as one sentence ({mean_tokens:.0f} tokens on average) and "
    f"pairs are cut to --max_seq_length={manifest.max_seq_length}. If lines "
    "are paragraphs, use --split_sentences to keep more of them."
  )


def _check_engine() -> None:
  for flag in (_RUNNER, _BEAM_OPTIONS):
    if flag.present and _ENGINE.value != "beam":
      raise ValueError(f"--{flag.name} needs --engine=beam: add it.")
  if _ENGINE.value == "local" and "://" in _OUTPUT_DIR.value:
    raise ValueError(
      f"--output_dir={_OUTPUT_DIR.value} needs --engine=beam: --engine=local "
      "writes local files only."
    )


def _build_with_beam(
  settings: data.BuildSettings,
) -> tfrecords.Manifest:
  # Otherwise it lists the modules of Google Cloud that are not installed.
  logging.getLogger("apache_beam").setLevel(logging.WARNING)
  try:
    build = data.build_dataset_with_beam
  except ModuleNotFoundError as error:
    if not (error.name or "").startswith("apache_beam"):
      raise
    raise ValueError(
      "--engine=beam needs Apache Beam: python -m pip install -r "
      "requirements-beam.txt."
    ) from error
  return build(settings, _RUNNER.value, _BEAM_OPTIONS.value)


def _print_result(manifest: tfrecords.Manifest) -> None:
  print(
    data.format_table(
      {name: split.statistics for name, split in manifest.splits.items()}
    )
  )
  note = truncation_note(manifest)
  if note:
    print(note, file=sys.stderr)
  skipped = data.Skipped(**manifest.settings["skipped_documents"])
  if skipped.count:
    print(skipped.describe(), file=sys.stderr)
  files = sum(len(split.shards) for split in manifest.splits.values())
  print(f"Wrote {files} files and dataset.json to {_OUTPUT_DIR.value}")


def main(argv: Sequence[str]) -> None:
  del argv
  _check_engine()
  settings = settings_from_flags()
  note = advice(settings.examples)
  if note:
    print(note, file=sys.stderr)
  # Otherwise a terminated run would end without a message.
  signal.signal(signal.SIGTERM, lambda *unused: sys.exit(143))
  if _ENGINE.value == "beam":
    _print_result(_build_with_beam(settings))
    return
  line = progress_line.ProgressLine(sys.stderr)

  def report(progress: data.Progress) -> None:
    details = f"{progress.documents:,} documents"
    if progress.instances:
      details += f", {progress.instances:,} instances"
    line.show(progress.phase, progress.fraction, progress.tokens, details)

  try:
    manifest = data.build_dataset(settings, report)
  except (KeyboardInterrupt, SystemExit):
    line.close()
    print("Stopped: run the same command again to resume.", file=sys.stderr)
    raise
  finally:
    line.close()
  _print_result(manifest)


if __name__ == "__main__":
  flags.mark_flags_as_required(["input_files", "output_dir"])
  command_line.run(main)
