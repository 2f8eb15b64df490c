"""Runs all steps, from raw text to a pretrained ALBERT that is served.

    python -m tools.quickstart [--input_files=GLOB] [--output_dir=quickstart]

Each step is a command that is printed before it runs, so you can repeat it with
other settings. After Ctrl-C, run the same command again: data that exists is
kept, and training is resumed. Other settings need another --output_dir.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from typing import Any

from absl import flags

from official_albert import files, machine, run_logs, tfrecords
from official_albert.tasks.pretraining import data as data_lib
from official_albert.tasks.pretraining import recipes
from official_albert.tools.cli import command_line, path_flags
from official_albert.tools.inspection import plot

_INPUT_FILES = path_flags.define(
  "input_files",
  "",
  "Your own text: one sentence per line, blank lines between documents; or "
  "JSON lines with a field text; may be .gz. Default: the docstrings of "
  "Python, TensorFlow, Keras, NumPy, SciPy, scikit-learn and Matplotlib.",
)
_OUTPUT_DIR = path_flags.define(
  "output_dir", "quickstart", "Folder for everything that is written."
)
_TRAINING_MINUTES = flags.DEFINE_float(
  "training_minutes", 6.8, "Minutes to train, by measured speed.", 0.1, 1e6
)
_TRAIN_STEPS = flags.DEFINE_integer(
  "num_train_steps", 0, "Updates; 0: those of --training_minutes.", 0
)
_VOCAB_SIZE = flags.DEFINE_integer(
  "vocab_size", 8000, "Pieces of the vocabulary.", lower_bound=1
)
_SEED = flags.DEFINE_integer(
  "random_seed", 12345, "Seed of all steps.", 0, 2**32 - 1
)

_RECIPE = recipes.get_recipe("quickstart")
# Of the phases: the updates, of which only the shares count, and the batches.
_PHASES, _BATCHES = (
  [int(x) for x in str(_RECIPE.settings[name]).split(",")]
  for name in ("phase_steps", "train_batch_size")
)
_MEASURED_STEPS = 75  # Of each phase, in loops of 25.
_SENTENCES = (
  "Returns a [MASK] with the same shape as the input.",
  "If the file does not [MASK], an exception is raised.",
  "The default [MASK] is None.",
)
# Runs without this package: only TensorFlow and tensorflow_text.
_CLEAN_PROCESS = """
import json, sys
import tensorflow as tf, tensorflow_text
folder, sentences = sys.argv[1], json.loads(sys.argv[2])
fill = tf.saved_model.load(folder).signatures["serving_default"]
ours = [name for name in sys.modules if name.startswith("official_albert")]
assert not ours, ours
answers = fill(text=tf.constant(sentences))
for sentence, [tokens], [chances] in zip(
    sentences, answers["tokens"].numpy(), answers["probabilities"].numpy()):
  words = ", ".join(f"{x.decode()} {y:.0%}" for x, y in zip(tokens, chances))
  print(f"{sentence}\\n    {words}")
"""


def make_data(folder: str, records: str) -> None:
  """Makes the corpus, if there is no input, the vocabulary and the records."""
  text = _INPUT_FILES.value
  if not text:
    text = os.path.join(folder, "corpus.txt")
    command_line.run_step("gather_corpus", {"output_file": text}, text)
  vocabulary = os.path.join(folder, "vocabulary")
  model_file = os.path.join(vocabulary, "tokenizer.model")
  given: dict[str, Any] = {
    "input_files": text,
    "output_dir": vocabulary,
    "vocab_size": _VOCAB_SIZE.value,
  }
  command_line.run_step("train_vocabulary", given, model_file)
  for length in sorted({*_RECIPE.lengths}):
    of_length = records_of(records, length)
    given = {
      "input_files": text,
      "output_dir": of_length,
      "spm_model_file": model_file,
      **{**_RECIPE.data, "max_seq_length": length},
      "num_workers": machine.cpu_count(),
      "random_seed": _SEED.value,
    }
    manifest = os.path.join(of_length, tfrecords.MANIFEST_FILE)
    command_line.run_step("create_pretraining_data", given, manifest)


def records_of(records: str, length: int) -> str:
  """Returns the folder of the records of a length."""
  return os.path.join(records, str(length))


def in_phases(steps: int) -> list[int]:
  """Divides the updates between the phases, at least one for each."""
  later = [max(1, steps * x // sum(_PHASES)) for x in _PHASES[1:]]
  return [steps - sum(later), *later]


def train(records: str, folder: str, phases: list[int], **given: Any) -> None:
  """Starts or resumes pretraining in `folder`, with steps for each phase."""
  folders = [records_of(records, length) for length in _RECIPE.lengths]
  settings = {
    "recipe": _RECIPE.name,
    "input_dir": ",".join(folders),
    "eval_input_dir": folders[-1],
    "model_dir": folder,
    "phase_steps": ",".join(map(str, phases)),
    "num_train_steps": sum(phases),
    "num_warmup_steps": sum(phases) // 10,
    "random_seed": _SEED.value,
  }
  command_line.run_step("run_pretraining", {**settings, **given})


def steps_that_fit(records: str, folder: str, minutes: float) -> int:
  """Returns the number of updates in `minutes`, measured in `folder`."""
  few = [_MEASURED_STEPS] * len(_PHASES)
  train(records, folder, few, steps_per_loop=25, eval_steps=0)
  speeds = run_logs.speeds_of_phases(folder, _MEASURED_STEPS, len(_PHASES))
  updates = zip(_PHASES, _BATCHES, speeds)
  # Of an update, on average.
  seconds = sum(x * batch / speed for x, batch, speed in updates) / sum(_PHASES)
  steps = max(100, int(60 * minutes / seconds) // 100 * 100)
  about = f"{1 / seconds:.1f} steps/s: {minutes:g} minutes are {steps:,} steps"
  print(about, flush=True)
  return steps


def export(run_dir: str, saved_model: str) -> None:
  """Exports, and fills masks in a process without this package."""
  # An earlier export is outdated if training has continued.
  files.remove_tree(saved_model)
  given = {"model_dir": run_dir, "export_dir": saved_model}
  command_line.run_step("export_saved_model", given)
  print("\nIn a process with tensorflow and tensorflow_text only:", flush=True)
  # -I removes the current folder, and so this package, from the path.
  command = [sys.executable, "-I", "-c", _CLEAN_PROCESS]
  command += [files.absolute(saved_model), json.dumps(_SENTENCES)]
  variables = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
  if subprocess.run(command, cwd="/", env=variables).returncode:
    raise ValueError(f"{saved_model} does not work: see TensorFlow's output.")


def report(records: str, run_dir: str, curves: str) -> None:
  """Draws the curves and prints the held-out results."""
  data = tfrecords.read_manifest(records_of(records, _RECIPE.lengths[-1]))
  entropy: Any = data.split("train").statistics["unigram_entropy_nats"]
  plot.plot_curves(run_dir, curves, entropy)
  last = run_logs.read_metrics(run_dir, "eval")[-1]
  examples = data.split("heldout").records
  errors = (last["sentence_order_accuracy"] - 0.5) / (0.25 / examples) ** 0.5
  print(
    f"""
held-out after {last["step"]:,} steps (seed {data.random_seed}):
  masked LM loss           {last["masked_lm_loss"]:.3f} nats
  unigram entropy          {entropy:.3f} nats
  masked LM accuracy       {last["masked_lm_accuracy"]:.3f}
  sentence-order accuracy  {last["sentence_order_accuracy"]:.3f}, """
    f"{errors:.0f} standard errors above chance ({examples:,} examples)"
  )


def main(_) -> None:
  start = time.monotonic()
  if _INPUT_FILES.value:
    data_lib.find_files(_INPUT_FILES.value)
  if 0 < _TRAIN_STEPS.value < len(_PHASES):
    raise ValueError(
      f"--num_train_steps={_TRAIN_STEPS.value} is less than the "
      f"{len(_PHASES)} phases of the training: give more, or 0."
    )
  folder = _OUTPUT_DIR.value
  files.make_folder(folder)
  names = ("records", "run", "saved_model", "curves.png", "measurement")
  records, run_dir, saved_model, curves, measurement = (
    os.path.join(folder, name) for name in names
  )
  make_data(folder, records)
  minutes = _TRAINING_MINUTES.value
  steps = _TRAIN_STEPS.value or steps_that_fit(records, measurement, minutes)
  every, phases = -(-steps // 12), in_phases(steps)
  train(
    *(records, run_dir, phases), eval_steps=every, save_checkpoints_steps=every
  )
  export(run_dir, saved_model)
  report(records, run_dir, curves)
  peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
  print(f"whole time   {run_logs.duration(time.monotonic() - start)}")
  print(f"peak memory  {peak:.1f} GiB (the largest process)")


if __name__ == "__main__":
  command_line.run(main)
