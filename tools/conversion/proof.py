"""Compares a converted checkpoint with its source.

Every value is compared by name. If torch and transformers are installed, the
outputs of both models for a fixed batch are compared too.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from typing import Mapping, NamedTuple

import numpy as np
import tensorflow as tf

from official_albert import checkpoints, modeling, tokenization, training
from tools import finetuning

TOLERANCE = 1e-5
_BATCH, _LENGTH, _PREDICTIONS = 2, 16, 3
# Texts in which tokenizers differ.
_TEXTS = (
  "In 1922, well-known -- e.g. (3.14) -- prices rose by 1,000 or 9,5%...",
  ".hidden .. ... file.txt, http://example.org/a_b?c=d#e",
  "\"Double\" 'single' ``doubled'' “curly” ‘quotes’ «»",
  "naïve façade, Ångström, Straße, İstanbul, e\u0301",
  " \t Two  spaces\u3000and\u200bothers\xa0 ",
  "中文 1922年 日本語のガ。 한국어",
  "Москва, ΟΔΟΣ, مرحبا, ดี",
  "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f £5 €6",
)
_HF_SCRIPT = os.path.join(os.path.dirname(__file__), "hf_outputs.py")


class Side(NamedTuple):
  """A checkpoint to compare: its format, its content and its path."""

  kind: str
  checkpoint: checkpoints.PortableCheckpoint
  path: str


def compare(
  source: Side,
  written: Side,
  hf_python: str,
  is_changed: bool,
  notes: list[str],
) -> dict[str, tuple[float, float]]:
  """Compares values and, to or from Hugging Face, outputs.

  Args:
    source: the original checkpoint.
    written: the converted checkpoint.
    hf_python: see `find_hf_python`.
    is_changed: whether the conversion changed the model's outputs.
    notes: a list to which sentences about other comparisons are added.

  Returns:
    The largest absolute difference and the allowed one, by what was compared.

  Raises:
    ValueError: a difference exceeds the tolerance.
  """
  difference = by_name(source.checkpoint, written.checkpoint)
  proofs = {"values read again by name": (difference, TOLERANCE)}
  hf, other = (written, source) if written.kind == "hf" else (source, written)
  python = ""
  if hf.kind == "hf":
    python = find_hf_python(hf_python)
    if python and hf.checkpoint.tokenizer:
      tokenizer = hf.checkpoint.tokenizer.open()
      notes.append(by_texts(python, hf.path, tokenizer))
  if is_changed:
    notes.append(
      "no batch went through both models, because the model was changed."
    )
  elif hf.kind == "hf" and other.kind != "hf":
    if python:
      batch = make_batch(hf.checkpoint.config, hf.checkpoint.head)
      theirs = hf_outputs(python, hf.path, batch)
      ours = own_outputs(other.path, hf.checkpoint, batch)
      where, *numbers = by_batch(ours, theirs)
      proofs[f"a batch through both models ({where})"] = tuple(numbers)
    else:
      notes.append(
        "no batch went through Hugging Face's model: install torch and "
        "transformers, or give --hf_python."
      )
  for what, (difference, allowed) in proofs.items():
    if not difference <= allowed:  # NaN must fail too.
      raise ValueError(
        f"the conversion is wrong: {what} differ by {difference:.3g}, more "
        f"than {allowed:.3g}; nothing was written."
      )
  return proofs


def by_name(
  source: checkpoints.PortableCheckpoint,
  written: checkpoints.PortableCheckpoint,
) -> float:
  """Returns the largest absolute difference; reads one variable at a time."""
  largest = 0.0
  for name in written.tensors:
    if name not in source.tensors:
      continue
    old, new = source.tensors[name], written.tensors[name]
    if old.shape != new.shape:
      return np.inf
    if not np.array_equal(old, new, equal_nan=old.dtype.kind == "f"):
      difference = float(np.max(np.abs(old - new)))
      # NaN differs from everything else.
      largest = np.inf if np.isnan(difference) else max(largest, difference)
  return largest


def make_batch(
  config: modeling.AlbertConfig, head: str
) -> dict[str, np.ndarray]:
  """Returns a fixed batch with both segments, and padding in the last row."""
  rng = np.random.default_rng(0)
  length = min(_LENGTH, config.max_position_embeddings)
  shape = (_BATCH, length)
  mask, segments = np.ones(shape, np.int32), np.zeros(shape, np.int32)
  mask[-1, length - length // 4 :] = 0
  segments[:, length // 2 :] = min(1, config.type_vocab_size - 1)
  batch = {
    "input_ids": rng.integers(0, config.vocab_size, shape, np.int32),
    "input_mask": mask,
    "segment_ids": segments,
  }
  if head == "multiple_choice":  # The rows are the options.
    batch = {name: value[None] for name, value in batch.items()}
  batch["masked_lm_positions"] = rng.integers(
    0, length, (_BATCH, _PREDICTIONS), np.int32
  )
  return batch


def own_outputs(
  path: str,
  checkpoint: checkpoints.PortableCheckpoint,
  batch: Mapping[str, np.ndarray],
) -> dict[str, np.ndarray]:
  """Returns the outputs of our model with the weights at a path.

  `checkpoint` has the same configuration and head.
  """
  shapes = checkpoints.shapes_of(checkpoint.tensors)
  model = finetuning.registry.make_model(
    checkpoint.head,
    checkpoint.config,
    shapes.get("output_weights", [1])[0],
  )
  training.warm_start(model, path)
  known = (*modeling.INPUTS, *model.other_features)
  batch = {name: value for name, value in batch.items() if name in known}
  outputs = model(batch, training=False)
  return {
    name: value.numpy()
    for name, value in outputs.items()
    if tf.is_tensor(value)
  }


def find_hf_python(path: str = "") -> str:
  """Returns the user's path of a Python with torch and transformers.

  For "", returns this Python, or "" if it lacks the packages.
  """
  if path:
    if not os.path.isfile(path) or not os.access(path, os.X_OK):
      raise FileNotFoundError(f"--hf_python {path} is not a program.")
    return path
  found = all(map(importlib.util.find_spec, ("torch", "transformers")))
  return sys.executable if found else ""


def hf_outputs(
  python: str, folder: str, batch: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
  """Runs hf_outputs.py in another process.

  Raises:
    ValueError: the process failed.
  """
  with tempfile.TemporaryDirectory() as temporary:
    files = [os.path.join(temporary, f"{n}.npz") for n in ("batch", "outputs")]
    np.savez(files[0], **batch)
    done = subprocess.run(
      [python, _HF_SCRIPT, folder, *files],
      capture_output=True,
      text=True,
      env={**os.environ, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""},
    )
    if done.returncode:
      last = (done.stderr.strip().splitlines() or ["no message"])[-1]
      part = "tokenizer" if "texts" in batch else "model"
      raise ValueError(f"Hugging Face cannot run the {part}: {last}")
    with np.load(files[1]) as outputs:
      return dict(outputs)


def by_texts(
  python: str, folder: str, tokenizer: tokenization.Tokenizer
) -> str:
  """Returns a sentence about the ids of Hugging Face's tokenizer and ours."""
  try:
    found = hf_outputs(python, folder, {"texts": np.array(_TEXTS)})
  except ValueError as error:  # For example, a package is missing.
    return f"the tokenizers were not compared: {error}"
  theirs = np.split(found["ids"], np.cumsum(found["lengths"])[:-1])
  differing = [
    text
    for text, ids in zip(_TEXTS, theirs)
    if ids.tolist() != tokenizer.encode(text)
  ]
  if not differing:
    return (
      f"AutoTokenizer of transformers gives the same ids for all {len(_TEXTS)} "
      "texts that were compared."
    )
  return (
    f"AutoTokenizer of transformers gives other ids than this package for "
    f"{len(differing)} of the {len(_TEXTS)} texts that were compared, such as "
    f"{differing[0]!r}."
  )


def by_batch(
  ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]
) -> tuple[str, float, float]:
  """Compares two models' outputs.

  Returns:
    The output with the largest difference relative to the allowed one, its
    largest absolute difference, and the allowed difference: `TOLERANCE`, times
    the output's largest value if that exceeds 1.

  Raises:
    ValueError: an output is missing or has another shape.
  """
  worst = ("nothing", 0.0, TOLERANCE)
  for name, expected in theirs.items():
    if name not in ours or ours[name].shape != expected.shape:
      raise ValueError(f"{name} of the two models differs in shape.")
    allowed = TOLERANCE * max(1.0, float(np.max(np.abs(expected))))
    difference = float(np.max(np.abs(ours[name] - expected)))
    if np.isnan(difference):
      return name, np.inf, TOLERANCE
    if difference / allowed >= worst[1] / worst[2]:
      worst = (name, difference, allowed)
  return worst
