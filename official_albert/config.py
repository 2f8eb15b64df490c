"""`AlbertConfig`, named presets, `Pooling`. Loads only the standard library.

Sources: arXiv 1909.11942, Table 1; the albert_config.json files of the
releases listed in google-research/albert's README.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping, Optional

from official_albert import files, settings
from official_albert.settings import setting

SHARING = ("all", "attention", "ffn", "none")
ACTIVATIONS = ("gelu", "gelu_erf", "relu", "tanh", "linear")

# Of `AlbertConfig`, with defaults that are those of every release.
OWN_KEYS = ("sharing", "always_project_embedding", "adapter_rank")

# Far above every published model: a larger value is a mistake, and building its
# model would take hours or all memory. The deepest one has 1,000 blocks
# (DeepNet, arXiv 2203.00555).
_MOST_BLOCKS = 1024
_MOST_POSITIONS = 2**20
_MOST_PARAMETERS = 10**11

# Keys of released albert_config.json files that have no effect, with the only
# value that any release has.
_LEGACY_KEYS = {
  "net_structure_type": 0,
  "gap_size": 0,
  "num_memory_blocks": 0,
  "down_scale_factor": 1,
  "layers_to_keep": [],
  # Of BERT's and albert_zh's files; other values would give other outputs.
  "directionality": "bidi",
  "ln_type": "postln",
  "pooler_type": "first_token_transform",
}
# Keys of BERT's files without effect, there and here.
_BERT_KEYS = (
  "pooler_fc_size",
  "pooler_num_attention_heads",
  "pooler_num_fc_layers",
  "pooler_size_per_head",
)


@dataclasses.dataclass(frozen=True)
class AlbertConfig:
  """The configuration of an ALBERT encoder, immutable and validated.

  The fields have the names and meanings of the released albert_config.json
  files. The constructor raises ValueError if a field has the wrong type or is
  out of range, or if fields contradict each other.

  >>> from official_albert import AlbertConfig
  >>> config = AlbertConfig.from_preset("albert_base_v2")
  >>> config.hidden_size, config.num_hidden_layers
  (768, 12)
  >>> config.parameter_count()
  11683584
  >>> AlbertConfig(hidden_size=768, num_attention_heads=7)
  Traceback (most recent call last):
  ValueError: hidden_size 768 is not a multiple of num_attention_heads 7: ...
  """

  # Vocabulary size V.
  vocab_size: int = setting(30000, least=1)
  # Width E of the embedding tables.
  embedding_size: int = setting(128, least=1)
  # Width H of the encoder.
  hidden_size: int = setting(4096, least=1)
  # Number of applied layers L.
  num_hidden_layers: int = setting(12, least=1)
  # Number of parameter groups G; layer i uses group i * G // L.
  num_hidden_groups: int = setting(1, least=1)
  # Number of blocks that a layer applies one after the other.
  inner_group_num: int = setting(1, least=1)
  # Number of attention heads N, each of width H / N.
  num_attention_heads: int = setting(64, least=1)
  # Width I of the feed-forward network.
  intermediate_size: int = setting(16384, least=1)
  # One of `ACTIVATIONS`. "gelu" is the tanh approximation, as in every Google
  # release (Hugging Face's "gelu_new"); "gelu_erf" is the exact x Phi(x)
  # (Hugging Face's "gelu"), which google-research/albert does not have.
  hidden_act: str = setting("gelu", choices=ACTIVATIONS)
  hidden_dropout_prob: float = setting(0.0, least=0, below=1)
  attention_probs_dropout_prob: float = setting(0.0, least=0, below=1)
  # Maximum sequence length S.
  max_position_embeddings: int = setting(512, least=1, most=_MOST_POSITIONS)
  # Number of different segment ids.
  type_vocab_size: int = setting(2, least=1)
  # Standard deviation of the truncated normal of kernels and embeddings.
  initializer_range: float = setting(0.02, above=0)
  # What the layers of a group share (paper, section 3.1 and Table 4).
  sharing: str = setting("all", choices=SHARING)
  # Whether there is a projection E -> H even if E = H, as in all Hugging Face
  # models. If E != H, there always is one.
  always_project_embedding: bool = False
  # Rank R of the differences between the applications of a shared block (LoRA,
  # see modeling/adapters.py); 0 for none, as in every release.
  adapter_rank: int = setting(0, least=0, most=1024)

  def __post_init__(self):
    settings.check(self)
    if self.num_blocks > _MOST_BLOCKS:
      raise ValueError(
        f"num_hidden_layers * inner_group_num must be at most {_MOST_BLOCKS:,},"
        f" got {self.num_blocks}: correct it."
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
    if self.adapter_rank and self.sharing != "all":
      raise ValueError(
        f"adapter_rank {self.adapter_rank} is for layers that share all their "
        f"weights, but sharing is {self.sharing!r}: choose all, or rank 0."
      )
    if self.parameter_count() > _MOST_PARAMETERS:
      raise ValueError(
        f"the model must have at most {_MOST_PARAMETERS:,} parameters, got "
        f"{self.parameter_count()!r:.80}: choose smaller sizes."
      )

  @classmethod
  def from_preset(cls, name: str) -> AlbertConfig:
    """Returns the preset `name`, one of `PRESETS`."""
    settings.check_choice("preset", name, tuple(PRESETS))
    return PRESETS[name]

  @classmethod
  def from_dict(cls, values: Mapping[str, Any]) -> AlbertConfig:
    """Returns a configuration from JSON values with the released keys.

    Keys of the releases and of BERT that have no effect are ignored.

    Raises:
      ValueError: keys are unknown, vocab_size is missing, a key without effect
        has another value than in the releases, or a value is invalid.
    """
    known = {field.name for field in dataclasses.fields(cls)}
    unknown = sorted(set(values) - known - {*_LEGACY_KEYS, *_BERT_KEYS})
    if unknown:
      raise ValueError(
        f"unknown configuration keys {files.quote(*unknown)}: correct or "
        "remove them; of a config.json of Hugging Face, give the model's "
        "folder, or convert it with tools.convert_checkpoint."
      )
    if "vocab_size" not in values:
      raise ValueError("the configuration has no vocab_size.")
    for key in sorted(set(values) & set(_LEGACY_KEYS)):
      if values[key] != _LEGACY_KEYS[key]:
        raise ValueError(
          f"legacy key {key!r} has value {values[key]!r:.60}; only "
          f"{_LEGACY_KEYS[key]!r}, the value in every release, is supported."
        )
    return cls(**{key: values[key] for key in values if key in known})

  @classmethod
  def from_json_file(cls, path: str) -> AlbertConfig:
    """Reads an albert_config.json file."""
    values = files.read_json(
      path, dict[str, Any], "give the albert_config.json of a model"
    )
    try:
      return cls.from_dict(values)
    except ValueError as error:
      raise ValueError(f"{path}: {error}") from error

  def to_dict(self) -> dict[str, Any]:
    """Returns JSON values, without defaults of keys that no release has."""
    values = dataclasses.asdict(self)
    for name in OWN_KEYS:
      if values[name] == getattr(AlbertConfig, name):
        del values[name]
    return values

  def to_json_file(self, path: str) -> None:
    """Writes an albert_config.json file that other ALBERT programs can read."""
    files.write_json(path, self.to_dict(), indent=2, sort_keys=True)

  @property
  def has_projection(self) -> bool:
    """Whether a projection E -> H follows the embedding."""
    return (
      self.embedding_size != self.hidden_size or self.always_project_embedding
    )

  @property
  def num_blocks(self) -> int:
    """The number of applied blocks."""
    return self.num_hidden_layers * self.inner_group_num

  def group_of_layer(self, layer: int) -> int:
    """Returns the group whose parameters `layer` uses.

    Deviation: the original computes int(layer / layers * groups) in floating
    point, which is wrong for some pairs, such as 22 layers and 22 groups. Both
    rules agree for every released configuration.
    """
    return layer * self.num_hidden_groups // self.num_hidden_layers

  def num_sets(self, sublayer: str) -> int:
    """Returns the number of parameter sets of "attention" or "ffn" sublayers.

    Each set has `inner_group_num` sublayers.
    """
    shared = self.sharing in ("all", sublayer)
    return self.num_hidden_groups if shared else self.num_hidden_layers

  def set_of_layer(self, sublayer: str, layer: int) -> int:
    """Returns the parameter set that `layer` uses for this sublayer."""
    shared = self.sharing in ("all", sublayer)
    return self.group_of_layer(layer) if shared else layer

  def at_depth(self, num_hidden_layers: int) -> AlbertConfig:
    """Returns the same model with another number of applied layers.

    Raises:
      ValueError: the layers do not share all parameters or have adapters, so
        the depth is fixed; or the depth is less than 1.
    """
    if num_hidden_layers == self.num_hidden_layers:
      return self
    own = f", adapter_rank {self.adapter_rank}" if self.adapter_rank else ""
    if self.sharing != "all" or self.num_hidden_groups > 1 or own:
      raise ValueError(
        f"a model with sharing {self.sharing!r}, {self.num_hidden_groups} "
        f"groups{own} and {self.num_hidden_layers} layers cannot have "
        f"{num_hidden_layers}: another depth requires one group whose layers "
        "share everything, without adapters."
      )
    return dataclasses.replace(self, num_hidden_layers=num_hidden_layers)

  def check_fits(
    self, vocab_size: int, max_seq_length: int, pairs: bool = False
  ) -> None:
    """Refuses a tokenizer or a length that the model has no embeddings for.

    A tokenizer may have fewer pieces than there are embeddings, as in some
    third-party models. For `pairs`, see `check_pairs`.

    Raises:
      ValueError: there are too many pieces, or the sequences are too long.
    """
    if pairs:
      self.check_pairs()
    if vocab_size > self.vocab_size:
      raise ValueError(
        f"the tokenizer has {vocab_size} pieces, but the model has vocab_size "
        f"{self.vocab_size}: give the tokenizer that the model was trained "
        "with."
      )
    if max_seq_length > self.max_position_embeddings:
      raise ValueError(
        f"max_seq_length {max_seq_length} exceeds the model's "
        f"{self.max_position_embeddings} position embeddings: lower it."
      )

  def check_pairs(self) -> None:
    """Raises ValueError if the model has no embedding for a second text."""
    if self.type_vocab_size < 2:
      raise ValueError(
        f"the model has type_vocab_size {self.type_vocab_size}, so no "
        "embedding for the second of two texts: give single texts, or a model "
        "with type_vocab_size 2."
      )

  def parameters_by_part(self) -> dict[str, int]:
    """Returns the number of parameters of each part of the model."""
    v, e, h = self.vocab_size, self.embedding_size, self.hidden_size
    i = self.intermediate_size
    attentions = self.num_sets("attention") * self.inner_group_num
    ffns = self.num_sets("ffn") * self.inner_group_num
    adapters = self.num_blocks * self.adapter_rank * (8 * h + 2 * i)
    return {
      "word_embeddings": v * e,
      "position_embeddings": self.max_position_embeddings * e,
      "segment_embeddings": self.type_vocab_size * e,
      "embedding_projection": e * h + h if self.has_projection else 0,
      "attention": attentions * 4 * (h * h + h),
      "ffn": ffns * ((h * i + i) + (i * h + h)),
      "layer_norms": 2 * e + (attentions + ffns) * 2 * h,
      **({"adapters": adapters} if adapters else {}),
      "pooler": h * h + h,
    }

  def parameter_count(self) -> int:
    """Returns the number of parameters of embeddings, encoder and pooler."""
    return sum(self.parameters_by_part().values())

  def forward_flops(
    self, sequence_length: int, last_rows: Optional[int] = None
  ) -> int:
    """Returns the floating-point operations of the forward pass of a sequence.

    Counts matrix products only, a multiplication and an addition as two
    operations. The last block computes `last_rows` positions; None means all.
    """
    s, e, h = sequence_length, self.embedding_size, self.hidden_size
    r = 2 * self.adapter_rank
    # Keys and values are computed at all positions, everything else per row.
    keys_and_values = 4 * s * h * h + s * r * 3 * h
    row = 4 * h * h + 4 * s * h + 4 * h * self.intermediate_size
    row += r * (5 * h + 2 * self.intermediate_size)
    blocks = self.num_blocks
    rows = blocks * s if last_rows is None else (blocks - 1) * s + last_rows
    projection = 2 * s * e * h if self.has_projection else 0
    pooler = 2 * h * h
    flops = projection + blocks * keys_and_values + rows * row + pooler
    # A of query, key and value is multiplied by once more at these positions.
    return flops + (last_rows or 0) * r * h

  def pretraining_flops(self, sequence_length: int, predictions: int) -> int:
    """Returns the floating-point operations of pretraining on one sequence.

    They are three times those of the forward pass with the masked LM head,
    because the backward pass needs twice as many.
    """
    head = 2 * predictions * self.embedding_size
    head *= self.hidden_size + self.vocab_size
    # The last block computes the first and the masked positions only.
    rows = min(predictions + 1, sequence_length)
    return 3 * (self.forward_flops(sequence_length, rows) + head)


@dataclasses.dataclass(frozen=True)
class Pooling:
  """How the outputs of an encoder become one vector for a text."""

  pooling: str = setting(
    "mean",
    "What of the encoder's outputs is the embedding: the mean or the maximum "
    "over all tokens, [CLS] and [SEP] included; cls, the output at [CLS]; or "
    "pooler, a dense layer with tanh on it.",
    choices=("mean", "cls", "max", "pooler"),
  )
  normalize: bool = setting(True, "Scale embeddings to length 1.")

  def __post_init__(self):
    settings.check(self)

  @classmethod
  def of(cls, values: Mapping[str, Any]) -> Pooling:
    """Returns the pooling in a record, whose other values are ignored."""
    names = [field.name for field in dataclasses.fields(cls)]
    return cls(**{name: values[name] for name in names if name in values})


def _presets() -> dict[str, AlbertConfig]:
  def config(hidden, intermediate, layers, heads, dropout=0.0, **others):
    return AlbertConfig(
      hidden_size=hidden,
      intermediate_size=intermediate,
      num_hidden_layers=layers,
      num_attention_heads=heads,
      hidden_dropout_prob=dropout,
      attention_probs_dropout_prob=dropout,
      **others,
    )

  # Hidden size, intermediate size, layers and heads (paper, Table 1).
  sizes = {
    "base": (768, 3072, 12, 12),
    "large": (1024, 4096, 24, 16),
    "xlarge": (2048, 8192, 24, 16),
    "xxlarge": (4096, 16384, 12, 64),
  }
  # The Chinese releases have a WordPiece vocabulary, relu, and 16 heads in
  # xxlarge (google-research/albert issues 153 and 154).
  chinese = dict(vocab_size=21128, hidden_act="relu")
  presets = {}
  for name, size in sizes.items():
    # v1 was trained with dropout, except xxlarge; v2 was trained without.
    dropout = 0.0 if name == "xxlarge" else 0.1
    presets[f"albert_{name}_v1"] = config(*size, dropout)
    presets[f"albert_{name}_v2"] = config(*size)
    heads = min(size[3], 16)
    presets[f"albert_{name}_zh"] = config(*size[:3], heads, **chinese)
    if name != "xxlarge":
      # The BERT-style baselines of Table 1: E = H, nothing shared.
      presets[f"bert_{name}"] = config(
        *size, dropout, embedding_size=size[0], sharing="none"
      )
  # Small models for quickstarts and tests on a laptop, which are not releases.
  # Narrow layers need larger initial weights: with 0.02, attention stays
  # uniform for many steps.
  presets["albert_tiny"] = config(128, 512, 4, 8, initializer_range=0.05)
  return presets


PRESETS: Mapping[str, AlbertConfig] = _presets()
