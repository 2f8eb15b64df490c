"""Opens a model of any kind and asks it in a line of Python.

import official_albert as albert

albert.load("quickstart/run").fill_mask("The default [MASK] is None.")
albert.load("stars").classify(["Lovely.", "Never again."])

The answers are those of tools.predict, and to the last digit those of the
model's export.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import os
import threading
import warnings
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence, Union

import numpy as np
import tensorflow as tf

from official_albert import checkpoints, files, runs, serving, tokenization
from official_albert.config import AlbertConfig
from official_albert.inference import engine as engine_lib
from official_albert.inference import source as source_lib
from official_albert.serving import Tensors
from official_albert.settings import EXPORT_PRECISIONS
from official_albert.tasks import answer_fields, common
from official_albert.tasks.registry import NUM_OPTIONS, OPTIONS
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
# Prefixes of the names of weights that a checkpoint may lack.
_POOLER, _SENTENCE_ORDER = "bert/pooler/", "cls/seq_relationship/"
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
    engine: engine_lib.Engine,
    record: engine_lib.Record,
    tokenizer: Optional[checkpoints.TokenizerFile],
    source: Optional[source_lib.Source] = None,
    read_model: Callable[[], Optional[tf.keras.Model]] = lambda: None,
  ):
    """Initializes the model; `load` and `open_model` call this.

    Args:
      path: the path of the model, for messages.
      engine: answers with the model.
      record: what the model is, as in export.json.
      tokenizer: the tokenizer; None if there is none.
      source: the model with its weights; None for an export.
      read_model: returns `model`.
    """
    self._path = path
    self._engine = engine
    # Engines of the same weights: "embed" and "pairs".
    self._others: dict[str, engine_lib.Engine] = {}
    self._lock = threading.Lock()
    self._source = source
    self._read_model = read_model
    self.tokenizer = tokenizer.open() if tokenizer else None
    self._watch = tokenization.Watch(self.tokenizer)
    self._has_warned = False
    self._most_pieces = record["settings"].get("top_k", 0)
    if source:
      module = source.module
      self.config = module.config
      self._most_pieces = (module.text_layer or module.config).vocab_size
    else:
      assets = os.path.join(path, serving.ASSETS)
      self.config = AlbertConfig.from_json_file(
        os.path.join(assets, runs.CONFIG_FILE)
      )
    self.labels = tuple(record["labels"])
    self.kind = record["kind"]
    self.about = engine.about
    self.columns = _input_columns(record["columns"])
    self.checkpoint = source.checkpoint if source else path
    self.names_task = source.names_task if source else True
    self.notes = source.notes if source else ()
    methods = [x for x in _METHODS.get(self.kind, ()) if x in engine.signatures]
    if self._lacks(_SENTENCE_ORDER) and "sentence_order" in methods:
      methods.remove("sentence_order")
    can_embed = source or "encode" in engine.signatures
    self.methods = (*["embed"] * bool(can_embed), *methods)

  def _lacks(self, prefix: str) -> bool:
    """Returns whether the checkpoint lacks weights with such names."""
    missing = self._source.missing if self._source else ()
    return any(name.startswith(prefix) for name in missing)

  def __repr__(self) -> str:
    return f"<LoadedModel {self.about}: {', '.join(self.methods)}>"

  @functools.cached_property
  def model(self) -> Optional[tf.keras.Model]:
    """The Keras model, read when first used; None for an export.

    To train it changes no answers.
    """
    return self._read_model()

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
    engine = self._engine
    if "encode" not in engine.signatures:
      engine = self._other("embed")
    signature = "encode" if texts_b is None else "encode_pair"
    with self._lock:
      backend = engine.backend(signature, ("sequence_output",))
    encode = backend.function
    pooled = dataclasses.replace(
      backend,
      function=lambda **texts: {"vector": _pool(encode(**texts), pooling)},
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
        + ("." if self._source else ", the --top_k of the export.")
      )
    columns = ("tokens", "probabilities", "token_ids")

    def pieces(fields: dict[str, Any]) -> list[list[Piece]]:
      return [
        [Piece(*x) for x in zip(*(mask[name] for name in columns))][:top_k]
        for mask in fields["masks"]
      ]

    options = {"top_k": top_k} if self._source else {}
    return self._ask("fill_mask", {"text": texts}, pieces, **options)

  def sentence_order(self, texts: Texts, texts_b: Texts) -> Any:
    """Returns the probability that two texts are swapped, that B precedes A.

    Args:
      texts: the first texts, A.
      texts_b: the second texts, B.
    """
    return self._ask("sentence_order", _texts_of(texts, texts_b), _prediction)

  def classify(self, texts: Texts, texts_b: Optional[Texts] = None) -> Any:
    """Returns a `Classification` of each text, or of each pair of texts.

    Args:
      texts: the texts.
      texts_b: the second texts, for a model of pairs.
    """
    return self._ask(
      "classify",
      _texts_of(texts, texts_b),
      lambda fields: Classification(
        fields["prediction"], fields["probabilities"]
      ),
    )

  def score(self, texts: Texts, texts_b: Optional[Texts] = None) -> Any:
    """Returns the number that a regression gives to each text, or each pair.

    Args:
      texts: the texts.
      texts_b: the second texts, for a model of pairs.
    """
    return self._ask("score", _texts_of(texts, texts_b), _prediction)

  def answer(self, question: Texts, context: Texts) -> Any:
    """Returns an `Answer` to each question.

    Args:
      question: the questions.
      context: for each question, the text that may contain the answer. It may
        have up to 256 windows, which is more than 30,000 tokens.
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
    """Returns a `Choice` for each question.

    Args:
      passage: for each question, the text that it is about.
      question: the questions.
      options: for each question, a list of four texts.
    """
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

  def backend(self, signature: str = "", **options: Any) -> engine_lib.Backend:
    """Returns the backend of a signature, for tools.predict.

    Raises:
      ValueError: there is no such signature or no tokenizer, or no pooler for
        the vectors.
    """
    self._need_tokenizer()
    name = signature or self._engine.signatures[0]
    if name.startswith("encode") and self._lacks(_POOLER):
      raise ValueError(
        f"{self._path} has no weights of the pooler, which the signature "
        f"{name} needs: {engine_lib.NO_POOLER}"
      )
    with self._lock:
      return self._engine.backend(signature, **options)

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

  def _other(self, what: str) -> engine_lib.Engine:
    """Returns the engine of the same weights for "embed" or for "pairs"."""
    with self._lock:
      if what not in self._others:
        module = self._source.module  # Its model has been frozen.
        rest = module.text_layer, module.max_seq_length
        if what == "embed":
          made = serving.ServedEncoder(module.model.albert, *rest)
        else:
          made = serving.ServedTextTask(module.model, *rest, self.labels, True)
        self._others[what] = engine_lib.of_module(made, self.about)
      return self._others[what]

  def _ask(
    self,
    method: str,
    texts: Mapping[str, Any],
    make: Callable[[dict[str, Any]], Any],
    **options: Any,
  ) -> Any:
    """Returns what `make` makes of each answer's fields, or of the only one.

    For the fields see `answer_fields.fields_of`.
    """
    self._need(method)
    is_pair = "text_b" in texts
    if is_pair and not self.names_task:
      backend = self._other("pairs").backend(method)
    else:
      backend = self.backend(method, **options)
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
    """Returns the outputs for each of the texts, in their order.

    Raises:
      TypeError, ValueError: these are not texts, or not equally many.
    """
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
      self._watch.see(lists.values())
      if note := self._watch.note():
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


def _input_columns(trained: Mapping[str, str]) -> dict[str, str]:
  """Returns the columns of rows to predict, from those of the training data."""
  names = {"text": "text", "text_a": "text", "text_b": "text_b", "id": "id"}
  return {k: trained[v] for k, v in names.items() if trained.get(v)}


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
      Face model or of tools.publish_hub_module; or the folder of an export. It
      may be at gs://.
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
  is_sentencepiece = tokenizer.endswith(".model")
  file = checkpoints.chosen_tokenizer(
    spm_model_file=tokenizer if is_sentencepiece else "",
    vocab_file="" if is_sentencepiece else tokenizer,
  )
  return open_model(
    path,
    checkpoint=checkpoint,
    tokenizer=file,
    lower_case=lower_case,
    keep_accents=keep_accents,
    max_seq_length=max_seq_length,
    num_hidden_layers=num_hidden_layers,
  )


def open_model(path: str, **settings: Any) -> LoadedModel:
  """Opens a model of any kind, with a copy of its weights.

  Args:
    path: see `load`.
    **settings: arguments of `open_source`. An export has none.

  Raises:
    ValueError, OSError: see `load`; or exports do not have the precision.
  """
  if files.exists(os.path.join(path, serving.ASSETS, serving.EXPORT_FILE)):
    for name, value in settings.items():
      if value or isinstance(value, (bool, float)):
        raise ValueError(
          f"{path} is an export, which has a fixed {name}: leave it out, or "
          "name the run."
        )
    return LoadedModel(path, *engine_lib.open_export(path))

  def read() -> source_lib.Source:
    return source_lib.open_source(path, lenient=True, **settings)

  source = serving.outside_strategy(read)
  module, policy = source.module, source.module.model.dtype_policy.name
  settings["dtype"] = policy  # The global one may change.
  precisions = {name: key for key, name in EXPORT_PRECISIONS.items()}
  if policy not in precisions:
    raise ValueError(
      f"the global policy of Keras is {policy}, but a model is loaded in "
      f"{' or '.join(precisions)}: call "
      "tf.keras.mixed_precision.set_global_policy before."
    )
  module.freeze(precisions[policy])
  about = {"pretraining": "a pretraining run", "encoder": "an encoder"}.get(
    module.kind, f"a run of {source.task}"
  )
  record: Any = {
    "kind": module.kind,
    "labels": module.settings().get("labels", ()),
    "columns": source.columns,
    "settings": {},
  }
  engine = engine_lib.of_module(module, f"{path} is {about}")
  return LoadedModel(
    path, engine, record, source.tokenizer, source, lambda: read().module.model
  )
