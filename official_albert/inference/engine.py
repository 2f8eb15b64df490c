"""Answers rows of text by the signatures of a model.

They are those of a SavedModel, or of weights in memory, with the frozen encoder
of an export.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import os
import re
from typing import (
  Any,
  Callable,
  Iterable,
  Iterator,
  Literal,
  Mapping,
  Optional,
  Sequence,
)

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 (its operations are in the graphs)
from typing_extensions import NotRequired, TypedDict

from official_albert import checkpoints, files, serving, settings, tokenization
from official_albert.inference import source as source_lib
from official_albert.serving import IDS, Tensors
from official_albert.tasks import common
from official_albert.tasks.answer_fields import ERROR, MAIN_OUTPUTS
from official_albert.tasks.registry import OPTIONS, ROLES
from official_albert.tokenization import in_graph

# Outputs that no table contains, because [B, S, H] is large.
_UNUSED = ("sequence_output", *IDS)
# What to do about a model without the pooler's weights.
NO_POOLER = "use official_albert.load and its embed(pooling='mean') or 'cls'."
# The number of batches that are sorted together.
_WINDOW_BATCHES = 32
# Sorting needs no difference between longer texts.
_MOST_TOKENS = 1000


@dataclasses.dataclass(frozen=True)
class Backend:
  """A signature of a model, which answers rows.

  Attributes:
    engine: the model.
    roles: the cells that a row needs.
    function: takes texts by role, <string>[B] or of options <string>[B, 4];
      returns tensors [B, ...] with the names of the signature's outputs.
  """

  engine: Engine
  roles: tuple[str, ...]
  function: Callable[..., Tensors]

  @property
  def about(self) -> str:
    """A description of the model, for messages."""
    return self.engine.about

  def lengths(self, rows: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """Returns the length of each row in tokens, or in characters.

    Sorted by characters, batches hold a third more padding than by tokens.
    """
    total = np.zeros(len(rows), np.int64)
    for role in self.roles:
      texts = [row[role] for row in rows]
      if role == OPTIONS:
        texts = [" ".join(options) for options in texts]
      if self.engine.text_layer is None:
        total += [len(text) for text in texts]
      else:
        tokens = self.engine.text_layer.tokenize(
          tf.constant(texts), _MOST_TOKENS
        )
        total += tokens.row_lengths().numpy()
    return total

  def __call__(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the outputs of the signature for each of B rows.

    Raises:
      tf.errors.InvalidArgumentError: the model refuses one of the rows, or so
        many together.
    """
    outputs = self.function(
      **{role: tf.constant([row[role] for row in rows]) for role in self.roles}
    )
    values = {
      name: _to_numpy(x) for name, x in outputs.items() if name not in _UNUSED
    }
    return [dict(zip(values, row)) for row in zip(*values.values())]


def _to_numpy(tensor: tf.Tensor) -> np.ndarray:
  """Returns an array; texts are `str`, without bytes that are not UTF-8."""
  array = tensor.numpy()
  if array.dtype != object:
    return array
  texts = np.empty(array.size, object)
  texts[:] = [text.decode("utf-8", "replace") for text in array.ravel()]
  return texts.reshape(array.shape)


def predict(
  backend: Backend,
  rows: Iterable[common.Record],
  batch_size: int,
  keep_refused: bool = False,
) -> Iterator[tuple[common.Record, Mapping[str, Any]]]:
  """Yields each row with its answer, in the order of the rows.

  A window of rows is read, sorted by length to save padding, and cut into
  batches. Memory holds one window at a time.

  Args:
    backend: the model.
    rows: any number of rows.
    batch_size: the maximum number of rows in a batch.
    keep_refused: whether the answer to a row that the model refuses is
      {"error": reason}, instead of a ValueError.

  Raises:
    ValueError: the model refuses a row, or with `keep_refused` all rows of the
      first window; the message names a row's file and line.
  """
  if batch_size < 1:
    raise ValueError(f"eval_batch_size is {batch_size}, but must be positive.")
  rest, is_first = iter(rows), True
  while window := list(itertools.islice(rest, batch_size * _WINDOW_BATCHES)):
    order = np.arange(len(window))
    if len(window) > batch_size:  # A single batch needs no order.
      lengths = np.asarray(backend.lengths([row.cells for row in window]))
      # The longest first: if memory is too small, the first batch shows it.
      order = np.argsort(-lengths, kind="stable")
    answers: dict[int, Mapping[str, Any]] = {}
    for start in range(0, len(window), batch_size):
      batch = order[start : start + batch_size]
      found = _answers(backend, [window[i] for i in batch])
      answers.update(zip(batch, found))
    refused = sorted(i for i, answer in answers.items() if ERROR in answer)
    none_answered = is_first and len(refused) == len(window)
    if refused and (none_answered or not keep_refused):
      row, reason = window[refused[0]], answers[refused[0]][ERROR]
      raise ValueError(f"{row.where}: {reason} ({backend.about})")
    is_first = False
    yield from ((row, answers[i]) for i, row in enumerate(window))


def _answers(
  backend: Backend, batch: Sequence[common.Record]
) -> Sequence[Mapping[str, Any]]:
  """Returns the answers; that to a refused row is its reason."""
  try:
    return backend([row.cells for row in batch])
  except tf.errors.InvalidArgumentError as error:
    if len(batch) == 1:
      return [{ERROR: _reason(error)}]
  # Some rows may be wrong; or the rows are too much together, because an export
  # limits the windows of SQuAD's contexts in a request.
  half = len(batch) // 2
  return [*_answers(backend, batch[:half]), *_answers(backend, batch[half:])]


def _reason(error: tf.errors.InvalidArgumentError) -> str:
  """Returns the message without TensorFlow's additions."""
  text = error.message.split("\n\t [[")[0].split(" [Op:")[0]
  text = re.sub(r"^\{\{.*?\}\} ", "", text)
  failed = re.search(r"assertion failed: \[(.*)\]$", text, re.DOTALL)
  # The message and the numbers of a failed check are in brackets each.
  return failed[1].replace("] [", " ") if failed else text


@dataclasses.dataclass(frozen=True)
class Engine:
  """A model with signatures, which answers texts.

  `open_export` returns that of a SavedModel, and `in_memory` that of weights,
  with the signatures that their export would have.

  Attributes:
    kind: the kind of its `ServedModule`.
    signatures: the names of the signatures.
    default_signature: the one that `backend` takes for ""; an export of others
      may lack it.
    labels: the classes; () without.
    source: the checkpoint or the SavedModel, for messages.
    about: a description of the model, for messages.
    tokenizer: the file of the tokenizer; None if there is none.
    find: returns the concrete function of a signature. For `fill_mask`, the
      second argument is the number of pieces; 0 is that of the model.
    most_pieces: the largest number of pieces for each [MASK].
    columns: those of rows to predict by role, as in the training data.
    own_text_layer: the tokenizer in the graph; by default that of the file.
  """

  kind: str
  signatures: tuple[str, ...]
  default_signature: str
  labels: tuple[str, ...]
  source: str
  about: str
  tokenizer: Optional[checkpoints.TokenizerFile]
  find: Callable[..., Any]
  most_pieces: int
  columns: Mapping[str, str]
  own_text_layer: Optional[in_graph.TextLayer] = None

  def backend(
    self,
    signature: str = "",
    main_outputs: Sequence[str] = MAIN_OUTPUTS,
    top_k: int = 0,
  ) -> Backend:
    """Returns the backend of a signature of texts; "" is the default.

    Raises:
      ValueError: there is no such signature, it takes no texts, or it has none
        of `main_outputs`.
    """
    signature = signature or self.default_signature
    if signature not in self.signatures:
      raise ValueError(
        f"{self.about}, which has no signature {signature!r}: it has "
        f"{', '.join(sorted(self.signatures)) or 'none'}."
      )
    function = self.find(signature, top_k)
    arguments, named = function.structured_input_signature
    inputs = {spec.name for spec in arguments} | set(named)
    outputs = set(function.structured_outputs)
    has_main = bool(outputs & set(main_outputs))
    if not inputs <= set(ROLES) or not (
      has_main or "sequence_output" in outputs
    ):
      raise ValueError(
        f"the signature {signature} of {self.source} takes "
        f"{', '.join(sorted(inputs))} and returns {', '.join(sorted(outputs))},"
        " which fit no table: choose another --signature of "
        f"{', '.join(sorted(self.signatures))}, or the run."
      )
    if not has_main:
      raise ValueError(
        f"{self.source} was exported without a pooler, so its signature "
        f"{signature} returns no vector of a text: {NO_POOLER}"
      )
    roles = tuple(role for role in ROLES if role in inputs)
    return Backend(self, roles, function)

  @functools.cached_property
  def text_layer(self) -> Optional[in_graph.TextLayer]:
    """The tokenizer in the graph; None if there is none."""
    if self.own_text_layer or not self.tokenizer:
      return self.own_text_layer
    return self.tokenizer.make_layer()


def in_memory(source: source_lib.Source, shown: str) -> Engine:
  """Returns the engine of weights that were loaded, with a copy of them.

  The signatures are those of an export, so the answers are the same to the last
  digit. `shown` is the path of the model, for messages.

  Raises:
    ValueError: exports do not have the precision of the model.
  """
  policy = source.model.dtype_policy.name
  precisions = {name: key for key, name in settings.EXPORT_PRECISIONS.items()}
  if policy not in precisions:
    raise ValueError(
      f"the global policy of Keras is {policy}, but a model is loaded in "
      f"{' or '.join(precisions)}: call "
      "tf.keras.mixed_precision.set_global_policy before."
    )
  source.module.freeze(precisions[policy])
  return of_module(source.module, source, shown)


def of_module(
  module: serving.ServedModule, source: source_lib.Source, shown: str
) -> Engine:
  """Returns the engine of a module whose model is frozen.

  Each signature is traced when it is first used. For other arguments see
  `in_memory`.
  """
  _ = module.traced  # Copies the weights of the head, too.
  about = {"pretraining": "a pretraining run", "encoder": "an encoder"}.get(
    module.kind, f"a run of {source.task}"
  )

  @functools.lru_cache(maxsize=16)  # Callers may ask for any number of pieces.
  def find(signature: str, top_k: int = 0) -> Any:
    changed = module
    if top_k:  # Other threads may use another one.
      changed = copy.copy(module)
      changed.top_k = top_k
    return changed.text_functions()[signature].get_concrete_function()

  return Engine(
    kind=module.kind,
    signatures=module.text_signatures,
    default_signature=module.text_signatures[0],
    labels=tuple(module.settings().get("labels", ())),
    source=source.checkpoint,
    about=f"{shown} is {about}",
    tokenizer=source.tokenizer,
    find=find,
    most_pieces=(module.text_layer or module.config).vocab_size,
    columns=_input_columns(source.columns),
    own_text_layer=module.text_layer,
  )


class _TokenizerFile(TypedDict):
  file: str
  kind: Literal["sentencepiece", "wordpiece"]
  keep_accents: NotRequired[Optional[bool]]
  max_word_characters: NotRequired[int]
  split_chinese: NotRequired[bool]


class _Settings(TypedDict, total=False):
  top_k: int


class _Record(TypedDict):
  """What predictions read of export.json."""

  kind: str
  task: str
  tokenizer: Optional[_TokenizerFile]
  lower_case: Optional[bool]
  columns: dict[str, str]
  labels: list[str]
  settings: _Settings


def open_export(saved_model_dir: str) -> Engine:
  """Returns the engine of a folder of tools.export_saved_model.

  Raises:
    ValueError, OSError: there is no export, or it is damaged.
  """
  assets = os.path.join(saved_model_dir, serving.ASSETS)
  path = os.path.join(assets, serving.EXPORT_FILE)
  if not files.exists(path):
    raise FileNotFoundError(
      f"{saved_model_dir} is not the folder of an export: it has no "
      f"{serving.ASSETS}/{serving.EXPORT_FILE}."
    )
  record: _Record = files.read_json(path, _Record, "export the model again")
  try:
    model = serving.outside_strategy(tf.saved_model.load, saved_model_dir)
  except Exception as error:  # TensorFlow raises errors of any class.
    reason = " ".join(str(error).split())[:80]
    raise OSError(
      f"{saved_model_dir} is damaged or of another version of TensorFlow "
      f"({reason}): copy it again, or export the model again."
    ) from error
  tokenizer = None
  if file := record["tokenizer"]:
    tokenizer = checkpoints.TokenizerFile(
      os.path.join(assets, file["file"]),
      file["kind"],
      tokenization.TextRules.of({**file, "lower_case": record["lower_case"]}),
    )

  # `model` owns the tables of the graph, so this function keeps it.
  def find(signature: str, top_k: int = 0) -> Any:
    del top_k  # Part of the export.
    return model.signatures[signature]

  return Engine(
    kind=record["kind"],
    signatures=tuple(model.signatures),
    default_signature=serving.DEFAULT_SIGNATURE,
    labels=tuple(record["labels"]),
    source=saved_model_dir,
    about=f"{saved_model_dir} is an export of {record['task']}",
    tokenizer=tokenizer,
    find=find,
    most_pieces=record["settings"].get("top_k", 0),
    columns=_input_columns(record["columns"]),
  )


def _input_columns(trained: Mapping[str, str]) -> dict[str, str]:
  """Returns the columns of rows to predict, from those of the training data."""
  names = {"text": "text", "text_a": "text", "text_b": "text_b", "id": "id"}
  return {k: trained[v] for k, v in names.items() if trained.get(v)}
