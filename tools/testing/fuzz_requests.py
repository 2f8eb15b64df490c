"""Requests to exports, through Python's loader and through that of C++.

Each request goes to both; in targets named KIND_4, four different requests go
to both at once. The answers have the shapes of the signature and are finite.
What the graph refuses has a sentence of this package; docs/serving.md lists
what TensorFlow refuses itself.
"""

from __future__ import annotations

import functools
import os
import re
from concurrent import futures
from typing import Any, Mapping, NamedTuple, Optional, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  # Its operations are in the exports.
from hypothesis import strategies as st

from official_albert.serving import hub
from official_albert.tools.benchmarks import c_api_loader
from official_albert.tools.hub import sources
from official_albert.tools.testing import fuzz, mutations, toy_runs

_TASKS: Mapping[str, Mapping[str, Any]] = {
  "classification": {
    "task": "text_classification",
    "labels": ("bad", "good", "so so"),
  },
  "pairs": {"task": "text_pair_classification", "labels": ("no", "yes")},
  "regression": {"task": "text_pair_regression"},
  "squad1": {"task": "squad_v1"},
  "squad2": {"task": "squad_v2", "threshold": 0.5},
  "race": {"task": "race", "max_qa_length": 9},
}
_OTHERS = "pretraining wordpiece encoder hub hub_preprocessor".split()
_FOUR = ("classification", "squad2", "pretraining", "wordpiece")
_PIECES = """[PAD] [UNK] [CLS] [SEP] [MASK] the day was sunny cold sea a by
house ##s ##y , . 1 0 _ 東 京 e x ##x"""
# The models have 40 or 64 position embeddings.
_LENGTHS = (0, 1, 2, 7, 40, 41, 64, 65, 512, 513)
# Values of each input are below; of other inputs, below the length.
_LIMITS = {
  "input_ids": 47,
  "input_mask": 2,
  "segment_ids": 2,
  "input_word_ids": 47,
  "input_type_ids": 2,
}
_MANY = 10_000
_LONG_BYTES = 10_000_000
_LONG = tuple(
  text.encode()
  for text in ("sunny day ", "sunny", "_", "東", "😀", " ", "\0", "1,0", ".")
) + (b"[MASK]", b"\xff", "e\u0301".encode(), "\ufdfa".encode())
_SHORT = tuple(
  text.encode()
  for text in ("", " ", "\0", "a\0b", "😀", "größe 東京", "\u0130\ufdfa", "_ _")
) + (b"the [MASK] day was sunny", b"[MASK]", b"\xff\xfe", b"\xed\xa0\x80", b"_")
_WRONG_NUMBERS = (-1, 2, 40, 47, 99_999, 2**31 - 1, -(2**31))
_DTYPES = ("float32", "float64", "int32", "int64", "uint8", "bool")
_OF_THIS_PACKAGE = re.compile(
  r"assertion failed: \[(.*?)\](?: \[[^\]]*\])*(?:\s*\[\[|$)", re.DOTALL
)
# What TensorFlow refuses before the graph runs, and when it parses Examples,
# whose bytes it quotes.
_OF_TENSORFLOW = re.compile(
  "Expects arg|was expected to be a|Binding inputs|the signature|"
  "Could not parse example|Can't parse serialized Example|"
  "Data types don't match|Unsupported datatype|codec can't decode|"
  "in lists of equal length"
)


class Request(NamedTuple):
  """A request to a signature; arrays of strings hold `bytes`.

  With `unit`, a text of 10 MB that repeats it is the first of the request.
  """

  signature: str
  inputs: dict[str, np.ndarray]
  unit: bytes = b""


@functools.cache
def _load(folder: str) -> tuple[Any, c_api_loader.CApiModel]:
  path = os.path.join(folder, "export")
  return tf.saved_model.load(path), c_api_loader.CApiModel(path)


def _prepare(kind: str, folder: str) -> Sequence[Sequence[Request]]:
  """Exports a model of a kind; returns a request for each signature."""
  run, path = os.path.join(folder, "run"), os.path.join(folder, "export")
  if kind in _TASKS:
    toy_runs.write_finetuned(run, **_TASKS[kind])
  else:
    toy_runs.write_pretrained(run)
  if kind.startswith("hub"):
    with sources.opened(run) as source:
      module = hub.HubEncoder(source.model.albert)
      if kind == "hub_preprocessor":
        module = hub.HubPreprocessor(source.text_layer, 17)
      hub.save_hub_object(module, path)
  else:
    if kind == "wordpiece":
      toy_runs.use_wordpiece(run, _PIECES)
    toy_runs.write_export(
      path, run, head="encoder" if kind == "encoder" else ""
    )
  model, _ = _load(folder)
  example = tf.train.Example()
  for name in ("input_ids", "input_mask", "segment_ids", "masked_lm_positions"):
    values = example.features.feature[name].int64_list.value
    values.extend([1] * (12 if kind == "race" else 3))
  requests = []
  for name, signature in model.signatures.items():
    inputs = {}
    for key, spec in signature.structured_input_signature[1].items():
      text = b"the [MASK] day"
      if key == "examples":
        text = example.SerializeToString()
      shape = [2 if size is None else size for size in spec.shape]
      inputs[key] = np.full(shape, text, object)
      if spec.dtype != tf.string:
        inputs[key] = np.ones(shape, np.int32)
    requests.append([Request(name, inputs)])
    _call(folder, requests[-1])  # The first call of a signature is slow.
  return requests


@st.composite
def _damaged(draw, valid: Request) -> Request:
  """Draws a request of other sizes and values, with up to two faults."""
  rows = draw(st.sampled_from([0, 1, 1, 2, 3, 8, 33]))
  length = draw(st.sampled_from(_LENGTHS))
  if draw(st.integers(0, 99)) == 0:
    rows, length = _MANY, min(length, 2)
  elif draw(st.integers(0, 49)) == 0:
    rows, length = min(rows, 2), 100_000
  inputs = {}
  for name, old in valid.inputs.items():
    shape = [rows, *old.shape[1:]]
    if old.dtype == object:
      texts = mutations.damaged_bytes(old.flat[0])
      if name != "examples":
        texts = st.one_of(
          st.sampled_from(_SHORT),
          st.text().map(lambda x: x.encode("utf-8", "surrogatepass")),
          texts,
        )
      # Servers limit the bytes of a request, and TensorFlow for Python needs a
      # minute for the error of a damaged Example of 1 MiB.
      most = {_MANY: 1000}.get(rows, 100_000 if name == "examples" else None)
      texts = texts.map(lambda text, most=most: text[:most])
      texts = st.lists(texts, min_size=1, max_size=3)
      inputs[name] = np.resize(np.array(draw(texts), object), shape)
      # Mostly the valid one, which lets others through.
      if draw(st.booleans()):
        inputs[name].fill(old.flat[0])
    else:
      if name != "masked_lm_positions":
        shape[-1] = length
      seed = draw(st.integers(0, 2**32 - 1))
      inputs[name] = np.random.default_rng(seed).integers(
        0, _LIMITS.get(name, max(length, 1)), shape, np.int32
      )
  for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2]))):
    _add_fault(draw, inputs)
  unit = draw(st.sampled_from([b""] * 200 + [*_LONG]))
  return Request(valid.signature, inputs, unit)


def _add_fault(draw, inputs: dict[str, np.ndarray]) -> None:
  if not inputs:
    return
  name = draw(st.sampled_from(sorted(inputs)))
  array = inputs[name]
  fault = draw(st.sampled_from("value shape rank dtype missing extra".split()))
  if fault == "value" and array.size and array.dtype != object:
    at = draw(st.integers(0, array.size - 1))
    array.flat[at] = draw(st.sampled_from(_WRONG_NUMBERS))
  elif fault == "shape" and array.ndim and array.size:
    axis = draw(st.integers(0, array.ndim - 1))
    count = draw(st.sampled_from([0, 1, 5, array.shape[axis] + 1]))
    places = np.arange(count) % array.shape[axis]
    inputs[name] = np.take(array, places, axis)
  elif fault == "rank":
    shape = draw(st.sampled_from([[-1], [1, *array.shape], [*array.shape, 1]]))
    inputs[name] = array.reshape(shape)
    if array.size == 1 and draw(st.booleans()):
      inputs[name] = array.reshape([])
  elif fault == "dtype" and array.size <= 2**20:
    inputs[name] = np.zeros(array.shape, draw(st.sampled_from(_DTYPES)))
    if draw(st.booleans()):
      inputs[name] = np.full(array.shape, np.nan, np.float32)
  elif fault in ("missing", "extra"):
    del inputs[name]
    if fault == "extra":
      inputs.update({name: array, "more": array})


def _call_both(folder: str, request: Request) -> None:
  """Asks both loaders; raises ValueError with the sentence of a refusal."""
  model, other = _load(folder)
  function = model.signatures[request.signature]

  inputs = dict(request.inputs)
  for name, array in inputs.items():
    if request.unit and array.dtype == object and array.size:
      inputs[name] = array.copy()
      times = _LONG_BYTES // len(request.unit)
      inputs[name].flat[0] = request.unit * times
      break

  def in_python() -> Mapping[str, np.ndarray]:
    feeds = {
      name: tf.constant(x, tf.string if x.dtype == object else None)
      for name, x in inputs.items()
    }
    return {name: x.numpy() for name, x in function(**feeds).items()}

  def in_cpp() -> Mapping[str, np.ndarray]:
    return other.run(request.signature, inputs)

  with futures.ThreadPoolExecutor(2) as pool:
    started = [pool.submit(ask) for ask in (in_python, in_cpp)]
  rows = max((len(x) for x in request.inputs.values() if x.ndim), default=0)
  specs = function.structured_outputs
  refusals = {_check(done, specs, rows) for done in started}
  assert len({bool(refusal) for refusal in refusals}) == 1, refusals
  if refusal := max(refusals, key=bool):
    raise ValueError(refusal)


def _call(folder: str, requests: Sequence[Request]) -> None:
  """Sends the requests at once; raises ValueError if one is refused."""
  with futures.ThreadPoolExecutor(len(requests)) as pool:
    started = [pool.submit(_call_both, folder, x) for x in requests]
  errors = [done.exception() for done in started]
  # A refusal only if there is no other error.
  for error in sorted(errors, key=lambda x: isinstance(x, ValueError)):
    if error:
      raise error


def _check(
  done: futures.Future, specs: Mapping[str, tf.TensorSpec], rows: int
) -> Optional[str]:
  """Returns the sentence of a refusal; checks an answer."""
  error = done.exception()
  if error is None:
    outputs = done.result()
    assert set(outputs) == set(specs)
    for name, value in outputs.items():
      assert value.shape[:1] == (rows,), (name, value.shape, rows)
      assert specs[name].shape.is_compatible_with(value.shape), name
      assert value.dtype == object or np.isfinite(value).all(), name
    return None
  message = str(error)
  if found := _OF_THIS_PACKAGE.search(message):
    return found[1]
  assert _OF_TENSORFLOW.search(message), message[:1000]
  return "TensorFlow refuses the request."


def _target(name: str, kind: str, count: int) -> fuzz.Target:
  """Returns a target that sends `count` requests at once."""

  def damage(valid: Sequence[Request]) -> st.SearchStrategy[Sequence[Request]]:
    return st.tuples(*[_damaged(valid[0])] * count)

  prepare = functools.partial(_prepare, kind)
  return fuzz.Target(name, prepare, damage, _call, requests=count)


TARGETS = (
  *(_target(kind, kind, 1) for kind in (*_TASKS, *_OTHERS)),
  *(_target(f"{kind}_4", kind, 4) for kind in _FOUR),
)
