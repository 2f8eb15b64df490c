"""Predicts rows of text with runs and exports, behind one interface.

An export is called through one of its signatures. For a run, the module of an
export is built in memory and called in the same way: with the frozen encoder of
an export, or on several devices with the model itself.
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
  Union,
)

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 (its operations are in the graphs)
from typing_extensions import NotRequired, TypedDict

from official_albert import (
  checkpoints,
  files,
  modeling,
  runs,
  serving,
  settings,
  tokenization,
  training,
)
from official_albert.serving import IDS, Tensors
from official_albert.tasks import common, race
from official_albert.tasks.race import task as race_task
from official_albert.tokenization import in_graph
from official_albert.tools.conversion import export_source
from official_albert.tools.finetuning import registry
from official_albert.tools.prediction.input import OPTIONS, ROLES
from official_albert.tools.prediction.output import ERROR, MAIN_OUTPUTS
from official_albert.training import Batch

# Outputs that no table contains, because [B, S, H] is large.
_UNUSED = ("sequence_output", *IDS)
_POSITIONS = "masked_lm_positions"
# What to do about a model without the pooler's weights.
NO_POOLER = "use official_albert.load and its embed(pooling='mean') or 'cls'."
# The number of batches that are sorted together.
_WINDOW_BATCHES = 32
# Sorting needs no difference between longer texts.
_MOST_TOKENS = 1000


@dataclasses.dataclass(frozen=True)
class Backend:
  """A model that answers rows.

  Attributes:
    function: takes texts by role, <string>[B] or of options <string>[B, 4];
      returns tensors [B, ...] with the names of a signature's outputs.
    roles: the cells that a row needs.
    labels: the classes, in the order of their probabilities.
    source: the checkpoint or the SavedModel, for messages.
    about: a description of the model, for messages.
    columns: the columns of the training data by role, if known.
    text_layer: the tokenizer, if known.
  """

  function: Callable[..., Tensors]
  roles: tuple[str, ...]
  labels: tuple[str, ...]
  source: str
  about: str
  columns: Mapping[str, str] = dataclasses.field(default_factory=dict)
  text_layer: Optional[in_graph.TextLayer] = None

  def lengths(self, rows: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """Returns the length of each row in tokens, or in characters.

    Sorted by characters, batches hold a third more padding than by tokens.
    """
    total = np.zeros(len(rows), np.int64)
    for role in self.roles:
      texts = [row[role] for row in rows]
      if role == OPTIONS:
        texts = [" ".join(options) for options in texts]
      if self.text_layer is None:
        total += [len(text) for text in texts]
      else:
        tokens = self.text_layer.tokenize(tf.constant(texts), _MOST_TOKENS)
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


class Run:
  """Answers with a model whose weights were loaded, one signature at a time.

  Attributes:
    kind: the kind of its `ServedModule`.
    signatures: the names that `backend` takes, the default first.
    labels: the classes; () without.
    source: the checkpoint, for messages.
    about: a description of the model, for messages.
    most_pieces: the largest number of pieces for each [MASK].
    tokenizer: the file of the tokenizer; None if there is none.
    config: the `AlbertConfig` of the encoder.
    model: the Keras model.
  """

  def __init__(
    self,
    source: export_source.Source,
    shown: str,
    batch_size: int,
    strategy: Optional[tf.distribute.Strategy] = None,
  ):
    """Initializes the model, with a copy of its weights unless on devices.

    Args:
      source: the model with its texts' signatures.
      shown: the path of the model, for messages.
      batch_size: the maximum number of sequences in a batch.
      strategy: the devices, with which the model's variables were created.
        None computes as an export of the model does, with the same numbers.
    """
    module = self._module = source.module
    self._source = source
    self._settings = shown, batch_size, strategy
    self.kind = module.kind
    self.signatures = module.text_signatures
    self.labels = tuple(module.settings().get("labels", ()))
    self.source = source.checkpoint
    self.tokenizer = source.tokenizer
    self.config = module.config
    self.model = module.model
    self.most_pieces = (module.text_layer or module.config).vocab_size
    self.about = f"{shown} is " + {
      "pretraining": "a pretraining run",
      "encoder": "an encoder",
    }.get(module.kind, f"a run of {source.task}")
    if strategy:
      module.logits_only = True
      program = make_program(
        module.forward, strategy, batch_size, module.max_seq_length
      )
    else:
      # An export computes all windows of SQuAD together, up to this number.
      most = getattr(module, "max_windows", batch_size)
      module.freeze(_export_precision(module.model))
      compute = module.traced

      def program(**features: tf.Tensor) -> Tensors:
        return _in_batches(compute, features, most)

    module.run_with(program)
    if "answer" in self.signatures:
      # The program computes windows in batches, so their number has no limit.
      module.max_windows = tf.int32.max
      if strategy and _needs_one_length(strategy):
        module.min_length = module.max_seq_length

  def backend(self, signature: str = "", top_k: int = 0) -> Backend:
    """Returns the backend of a signature.

    Args:
      signature: its name; "" is the first one.
      top_k: the number of pieces for each [MASK]; 0 is that of the module.

    Raises:
      ValueError: there is no such signature.
    """
    signature = signature or self.signatures[0]
    if signature not in self.signatures:
      raise ValueError(
        f"{self.about}, which has no signature {signature!r}: choose one of "
        f"{', '.join(self.signatures)}, or name a run of tools.run_finetuning."
      )
    module = self._module
    if top_k:  # Other threads may use another one.
      module = copy.copy(module)
      module.top_k = top_k
    function = module.text_functions()[signature]
    host = tf.config.list_logical_devices("CPU")[0].name

    def answer(**texts: tf.Tensor) -> Tensors:
      # Eagerly, because the program is called from Python. Only the program
      # leaves the host.
      with tf.device(host):
        return function.python_function(**texts)

    return Backend(
      function=answer,
      roles=tuple(spec.name for spec in function.input_signature),
      labels=self.labels,
      source=self.source,
      about=self.about,
      columns=_input_columns(self._source.columns),
      text_layer=module.text_layer,
    )

  @functools.cached_property
  def encoder(self) -> Run:
    """The encoder alone, without its head."""
    if "encode" in self.signatures:
      return self
    old = self._module
    module = serving.ServedEncoder(
      old.model.albert, old.text_layer, old.max_seq_length
    )
    return Run(self._source._replace(module=module), *self._settings)

  @functools.cached_property
  def of_pairs(self) -> Run:
    """The same classifier or regression, for pairs of texts."""
    old, pairs = self._module, copy.copy(self)
    pairs._module = serving.ServedTextTask(
      old.model, old.text_layer, old.max_seq_length, self.labels, True
    )
    pairs._module.run_with(old.run)
    return pairs


class Export:
  """Answers with a SavedModel, one signature at a time.

  Attributes:
    record: the export.json; {} if there is none.
    The others: see `Run`.
  """

  def __init__(self, saved_model_dir: str):
    """Loads a folder of tools.export_saved_model, or a similar SavedModel.

    Raises:
      ValueError, OSError: there is no SavedModel, or its export.json is
        damaged.
    """
    if not files.exists(os.path.join(saved_model_dir, "saved_model.pb")):
      raise FileNotFoundError(
        f"{saved_model_dir} is not the folder of a SavedModel: it has no "
        "saved_model.pb."
      )
    record = self.record = _read_record(saved_model_dir)
    # It owns the tables of the graph, so it must stay alive.
    try:
      self._model = serving.outside_strategy(
        tf.saved_model.load, saved_model_dir
      )
    except Exception as error:  # TensorFlow raises errors of any class.
      reason = " ".join(str(error).split())[:80]
      raise OSError(
        f"{saved_model_dir} is damaged or of another version of TensorFlow "
        f"({reason}): copy it again, or export the model again."
      ) from error
    self.kind = record.get("kind", "")
    self.signatures = tuple(self._model.signatures)
    self.labels = tuple(record.get("labels", ()))
    self.source = saved_model_dir
    kind = f"an export of {record['task']}" if record else "a SavedModel"
    self.about = f"{saved_model_dir} is {kind}"
    self.most_pieces = record.get("settings", {}).get("top_k", 0)
    self.tokenizer = None
    if file := record.get("tokenizer"):
      self.tokenizer = checkpoints.TokenizerFile(
        os.path.join(saved_model_dir, serving.ASSETS, file["file"]),
        file["kind"],
        tokenization.TextRules.of({**file, "lower_case": record["lower_case"]}),
      )

  def vector_signature(self, is_pair: bool = False) -> str:
    """Returns the signature with the vectors of texts; "" for none."""
    signature = "encode_pair" if is_pair else "encode"
    if signature in self.signatures:
      return signature
    ids = self._model.signatures.get("ids")
    return "ids" if ids and "sequence_output" in ids.structured_outputs else ""

  def backend(
    self,
    signature: str = "",
    main_outputs: Sequence[str] = MAIN_OUTPUTS,
    is_pair: bool = False,
  ) -> Backend:
    """Returns the backend of a signature; "" is serving_default.

    A text signature receives the rows unchanged. For a signature of ids, the
    texts are tokenized with the tokenizer in the export's assets; those of an
    encoder are pairs if `is_pair`. It has one of `main_outputs`.

    Raises:
      ValueError: there is no such signature, or it fits no table.
    """
    signature = signature or serving.DEFAULT_SIGNATURE
    if signature not in self.signatures:
      raise ValueError(
        f"{self.source} has no signature {signature!r}: it has "
        f"{', '.join(sorted(self.signatures)) or 'none'}."
      )
    function = self._model.signatures[signature]
    inputs = set(function.structured_input_signature[1])
    outputs = set(function.structured_outputs)
    if "sequence_output" in outputs and not outputs & set(main_outputs):
      raise ValueError(
        f"{self.source} was exported without a pooler, so its signature "
        f"{signature} returns no vector of a text: {NO_POOLER}"
      )
    by_ids = inputs - {_POSITIONS} == set(IDS)
    if not outputs & set(main_outputs) or not (inputs <= set(ROLES) or by_ids):
      raise ValueError(
        f"the signature {signature} of {self.source} takes "
        f"{', '.join(sorted(inputs))} and returns {', '.join(sorted(outputs))},"
        " which fit no table: choose another --signature of "
        f"{', '.join(sorted(self.signatures))}."
      )
    layer, roles = self._text_layer, tuple(x for x in ROLES if x in inputs)
    to_inputs: Callable[..., Tensors] = dict
    if by_ids:
      roles, to_inputs = self._tokenizing(is_pair)

    def answer(**texts: tf.Tensor) -> Tensors:
      features = to_inputs(**texts)
      if _POSITIONS in inputs:  # Of none of the tokens.
        features = {**features, _POSITIONS: features["input_ids"][:, :0]}
      outputs = self._model.signatures[signature](**features)
      packed = {name: features[name] for name in IDS if name in features}
      return {**packed, **outputs}

    return Backend(
      function=answer,
      roles=roles,
      labels=self.labels,
      source=self.source,
      about=self.about,
      columns=_input_columns(self.record.get("columns", {})),
      text_layer=layer,
    )

  def _tokenizing(
    self, is_pair: bool
  ) -> tuple[tuple[str, ...], Callable[..., Tensors]]:
    """Returns the roles of texts, and a function that maps texts to `IDS`."""
    layer, record = self._text_layer, self.record
    if layer is None:
      raise ValueError(
        f"{self.source} takes ids, and its assets have no tokenizer, or no "
        f"{serving.EXPORT_FILE}: put the tokenizer into the checkpoint's "
        "folder, and export it with tools.export_saved_model."
      )
    length, roles = record["max_seq_length"], ("text",)
    if is_pair:
      roles = ("text_a", "text_b")
    if record["kind"] != "encoder" and record["task"] != "pretraining":
      roles = registry.find(record["task"], self.source).roles
    if OPTIONS in roles:
      default = race.RECIPES["race"].max_qa_length
      most = record.get("settings", {}).get("max_qa_length", default)
      return roles, functools.partial(
        race_task.pack_options, layer, length, most
      )
    packed = in_graph.PackedTextLayer(layer, length)
    return roles, lambda **texts: packed(*(texts[role] for role in roles))

  @functools.cached_property
  def config(self) -> modeling.AlbertConfig:
    file = os.path.join(self.source, serving.ASSETS, runs.CONFIG_FILE)
    return modeling.AlbertConfig.from_json_file(file)

  @functools.cached_property
  def _text_layer(self) -> Optional[in_graph.TextLayer]:
    return self.tokenizer and self.tokenizer.make_layer()


class _TokenizerFile(TypedDict):
  file: str
  kind: Literal["sentencepiece", "wordpiece"]
  keep_accents: NotRequired[Optional[bool]]
  max_word_characters: NotRequired[int]
  split_chinese: NotRequired[bool]


class _Settings(TypedDict, total=False):
  max_qa_length: int
  top_k: int


class _Record(TypedDict):
  """What predictions read of export.json."""

  kind: str
  task: str
  max_seq_length: int
  tokenizer: Optional[_TokenizerFile]
  lower_case: Optional[bool]
  columns: NotRequired[dict[str, str]]
  labels: NotRequired[list[str]]
  settings: NotRequired[_Settings]


def _input_columns(trained: Mapping[str, str]) -> dict[str, str]:
  """Returns the columns of rows to predict, from those of the training data."""
  names = {"text": "text", "text_a": "text", "text_b": "text_b", "id": "id"}
  return {k: trained[v] for k, v in names.items() if trained.get(v)}


def _read_record(saved_model_dir: str) -> Union[_Record, dict[str, Any]]:
  """Returns the export.json of a SavedModel; {} if it has none."""
  path = os.path.join(saved_model_dir, serving.ASSETS, serving.EXPORT_FILE)
  if not files.exists(path):
    return {}
  return files.read_json(path, _Record, "export the model again")


def _needs_one_length(strategy: tf.distribute.Strategy) -> bool:
  # TPUs compile a program for each shape.
  return isinstance(strategy, tf.distribute.TPUStrategy)


def make_program(
  forward: Callable[..., Mapping[str, tf.Tensor]],
  strategy: tf.distribute.Strategy,
  batch_size: int,
  max_seq_length: int,
) -> Callable[..., Tensors]:
  """Returns `forward` for any number of rows, on all devices.

  The function takes features [B, ..., S] by name and returns outputs [B, ...].
  It computes more than `batch_size` rows in several batches. One device takes
  batches of any size. Several devices share each batch, so every batch is
  filled up to `batch_size` rows. TPUs also need sequences of one length.

  Args:
    forward: takes features [B, ...] by name, returns outputs [B, ...].
    strategy: the devices, with which the model's variables were created.
    batch_size: the maximum number of rows in a batch.
    max_seq_length: the length to which TPUs pad.

  Raises:
    ValueError: the devices cannot share a batch equally.
  """
  replicas = strategy.num_replicas_in_sync
  if batch_size % replicas:
    raise ValueError(
      f"eval_batch_size is {batch_size}, but must be a multiple of the number "
      f"of devices, {replicas}."
    )
  one_length = _needs_one_length(strategy)
  one_size = replicas > 1 or one_length

  def step(batch: Batch) -> Tensors:
    rows = training.own_rows(batch) if replicas > 1 else batch
    return training.gather_predictions(dict(forward(**rows)))

  @tf.function(autograph=False)
  def run(batch: Batch) -> Tensors:
    return training.run_step(strategy, step, batch)

  def run_batch(arrays: Mapping[str, np.ndarray]) -> Tensors:
    count, specs = len(arrays["input_ids"]), {}
    if one_size:
      arrays = {
        name: _padded(x, batch_size - count, 0, "edge")
        for name, x in arrays.items()
      }
    for name, x in arrays.items():
      rows = len(x) if one_size else None
      length = x.shape[-1] if one_length else None
      shape = [rows, *x.shape[1:-1], length]
      specs[name] = tf.TensorSpec(shape, tf.as_dtype(x.dtype))
    # One graph for all shapes; TensorFlow caches it.
    graph = run.get_concrete_function(specs)
    outputs = graph({name: tf.constant(x) for name, x in arrays.items()})
    return {name: x[:count] for name, x in outputs.items()}

  def program(**features: tf.Tensor) -> Tensors:
    arrays = {name: np.asarray(x) for name, x in features.items()}
    if one_length:
      for name in IDS:
        missing = max_seq_length - arrays[name].shape[-1]
        arrays[name] = _padded(arrays[name], missing, -1, "constant")
    return _in_batches(run_batch, arrays, batch_size)

  return program


def _export_precision(model: Any) -> str:
  """Returns the precision of an export that computes like this model.

  Raises:
    ValueError: exports do not have it.
  """
  policy = model.dtype_policy.name
  precisions = {name: key for key, name in settings.EXPORT_PRECISIONS.items()}
  if policy not in precisions:
    raise ValueError(
      f"the global policy of Keras is {policy}, but a model is loaded in "
      f"{' or '.join(precisions)}: call "
      "tf.keras.mixed_precision.set_global_policy before."
    )
  return precisions[policy]


def _in_batches(
  compute: Callable[[Any], Tensors], features: Mapping[str, Any], size: int
) -> Tensors:
  """Calls a function for at most `size` rows at a time, and joins its outputs.

  The caller's device is not that of the function.
  """
  with tf.device(None):
    parts = [
      compute({name: x[i : i + size] for name, x in features.items()})
      for i in range(0, len(features["input_ids"]), size)
    ]
  if len(parts) == 1:
    return parts[0]
  return {
    name: tf.concat([part[name] for part in parts], axis=0) for name in parts[0]
  }


def _padded(array: np.ndarray, missing: int, axis: int, mode: str):
  widths = [(0, 0)] * array.ndim
  widths[axis] = (0, missing)
  return np.pad(array, widths, mode)
