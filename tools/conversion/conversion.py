"""Converts checkpoints: reads, changes, writes and verifies them.

Also makes random checkpoints of any size, for measurements.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import subprocess
import sys
import tempfile
from typing import Any, Mapping

import numpy as np

from official_albert import checkpoints, files, modeling, runs
from official_albert.inference import make_model
from official_albert.tasks import trained_run
from official_albert.tools.conversion import model_card

REPORT_FILE = model_card.REPORT_FILE
# The error of our outputs may be this many times that of transformers in
# float32, which may be small by chance. Measured with the statistics of trained
# weights: both have 1e-7 to 7e-7; the other GELU has 8e-6 or more.
_NOISE_FACTOR, _LEAST_NOISE = 8, 1e-6
_NO_CARD = model_card.Card()
_HF_SCRIPT = os.path.join(os.path.dirname(__file__), "hf_outputs.py")


def convert(
  target: str,
  input_path: str,
  output: str,
  *,
  tokenizer: checkpoints.TokenizerChoice = checkpoints.OWN_TOKENIZER,
  hf_python: str = "",
  card: model_card.Card = _NO_CARD,
  push_to: str = "",
  **options: Any,
) -> dict[str, Any]:
  """Converts a checkpoint; `output` exists only if it was verified.

  The arguments are the flags of tools.convert_checkpoint; `options` are those
  of `checkpoints.open`. With `push_to`, the folder is uploaded at the end.

  Returns the content of conversion.json: `source` and `target` (format and
  path), `head`, `matched` (number of variables that were read), the names that
  are `missing` in the source, no part of a model with the head (`unexpected`),
  or `not_carried` (with reasons), `notes`, and `proofs` (the difference and the
  largest allowed one, by the output that was compared). All values were read
  again and are equal.
  """
  files.check_new_folder(output, "--output")
  if target != "hf" and (push_to or card != _NO_CARD):
    raise ValueError("--push_to and a model card need --to=hf.")
  if push_to:
    model_card.check_push(push_to)
  with checkpoints.open(input_path, **options) as checkpoint:
    if checkpoint.head_problem and options.get("head") != "none":
      raise ValueError(
        f"{checkpoint.head_problem}: give --head=none for the encoder alone."
      )
    shown = checkpoint.shown(checkpoint.source)
    checkpoint.notes.append(
      f"the weights are {shown}, step {checkpoint.step:,}."
    )
    checkpoint.tokenizer = checkpoint.choose_tokenizer(tokenizer)
    _check_tokenizer(checkpoint)
    matched, unexpected = len(checkpoint.carried), checkpoint.unexpected
    results: runs.Results = {}
    if checkpoint.task and checkpoint.folder:
      # They are those of the checkpoint that is read by default.
      best = runs.find_prefix(checkpoint.folder)
      if best == files.absolute(checkpoint.source):
        results = runs.read_results(checkpoint.folder)
    has_results = bool(results) and target == "official_albert"
    lost = _fit_to(checkpoint, target, has_results)
    original = checkpoint
    if target != "official_albert":
      checkpoint = checkpoints.merge_adapters(original)
    with files.new_folder(output) as folder:
      checkpoints.WRITERS[target](checkpoint, folder)
      written = checkpoints.read_checkpoint(
        folder,
        head=checkpoint.head,
        include_optimizer=bool({*checkpoint.slots} - {*lost}),
      )
      _compare_values(checkpoint, written, lost)
      proofs = {}
      if (target == "hf") != (checkpoint.format == "hf"):
        pair = (written, original)
        hf, own = pair if target == "hf" else pair[::-1]
        proofs = compare_outputs(hf, own, hf_python, checkpoint.notes)
      for what, (difference, allowed) in proofs.items():
        if not difference <= allowed:  # NaN must fail too.
          raise ValueError(
            f"the conversion is wrong: {what} differ by {difference:.3g}, more "
            f"than {allowed:.3g}; nothing was written."
          )
      report = {
        "source": (checkpoint.format, input_path),
        "target": (target, output),
        "head": checkpoint.head,
        "matched": matched,
        "missing": checkpoint.missing,
        "unexpected": unexpected,
        "not_carried": lost,
        "proofs": proofs,
        "notes": checkpoint.notes,
      }
      files.write_json(os.path.join(folder, REPORT_FILE), report)
      if has_results:
        runs.write_results(folder, results)
      if target == "hf":
        name = push_to or os.path.basename(output.rstrip("/"))
        scores = results if checkpoint.task else {}
        text = model_card.write(card, name, checkpoint, scores)
        files.write_text(os.path.join(folder, model_card.CARD_FILE), text)
  if push_to:
    report["pushed_to"] = model_card.push(output, push_to)
  return report


def _compare_values(
  checkpoint: checkpoints.PortableCheckpoint,
  written: checkpoints.PortableCheckpoint,
  lost: Mapping[str, str],
) -> None:
  """Raises ValueError if a value is absent or differs in a bit."""
  values = written.carried
  wrong = [
    name
    for name, value in checkpoint.carried.items()
    if name not in lost
    and not np.array_equal(
      np.asarray(value), np.asarray(values.get(name)), equal_nan=True
    )
  ]
  if wrong or written.config != checkpoint.config:
    what = files.quote(*wrong) if wrong else "the configuration"
    raise ValueError(
      f"the conversion is wrong: {what} differs in the output; nothing was "
      "written."
    )


def _check_tokenizer(checkpoint: checkpoints.PortableCheckpoint) -> None:
  """Compares the sizes of tokenizer and model, and notes which it is."""
  notes, file = checkpoint.notes, checkpoint.tokenizer
  if not file:
    notes.append(
      "no tokenizer was found: give --spm_model_file or --vocab_file."
    )
    return
  pieces, vocab_size = file.open().vocab_size, checkpoint.config.vocab_size
  checkpoint.config.check_fits(pieces, 0)
  # A TF1 folder does not say the rules, and some tables are padded.
  notes.append(
    f"the tokenizer is {file.path}, with {file.rules.to_dict()} and {pieces} "
    f"pieces for a vocab_size of {vocab_size}."
  )


def _fit_to(
  checkpoint: checkpoints.PortableCheckpoint, target: str, has_results: bool
) -> dict[str, str]:
  """Removes the head if a format lacks it, and notes other losses.

  `has_results` says whether the results of a run, with its thresholds, are
  carried. Returns the names that the format cannot hold, with the reason.
  """
  lost: dict[str, str] = {}
  if checkpoint.config.adapter_rank and target != "official_albert":
    checkpoint.notes.append(
      "the adapters are merged, so each layer has a group of its own."
    )
    lost |= dict.fromkeys(checkpoint.slots, "merged kernels have no moments")
  if target == "hf":
    if checkpoint.head not in checkpoints.ARCHITECTURES:
      reason = f"Hugging Face has no head for {checkpoint.head}"
      rows = checkpoints.HEADS[checkpoint.head]
      lost = {row.tf1: reason for row in rows}
      checkpoint.head, checkpoint.task = "none", ""
    for name in checkpoint.carried:
      if checkpoints.may_lack(checkpoint.head, name):
        architecture = checkpoints.ARCHITECTURES[checkpoint.head]
        lost[name] = f"{architecture} has no pooler"
      elif checkpoints.is_slot(name):
        lost[name] = "Hugging Face keeps no optimizer state with a model"
  facts: dict[str, Any] = {}
  if target == "tf1":
    facts = {
      "pooling": checkpoint.pooling,
      "labels": ", ".join(checkpoint.labels),
      "max_seq_length": checkpoint.max_seq_length,
    }
  if target != "official_albert" and checkpoint.task:
    settings = (checkpoint.record.get("data") or {}).get("settings") or {}
    # The lengths and counts of SQuAD and RACE.
    numbers = [f"{k}={x}" for k, x in settings.items() if type(x) is int]
    facts["settings"] = ", ".join(numbers)
  holder = "a TF1 checkpoint" if target == "tf1" else "a Hugging Face folder"
  checkpoint.notes += [
    f"{holder} cannot hold the {name}: {value}."
    for name, value in facts.items()
    if value
  ]
  if checkpoint.task and checkpoint.folder and not has_results:
    run = trained_run.read(checkpoint.folder)
    if run.thresholds:
      checkpoint.notes.append(
        f"the thresholds of the labels are not carried, {run.thresholds}: 0.5 "
        "is used."
      )
    if run.null_score_diff_threshold is not None:
      checkpoint.notes.append(
        "null_score_diff_threshold is not carried, "
        f"{run.null_score_diff_threshold}: each question gets an answer."
      )
  return lost


def compare_outputs(
  hf: checkpoints.PortableCheckpoint,
  own: checkpoints.PortableCheckpoint,
  hf_python: str,
  notes: list[str],
) -> dict[str, tuple[float, float]]:
  """Runs a batch through both models, or adds a note if that is impossible.

  Returns the difference and the allowed one for each output. Both frameworks
  are compared with transformers in float64, see `relative_error`; ours may be
  `_NOISE_FACTOR` times as far from it as transformers in float32.
  """
  python = find_hf_python(hf_python)
  if not python:
    notes.append(
      "the outputs were not compared with those of Hugging Face's model: "
      "install torch and transformers, or give --hf_python."
    )
    return {}
  if hf.head == "embedding":  # Their class is the encoder.
    own = dataclasses.replace(own, head="none")
  batch = make_batch(hf.config, hf.head)
  ours = dict(own_outputs(own, batch))
  theirs = hf_outputs(python, hf.source, hf.head, batch)
  kernel, bias = (
    own.tensors.get(f"bert/pooler/dense/{name}") for name in ("kernel", "bias")
  )
  if kernel is None:  # transformers made a random one.
    theirs.pop("pooled_before_tanh", None)
  else:
    first = np.asarray(ours["sequence_output"])[:, 0]
    ours["pooled_before_tanh"] = first @ np.asarray(kernel) + np.asarray(bias)
  proofs = {}
  for name, (expected, rounded) in theirs.items():
    noise = relative_error(rounded, expected)
    proofs[f"{name} of both models for a batch"] = (
      relative_error(ours[name], expected),
      max(_LEAST_NOISE, _NOISE_FACTOR * noise),
    )
  return proofs


def relative_error(found: Any, expected: np.ndarray) -> float:
  """Returns the root mean square of an output's error, relative to its size.

  Trained models have a channel that is many times larger than the others. It
  must not hide their errors, so each channel is divided by its own size, the
  root mean square, or by that of the median channel if that is larger.

  Args:
    found: outputs with errors, [..., C].
    expected: <float64>[..., C].
  """
  axes = tuple(range(expected.ndim - 1))
  sizes = np.sqrt(np.mean(np.square(expected), axis=axes))  # [C]
  sizes = np.maximum(sizes, np.median(sizes))
  sizes = np.maximum(sizes, np.finfo(np.float32).tiny)
  errors = (np.asarray(found, np.float64) - expected) / sizes
  return float(np.sqrt(np.mean(np.square(errors))))


def make_batch(
  config: modeling.AlbertConfig, head: str
) -> dict[str, np.ndarray]:
  """Returns a fixed batch with both segments, and padding in the last row."""
  rng = np.random.default_rng(0)
  length = min(16, config.max_position_embeddings)
  segment = min(1, config.type_vocab_size - 1)
  batch = {
    "input_ids": rng.integers(0, config.vocab_size, (2, length), np.int32),
    "input_mask": np.ones((2, length), np.int32),
    "segment_ids": np.zeros((2, length), np.int32),
  }
  batch["input_mask"][-1, length - length // 4 :] = 0
  batch["segment_ids"][:, length // 2 :] = segment
  if head == "multiple_choice":  # The rows are the options.
    batch = {name: value[None] for name, value in batch.items()}
  batch["masked_lm_positions"] = np.tile(
    np.arange(length, dtype=np.int32), [2, 1]
  )
  return batch


def own_outputs(
  checkpoint: checkpoints.PortableCheckpoint, batch: Mapping[str, np.ndarray]
) -> dict[str, Any]:
  """Returns the outputs of this package's model."""
  model = make_model(
    checkpoint.head, checkpoint.config, checkpoint.classes, dtype="float32"
  )
  checkpoints.fill(model, checkpoint)
  known = (*modeling.INPUTS, *model.other_features)
  batch = {name: value for name, value in batch.items() if name in known}
  return model(batch, training=False)


def find_hf_python(path: str = "") -> str:
  """Returns `path`, or for "" this Python if it has torch and transformers."""
  if path and not files.is_file(path):
    raise FileNotFoundError(f"--hf_python {path} is not a program.")
  found = all(map(importlib.util.find_spec, ("torch", "transformers")))
  return path or (sys.executable if found else "")


def hf_outputs(
  python: str, folder: str, head: str, batch: Mapping[str, Any]
) -> dict[str, np.ndarray]:
  """Returns the outputs of transformers' model, run in another process.

  An output is <float64>[2, ...], of a run in float64 and of one in float32.
  The model has the class of `head`, a key of `checkpoints.ARCHITECTURES`.
  """
  with (
    tempfile.TemporaryDirectory() as temporary,
    files.local_copy(folder) as local_folder,
  ):
    paths = [os.path.join(temporary, f"{n}.npz") for n in ("batch", "outputs")]
    np.savez(paths[0], **batch)
    name = checkpoints.ARCHITECTURES[head]
    done = subprocess.run(
      [python, _HF_SCRIPT, local_folder, name, *paths],
      capture_output=True,
      text=True,
      env={**os.environ, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""},
    )
    if done.returncode:
      last = (done.stderr.strip().splitlines() or ["no message"])[-1]
      raise ValueError(f"Hugging Face cannot run the model: {last}")
    with np.load(paths[1], allow_pickle=False) as outputs:
      return dict(outputs)


def write_random(
  config: modeling.AlbertConfig,
  folder: str,
  head: str = "pretraining",
  classes: int = 0,
) -> None:
  """Writes a TF1 checkpoint with random weights, also of a head.

  Biases are random too: TensorFlow's graph optimizer removes zeros, which new
  models have as biases.
  """
  rng = np.random.default_rng(1)
  tensors = {}
  for row in checkpoints.rows(config, head):
    shape = row.shape_in(config, classes)
    value = rng.standard_normal(shape, np.float32)
    value *= np.float32(config.initializer_range)
    tensors[row.tf1] = value + np.float32(row.tf1.endswith("/gamma"))
  files.make_folder(folder)
  source = checkpoints.PortableCheckpoint(folder, config, tensors, head)
  checkpoints.WRITERS["tf1"](source, folder)
