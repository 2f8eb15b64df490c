"""Demonstrates all steps, from raw text to a pretrained ALBERT that is served.

    python -m tools.quickstart [--input_files=GLOB] [--output_dir=quickstart]

Each step is a command, printed before it runs, so you can repeat it with other
settings. Finished steps are not repeated, and an interrupted training run is
resumed: after Ctrl-C, run the same command again.
"""

from __future__ import annotations

import json
import math
import os
import resource
import shlex
import shutil
import subprocess
import sys
import time
from typing import Any, Sequence

from absl import flags

import tfrecords
from official_albert import distribution, files, training
from tasks.pretraining import data as data_lib
from tools.cli import command_line, path_flags, settings_file

_INPUT_FILES = path_flags.define(
  "input_files",
  "",
  "Your own text: one sentence per line, blank lines between documents; or "
  "JSONL with a field text; may be .gz. Default: the documentation of Python "
  "and TensorFlow.",
  remote=True,
)
_OUTPUT_DIR = path_flags.define(
  "output_dir", "quickstart", "Folder for everything that is written."
)
_TRAINING_MINUTES = flags.DEFINE_float(
  "training_minutes", 8.5, "Minutes of training; the speed is measured first."
)
_TRAIN_STEPS = flags.DEFINE_integer(
  "num_train_steps", 0, "Updates; 0: as many as fit into --training_minutes."
)
_VOCAB_SIZE = flags.DEFINE_integer(
  "vocab_size", 8000, "Pieces of the vocabulary."
)
_SEED = flags.DEFINE_integer("random_seed", 12345, "Seed of all steps.")

_SEQUENCE_FLAGS = ("--max_seq_length=64", "--max_predictions_per_seq=10")
# The best settings found for two cores; see README.md.
_TRAINING_FLAGS = (
  "--preset=albert_tiny",
  "--optimizer=adamw",
  "--bias_correction",
  "--beta_2=0.98",
  "--weight_decay=0.1",
  "--learning_rate=0.0015",
  "--learning_rate_decay=continuous",
  "--train_batch_size=32",
  "--eval_batch_size=64",
  "--precision=auto",
)
_WARMUP_SHARE = 0.1
_EVALUATIONS = 12
# Loops of the measurement. Only the second half counts, as the first includes
# compilation and filling the reader's buffers.
_MEASURED_LOOPS, _LOOP_STEPS = 10, 25
_SECONDS_TO_STOP = 10

_SENTENCES = (
  "Returns a [MASK] with the same shape as the input.",
  "If the file does not [MASK], an exception is raised.",
  "This function returns the [MASK] of the elements along an axis.",
  "Raises a [MASK] if the argument is not valid.",
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
for sentence, tokens, chances in zip(
    sentences, answers["tokens"].numpy(), answers["probabilities"].numpy()):
  print(sentence)
  for mask_tokens, mask_chances in zip(tokens, chances):
    print("   ", ", ".join(
        f"{token.decode()} {chance:.0%}"
        for token, chance in zip(mask_tokens, mask_chances)))
"""


def _run(command: Sequence[str], **settings: Any) -> int:
  """Runs a program; returns its exit code.

  From a terminal, Ctrl-C reaches the program too. It gets some seconds to save
  and stop, then SIGTERM.
  """
  with subprocess.Popen(command, **settings) as process:
    try:
      return process.wait()
    except KeyboardInterrupt:
      try:
        process.wait(_SECONDS_TO_STOP)
      except subprocess.TimeoutExpired:
        process.terminate()
        process.wait()
      raise


class Quickstart:
  """The steps and their folders below `output_dir`."""

  def __init__(self, output_dir: str):
    self.folder = output_dir
    self.corpus = os.path.join(output_dir, "corpus.txt")
    self.vocabulary = os.path.join(output_dir, "vocabulary")
    self.records = os.path.join(output_dir, "records")
    self.run = os.path.join(output_dir, "run")
    self.saved_model = os.path.join(output_dir, "saved_model")
    self.curves = os.path.join(output_dir, "curves.png")

  def claim(self, **settings) -> None:
    """Checks that the folder was made with these settings, or is new.

    Raises:
      ValueError: it was made with other settings, or they are unknown.
      OSError: the folder cannot be written.
    """
    files.make_folder(self.folder)
    path = os.path.join(self.folder, "quickstart.json")
    # Before the first step has finished, nothing depends on the settings.
    if os.path.exists(path) and any(
      map(os.path.exists, (self.vocabulary, self.records, self.run))
    ):
      before = settings_file.read(path)
      for name, value in settings.items():
        if before.get(name) != value:
          raise ValueError(
            f"{self.folder} was made with {name} {before.get(name)!r}, not "
            f"{value!r}: set another --output_dir, or remove the folder."
          )
      return
    files.write_json(path, settings)

  def tool(self, name: str, *arguments: str, result: str = "") -> None:
    """Runs `python -m tools.NAME` unless `result` exists."""
    command = ["-m", f"tools.{name}", *arguments]
    if result and os.path.exists(result):
      print(f"\n{result} exists; not run again: tools.{name}", flush=True)
      return
    print(f"\n$ python {shlex.join(command)}", flush=True)
    code = _run([sys.executable, *command])
    if code:
      raise ValueError(
        f"tools.{name} failed with exit code {code}: see its output above, fix "
        "the cause, and run the quickstart again."
      )

  def make_data(self, input_files: str, vocab_size: int, seed: int) -> None:
    """Makes the vocabulary and the records."""
    if not input_files:
      self.tool(
        "gather_corpus", f"--output_file={self.corpus}", result=self.corpus
      )
    text = f"--input_files={input_files or self.corpus}"
    model_file = os.path.join(self.vocabulary, tfrecords.TOKENIZER_FILE)
    self.tool(
      "train_vocabulary",
      text,
      f"--output_dir={self.vocabulary}",
      f"--vocab_size={vocab_size}",
      result=model_file,
    )
    self.tool(
      "create_pretraining_data",
      text,
      f"--output_dir={self.records}",
      f"--spm_model_file={model_file}",
      *_SEQUENCE_FLAGS,
      "--dupe_factor=8",
      "--heldout_share=0.08",
      "--num_shards=4",
      f"--num_workers={distribution.cpu_count()}",
      f"--random_seed={seed}",
      result=os.path.join(self.records, tfrecords.MANIFEST_FILE),
    )

  def steps_that_fit(self, minutes: float, seed: int) -> int:
    """Returns how many updates fit into `minutes`, by a measurement."""
    folder = os.path.join(self.folder, "measurement")
    steps = _LOOP_STEPS * _MEASURED_LOOPS
    self.train(folder, steps, seed, f"--steps_per_loop={_LOOP_STEPS}")
    loops = training.read_metrics(folder, "train")[_MEASURED_LOOPS // 2 :]
    seconds = loops[-1]["unix_time_seconds"] - loops[0]["unix_time_seconds"]
    rate = _LOOP_STEPS * (len(loops) - 1) / seconds
    steps = max(100, int(rate * minutes * 60) // 100 * 100)
    print(
      f"{rate:.1f} steps/s: {minutes:g} minutes are {steps:,} steps",
      flush=True,
    )
    return steps

  def train(self, folder: str, steps: int, seed: int, *arguments: str) -> None:
    """Starts or resumes pretraining in `folder`."""
    self.tool(
      "run_pretraining",
      f"--input_dir={self.records}",
      f"--model_dir={folder}",
      f"--num_train_steps={steps}",
      f"--num_warmup_steps={int(steps * _WARMUP_SHARE)}",
      f"--random_seed={seed}",
      *_TRAINING_FLAGS,
      *arguments,
    )

  def pretrain(self, steps: int, seed: int) -> None:
    """Pretrains with regular evaluations and checkpoints.

    Raises:
      ValueError: the folder has a run with another number of steps.
    """
    if training.newest_step(self.run):
      before = training.read_run(self.run)["settings"]["num_train_steps"]
      if before != steps:
        raise ValueError(
          f"{self.run} has a run of {before:,} steps, not of {steps:,}: set "
          f"--num_train_steps={before}, or another --output_dir."
        )
    every = -(-steps // _EVALUATIONS)
    self.train(
      self.run,
      steps,
      seed,
      f"--eval_steps={every}",
      f"--save_checkpoints_steps={every}",
      "--keep_checkpoint_max=2",
    )

  def use(self) -> None:
    """Exports, and fills masks in a process without this package."""
    # If the run was continued by hand, the export is outdated.
    exported = os.path.join(self.saved_model, "saved_model.pb")
    trained = os.path.join(self.run, "checkpoint")
    if os.path.exists(exported) and (
      os.path.getmtime(exported) < os.path.getmtime(trained)
    ):
      shutil.rmtree(self.saved_model)
    self.tool(
      "export_saved_model",
      f"--model_dir={self.run}",
      f"--export_dir={self.saved_model}",
      result=self.saved_model,
    )
    print(
      "\nIn a process with tensorflow and tensorflow_text only:", flush=True
    )
    folder = os.path.abspath(self.saved_model)
    code = _run(
      # -I removes the current folder, and so this package, from the path.
      [sys.executable, "-I", "-c", _CLEAN_PROCESS, folder]
      + [json.dumps(_SENTENCES)],
      cwd=os.path.sep,
      env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    if code:
      raise ValueError(
        f"{self.saved_model} does not work in a clean process: see the output "
        "of TensorFlow above."
      )

  def report(self) -> None:
    """Draws the curves and prints the held-out results."""
    data = tfrecords.read_manifest(self.records)
    entropy = data.split("train").statistics["unigram_entropy_nats"]
    self.tool(
      "plot_curves",
      f"--model_dir={self.run}",
      f"--output_file={self.curves}",
      f"--unigram_entropy={entropy:.3f}",
    )
    last = training.read_metrics(self.run, "eval")[-1]
    examples = data.split("heldout").records
    above = last["sentence_order_accuracy"] - 0.5
    errors = above / (0.25 / examples) ** 0.5
    print(
      f"""
held-out after {last["step"]:,} steps (seed {data.random_seed}):
  masked LM loss           {last["masked_lm_loss"]:.3f} nats
  unigram entropy          {entropy:.3f} nats
  masked LM accuracy       {last["masked_lm_accuracy"]:.3f}
  sentence-order accuracy  {last["sentence_order_accuracy"]:.3f}, """
      f"{errors:.0f} standard errors above chance ({examples:,} examples)"
    )


def check_flags() -> None:
  """Checks the flags before the first step.

  Raises:
    ValueError: a number is out of range.
    FileNotFoundError: no text matches.
  """
  if _TRAIN_STEPS.value < 0:
    raise ValueError(
      f"--num_train_steps is {_TRAIN_STEPS.value}; must be at least 1, or 0 "
      "for as many as fit into --training_minutes."
    )
  if not 0 < _TRAINING_MINUTES.value < math.inf:
    raise ValueError(
      f"--training_minutes is {_TRAINING_MINUTES.value:g}; must be a "
      "number above 0."
    )
  if _VOCAB_SIZE.value < 1:
    raise ValueError(
      f"--vocab_size is {_VOCAB_SIZE.value}; must be at least 1."
    )
  if not 0 <= _SEED.value < 2**32:
    raise ValueError(
      f"--random_seed is {_SEED.value}; must be from 0 to 2^32 - 1."
    )
  if _INPUT_FILES.value:
    data_lib.find_files(_INPUT_FILES.value)


def main(argv) -> None:
  del argv
  start = time.monotonic()
  check_flags()
  quickstart = Quickstart(_OUTPUT_DIR.value)
  quickstart.claim(
    input_files=_INPUT_FILES.value,
    vocab_size=_VOCAB_SIZE.value,
    random_seed=_SEED.value,
    training_flags=list(_TRAINING_FLAGS),
  )
  quickstart.make_data(_INPUT_FILES.value, _VOCAB_SIZE.value, _SEED.value)
  steps = _TRAIN_STEPS.value or quickstart.steps_that_fit(
    _TRAINING_MINUTES.value, _SEED.value
  )
  quickstart.pretrain(steps, _SEED.value)
  quickstart.use()
  quickstart.report()
  peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
  print(
    f"""
whole time   {training.duration(time.monotonic() - start)}
peak memory  {peak:.1f} GiB (the largest process)
SavedModel   {quickstart.saved_model}
curves       {quickstart.curves}
TensorBoard  tensorboard --logdir={quickstart.run}"""
  )


if __name__ == "__main__":
  command_line.run(main)
