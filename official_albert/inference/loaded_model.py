"""Loads a model of any kind and asks it in a line of Python.

    import official_albert as albert

    albert.load("quickstart/run").fill_mask("The default [MASK] is None.")
    albert.load("stars").classify(["Lovely.", "Never again."])

The answers are those of tools.predict, and to the last digit those of the
model's export.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import threading
import warnings
from typing import Any, Mapping, Optional, Sequence, Union

import numpy as np
import tensorflow as tf

from official_albert import checkpoints, files, runs, serving, tokenization
from official_albert.config import AlbertConfig
from official_albert.inference import engine as engine_lib
from official_albert.inference import source as source_lib
from official_albert.serving import Tensors
from official_albert.tasks import answer_fields
from official_albert.text_classifier import Classification, TextClassifier

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
# Prefixes of the names of weights that a checkpoint may lack.
_POOLER, _SENTENCE_ORDER = "bert/pooler/", "cls/seq_relationship/"

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

  A copy of the weights computes the answers: load the model again after
  training `model` further. Several threads may ask at once.

  Attributes:
    tokenizer: the tokenizer; None if there is none.
    config: the `AlbertConfig` of the encoder.
    labels: the classes of a classifier, in the order of its outputs; () for
      other models.
    kind: "pretraining", "encoder", "classification", "regression", "squad1",
      "squad2" or "multiple_choice".
    methods: the names of the methods that this model has.
    about: a description of the model, for messages.
    names_task: whether the task of a classifier is known.
    model: the Keras model with the weights; None for an export.
    notes: what the format of the weights leaves open, one sentence each.
  """

  def __init__(
    self,
    path: str,
    engine: engine_lib.Engine,
    source: Optional[source_lib.Source] = None,
  ):
    """Initializes the model; `load` and `open_model` call this.

    Args:
      path: the path of the model, for messages.
      engine: answers with the model.
      source: the model with its weights; None for an export.
    """
    self._path = path
    self._engine = engine
    # From Python 3.12 on, functools.cache does not lock.
    self._lock = threading.Lock()
    self._source = source
    self.tokenizer = engine.tokenizer.open() if engine.tokenizer else None
    self._watch = tokenization.Watch(self.tokenizer)
    self._has_warned = False
    self.config = source.module.config if source else _config_of(path)
    self.labels = engine.labels
    self.kind = engine.kind
    self.about = engine.about
    self.names_task = source.names_task if source else True
    self.model = source.model if source else None
    self.notes = source.notes if source else ()
    methods = ("embed", *_METHODS.get(self.kind, ()))
    self.methods = tuple(filter(self._has_method, methods))

  def _has_method(self, method: str) -> bool:
    """Returns whether there are weights or a signature for a method."""
    signatures = self._engine.signatures
    if method == "embed":
      return bool(self._source or self._engine.vector_signature())
    if method == "sentence_order" and self._lacks(_SENTENCE_ORDER):
      return False
    # `ids` of a pretrained model and of SQuAD cannot be asked by texts.
    by_ids = self.kind in source_lib.LOGITS_KINDS
    return method in signatures or (by_ids and "ids" in signatures)

  @functools.cached_property
  def _encoder(self) -> engine_lib.Engine:
    """The engine of the encoder alone, for vectors."""
    if not self._source or "encode" in self._engine.signatures:
      return self._engine
    module = self._source.module  # Its model has been frozen.
    encoder = serving.ServedEncoder(
      module.model.albert, module.text_layer, module.max_seq_length
    )
    return engine_lib.of_module(encoder, self._source, self._path)

  @functools.cached_property
  def _of_pairs(self) -> engine_lib.Engine:
    """The engine of the same classifier or regression, for pairs of texts."""
    module = self._source.module
    pairs = serving.ServedTextTask(
      module.model, module.text_layer, module.max_seq_length, self.labels, True
    )
    return engine_lib.of_module(pairs, self._source, self._path)

  def _lacks(self, prefix: str) -> bool:
    """Returns whether the checkpoint lacks weights with such names."""
    missing = self._source.missing if self._source else ()
    return any(name.startswith(prefix) for name in missing)

  def __repr__(self) -> str:
    return f"<LoadedModel {self.about}: {', '.join(self.methods)}>"

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
    if pooling == "pooler" and self._lacks(_POOLER):
      raise ValueError(
        f"{self._path} has no weights of the pooler: use pooling='cls' or "
        "'mean'."
      )
    is_pair = texts_b is not None
    with self._lock:
      signature = self._encoder.vector_signature(is_pair)
      backend = self._encoder.backend(signature, ("sequence_output",), is_pair)
    encode = backend.function

    def function(**texts: tf.Tensor) -> Tensors:
      return {"pooled_output": _pool(encode(**texts), pooling)}

    backend = dataclasses.replace(backend, function=function)
    given = _texts_of(texts, texts_b)
    answers = engine_lib.predict_texts(backend, given)
    self._warn_of_unknown(given)
    vectors = [answer["pooled_output"] for answer in answers]
    size = self.config.hidden_size
    return _like(texts, np.array(vectors, np.float32).reshape([-1, size]))

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
    most = self._engine.most_pieces
    if top_k is None:
      top_k = min(_TOP_K, most)
    if not (isinstance(top_k, int) and 1 <= top_k <= most):
      raise ValueError(
        f"top_k is {top_k}, but must be an integer from 1 to {most}"
        + ("." if self._source else ", the --top_k of the export.")
      )
    options = {"top_k": top_k} if self._source else {}
    backend = self.backend("fill_mask", **options)
    columns = ("tokens", "probabilities", "token_ids")
    found = [
      [
        [Piece(*x) for x in zip(*(mask[name] for name in columns))][:top_k]
        for mask in fields["masks"]
      ]
      for fields in self._ask(backend, text=texts)
    ]
    return _like(texts, found)

  def sentence_order(self, texts: Texts, texts_b: Texts) -> Any:
    """Returns the probability that two texts are swapped, that B precedes A.

    Args:
      texts: the first texts, A.
      texts_b: the second texts, B.
    """
    backend = self._backend("sentence_order")
    found = self._ask(backend, text_a=texts, text_b=texts_b)
    return _like(texts, [fields["prediction"] for fields in found])

  def classify(self, texts: Texts, texts_b: Optional[Texts] = None) -> Any:
    """Returns a `Classification` of each text, or of each pair of texts.

    Args:
      texts: the texts.
      texts_b: the second texts, for a model of pairs.
    """
    found = self._ask_about_texts("classify", texts, texts_b)
    return _like(
      texts,
      [
        Classification(fields["prediction"], fields["probabilities"])
        for fields in found
      ],
    )

  def score(self, texts: Texts, texts_b: Optional[Texts] = None) -> Any:
    """Returns the number that a regression gives to each text, or each pair.

    Args:
      texts: the texts.
      texts_b: the second texts, for a model of pairs.
    """
    found = self._ask_about_texts("score", texts, texts_b)
    return _like(texts, [fields["prediction"] for fields in found])

  def answer(self, question: Texts, context: Texts) -> Any:
    """Returns an `Answer` to each question.

    Args:
      question: the questions.
      context: for each question, the text that may contain the answer. It may
        have up to 256 windows, which is more than 30,000 tokens.
    """
    backend = self._backend("answer")
    found = self._ask(backend, question=question, context=context)
    return _like(
      question,
      [Answer(text=fields.pop("prediction"), **fields) for fields in found],
    )

  def choose(
    self,
    passage: Texts,
    question: Texts,
    options: Union[Sequence[str], Sequence[Sequence[str]]],
  ) -> Any:
    """Returns a `Choice` for each question.

    Args:
      passage: for each question, the text that it is about.
      question: the questions.
      options: for each question, a list of four texts.
    """
    is_one = isinstance(question, str)
    rows = engine_lib.check_options([options] if is_one else options)
    backend = self._backend("choose")
    found = self._ask(backend, passage=passage, question=question, options=rows)
    choices = []
    for row, fields in zip(rows, found):
      probabilities = list(fields["probabilities"].values())
      index = int(np.argmax(probabilities))
      choices.append(Choice(row[index], index, probabilities))
    return _like(question, choices)

  def backend(self, signature: str = "", **options: Any) -> engine_lib.Backend:
    """Returns the backend of a signature, for tools.predict.

    Raises:
      ValueError: there is no such signature, or no pooler for its vectors.
    """
    name = signature or self._engine.default_signature
    if name.startswith("encode") and self._lacks(_POOLER):
      raise ValueError(
        f"{self._path} has no weights of the pooler, which the signature "
        f"{name} needs: {engine_lib.NO_POOLER}"
      )
    with self._lock:
      return self._engine.backend(signature, **options)

  def _need(self, method: str) -> None:
    """Raises ValueError if the model lacks a method, or a tokenizer."""
    if method not in self.methods:
      # A note says why a head is not read.
      raise ValueError(
        f"{self.about}, which cannot {method}: its methods are "
        + " ".join([f"{', '.join(self.methods) or 'none'}.", *self.notes])
      )
    if self.tokenizer is None:
      advice = "give the file that the model was trained with, by "
      advice += "load(..., tokenizer=PATH)."
      if not self._source:
        advice = "put it into the checkpoint's folder, and export it again."
      raise ValueError(
        f"{self._path} has no tokenizer, which texts need: {advice}"
      )

  def _backend(self, method: str) -> engine_lib.Backend:
    self._need(method)
    has_method = method in self._engine.signatures
    return self.backend(method if has_method else "ids")

  def _ask(
    self, backend: engine_lib.Backend, **texts: Any
  ) -> list[dict[str, Any]]:
    """Returns the fields of each answer; see `answer_fields.fields_of`."""
    answers = engine_lib.predict_texts(backend, texts)
    self._warn_of_unknown(texts)
    return [answer_fields.fields_of(answer, self.labels) for answer in answers]

  def _warn_of_unknown(self, texts: Mapping[str, Any]) -> None:
    """Warns once if the vocabulary lacks the texts."""
    if not self._has_warned:
      self._watch.see(texts.values())
      if note := self._watch.note():
        self._has_warned = True
        warnings.warn(f"{self._path}: {note}", stacklevel=4)

  def _ask_about_texts(
    self, method: str, texts: Texts, texts_b: Optional[Texts]
  ) -> list[dict[str, Any]]:
    backend = self._backend(method)
    is_pair = texts_b is not None
    if is_pair and not self.names_task:
      with self._lock:
        backend = self._of_pairs.backend(method)
    if is_pair != (len(backend.roles) == 2):
      advice = "leave texts_b out" if is_pair else "give texts_b, too"
      takes = "one text" if is_pair else "pairs of texts"
      raise ValueError(f"{self.about}, which takes {takes}: {advice}.")
    return self._ask(backend, **_texts_of(texts, texts_b))


def _pool(outputs: Tensors, pooling: str) -> tf.Tensor:
  """Returns <float32>[B, H]; see `LoadedModel.embed`."""
  if pooling == "pooler":
    if "pooled_output" not in outputs:
      raise ValueError("the export has no pooler: use pooling='cls' or 'mean'.")
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


def load(
  path: Union[str, os.PathLike],
  *,
  checkpoint: str = "",
  tokenizer: Union[str, os.PathLike] = "",
  lower_case: Optional[bool] = None,
  keep_accents: Optional[bool] = None,
  max_seq_length: int = 0,
  num_hidden_layers: int = 0,
) -> LoadedModel:
  """Loads a model to ask it in Python.

  >>> import official_albert as albert
  >>> encoder = albert.load("albert_toy")
  >>> encoder.embed(["It rains.", "It is wet."]).shape == (
  ...   2, encoder.config.hidden_size)
  True

  The model computes in the precision of Keras' global policy.

  Args:
    path: the folder of a run of tools.run_pretraining or tools.run_finetuning
      (with several seeds, the best one), or one of its checkpoints; Google's
      archive, unpacked or not, or a TF1 checkpoint; the folder of a Hugging
      Face model or of tools.publish_hub_module; the folder of an export; or
      the .keras file of a `TextClassifier`. It may be at gs://.
    checkpoint: which checkpoint of a run: "latest", "best" or a prefix. "" is
      the best one if the run keeps one, else the latest.
    tokenizer: the .model file of SentencePiece or the vocabulary of WordPiece;
      by default the one in the model's folder.
    lower_case: whether text is lower-cased first; by default as recorded with
      the model, else true.
    keep_accents: whether accents and other combining marks stay; by default as
      recorded with the model, else as in the original, which loses them.
    max_seq_length: the maximum tokens of a text; 0 is the length of training.
    num_hidden_layers: how often the shared layers are applied; 0 is as trained.

  Returns:
    A `LoadedModel`. It has a method for each question that the model answers;
    `methods` names them.

  Raises:
    ValueError, OSError: there is no model, it is damaged, or an argument does
      not fit it.
  """
  path, tokenizer = os.fspath(path), os.fspath(tokenizer)
  settings: dict[str, Any] = {
    "checkpoint": checkpoint,
    "tokenizer": tokenizer,
    "lower_case": lower_case,
    "keep_accents": keep_accents,
    "max_seq_length": max_seq_length,
    "num_hidden_layers": num_hidden_layers,
  }
  is_keras = path.endswith(".keras")
  if is_keras or files.exists(
    os.path.join(path, serving.ASSETS, serving.EXPORT_FILE)
  ):
    for name, value in settings.items():
      if value not in ("", 0, None):
        kind = "a file of Keras" if is_keras else "an export"
        raise ValueError(
          f"{path} is {kind}, which has a fixed {name}: leave it out, or load "
          "the run."
        )
    if is_keras:
      return _open_keras(path)
    return LoadedModel(path, engine_lib.open_export(path))
  is_sentencepiece = tokenizer.endswith(".model")
  file = checkpoints.chosen_tokenizer(
    spm_model_file=tokenizer if is_sentencepiece else "",
    vocab_file="" if is_sentencepiece else tokenizer,
  )
  return open_model(path, **{**settings, "tokenizer": file})


def _open_keras(path: str) -> LoadedModel:
  """Opens the file of a `TextClassifier`."""
  try:
    classifier = tf.keras.models.load_model(path, compile=False)
  except (OSError, TypeError, ValueError) as error:
    reason = str(error).splitlines()[0].rstrip(".")
    raise ValueError(f"{path} cannot be read by Keras ({reason}).") from error
  if not isinstance(classifier, TextClassifier):
    raise ValueError(
      f"{path} holds no TextClassifier, but {type(classifier).__name__}: read "
      "it by tf.keras.models.load_model."
    )
  policy = tf.keras.mixed_precision.global_policy().name
  module, tokenizer = serving.serve_classifier(classifier, False, policy)
  task = f"text_{module.kind}"
  # It may be one of pairs.
  source = source_lib.Source(
    module, task, path, tokenizer, module.model, names_task=False
  )
  return LoadedModel(path, engine_lib.in_memory(source, path), source)


def open_model(path: str, **settings: Any) -> LoadedModel:
  """Opens a model that is not an export.

  Args:
    path: see `load`.
    **settings: arguments of `open_source`.

  Raises:
    ValueError, OSError: see `load`.
  """
  source = source_lib.open_source(path, lenient=True, **settings)
  return LoadedModel(path, engine_lib.in_memory(source, path), source)


def _config_of(saved_model_dir: str) -> AlbertConfig:
  """Returns the configuration in the assets of an export."""
  return AlbertConfig.from_json_file(
    os.path.join(saved_model_dir, serving.ASSETS, runs.CONFIG_FILE)
  )
