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

import os
import sys
from typing import Any, Sequence

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
  "spm_model_file", None, "Default: the folder's tokenizer."
)
_VOCAB_FILE = path_flags.define(
  "vocab_file", None, "Instead: a WordPiece vocabulary."
)
_DO_LOWER_CASE = flags.DEFINE_bool(
  "do_lower_case", True, "For --input_files, whether text was lower-cased."
)
_KEEP_ACCENTS = flags.DEFINE_bool(
  "keep_accents",
  None,
  "For --input_files, whether text kept accents; default: the original's rule.",
)
_CHECK = flags.DEFINE_bool(
  "check", True, "Read and check every record; otherwise trust the manifest."
)


if __name__ == "__main__":
  command_line.parse()  # `--help` ends here, before TensorFlow is loaded.

from official_albert.tools.records import record_survey, record_text


def _open_tokenizer(split: record_survey.Split) -> tokenization.Tokenizer:
  """Returns the tokenizer of the flags, or of the folder."""
  model_file, vocab_file = _SPM_MODEL_FILE.value, _VOCAB_FILE.value
  directory = os.path.dirname(split.paths[0])
  info = split.manifest.tokenizer if split.manifest else None
  if not model_file and not vocab_file:
    model_file = os.path.join(directory, tfrecords.TOKENIZER_FILE)
    if info and info.kind == "wordpiece":
      model_file, vocab_file = "", os.path.join(directory, info.file)
  if not info:
    return tokenization.open_tokenizer(
      model_file, vocab_file, _DO_LOWER_CASE.value, _KEEP_ACCENTS.value
    )
  rules = info.rules.to_dict()
  tokenizer = tokenization.open_tokenizer(model_file, vocab_file, **rules)
  if info.sha256 != tokenizer.sha256:
    raise ValueError(
      f"{tokenizer.model_file} is not the tokenizer of the records: its sha256 "
      f"is not that in {os.path.join(directory, tfrecords.MANIFEST_FILE)}."
    )
  return tokenizer


def _splits() -> dict[str, record_survey.Split]:
  """Returns the splits that the flags name."""
  if bool(_INPUT_DIR.value) == bool(_INPUT_FILES.value):
    raise ValueError("give either --input_dir or --input_files, and not both.")
  if _INPUT_DIR.value:
    return record_survey.read_splits(_INPUT_DIR.value)
  every, heldout = (
    [files.absolute(path) for path in data.find_files(patterns)]
    if patterns
    else []
    for patterns in (_INPUT_FILES.value, _HELDOUT_FILES.value)
  )
  split = record_survey.of_files(every)
  if not heldout:
    return {"files": split}
  train = [path for path in every if path not in heldout]
  if not train:
    raise ValueError(
      "all of --input_files are in --heldout_files, so that none is left to "
      "train on."
    )
  return {
    data.TRAIN: split._replace(paths=train),
    data.HELDOUT: split._replace(paths=heldout),
  }


def main(argv: Sequence[str]) -> None:
  del argv
  splits = _splits()
  tokenizer = _open_tokenizer(next(iter(splits.values())))
  is_adopting = bool(_HELDOUT_FILES.value)
  if is_adopting:
    record_survey.check_adoptable(splits, tokenizer)
  schemas = [feature for split in splits.values() for feature in split.schema]
  has_masks = any(feature.name == "masked_lm_ids" for feature in schemas)
  manifest = next(iter(splits.values())).manifest
  is_dynamic = manifest and manifest.settings.get("masking") == "dynamic"
  if is_dynamic:
    print(
      "The records have no masks: masks, order labels and their statistics are "
      "drawn here as in one epoch of the training."
    )
  if _NUM_EXAMPLES.value and (has_masks or is_dynamic):
    print(record_text.LEGEND)
  for name, split in splits.items():
    print(f"\n== {name}: {len(split.paths)} files ==")
    shown = record_survey.first_examples(split, tokenizer, _NUM_EXAMPLES.value)
    for number, record in enumerate(shown):
      text = record_text.describe(record, tokenizer)
      print(f"\nExample {number}: {text}")
  sys.stdout.flush()

  surveys = {}
  if _CHECK.value or is_adopting:
    line = printing.ProgressLine()
    for name, split in splits.items():
      surveys[name] = record_survey.survey(name, split, tokenizer, line)
  statistics = {
    name: dict(split.described.statistics if split.described else {})
    for name, split in splits.items()
  }
  for name, survey in surveys.items():
    statistics[name] |= survey.drawn
  values: Any
  for name, values in statistics.items():
    tokens = values.get("text_tokens", 0)
    unknown = values.get("unknown_share", 0) * tokens
    if note := tokenization.unknown_note(unknown, tokens, name):
      print(f"\n{note}")
  if note := tokenization.vocabulary_note(tokenizer):
    print(f"\n{note}")
  if any(statistics.values()):
    print(f"\n{data.format_table(statistics)}")
  if surveys:
    records = sum(survey.found.records for survey in surveys.values())
    print(f"\n{records:,} records checked: nothing is wrong with them.")
  if is_adopting:
    folder = record_survey.adopt(splits, surveys, tokenizer)
    print(
      f"Wrote {tfrecords.MANIFEST_FILE}: tools.run_pretraining "
      f"--input_dir={folder} can be run."
    )


if __name__ == "__main__":
  command_line.run(main)
