"""What an ALBERT is made of: sizes, sharing, dropouts, and the named presets.

Only the standard library is used here, so data tools and tests can read a
configuration without loading TensorFlow.

Sources: arXiv 1909.11942, Table 1; the albert_config.json files of the
releases listed in google-research/albert's README.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import logging
from typing import Any, Mapping, Optional

from official_albert import files

SHARING = ("all", "attention", "ffn", "none")
ACTIVATIONS = ("gelu", "gelu_erf", "relu", "tanh", "linear")

# Keys of released albert_config.json files that no released graph ever read
# with another value than this one.
_LEGACY_KEYS = {
  "net_structure_type": 0,
  "gap_size": 0,
  "num_memory_blocks": 0,
  "down_scale_factor": 1,
  "layers_to_keep": [],
}


@dataclasses.dataclass(frozen=True)
class AlbertConfig:
  """The shape of an ALBERT encoder; immutable and checked.

  The keys and the meaning are those of the released albert_config.json.

  Raises (when made):
    ValueError: a field has the wrong type or range, or fields contradict each
      other.
  """

  # Number of pieces V.
  vocab_size: int = 30000
  # Width E of the embedding tables.
  embedding_size: int = 128
  # Width H of the encoder.
  hidden_size: int = 4096
  # Layers that are applied, counted with repetition.
  num_hidden_layers: int = 12
  # Sets of layer parameters; layer i uses group i * groups // layers.
  num_hidden_groups: int = 1
  # Blocks applied one after the other within a layer.
  inner_group_num: int = 1
  # Heads N; each is H / N wide.
  num_attention_heads: int = 64
  # Width I of the feed-forward network.
  intermediate_size: int = 16384
  # One of `ACTIVATIONS`. "gelu" is the tanh approximation, as in every Google
  # release (Hugging Face's "gelu_new"); "gelu_erf" is the exact x Phi(x)
  # (Hugging Face's "gelu"), which google-research/albert does not have.
  hidden_act: str = "gelu"
  hidden_dropout_prob: float = 0.0
  attention_probs_dropout_prob: float = 0.0
  # Longest sequence S that has a position embedding.
  max_position_embeddings: int = 512
  # Segment ids are in [0, type_vocab_size).
  type_vocab_size: int = 2
  # Standard deviation of the truncated normal of kernels and embeddings.
  initializer_range: float = 0.02
  # What the layers of a group share (paper, section 3.1 and Table 4).
  sharing: str = "all"
  # Whether there is a projection E -> H even where E = H, as in every model of
  # Hugging Face; where E != H there always is.
  always_project_embedding: bool = False

  def __post_init__(self):
    for field in dataclasses.fields(self):
      self._check_type(field.name, getattr(self, field.name), field.type)
    for name in (
      "vocab_size embedding_size hidden_size num_hidden_layers "
      "num_hidden_groups inner_group_num num_attention_heads "
      "intermediate_size max_position_embeddings type_vocab_size"
    ).split():
      if getattr(self, name) < 1:
        raise ValueError(
          f"{name} must be at least 1, got {getattr(self, name)}."
        )
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
      if not 0.0 <= getattr(self, name) < 1.0:
        raise ValueError(
          f"{name} must be in [0, 1), got {getattr(self, name)}."
        )
    if self.initializer_range <= 0.0:
      raise ValueError(
        f"initializer_range must be positive, got {self.initializer_range}."
      )
    if self.hidden_size % self.num_attention_heads:
      raise ValueError(
        f"hidden_size {self.hidden_size} is not a multiple of "
        f"num_attention_heads {self.num_attention_heads}: choose a number of "
        "heads that divides it."
      )
    if self.num_hidden_groups > self.num_hidden_layers:
      raise ValueError(
        f"num_hidden_groups {self.num_hidden_groups} exceeds "
        f"num_hidden_layers {self.num_hidden_layers}: some groups would never "
        "be used."
      )
    _check_choice("hidden_act", self.hidden_act, ACTIVATIONS)
    _check_choice("sharing", self.sharing, SHARING)
    if (
      self.always_project_embedding and self.embedding_size != self.hidden_size
    ):
      raise ValueError(
        "always_project_embedding is for models whose embedding_size equals "
        f"hidden_size; with {self.embedding_size} and {self.hidden_size} there "
        "is a projection anyway: leave it out."
      )

  def _check_type(self, name: str, value: Any, annotation: str) -> None:
    # Annotations are strings here (PEP 563).
    kinds = {
      "int": (int,),
      "float": (int, float),
      "str": (str,),
      "bool": (bool,),
    }[annotation]
    wrong = isinstance(value, bool) and annotation != "bool"
    if wrong or not isinstance(value, kinds):
      raise ValueError(
        f"{name} must be of type {annotation}, got {value!r} of type "
        f"{type(value).__name__}."
      )

  @classmethod
  def from_preset(cls, name: str) -> AlbertConfig:
    """The configuration called `name`, one of `PRESETS`.

    Raises:
      ValueError: no such preset; the message names the nearest ones.
    """
    _check_choice("preset", name, tuple(PRESETS))
    return PRESETS[name]

  @classmethod
  def from_dict(cls, values: Mapping[str, Any]) -> AlbertConfig:
    """Builds a configuration from JSON values with the released keys.

    Keys of the releases that never had a meaning are logged and ignored.

    Raises:
      ValueError: an unknown key, a legacy key with a value that would change
        the model, a missing vocab_size, or a value that the class refuses.
    """
    known = {field.name for field in dataclasses.fields(cls)}
    unknown = sorted(set(values) - known - set(_LEGACY_KEYS))
    if unknown:
      near = difflib.get_close_matches(unknown[0], known)
      advice = f"; did you mean {' or '.join(near)}?" if near else "."
      raise ValueError(f"unknown configuration key {unknown[0]!r}{advice}")
    if "vocab_size" not in values:
      raise ValueError("the configuration does not say vocab_size.")
    legacy = sorted(set(values) & set(_LEGACY_KEYS))
    for key in legacy:
      if values[key] != _LEGACY_KEYS[key]:
        raise ValueError(
          f"legacy key {key!r} has value {values[key]!r}; only "
          f"{_LEGACY_KEYS[key]!r}, the value in every release, is supported."
        )
    if legacy:
      logging.getLogger(__name__).info(
        "ignored legacy configuration keys: %s", ", ".join(legacy)
      )
    return cls(**{key: values[key] for key in values if key in known})

  @classmethod
  def from_json_file(cls, path: str) -> AlbertConfig:
    """Reads an albert_config.json.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: not JSON, or not an ALBERT configuration; names the file.
    """
    with open(path, encoding="utf-8") as file:
      try:
        values = json.load(file)
      except ValueError as error:
        raise ValueError(f"{path} is not valid JSON: {error}.") from error
    if not isinstance(values, dict):
      raise ValueError(f"{path} must hold a JSON object of settings.")
    try:
      return cls.from_dict(values)
    except ValueError as error:
      raise ValueError(f"{path}: {error}") from error

  def to_dict(self) -> dict[str, Any]:
    """The fields as JSON values.

    The fields that no release knows, `sharing` and `always_project_embedding`,
    are left out where they have their defaults.
    """
    values = dataclasses.asdict(self)
    if self.sharing == "all":
      del values["sharing"]
    if not self.always_project_embedding:
      del values["always_project_embedding"]
    return values

  def to_json_file(self, path: str) -> None:
    """Writes an albert_config.json that every ALBERT code base can read."""
    files.write_json(path, self.to_dict(), indent=2, sort_keys=True)

  @property
  def head_size(self) -> int:
    """Width D of one attention head."""
    return self.hidden_size // self.num_attention_heads

  @property
  def has_projection(self) -> bool:
    """Whether the embedding is followed by a projection E -> H."""
    differ = self.embedding_size != self.hidden_size
    return differ or self.always_project_embedding

  def group_of_layer(self, layer: int) -> int:
    """The group whose parameters `layer` uses.

    Deviation: the original computes int(layer / layers * groups) in floats,
    which misplaces layers for some pairs (22 layers of 22 groups, for one);
    this is the exact rule, and the same for every released configuration.
    """
    return layer * self.num_hidden_groups // self.num_hidden_layers

  def num_sets(self, sublayer: str) -> int:
    """Returns the number of parameter sets of "attention" or "ffn" sublayers.

    Each set has `inner_group_num` sublayers.
    """
    if self.sharing in ("all", sublayer):
      return self.num_hidden_groups
    return self.num_hidden_layers

  def set_of_layer(self, sublayer: str, layer: int) -> int:
    """Returns the parameter set that `layer` uses for this sublayer."""
    if self.sharing in ("all", sublayer):
      return self.group_of_layer(layer)
    return layer

  def at_depth(self, num_hidden_layers: int) -> AlbertConfig:
    """The model with the same weights, applied another number of times.

    Raises:
      ValueError: layers have weights of their own, so that another depth
        would be another model; or the depth is under 1.
    """
    if num_hidden_layers == self.num_hidden_layers:
      return self
    if self.sharing != "all" or self.num_hidden_groups > 1:
      kind = (
        f"{self.num_hidden_groups} groups of layers"
        if self.sharing == "all"
        else f"sharing {self.sharing!r}"
      )
      raise ValueError(
        f"a model with {kind} has its {self.num_hidden_layers} layers and no "
        f"others, so it cannot have {num_hidden_layers}: another depth needs "
        "one group whose layers share everything."
      )
    return dataclasses.replace(self, num_hidden_layers=num_hidden_layers)

  def parameters_by_part(self) -> dict[str, int]:
    """Parameters of each part of embeddings, encoder and pooler.

    `layer_norms` are those of the embeddings and of all blocks; the projection
    E -> H is 0 where there is none.
    """
    v, e, h = self.vocab_size, self.embedding_size, self.hidden_size
    i = self.intermediate_size
    attentions = self.num_sets("attention") * self.inner_group_num
    ffns = self.num_sets("ffn") * self.inner_group_num
    return {
      "word_embeddings": v * e,
      "position_embeddings": self.max_position_embeddings * e,
      "segment_embeddings": self.type_vocab_size * e,
      "embedding_projection": e * h + h if self.has_projection else 0,
      "attention": attentions * 4 * (h * h + h),
      "ffn": ffns * ((h * i + i) + (i * h + h)),
      "layer_norms": 2 * e + (attentions + ffns) * 2 * h,
      "pooler": h * h + h,
    }

  def parameter_count(self) -> int:
    """Parameters of embeddings, encoder and pooler, in closed form."""
    return sum(self.parameters_by_part().values())

  def forward_flops(
    self, sequence_length: int, last_rows: Optional[int] = None
  ) -> int:
    """Floating-point operations of one sequence's forward pass.

    Matrix products only, a multiply and an add counted as two; training costs
    three times as much. Sharing saves parameters, not operations.

    Args:
      sequence_length: S.
      last_rows: how many positions the last block computes; None: all.
    """
    s, e, h = sequence_length, self.embedding_size, self.hidden_size
    projection = 2 * s * e * h if self.has_projection else 0
    attention = 8 * s * h * h + 4 * s * s * h
    ffn = 4 * s * h * self.intermediate_size
    blocks = self.num_hidden_layers * self.inner_group_num
    # Keys and values are of all positions in any case.
    row = 4 * h * h + 4 * s * h + 4 * h * self.intermediate_size
    saved = 0 if last_rows is None else (s - last_rows) * row
    return projection + blocks * (attention + ffn) - saved + 2 * h * h


def _check_choice(what: str, value: str, choices: tuple[str, ...]) -> None:
  if value not in choices:
    near = difflib.get_close_matches(value, choices, n=3)
    raise ValueError(
      f"unknown {what} {value!r}; choose "
      f"{'for instance ' if near else 'one of '}{', '.join(near or choices)}."
    )


def _presets() -> dict[str, AlbertConfig]:
  # name: hidden size, intermediate size, layers, heads (paper, Table 1).
  shapes = {
    "base": (768, 3072, 12, 12),
    "large": (1024, 4096, 24, 16),
    "xlarge": (2048, 8192, 24, 16),
    "xxlarge": (4096, 16384, 12, 64),
  }

  def make(shape, dropout=0.0, **changes) -> AlbertConfig:
    hidden, intermediate, layers, heads = shape
    values = dict(
      hidden_size=hidden,
      intermediate_size=intermediate,
      num_hidden_layers=layers,
      num_attention_heads=heads,
      hidden_dropout_prob=dropout,
      attention_probs_dropout_prob=dropout,
    )
    values.update(changes)
    return AlbertConfig(**values)

  presets = {}
  for size, shape in shapes.items():
    # v1 was trained with dropout, but for xxlarge; v2 without any.
    v1_dropout = 0.0 if size == "xxlarge" else 0.1
    presets[f"albert_{size}_v1"] = make(shape, v1_dropout)
    presets[f"albert_{size}_v2"] = make(shape)
  # The Chinese releases: WordPiece vocabulary, relu, 16 heads at xxlarge
  # (google-research/albert issues 153 and 154).
  for size, shape in shapes.items():
    heads = 16 if size == "xxlarge" else shape[3]
    presets[f"albert_{size}_zh"] = make(
      shape[:3] + (heads,), vocab_size=21128, hidden_act="relu"
    )
  # BERT-style baselines of Table 1: E = H, nothing shared.
  for size in ("base", "large", "xlarge"):
    shape = shapes[size]
    presets[f"bert_{size}"] = make(
      shape, 0.1, embedding_size=shape[0], sharing="none"
    )
  # Ours, for quickstarts and tests on a laptop.
  # Narrow layers need larger weights: 0.02 keeps attention flat for long.
  presets["albert_tiny"] = make((128, 512, 4, 8), initializer_range=0.05)
  return presets


PRESETS: Mapping[str, AlbertConfig] = _presets()
