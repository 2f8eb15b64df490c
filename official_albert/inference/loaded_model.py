"""Asks a loaded model in a line of Python.

The answers are those of tools.predict, and to the last digit those of the
model's export.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import types
import warnings
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence, Union

import numpy as np
import tensorflow as tf

from official_albert import modeling, serving, tokenization
from official_albert.inference import engine as engine_lib
from official_albert.inference.answers import Answer, Choice, Piece, TaggedSpan
from official_albert.serving import Tensors
from official_albert.settings import check_number
from official_albert.tasks import answer_fields, common
from official_albert.tasks.registry import NUM_OPTIONS, OPTIONS, ROLES
from official_albert.text_classifier import Classification, Texts

# The pieces for a [MASK] by default, and that are found.
_TOP_K, _MOST_PIECES = 5, 100
# The methods that ask the signature of their name; `embed` asks `encode`.
_METHODS = (
  *("fill_mask", "sentence_order"),
  *("classify", "score", "choose", "answer", "tag"),
)
# The parameters of `LoadedModel` for the roles of signatures.
_PARAMETERS = {"text": "texts", "text_a": "texts", "text_b": "texts_b"}
# The number of texts that are computed together, or of questions, because the
# context of a question makes several sequences.
_BATCH_SIZE = 32
_QUESTIONS = 8

# The texts of a row by role, the outputs for it, or its fields.
_Fields = Mapping[str, Any]
_ALL_LAYERS: _Fields = types.MappingProxyType({})


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
    kind: "pretraining", "encoder", "classification", "multi_label",
      "regression", "token_classification", "embedding", "squad1",
      "squad2" or "multiple_choice".
    methods: the names of the methods that this model has.
    about: a description of the model, for messages.
    source: what is known of the weights, or of the export.
  """

  def __init__(self, path: str, about: str, source: serving.Source):
    """Initializes the model for `open_model`; `path` is for messages."""
    module = source.module
    self._path, self._module = path, module
    self._is_export = not isinstance(module, serving.ServedModule)
    self._function = functools.lru_cache(_TextFunction)
    self._has_warned = False
    self.tokenizer = source.tokenizer.open() if source.tokenizer else None
    self.config = module.config
    self.labels = tuple(module.settings().get("labels") or ())
    self.kind = module.kind
    self.about = about
    self.source = source
    self.methods = tuple(x for x in _METHODS if x in module.text_signatures)
    if not self._is_export or {"encode", "embed"} & {*module.text_signatures}:
      self.methods = ("embed", *self.methods)

  def __repr__(self) -> str:
    return f"<LoadedModel {self.about}: {', '.join(self.methods)}>"

  @functools.cached_property
  def _encoder(self) -> serving.ServedModule:
    """The module for `embed`, which has the same weights."""
    module = self._module
    if "encode" in module.text_signatures:
      return module
    return serving.ServedEncoder(
      module.model.albert, module.text_layer, module.max_seq_length
    )

  @functools.cached_property
  def _many_pieces(self) -> serving.ServedModule:
    """The module for `fill_mask` with more pieces than the model's own.

    Few ask for them, and each call would take longer for all of them.
    """
    if self._is_export:
      return self._module
    _ = self._module.traced  # The copy shares it.
    module: Any = copy.copy(self._module)
    module.top_k = min(_MOST_PIECES, module.text_layer.vocab_size)
    return module

  @functools.cached_property
  def _pairs(self) -> serving.ServedModule:
    """A classifier that does not name its task, as one of pairs."""
    module: Any = self._module
    rest = module.text_layer, module.max_seq_length
    return type(module)(module.model, *rest, self.labels, True)

  @property
  def pooling(self) -> modeling.Pooling:
    """How `embed` makes vectors, unless its arguments say otherwise."""
    if self.kind == "embedding":
      return modeling.Pooling.of(self._module.settings())
    return modeling.Pooling()

  def embed(
    self,
    texts: Texts,
    texts_b: Optional[Texts] = None,
    pooling: Optional[str] = None,
    normalize: Optional[bool] = None,
    dimensions: int = 0,
    batch_size: int = _BATCH_SIZE,
    exit_layer: int = 0,
  ) -> np.ndarray:
    """Returns a vector for each text, or for each pair of texts.

    Args:
      texts: the texts.
      texts_b: the second texts of pairs.
      pooling: what of the last hidden states is the vector: their "mean" or
        "max" over all tokens, [CLS] and [SEP] included; "cls", that of [CLS];
        or "pooler", the `pooled_output` of exports, which is a dense layer with
        tanh on it. None is as trained for a model of embeddings, else "mean".
      normalize: whether vectors have length 1, so that their products are
        cosines. None is as trained, else True.
      dimensions: how many of the first numbers to keep, for a model trained
        with --embedding_dims; 0 keeps all H.
      batch_size: the maximum number of texts that are computed together.
      exit_layer: the number of layers to apply; 0 is all.

    Returns:
      <float32>[B, H], or <float32>[H] for one text.
    """
    self._need("embed")
    if texts_b is not None:
      self.config.check_pairs()
    own = self.pooling
    wanted = modeling.Pooling(
      own.pooling if pooling is None else pooling,
      own.normalize if normalize is None else normalize,
    )
    most = self.config.hidden_size
    check_number("dimensions", dimensions, least=0, most=most, whole=True)
    check_number("batch_size", batch_size, least=1, whole=True)
    if wanted.pooling == "pooler" and not self._module.has_pooler:
      raise ValueError(
        f"{self._path} has no weights of the pooler: use pooling='cls' or "
        "'mean'."
      )
    both, depth = _texts_of(texts, texts_b), self._depth(exit_layer)
    vectors = self._vectors(both, wanted, batch_size, depth)
    if dimensions:
      vectors = vectors[:, :dimensions]
      vectors = _normalized(vectors) if wanted.normalize else vectors
    return vectors[0] if isinstance(texts, str) else vectors

  def _vectors(
    self,
    texts: Mapping[str, Any],
    wanted: modeling.Pooling,
    batch_size: int,
    depth: _Fields,
  ) -> np.ndarray:
    """Returns <float32>[B, H]."""
    if self.kind == "embedding" and wanted == self.pooling and "text" in texts:
      asked = self._backend(self._module, "embed", depth)
    elif self.kind == "embedding" and self._is_export:
      raise ValueError(
        f"{self.about}, which only has the vectors of single texts by "
        f"{self.pooling}: leave the arguments out, or load the run."
      )
    else:
      name = "encode" if "text" in texts else "encode_pair"
      encode = self._backend(self._encoder, name, depth)
      asked = dataclasses.replace(
        encode,
        function=lambda **x: {"embedding": _pool(encode.function(**x), wanted)},
      )
    answers = self._answers(asked, texts, batch_size)
    vectors = np.array([x["embedding"] for _, x in answers], np.float32)
    return vectors.reshape([-1, self.config.hidden_size])

  def similarity(
    self,
    texts: Union[Texts, np.ndarray],
    others: Union[Texts, np.ndarray],
    **options: Any,
  ) -> np.ndarray:
    """Returns the cosine of each text and each of the others.

    >>> import official_albert as albert
    >>> encoder = albert.load("albert_toy")
    >>> encoder.similarity(["It rains.", "It is wet."], "It is dry.").shape
    (2, 1)

    Args:
      texts: texts, or vectors <float>[N, H] that `embed` has returned.
      others: the same.
      **options: arguments of `embed` besides texts.

    Returns:
      <float32>[N, M] for N texts and M others.
    """

    def vectors(side):
      # Arrays of numbers are vectors, others are of texts.
      if not isinstance(side, np.ndarray) or side.dtype.kind not in "iuf":
        side = self.embed(side, **options)
      # Squares of float16 overflow.
      return np.atleast_2d(side).astype(np.result_type(side, np.float32))

    first, second = vectors(texts), vectors(others)
    if {first.ndim, second.ndim} != {2} or first.shape[1] != second.shape[1]:
      raise ValueError(
        "the vectors must have the shapes [N, H] and [M, H], but have "
        f"{first.shape} and {second.shape}."
      )
    return _normalized(first) @ _normalized(second).T

  def fill_mask(
    self, texts: Texts, top_k: Optional[int] = None, by_layer: bool = False
  ) -> Any:
    """Returns the most probable pieces for each [MASK] of each text.

    Args:
      texts: texts with at least one [MASK] each.
      top_k: the number of pieces for each [MASK], at most 100, or the --top_k
        of an export; by default 5, or fewer if an export has fewer.
      by_layer: whether to apply the head after each layer, as if it were the
        last one (the "logit lens").

    Returns:
      For each text, a list with an entry for each [MASK]: a list of `Piece`,
      the most probable first. With `by_layer`, a list of such lists for each
      text, one for each layer.
    """
    self._need("fill_mask")
    most = self._many_pieces.settings()["top_k"]
    if top_k is None:
      top_k = min(_TOP_K, most)
    name = "top_k" + ", at most the export's --top_k," * self._is_export
    check_number(name, top_k, least=1, most=most, whole=True)

    def pieces(fields: _Fields, unused_cells: _Fields) -> Any:
      if "layers" in fields:
        return [pieces(layer, unused_cells) for layer in fields["layers"]]
      columns = ("tokens", "probabilities", "token_ids")
      return [
        [Piece(*x) for x in zip(*(mask[name][:top_k] for name in columns))]
        for mask in fields["masks"]
      ]

    is_few = top_k <= self._module.settings()["top_k"]
    module = self._module if is_few else self._many_pieces
    signature = "fill_mask" + serving.BY_LAYER * by_layer
    return self._ask("fill_mask", {"text": texts}, pieces, module, signature)

  def sentence_order(self, texts: Texts, texts_b: Texts) -> Any:
    """Returns the probability that `texts_b` precede `texts`, for each pair."""
    return self._ask("sentence_order", _texts_of(texts, texts_b), _prediction)

  def classify(
    self,
    texts: Texts,
    texts_b: Optional[Texts] = None,
    exit_layer: int = 0,
    exit_threshold: float = 0.0,
  ) -> Any:
    """Returns a `Classification` of each text, or of each pair of texts.

    Args:
      texts: the texts.
      texts_b: the second texts of pairs.
      exit_layer: the most layers to apply to a text; 0 is all.
      exit_threshold: after the first layer with which a class has at least this
        probability, no further ones are applied to the text; 0 is never. The
        mean of `Classification.exit_layer` says what it saves.
    """
    return self._ask(
      "classify",
      _texts_of(texts, texts_b),
      lambda fields, _: Classification(
        fields["prediction"], fields["probabilities"], fields.get("exit_layer")
      ),
      depth=self._depth(exit_layer, exit_threshold),
    )

  def score(self, texts: Texts, texts_b: Optional[Texts] = None) -> Any:
    """Returns the number that a regression gives to each text, or each pair."""
    return self._ask("score", _texts_of(texts, texts_b), _prediction)

  def answer(self, question: Texts, context: Texts) -> Any:
    """Returns an `Answer` to each question from its context.

    A context may have up to 256 windows, which is more than 30,000 tokens.
    """

    def answer(fields: _Fields, unused_cells: _Fields) -> Answer:
      others = {**fields}
      return Answer(others.pop("prediction"), **others)

    texts = {"question": question, "context": context}
    return self._ask("answer", texts, answer)

  def tag(self, texts: Texts) -> Any:
    """Returns the entities of each text: a list of `TaggedSpan`, in order.

    If the tags are not of entities, these are all words. The words of a text
    are separated by spaces and punctuation; the first piece of a word decides.
    A text may have up to 256 windows; none is truncated.
    """
    return self._ask(
      "tag",
      {"text": texts},
      lambda fields, _: [TaggedSpan(**x) for x in fields["spans"]],
    )

  def choose(
    self,
    passage: Texts,
    question: Texts,
    options: Union[Sequence[str], Sequence[Sequence[str]]],
  ) -> Any:
    """Returns a `Choice` for each question, which has four options."""

    def choice(fields: _Fields, cells: _Fields) -> Choice:
      probabilities = [*fields["probabilities"].values()]
      index = int(np.argmax(probabilities))
      return Choice(cells[OPTIONS][index], index, probabilities)

    rows = [options] if isinstance(question, str) else options
    texts = {"question": question, "passage": passage, OPTIONS: rows}
    return self._ask("choose", texts, choice)

  def backend(self, signature: str = "") -> engine_lib.Backend:
    """Returns the backend of a signature, by default the first.

    Raises ValueError if there is none, no tokenizer, or no pooler for vectors.
    """
    self._need_tokenizer()
    names = (*self._module.text_signatures, serving.DEFAULT_SIGNATURE)
    name = signature or names[0]
    if name.startswith("encode") and not self._module.has_pooler:
      raise ValueError(
        f"{self._path} has no weights of the pooler, which the signature "
        f"{name} needs: use official_albert.load and its embed(pooling='mean') "
        "or 'cls'."
      )
    return self._backend(self._module, name)

  def _depth(self, exit_layer: int, exit_threshold: float = 0.0) -> _Fields:
    """Returns the inputs of signatures at a depth."""
    most = self.config.num_hidden_layers
    check_number("exit_layer", exit_layer, least=0, most=most, whole=True)
    check_number("exit_threshold", exit_threshold, least=0, most=1)
    if exit_threshold and self.kind != "classification":
      raise ValueError(
        f"exit_threshold is for one class a text, but {self.about}: leave it "
        "out, and give exit_layer."
      )
    depth = {"exit_layer": exit_layer, "exit_threshold": exit_threshold}
    return depth if any(depth.values()) else _ALL_LAYERS

  def _backend(
    self,
    module: serving.ServedModule,
    signature: str,
    depth: _Fields = _ALL_LAYERS,
  ) -> engine_lib.Backend:
    if signature not in module.text_signatures:
      raise ValueError(
        f"{self.about}, which has no signature {signature!r} of texts: it has "
        f"{', '.join(sorted(module.text_signatures)) or 'none'}."
      )
    name = signature + serving.AT_DEPTH * bool(depth)
    if depth and self._is_export and name not in module.depth_signatures:
      raise ValueError(
        f"{self.about} without {name}: export it with --depth_signatures, or "
        "load the run."
      )
    inputs, _ = module.text_function(name)
    function = self._function(module, name)

    def of_texts(**texts):
      shape = [len(next(iter(texts.values())))]
      for x in {*inputs} & {*depth}:
        texts[x] = tf.constant(depth[x], serving.DEPTH_INPUTS[x], shape)
      return function(**texts)

    return engine_lib.Backend(
      tuple(role for role in ROLES if role in inputs),
      of_texts,
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
        + " ".join(
          [f"{', '.join(self.methods) or 'none'}.", *self.source.notes]
        )
      )
    self._need_tokenizer()

  def _ask(
    self,
    method: str,
    texts: Mapping[str, Any],
    make: Callable[[_Fields, _Fields], Any],
    module: Optional[serving.ServedModule] = None,
    signature: str = "",
    depth: _Fields = _ALL_LAYERS,
  ) -> Any:
    """Returns what `make` makes of the fields and the texts of each answer."""
    self._need(method)
    is_pair = "text_b" in texts
    if module is None:
      has_no_task = is_pair and not self.source.names_task
      module = self._pairs if has_no_task else self._module
    backend = self._backend(module, signature or method, depth)
    if {*texts} != {*backend.roles}:
      advice = "leave texts_b out" if is_pair else "give texts_b, too"
      takes = "one text" if is_pair else "pairs of texts"
      raise ValueError(f"{self.about}, which takes {takes}: {advice}.")
    made = [
      make(
        answer_fields.fields_of(answer, self.labels, row.cells.get("text", "")),
        row.cells,
      )
      for row, answer in self._answers(backend, texts)
    ]
    return made[0] if isinstance(next(iter(texts.values())), str) else made

  def _answers(
    self,
    backend: engine_lib.Backend,
    texts: Mapping[str, Any],
    batch_size: int = 0,
  ) -> list[tuple[common.Record, _Fields]]:
    """Returns the rows of texts with their outputs, in their order."""
    names = {role: _PARAMETERS.get(role, role) for role in texts}
    lists = {
      role: (_check_options if role == OPTIONS else _check_texts)(values, name)
      for (role, name), values in zip(names.items(), texts.values())
    }
    if len({*map(len, lists.values())}) > 1:
      counts = (f"{len(lists[role])} {name}" for role, name in names.items())
      raise ValueError(
        f"the lists must be equally long, but there are {', '.join(counts)}."
      )
    first = next(iter(names.values()))
    rows = [
      common.Record(f"{first}[{i}]", dict(zip(lists, row)))
      for i, row in enumerate(zip(*lists.values()))
    ]
    size = _QUESTIONS if "context" in lists else _BATCH_SIZE
    answers = list(engine_lib.predict(backend, rows, batch_size or size))
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


def _check_options(rows: Any, name: str) -> list[list[str]]:
  """Returns the options of each question; raises unless they are four texts."""
  if not isinstance(rows, Iterable):
    raise TypeError(f"{name} is {rows!r:.80}, but must be lists of texts.")
  checked = [_check_texts(x, f"{name}[{i}]") for i, x in enumerate(rows)]
  if any(len(options) != NUM_OPTIONS for options in checked):
    raise ValueError(f"{name} must be lists of {NUM_OPTIONS} texts each.")
  return checked


def _prediction(fields: _Fields, unused_cells: _Fields) -> Any:
  return fields["prediction"]


class _TextFunction:
  """A signature for texts, which answers the first time without its graph.

  To trace the graph takes longer than one answer.
  """

  def __init__(self, module: serving.ServedModule, name: str):
    self._module, self._name, self._is_new = module, name, True

  def __call__(self, **texts: tf.Tensor) -> Tensors:
    if self._is_new:
      self._is_new = False
      return self._module.text_function(self._name)[1](**texts)
    return self._graph(**texts)

  @functools.cached_property
  def _graph(self) -> Any:
    return self._module.text_signature(self._name)


def _pool(outputs: Tensors, wanted: modeling.Pooling) -> tf.Tensor:
  vectors = modeling.pool(outputs, outputs["input_mask"], wanted.pooling)
  return tf.math.l2_normalize(vectors, -1) if wanted.normalize else vectors


def _normalized(vectors: np.ndarray) -> np.ndarray:
  lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
  return (vectors / np.maximum(lengths, 1e-12)).astype(np.float32)


def _texts_of(texts: Texts, texts_b: Optional[Texts]) -> dict[str, Texts]:
  """Returns texts by the roles of a signature."""
  if texts_b is None:
    return {"text": texts}
  return {"text_a": texts, "text_b": texts_b}
