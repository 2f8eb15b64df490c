"""Requests to exports: answered in the signature's shapes, or refused.

Answers are finite. What the graph refuses has a sentence of this package, or
the message of TensorFlow itself.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  # Its operations are in the exports.
from hypothesis import given
from hypothesis import strategies as st

from official_albert.serving import hub
from official_albert.tools.hub import publication
from official_albert.tools.testing import fuzz, toy_runs

_TASKS = {
  "classification": {"task": "text_classification", "labels": ("bad", "good")},
  "pairs": {"task": "text_pair_classification", "labels": ("no", "yes")},
  "regression": {"task": "text_pair_regression"},
  "squad1": {"task": "squad_v1"},
  "squad2": {"task": "squad_v2", "threshold": 0.5},
  "race": {"task": "race", "max_qa_length": 9},
}
_OTHERS = "pretraining wordpiece encoder hub hub_preprocessor".split()
_QUICK = "pairs"
_PIECES = """[PAD] [UNK] [CLS] [SEP] [MASK] the day was sunny cold sea a by
house ##s ##y , . 1 0 _ 東 京 e x ##x"""
# The models have 40 or 64 position embeddings.
_LENGTHS = (0, 1, 2, 7, 40, 41, 64, 65, 512, 513)
_IDS = {"input_ids", "input_word_ids"}
_WRONG_NUMBERS = (-1, 2, 40, 47, 99_999, 2**31 - 1, -(2**31))
_TEXTS = tuple(
  text.encode()
  for text in ("", " ", "\0", "a\0b", "😀", "größe 東京", "\u0130\ufdfa", "_ _")
) + (b"the [MASK] day was sunny", b"[MASK]", b"\xff\xfe", b"\xed\xa0\x80", b"_")
_LONG = tuple(
  unit * (10_000_000 // len(unit))
  for unit in (b"sunny day ", b"_", "東".encode(), b" ", b"\0", b".", b"[MASK]")
)
# TensorFlow for Python needs a minute for the error of a damaged Example of 1
# MiB.
_EXAMPLE_BYTES = 100_000
# An assertion of this package, or what TensorFlow says of Examples.
_REFUSAL = re.compile(
  "assertion failed: |Could not parse example|Can't parse serialized Example|"
  "Data types don't match|codec can't decode"
)


def _export(kind: str, folder: str) -> str:
  """Returns the folder of an export of a kind."""
  run, path = f"{folder}/run", f"{folder}/export"
  if kind in _TASKS:
    toy_runs.write_finetuned(run, **_TASKS[kind])
  else:
    toy_runs.write_pretrained(run)
  if kind.startswith("hub"):
    source = publication.read(run)
    module = hub.HubEncoder(source.module.model.albert)
    if kind == "hub_preprocessor":
      module = hub.HubPreprocessor(source.tokenizer.make_layer(), 17)
    hub.save_hub_object(module, path)
    return path
  if kind == "wordpiece":
    toy_runs.use_wordpiece(run, _PIECES)
  toy_runs.write_export(path, run, head="encoder" if kind == "encoder" else "")
  return path


def _example(count: int) -> bytes:
  """Returns a tf.Example of features with `count` ones each."""
  example = tf.train.Example()
  for name in ("input_ids", "input_mask", "segment_ids", "masked_lm_positions"):
    values = example.features.feature[name].int64_list.value
    values.extend([1] * count)
  return example.SerializeToString()


@st.composite
def _requests(draw, specs, example: bytes):
  """Draws the inputs of a signature, with up to two faults."""
  rows = draw(st.sampled_from([0, 1, 1, 2, 3, 8, 33, 33, 33, 1000]))
  length = draw(st.sampled_from(_LENGTHS)) if rows < 1000 else 2
  inputs = {}
  for name, spec in specs.items():
    sizes = (length if x is None else x for x in spec.shape[1:])
    shape = [rows, *sizes]
    if spec.dtype == tf.string:
      valid = example if name == "examples" else b"the [MASK] day"
      texts = fuzz.damaged_bytes(valid)
      if name == "examples":
        texts = texts.map(lambda text: text[:_EXAMPLE_BYTES])
      else:
        texts |= st.sampled_from(_TEXTS) | st.text().map(
          lambda x: x.encode("utf-8", "surrogatepass")
        )
        if rows < 4:
          texts |= fuzz.one_of(_LONG)
      # Mostly the valid one, which lets others through.
      drawn = draw(st.just([valid]) | st.lists(texts, min_size=1, max_size=3))
      inputs[name] = np.resize(np.array(drawn, object), shape)
    else:
      limit = 47 if name in _IDS else length if "positions" in name else 2
      seed = draw(st.integers(0, 2**32 - 1))
      values = np.random.default_rng(seed).integers(0, max(limit, 1), shape)
      inputs[name] = values.astype(np.int32)
  for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2]))):
    name = draw(st.sampled_from(sorted(inputs)))
    array = inputs[name]
    if array.size and array.dtype != object and draw(st.booleans()):
      at = draw(st.integers(0, array.size - 1))
      array.flat[at] = draw(st.sampled_from(_WRONG_NUMBERS))
    elif array.size:  # Other sizes than those of other inputs.
      axis = draw(st.integers(0, array.ndim - 1))
      count = draw(st.sampled_from([0, 1, 5, array.shape[axis] + 1]))
      places = np.arange(count) % array.shape[axis]
      if specs[name].shape[axis] is None:
        inputs[name] = np.take(array, places, axis)
  return inputs


def _answer(signature, inputs) -> None:
  feeds = {
    name: tf.constant(x, tf.string if x.dtype == object else None)
    for name, x in inputs.items()
  }
  rows = max(len(x) for x in inputs.values())
  try:
    with fuzz.limited_memory():
      outputs = signature(**feeds)
  # TensorFlow for Python fails to decode its message about a damaged Example.
  except (tf.errors.OpError, UnicodeDecodeError) as error:
    assert _REFUSAL.search(str(error)), error
    return
  for name, spec in signature.structured_outputs.items():
    value = outputs[name].numpy()
    assert value.shape[:1] == (rows,), (name, value.shape, rows)
    assert spec.shape.is_compatible_with(value.shape), name
    assert value.dtype == object or np.isfinite(value).all(), name


@pytest.mark.parametrize(
  "kind",
  [
    pytest.param(x, marks=[pytest.mark.heavy] * (x != _QUICK))
    for x in (*_TASKS, *_OTHERS)
  ],
)
def test_requests(kind, tmp_path):
  model = tf.saved_model.load(_export(kind, str(tmp_path)))
  example = _example(12 if kind == "race" else 3)

  @given(st.data())
  def answer(data):
    signature = model.signatures[data.draw(st.sampled_from(names))]
    specs = signature.structured_input_signature[1]
    _answer(signature, data.draw(_requests(specs, example)))

  names = sorted(model.signatures)
  answer()
