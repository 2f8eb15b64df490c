"""Asks a loaded model in a line of Python.

The answers are those of tools.predict, and to the last digit those of the
model's export.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import operator
import warnings
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence, Union

import numpy as np
import tensorflow as tf

from official_albert import serving, tokenization
from official_albert.inference import engine as engine_lib
from official_albert.serving import Tensors
from official_albert.tasks import answer_fields, common
from official_albert.tasks.registry import NUM_OPTIONS, OPTIONS, ROLES
from official_albert.text_classifier import Classification

_TOP_K = 5
POOLINGS = ("pooler", "cls", "mean")
# The methods of each kind of model, besides `embed`.
_METHODS = {
  "pretraining": ("fill_mask", "sentence_order"),
  "classification": ("classify",),
  "regression": ("score",),
  "multiple_choice": ("choose",),
  "squad1": ("answer",),
  "squad2": ("answer",),
}
# The parameters of `LoadedModel` for the roles of signatures.
_PARAMETERS = {"text": "texts", "text_a": "texts", "text_b": "texts_b"}
# The number of texts that are computed together, or of questions, because the
# context of a question makes several sequences.
_BATCH_SIZE = 32
_QUESTIONS = 8

Texts = Union[str, Sequence[str]]


@dataclasses.dataclass(frozen=True)
class Piece:
  """A piece that may stand for a [MASK].

  Attributes:
    token: the piece, without the mark of a word's start.
    probability: its probability.
    id: its id in the vocabulary.
  """

  token: str
  probability: float
  id: int


@dataclasses.dataclass(frozen=True)
class Answer:
  """The answer to a question.

  Attributes:
    text: the answer, a part of the context; "" if the model of SQuAD 2.0 finds
      none.
    probability: its probability.
    start, end: its first character in the context, and the one after its last.
    null_score_diff: the odds that there is no answer; None for SQuAD 1.1.
    n_best: the best answers as dicts with text, probability, start and end.
  """

  text: str
  probability: float
  start: int
  end: int
  null_score_diff: Optional[float] = None
  n_best: list[dict[str, Any]] = dataclasses.field(
    default_factory=list, repr=False
  )


@dataclasses.dataclass(frozen=True)
class Choice:
  """The option that answers a question.

  Attributes:
    option: the text of the option.
    index: its number, from 0.
    probabilities: the probability of each option.
  """

  option: str
  index: int
  probabilities: list[float]


class LoadedModel:
  """A model that answers in Python; `load` returns it.

  >>> import official_albert as albert
  >>> stars = albert.load("stars")
  >>> stars.methods, stars.labels
  (('embed', 'classify'), ('neg', 'pos'))
  >>> stars.classify("Lovely.").label in stars.labels
  True

  Every method takes one text and returns one answer, or a list of texts and
  returns a list of answers in the same order. Lists of any length are sorted
  by length and computed in batches. Texts longer than the model's maximum
  length are truncated, as in training.

  Several threads may ask at once.

  Attributes:
    tokenizer: the tokenizer; None if there is none.
    config: the `AlbertConfig` of the encoder.
    labels: the classes of a classifier, in the order of its outputs; () for
      other models.
    kind: "pretraining", "encoder", "classification", "regression", "squad1",
      "squad2" or "multiple_choice".
    methods: the names of the methods that this model has.
    about: a description of the model, for messages.
    columns: those of rows to predict by role, as in the training data.
    checkpoint: the path of the weights, or of the export.
    names_task: whether the task of a classifier is known.
    notes: what the format of the weights leaves open, one sentence each.
  """

  def __init__(
    self,
    path: str,
    about: str,
    source: serving.Source,
    read_model: Optional[Callable[[], tf.keras.Model]] = None,
  ):
    """Initializes the model for `open_model`.

    `path` is for messages; `read_model` returns `model`, None for an export.
    """
    module = source.module
    self._path, self._module = path, module
    self._read_model = read_model
    # Callers may ask for any number of pieces.
    self._function = functools.lru_cache(maxsize=16)(_TextFunction)
    # Modules of the same weights: "embed" and "pairs".
    self._others: dict[str, serving.ServedModule] = {}
    self._has_warned = False
    self.tokenizer = source.open_tokenizer()
    self._most_pieces = module.settings().get("top_k", 0)
    if read_model:
      self._most_pieces = (module.text_layer or module.config).vocab_size
    self.config = module.config
    self.labels = tuple(module.settings().get("labels") or ())
    self.kind = module.kind
    self.about = about
    self.columns = _input_columns(source.columns)
    self.checkpoint = source.checkpoint
    self.names_task = source.names_task
    self.notes = source.notes
    can_embed = read_model or "encode" in module.text_signatures
    methods = _METHODS.get(self.kind, ())
    self.methods = (
      *["embed"] * bool(can_embed),
      *(name for name in methods if name in module.text_signatures),
    )

  def __repr__(self) -> str:
    return f"<LoadedModel {self.about}: {', '.join(self.methods)}>"

  @functools.cached_property
  def model(self) -> Optional[tf.keras.Model]:
    """The Keras model, read when first used; None for an export.

    To train it changes no answers. Raises ValueError if the run has another
    checkpoint now than the one that answers.
    """
    return self._read_model() if self._read_model else None

  def embed(
    self, texts: Texts, texts_b: Optional[Texts] = None, pooling: str = "pooler"
  ) -> np.ndarray:
    """Returns a vector for each text, or for each pair of texts.

    Args:
      texts: the texts.
      texts_b: the second texts of pairs.
      pooling: "pooler" is the `pooled_output` of exports: a dense layer with
        tanh on the last hidden state of [CLS]. "cls" is that hidden state
        itself. "mean" is the mean of the last hidden states of all tokens,
        [CLS] and [SEP] included.

    Returns:
      <float32>[B, H], or <float32>[H] for one text.
    """
    self._need("embed")
    if texts_b is not None:
      self.config.check_pairs()
    if pooling not in POOLINGS:
      raise ValueError(
        f"pooling is {pooling!r}, but must be one of {', '.join(POOLINGS)}."
      )
    if pooling == "pooler" and not self._module.has_pooler:
      raise ValueError(
        f"{self._path} has no weights of the pooler: use pooling='cls' or "
        "'mean'."
      )
    module = self._module
    if "encode" not in module.text_signatures:
      module = self._other("embed")
    encode = self._backend(
      module, "encode" if texts_b is None else "encode_pair"
    )
    pooled = dataclasses.replace(
      encode,
      function=lambda **x: {"vector": _pool(encode.function(**x), pooling)},
    )
    answers = self._answers(pooled, _texts_of(texts, texts_b))
    vectors = np.array([answer["vector"] for answer in answers], np.float32)
    return _like(texts, vectors.reshape([-1, self.config.hidden_size]))

  def fill_mask(self, texts: Texts, top_k: Optional[int] = None) -> Any:
    """Returns the most probable pieces for each [MASK] of each text.

    Args:
      texts: texts with at least one [MASK] each.
      top_k: the number of pieces for each [MASK]; by default 5, or fewer if
        the --top_k of an export is smaller.

    Returns:
      For each text, a list with an entry for each [MASK]: a list of `Piece`,
      the most probable first.
    """
    self._need("fill_mask")
    most = self._most_pieces
    if top_k is None:
      top_k = min(_TOP_K, most)
    if not (isinstance(top_k, int) and 1 <= top_k <= most):
      raise ValueError(
        f"top_k is {top_k}, but must be an integer from 1 to {most}"
        + ("." if self._read_model else ", the --top_k of the export.")
      )

    def pieces(fields: dict[str, Any]) -> list[list[Piece]]:
      columns = ("tokens", "probabilities", "token_ids")
      return [
        [Piece(*x) for x in zip(*(mask[name] for name in columns))][:top_k]
        for mask in fields["masks"]
      ]

    # The number of an export is part of it.
    traced_k = top_k if self._read_model else 0
    return self._ask("fill_mask", {"text": texts}, pieces, traced_k)

  def sentence_order(self, texts: Texts, texts_b: Texts) -> Any:
    """Returns the probability that `texts_b` precede `texts`, for each pair."""
    return self._ask("sentence_order", _texts_of(texts, texts_b), _prediction)

  def classify(self, texts: Texts, texts_b: Optional[Texts] = None) -> Any:
    """Returns a `Classification` of each text, or of each pair of texts."""
    return self._ask(
      "classify",
      _texts_of(texts, texts_b),
      lambda fields: Classification(
        fields["prediction"], fields["probabilities"]
      ),
    )

  def score(self, texts: Texts, texts_b: Optional[Texts] = None) -> Any:
    """Returns the number that a regression gives to each text, or each pair."""
    return self._ask("score", _texts_of(texts, texts_b), _prediction)

  def answer(self, question: Texts, context: Texts) -> Any:
    """Returns an `Answer` to each question from its context.

    A context may have up to 256 windows, which is more than 30,000 tokens.
    """
    return self._ask(
      "answer",
      {"question": question, "context": context},
      lambda fields: Answer(text=fields.pop("prediction"), **fields),
    )

  def choose(
    self,
    passage: Texts,
    question: Texts,
    options: Union[Sequence[str], Sequence[Sequence[str]]],
  ) -> Any:
    """Returns a `Choice` for each question, which has four options."""
    is_one = isinstance(question, str)
    rows = _check_options([options] if is_one else options)
    texts = {"question": question, "passage": passage, OPTIONS: rows}
    found = self._ask(
      "choose", texts, lambda fields: [*fields["probabilities"].values()]
    )
    choices = []
    for row, probabilities in zip(rows, [found] if is_one else found):
      index = int(np.argmax(probabilities))
      choices.append(Choice(row[index], index, probabilities))
    return _like(question, choices)

  def backend(self, signature: str = "") -> engine_lib.Backend:
    """Returns the backend of a signature, by default the first.

    Raises ValueError if there is none, no tokenizer, or no pooler for vectors.
    """
    self._need_tokenizer()
    name = signature or self._module.text_signatures[0]
    if name.startswith("encode") and not self._module.has_pooler:
      raise ValueError(
        f"{self._path} has no weights of the pooler, which the signature "
        f"{name} needs: use official_albert.load and its embed(pooling='mean') "
        "or 'cls'."
      )
    return self._backend(self._module, name)

  def _backend(
    self, module: serving.ServedModule, signature: str, top_k: int = 0
  ) -> engine_lib.Backend:
    if signature not in module.text_signatures:
      raise ValueError(
        f"{self.about}, which has no signature {signature!r}: it has "
        f"{', '.join(sorted(module.text_signatures))}."
      )
    inputs, _ = module.text_function(signature)
    return engine_lib.Backend(
      tuple(role for role in ROLES if role in inputs),
      self._function(module, signature, top_k),
      self.about,
      self.tokenizer,
    )

  def _need_tokenizer(self) -> None:
    if self.tokenizer is None:
      raise ValueError(
        f"{self._path} has no tokenizer, which texts need: put the one of the "
        "training into that folder, or give its file."
      )

  def _need(self, method: str) -> None:
    """Raises ValueError if the model lacks a method, or a tokenizer."""
    if method not in self.methods:
      # A note says why a head is not read.
      raise ValueError(
        f"{self.about}, which cannot {method}: its methods are "
        + " ".join([f"{', '.join(self.methods) or 'none'}.", *self.notes])
      )
    self._need_tokenizer()

  def _other(self, what: str) -> serving.ServedModule:
    """Returns the module of the same weights for "embed" or for "pairs"."""
    if what not in self._others:
      module = self._module  # Its model has been frozen.
      rest = module.text_layer, module.max_seq_length
      if what == "embed":
        made = serving.ServedEncoder(module.model.albert, *rest)
      else:
        made = serving.ServedTextTask(module.model, *rest, self.labels, True)
      self._others[what] = made
    return self._others[what]

  def _ask(
    self,
    method: str,
    texts: Mapping[str, Any],
    make: Callable[[dict[str, Any]], Any],
    top_k: int = 0,
  ) -> Any:
    """Returns what `make` makes of `answer_fields` of each, or of the one."""
    self._need(method)
    is_pair = "text_b" in texts
    has_no_task = is_pair and not self.names_task
    module = self._other("pairs") if has_no_task else self._module
    backend = self._backend(module, method, top_k=top_k)
    if {*texts} != {*backend.roles}:
      advice = "leave texts_b out" if is_pair else "give texts_b, too"
      takes = "one text" if is_pair else "pairs of texts"
      raise ValueError(f"{self.about}, which takes {takes}: {advice}.")
    answers = self._answers(backend, texts)
    fields = [answer_fields.fields_of(x, self.labels) for x in answers]
    return _like(next(iter(texts.values())), [make(x) for x in fields])

  def _answers(
    self, backend: engine_lib.Backend, texts: Mapping[str, Any]
  ) -> list[Mapping[str, Any]]:
    """Returns the outputs for each of the texts, in their order."""
    shown = {role: _PARAMETERS.get(role, role) for role in texts}
    lists = {
      role: values if role == OPTIONS else _check_texts(values, shown[role])
      for role, values in texts.items()
    }
    counts = {shown[role]: len(values) for role, values in lists.items()}
    if len(set(counts.values())) > 1:
      raise ValueError(
        "the lists must be equally long, but there are "
        + ", ".join(f"{count} {name}" for name, count in counts.items())
        + "."
      )
    first = next(iter(counts))
    rows = [
      common.Record(f"{first}[{i}]", dict(zip(lists, row)))
      for i, row in enumerate(zip(*lists.values()))
    ]
    size = _QUESTIONS if "context" in lists else _BATCH_SIZE
    answers = [answer for _, answer in engine_lib.predict(backend, rows, size)]
    if not self._has_warned:
      seen = tf.nest.flatten(lists)
      if note := tokenization.coverage_note(self.tokenizer, seen):
        self._has_warned = True
        warnings.warn(f"{self._path}: {note}", stacklevel=4)
    return answers


def _check_texts(texts: Any, name: str) -> list[str]:
  checked = tokenization.check_texts(texts, name)
  for i, text in enumerate(checked):
    common.refuse_surrogates(text, f"{name}[{i}]")
  return checked


def _check_options(rows: Any) -> list[list[str]]:
  """Returns the options of each question; raises unless they are four texts."""
  if not isinstance(rows, Iterable):
    raise TypeError(
      f"options is {rows!r:.80}, but must be a list of {NUM_OPTIONS} texts for "
      "each question."
    )
  checked = []
  for i, options in enumerate(rows):
    checked.append(_check_texts(options, f"options[{i}]"))
    if len(checked[i]) != NUM_OPTIONS:
      raise ValueError(f"options[{i}] must be a list of {NUM_OPTIONS} texts.")
  return checked


_prediction = operator.itemgetter("prediction")


class _TextFunction:
  """A signature for texts, which answers the first time without its graph.

  To trace the graph takes longer than one answer.
  """

  def __init__(self, module: serving.ServedModule, name: str, top_k: int):
    """For `top_k` 0, masks have the module's number of pieces."""
    if top_k:  # Other threads may use another one.
      _ = module.traced  # The copies share it.
      module = copy.copy(module)
      module.top_k = top_k
    self._module, self._name, self._is_new = module, name, True

  def __call__(self, **texts: tf.Tensor) -> Tensors:
    if self._is_new:
      self._is_new = False
      return self._module.text_function(self._name)[1](**texts)
    return self._graph(**texts)

  @functools.cached_property
  def _graph(self) -> Any:
    return self._module.text_signature(self._name)


def _pool(outputs: Tensors, pooling: str) -> tf.Tensor:
  """Returns <float32>[B, H]; see `LoadedModel.embed`."""
  if pooling == "pooler":
    return outputs["pooled_output"]
  hidden = outputs["sequence_output"]  # [B, S, H]
  if pooling == "cls":
    return hidden[:, 0]
  mask = tf.cast(outputs["input_mask"], hidden.dtype)[..., None]  # [B, S, 1]
  return tf.reduce_sum(hidden * mask, 1) / tf.reduce_sum(mask, 1)


def _texts_of(texts: Texts, texts_b: Optional[Texts]) -> dict[str, Texts]:
  """Returns texts by the roles of a signature."""
  if texts_b is None:
    return {"text": texts}
  return {"text_a": texts, "text_b": texts_b}


def _like(texts: Texts, answers: Any) -> Any:
  """Returns the only answer if there is only a text, not a list of texts."""
  return answers[0] if isinstance(texts, str) else answers


def _input_columns(trained: Mapping[str, str]) -> dict[str, str]:
  """Returns the columns of rows to predict, from those of the training data."""
  names = {"text": "text", "text_a": "text", "text_b": "text_b", "id": "id"}
  return {k: trained[v] for k, v in names.items() if trained.get(v)}
