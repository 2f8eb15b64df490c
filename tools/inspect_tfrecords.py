"""Shows and checks pretraining records, also those of google-research/albert.

    python -m tools.inspect_tfrecords --input_dir=data
    python -m tools.inspect_tfrecords --input_files='old/*.tfrecord' \\
        --heldout_files=old/part-9.tfrecord --spm_model_file=30k-clean.model

Prints the first examples of each split, with marked predictions and as text;
then checks every record and prints the statistics. For records of
--masking=dynamic, masks and order labels are drawn as in one epoch of training.
If a record is invalid, the error names it and its file, and the exit code is 1.

Records of google-research/albert have the same features as ours but no
dataset.json: name the files and the tokenizer. With --heldout_files, this
program then writes dataset.json and a copy of the tokenizer next to the files,
which do not change, so tools.run_pretraining can be run on their folder.
Chinese models need --vocab_file=vocab.txt instead of the SentencePiece model.
"""

from __future__ import annotations

import itertools
import os
from typing import Any

from absl import flags

from official_albert import files, tfrecords, tokenization
from official_albert.tasks.pretraining import data
from official_albert.tools.cli import command_line, path_flags, printing

_INPUT_DIR = path_flags.define(
  "input_dir", None, "Folder of tools.create_pretraining_data."
)
_INPUT_FILES = path_flags.define(
  "input_files", None, "Instead: names and globs of files, comma-separated."
)
_HELDOUT_FILES = path_flags.define(
  "heldout_files",
  None,
  "Those of --input_files to evaluate on and not to train on; writes "
  "dataset.json.",
)
_NUM_EXAMPLES = flags.DEFINE_integer(
  "num_examples", 2, "Examples to show per split.", lower_bound=0
)
_SPM_MODEL_FILE = path_flags.define(
  "spm_model_file", "", "For --input_files: their SentencePiece model."
)
_VOCAB_FILE = path_flags.define(
  "vocab_file", "", "For --input_files: their WordPiece vocabulary."
)
_DO_LOWER_CASE = flags.DEFINE_bool(
  "do_lower_case", True, "For --input_files, whether text was lower-cased."
)
_KEEP_ACCENTS = flags.DEFINE_bool(
  "keep_accents",
  None,
  "For --input_files, whether text kept accents; default: the original's rule.",
)
_TOKENIZER = (_SPM_MODEL_FILE, _VOCAB_FILE, _DO_LOWER_CASE, _KEEP_ACCENTS)


if __name__ == "__main__":
  command_line.parse()  # `--help` ends here, before TensorFlow is loaded.

from official_albert import checkpoints
from official_albert.tools.records import record_survey


def _open_folder() -> tuple[str, tfrecords.Manifest, tokenization.Tokenizer]:
  """Returns --input_dir, its manifest and its tokenizer."""
  folder = _INPUT_DIR.value
  manifest = record_survey.read_manifest(folder)
  info = manifest.tokenizer
  path = os.path.join(folder, info.file)
  tokenizer = checkpoints.TokenizerFile(path, info.kind, info.rules).open()
  if info.sha256 != tokenizer.sha256:
    raise ValueError(
      f"{path} is not the tokenizer of the records: its sha256 is not that in "
      f"{tfrecords.MANIFEST_FILE}."
    )
  return folder, manifest, tokenizer


def _open_files() -> tuple[str, tfrecords.Manifest, tokenization.Tokenizer]:
  """Returns the folder of --input_files, their manifest and the tokenizer."""
  given: Any = [flag.value for flag in _TOKENIZER]
  tokenizer = tokenization.open_tokenizer(*given)
  paths, heldout = (
    [files.absolute(path) for path in data.find_files(x, takes_weights=False)]
    if x
    else []
    for x in (_INPUT_FILES.value, _HELDOUT_FILES.value)
  )
  if {*paths} <= {*heldout}:
    raise ValueError(
      "--heldout_files has all of --input_files: leave some to train on."
    )
  manifest = record_survey.manifest_of_files(paths, heldout, tokenizer)
  return os.path.dirname(paths[0]), manifest, tokenizer


def main(_) -> None:
  if bool(_INPUT_DIR.value) == bool(_INPUT_FILES.value):
    raise ValueError("give either --input_dir or --input_files, and not both.")
  for flag in (_HELDOUT_FILES, *_TOKENIZER):
    if _INPUT_DIR.value and flag.present:
      raise ValueError(
        f"--{flag.name} is for --input_files, and a folder has its own in "
        f"{tfrecords.MANIFEST_FILE}: leave it out."
      )
  opened = _open_folder() if _INPUT_DIR.value else _open_files()
  folder, manifest, tokenizer = opened
  if _HELDOUT_FILES.value:
    record_survey.check_adoptable(folder, tokenizer)
  if manifest.settings.get("masking") == "dynamic":
    print(
      "The records have no masks: masks, order labels and their statistics are "
      "drawn here as in an epoch of training."
    )
  print("To predict: {[MASK]:masked}, {random:replaced}, {=kept}")
  for name, split in manifest.splits.items():
    print(f"\n== {name}: {len(split.shards)} files ==")
    rows = (
      {feature: values[row] for feature, values in features.items()}
      for _, features in record_survey.read_batches(
        *opened[:2], name, tokenizer
      )
      for row in range(len(features["input_ids"]))
    )
    shown = itertools.islice(rows, _NUM_EXAMPLES.value)
    for number, record in enumerate(shown):
      text = record_survey.describe(record, tokenizer)
      print(f"\nExample {number}: {text}", flush=True)
  line, found, statistics = printing.ProgressLine(), {}, {}
  for name, split in manifest.splits.items():
    found[name] = record_survey.survey(*opened[:2], name, tokenizer, line)
    statistics[name] = {**split.statistics, **found[name].statistics}
  print(f"\n{printing.statistics_table(statistics)}")
  records = sum(split.records for split in found.values())
  print(f"\n{records:,} records checked: nothing is wrong with them.")
  if _HELDOUT_FILES.value:
    record_survey.adopt(folder, manifest, found, tokenizer)
    print(
      f"Wrote {tfrecords.MANIFEST_FILE}: tools.run_pretraining "
      f"--input_dir={folder} can be run."
    )


if __name__ == "__main__":
  command_line.run(main)
