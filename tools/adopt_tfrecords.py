"""Makes existing pretraining records usable by tools.run_pretraining.

    python -m tools.adopt_tfrecords --input_files='old/*.tfrecord' \\
        --heldout_files=old/part-9.tfrecord --spm_model_file=30k-clean.model

Records of google-research/albert have the same features as ours but no
dataset.json. This program checks every record, then writes dataset.json and a
copy of the tokenizer next to the files, which do not change. Chinese models
need --vocab_file=vocab.txt instead of the SentencePiece model.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any, Sequence

from absl import flags

from official_albert import files, tfrecords, tokenization
from official_albert.tasks.pretraining import data
from official_albert.tools.cli import command_line, path_flags, printing

_INPUT_FILES = path_flags.define(
  "input_files", None, "All records, in one folder: names and globs."
)
_HELDOUT_FILES = path_flags.define(
  "heldout_files",
  None,
  "Files to evaluate on and not to train on; names and globs.",
)
_SPM_MODEL_FILE = path_flags.define(
  "spm_model_file", "", "The SentencePiece model of the records."
)
_VOCAB_FILE = path_flags.define(
  "vocab_file", "", "Instead: their WordPiece vocabulary."
)
_DO_LOWER_CASE = flags.DEFINE_bool(
  "do_lower_case", True, "Whether their text was lower-cased."
)
_KEEP_ACCENTS = flags.DEFINE_bool(
  "keep_accents",
  None,
  "Whether their text kept accents; by default as in the original.",
)


if __name__ == "__main__":
  flags.mark_flags_as_required(["input_files", "heldout_files"])
  command_line.parse()  # `--help` ends here, before TensorFlow is loaded.

from official_albert.tools.records import record_survey


def adopt(
  train_paths: Sequence[str],
  heldout_paths: Sequence[str],
  tokenizer: tokenization.Tokenizer,
) -> tfrecords.Manifest:
  """Writes a manifest, which it returns, and the tokenizer beside the files."""
  paths = [*train_paths, *heldout_paths]
  directory = os.path.dirname(paths[0])
  for path in paths:
    if os.path.dirname(path) != directory:
      raise ValueError(
        f"{paths[0]} and {path} are in different folders: bring them into "
        "one, for example by links."
      )
  if files.exists(os.path.join(directory, tfrecords.MANIFEST_FILE)):
    raise FileExistsError(
      f"{directory} has a {tfrecords.MANIFEST_FILE} already: remove it if it "
      "does not belong to these records."
    )
  info = tfrecords.TokenizerInfo.of(tokenizer)
  target = os.path.join(directory, info.file)
  is_there = files.exists(target)
  if is_there and files.sha256(target) != tokenizer.sha256:
    raise FileExistsError(
      f"{target} exists already, but it is not {tokenizer.model_file}: remove "
      "the one that does not belong to the records."
    )

  first = record_survey.of_files(paths)
  shapes = {feature.name: feature.length for feature in first.schema}
  if "masked_lm_positions" not in shapes:
    raise ValueError(
      f"{paths[0]} holds unmasked records, without the settings to mask them: "
      "make them from the text with tools.create_pretraining_data "
      "--masking=dynamic."
    )
  splits = {}
  with contextlib.closing(printing.ProgressLine(sys.stderr)) as line:
    for name, own_paths in (
      (data.TRAIN, train_paths),
      (data.HELDOUT, heldout_paths),
    ):
      split = first._replace(paths=own_paths)
      survey = record_survey.survey(name, split, tokenizer, line)
      if not survey.counts.predictions:
        raise ValueError(f"the {name} files have nothing to predict.")
      shards = [
        tfrecords.Shard(os.path.basename(path), records, files.stat(path)[0])
        for path, records in zip(own_paths, survey.records)
      ]
      splits[name] = tfrecords.Split(tuple(shards), survey.statistics())
  settings: dict[str, Any] = {"adopted": True}  # Others are unknown.
  if not any(split.statistics["label_1_share"] for split in splits.values()):
    settings["sentence_pair"] = "none"  # There is no order to learn.
  manifest = tfrecords.Manifest(
    task="pretraining",
    max_seq_length=shapes["input_ids"],
    max_predictions_per_seq=shapes["masked_lm_positions"],
    features=first.schema,
    tokenizer=info,
    settings=settings,
    random_seed=0,
    splits=splits,
  )
  if not is_there:
    files.copy(tokenizer.model_file, target)
  tfrecords.write_manifest(directory, manifest)
  return manifest


def main(argv: Sequence[str]) -> None:
  del argv
  every, heldout_paths = (
    [files.absolute(path) for path in data.find_files(patterns)]
    for patterns in (_INPUT_FILES.value, _HELDOUT_FILES.value)
  )
  train_paths = [path for path in every if path not in heldout_paths]
  if not train_paths:
    raise ValueError(
      "all of --input_files are in --heldout_files, so that none is left to "
      "train on."
    )
  tokenizer = tokenization.open_tokenizer(
    _SPM_MODEL_FILE.value,
    _VOCAB_FILE.value,
    _DO_LOWER_CASE.value,
    _KEEP_ACCENTS.value,
  )
  manifest = adopt(train_paths, heldout_paths, tokenizer)
  statistics = {n: split.statistics for n, split in manifest.splits.items()}
  print(data.format_table(statistics))
  print(
    f"Wrote {tfrecords.MANIFEST_FILE}: tools.run_pretraining "
    f"--input_dir={os.path.dirname(train_paths[0])} can be run."
  )


if __name__ == "__main__":
  command_line.run(main)
