"""Shows what is in a folder of pretraining records, or in single files.

    python -m tools.inspect_tfrecords --input_dir=data --num_examples=2

Prints the first examples of each split as text, with what is to be predicted
in braces ({shown:label}; {=label} is shown as it is), and statistics counted
from the records themselves. Every record is read, so damage is found, and
named by file.
"""

from __future__ import annotations

import os
from typing import Sequence

from absl import flags

from official_albert import tokenization
from tasks.pretraining import data_statistics, documents
from tfrecords import reader, schemas
from tools import command_line, record_survey

_INPUT_DIR = flags.DEFINE_string(
  "input_dir", None, "Folder of tools.create_pretraining_data."
)
_INPUT_FILES = flags.DEFINE_string(
  "input_files", None, "Instead: names and globs of files, comma-separated."
)
_NUM_EXAMPLES = flags.DEFINE_integer(
  "num_examples", 2, "Examples shown of each split."
)
_SPM_MODEL_FILE = flags.DEFINE_string(
  "spm_model_file", None, "Default: the folder's tokenizer."
)
_VOCAB_FILE = flags.DEFINE_string(
  "vocab_file", None, "Instead: a WordPiece vocabulary."
)


def main(argv: Sequence[str]) -> None:
  del argv
  if bool(_INPUT_DIR.value) == bool(_INPUT_FILES.value):
    raise ValueError("give either --input_dir or --input_files, and not both.")
  if _NUM_EXAMPLES.value < 0:
    raise ValueError(f"--num_examples is {_NUM_EXAMPLES.value}, below 0.")
  lower_case = True
  if _INPUT_DIR.value:
    directory = _INPUT_DIR.value
    manifest = schemas.read_manifest(directory)
    lower_case = manifest.tokenizer.lower_case
    splits = {}
    for name, split in manifest.splits.items():
      reader.check_shards(directory, split.shards)
      paths = [os.path.join(directory, shard.file) for shard in split.shards]
      splits[name] = (paths, manifest.features)
  else:
    paths = documents.find_files(_INPUT_FILES.value)
    directory = os.path.dirname(paths[0])
    splits = {"files": (paths, record_survey.infer_schema(paths[0]))}
  model_file, vocab_file = _SPM_MODEL_FILE.value, _VOCAB_FILE.value
  if not model_file and not vocab_file:
    model_file = os.path.join(directory, schemas.TOKENIZER_FILE)
    vocabulary = os.path.join(directory, schemas.TOKENIZER_FILES["wordpiece"])
    if os.path.isfile(vocabulary) and not os.path.isfile(model_file):
      model_file, vocab_file = "", vocabulary
  tokenizer = tokenization.open_tokenizer(model_file, vocab_file, lower_case)
  statistics = {}
  for name, (paths, schema) in splits.items():
    print(f"\n== {name}: {len(paths)} files ==")
    statistics[name] = record_survey.survey(
      paths, schema, tokenizer, _NUM_EXAMPLES.value
    )
  print()
  print(data_statistics.format_table(statistics))


if __name__ == "__main__":
  command_line.run(main)
