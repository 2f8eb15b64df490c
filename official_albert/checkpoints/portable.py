"""A checkpoint independent of its format, between readers and writers.

Values have TF1 names (see names.py). In checkpoints of this package, a name is
an attribute path, such as model/albert/pooler/kernel.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Mapping, Optional

import numpy as np
import tensorflow as tf

from official_albert import modeling, tokenization
from official_albert.checkpoints import names as checkpoint_names
from official_albert.checkpoints import tokenizer_file

ITERATIONS = "optimizer/iter/.ATTRIBUTES/VARIABLE_VALUE"
# Not a weight: a constant of regressions, see `modeling.ClassificationHead`.
TARGET_SCALE = "classifier/target_scale"
_MODEL = "model/"
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_SLOT = "/.OPTIMIZER_SLOT/optimizer/"
# How the names of an encoder's weights begin: in TF1, here, in Hugging Face.
_ENCODER = ("bert/", "albert/", "albert.")

# The kernels of a block, and which columns of which adapter belong to each.
_ADAPTED = {
  "attention_1/self/query/kernel": ("attention", 0),
  "attention_1/self/key/kernel": ("attention", 1),
  "attention_1/self/value/kernel": ("attention", 2),
  "attention_1/output/dense/kernel": ("attention_output", 0),
  "ffn_1/intermediate/dense/kernel": ("ffn", 0),
  "ffn_1/intermediate/output/dense/kernel": ("ffn_output", 0),
}

# np.ndarray, a NumPy scalar, or tensor_bundle.LazyArray.
Array = Any


def by_path(model: tf.Module) -> dict[str, tf.Variable]:
  """Returns the model's weights by attribute path, as in albert/pooler/bias.

  A variable that several attributes share is listed under each.
  """
  entries: dict[str, tf.Variable] = {}

  def walk(node: Any, path: tuple[str, ...]) -> None:
    if isinstance(node, tf.Variable):
      entries.setdefault("/".join(path), node)
    elif isinstance(node, (list, tuple)):
      for index, child in enumerate(node):
        walk(child, (*path, str(index)))
    elif isinstance(node, tf.Module):
      for name, child in vars(node).items():
        if not name.startswith("_"):
          walk(child, (*path, name))

  walk(model, ())
  entries.pop(TARGET_SCALE, None)
  return entries


def tree(variables: Mapping[str, tf.Variable]) -> tf.Module:
  """Returns nested modules whose variables have these attribute paths."""
  root = tf.Module()
  for path, variable in variables.items():
    *parents, name = path.split("/")
    node = root
    for parent in parents:
      if not hasattr(node, parent):
        setattr(node, parent, tf.Module())
      node = getattr(node, parent)
    setattr(node, name, variable)
  return root


def path_of(key: str) -> Optional[str]:
  """Returns the attribute path of a weight, or None for other keys."""
  key = key.replace(".S", "/")  # How TensorFlow writes "/" within a name.
  is_weight = key.startswith(_MODEL) and key.endswith(_VALUE)
  if not is_weight or "/.OPTIMIZER_SLOT/" in key:
    return None
  return key[len(_MODEL) : -len(_VALUE)]


def name_variables(
  module: Any, model: Mapping[str, Optional[tf.Module]]
) -> None:
  """Makes TensorFlow save the weights of a module by their attribute paths.

  TensorFlow names a variable by its shortest path, which may be one such as
  `variables/7`. So each becomes an attribute of the module itself, which is
  named model/albert/pooler/kernel.

  Args:
    module: the object that will be saved.
    model: the parts of the model, by their names in it; None for no such part.
  """
  for part, layer in model.items():
    for path, variable in (by_path(layer) if layer else {}).items():
      setattr(module, f"{_MODEL}{part}/{path}", variable)


def key_of(path: str, slot: str) -> str:
  """Returns the key of the optimizer slot "m" or "v" of a weight."""
  return f"{_MODEL}{path}{_SLOT}{slot}{_VALUE}"


@dataclasses.dataclass
class PortableCheckpoint:
  """A model's weights and their metadata.

  Attributes:
    source: the prefix or the folder of the weights.
    config: the encoder's configuration.
    tensors: all values of the source. Weights <float32> and "global_step"
      <int64>[] have TF1 names, as have "NAME/adam_m" and "NAME/adam_v" of the
      optimizer, on request; weights of unknown heads have attribute paths.
    head: a key of `names.HEADS`.
    tokenizer: None if the source has none.
    labels: the names of the classes in the order of the head's outputs; () if
      unknown.
    task: the task of a fine-tuned run, a value of --task of
      tools.run_finetuning; "" if unknown.
    head_problem: why no model of this package has the source's head, so that
      the checkpoint holds only the encoder; "" if one has.
    notes: what was inferred or translated, one sentence each.
    format: "tf1" (also a TF1 module), "hf", "official_albert", or "keras", of
      which transformers' torch classes read no weights.
    folder: the folder of the run; "" if the weights are not in one.
    record: the content of run.json in it; {} without `folder`.
    scaled_head: of a regression, the values of its head before `target_scale`
      was included, and this scale; see `modeling.ClassificationHead`.
    shown: returns a path as the user would write it; see `open`.
    pooling: of the head "embedding", how its outputs become a vector.
    max_seq_length: the maximum tokens of a text; 0 if unknown.
  """

  source: str
  config: modeling.AlbertConfig
  tensors: dict[str, Array]
  head: str
  tokenizer: Optional[tokenizer_file.TokenizerFile] = None
  labels: tuple[str, ...] = ()
  task: str = ""
  head_problem: str = ""
  notes: list[str] = dataclasses.field(default_factory=list)
  format: str = ""
  folder: str = ""
  record: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  scaled_head: dict[str, Array] = dataclasses.field(default_factory=dict)
  shown: Callable[[str], str] = str
  pooling: Optional[modeling.Pooling] = None
  max_seq_length: int = 0

  @property
  def step(self) -> int:
    """The training step; 0 if unknown."""
    return int(np.asarray(self.tensors.get(checkpoint_names.GLOBAL_STEP, 0)))

  @property
  def classes(self) -> int:
    """The number of outputs of a classifier or regression, else 0."""
    return count_classes(self.carried)

  @property
  def rows(self) -> list[checkpoint_names.Row]:
    """The rows of `names` whose values are present."""
    rows = checkpoint_names.rows(self.config, self.head)
    return [row for row in rows if row.tf1 in self.tensors]

  @property
  def missing(self) -> tuple[str, ...]:
    """The TF1 names of the model that the source lacks."""
    rows = checkpoint_names.rows(self.config, self.head)
    return tuple(row.tf1 for row in rows if row.tf1 not in self.tensors)

  @property
  def slots(self) -> list[str]:
    """The names of the optimizer state of `rows`."""
    names = (
      f"{row.tf1}/{s}" for row in self.rows for s in checkpoint_names.SLOTS
    )
    return [name for name in names if name in self.tensors]

  @property
  def carried(self) -> dict[str, Array]:
    """The values of `rows` and `slots`, and the step."""
    names = [*(row.tf1 for row in self.rows), *self.slots]
    names.append(checkpoint_names.GLOBAL_STEP)
    return {x: self.tensors[x] for x in names if x in self.tensors}

  @property
  def unexpected(self) -> tuple[str, ...]:
    """The names of values that are no part of the model."""
    return tuple(sorted({*self.tensors} - {*self.carried}))

  def choose_tokenizer(
    self, choice: tokenizer_file.TokenizerChoice = tokenizer_file.OWN_TOKENIZER
  ) -> Optional[tokenizer_file.TokenizerFile]:
    """Returns the tokenizer to use with the model, or None if there is none.

    Raises:
      ValueError: the model was trained with another tokenizer.
      OSError: the file of the tokenizer cannot be read.
    """
    recorded = (self.record.get("data") or {}).get("tokenizer") or {}
    file = choice.apply(self.tokenizer, tokenization.TextRules.of(recorded))
    if file is None:
      return None
    file.check()
    if "sha256" in recorded and recorded["sha256"] != file.sha256():
      raise ValueError(
        f"{file.path} is not the tokenizer that the model in {self.folder} was "
        "trained with, so the same ids mean other pieces: give that tokenizer, "
        "or none if it is in the folder."
      )
    return file


def count_classes(tensors: Mapping[str, Array]) -> int:
  """Returns the number of outputs of a classifier or regression, else 0."""
  weights = tensors.get("output_weights")
  return 0 if weights is None or not weights.shape else weights.shape[0]


def detect_head(tensors: Mapping[str, Array]) -> str:
  """Returns the head, a key of `names.HEADS`, whose weights are present."""
  if classes := count_classes(tensors):
    if "bert/pooler/dense/kernel" not in tensors:
      return "token_classification"
    return "regression" if classes == 1 else "classification"
  for head in ("squad1", "squad2", "pretraining", "masked_lm"):
    if checkpoint_names.has_head(head, tensors):
      return head
  return "none"


def select(
  source: str,
  config: modeling.AlbertConfig,
  stored: Mapping[str, Array],
  head: str = "",
) -> PortableCheckpoint:
  """Returns a checkpoint after checks of the names and shapes of its weights.

  `stored` has the values by TF1 names. The head is detected unless it is given.

  Raises:
    ValueError: the weights do not fit the configuration or the head.
  """
  classes, notes = count_classes(stored), []
  if not head and classes == 1:
    notes.append(
      "output_weights has one class and is taken for a regression; give "
      "--head=multiple_choice if it scores options."
    )
  head = head or detect_head(stored)
  if head not in checkpoint_names.HEADS:
    raise ValueError(
      f"{source} is recorded with the unknown head {head!r:.80}."
    )
  result = PortableCheckpoint(source, config, {**stored}, head, notes=notes)
  rows, missing = checkpoint_names.rows(config, head), result.missing
  if not result.rows:
    raise ValueError(
      f"{source} holds no variable with an ALBERT name; its first is "
      f"{min(stored, default='')!r:.80}."
    )
  # An encoder alone may lack the pooler, too.
  like = "masked_lm" if head in ("none", "embedding") else head
  needed = [n for n in missing if not checkpoint_names.may_lack(like, n)]
  if needed:
    raise ValueError(
      f"{source} lacks {needed[0]} and {len(needed) - 1} more of the "
      f"{len(rows)} variables of its configuration with head {head}: it "
      "belongs to another model, or is incomplete."
    )
  for row in rows:
    expected = row.shape_in(config, classes)
    if row.tf1 in stored and (shape := stored[row.tf1].shape) != expected:
      raise ValueError(
        f"{row.tf1} has shape {str([*shape]):.60} in {source} but "
        f"{list(expected)} by the configuration: they belong to different "
        "models."
      )
  for name in result.unexpected:
    if name.startswith(_ENCODER):
      raise ValueError(
        f"{source} has {name}, which is not part of the encoder of its "
        "configuration: they belong to different models."
      )
  return result


def merge_adapters(checkpoint: PortableCheckpoint) -> PortableCheckpoint:
  """Returns the equal model without adapters: each layer has its own group.

  Its kernels are W + A B, in float32. Optimizer state of the blocks is left
  out. A checkpoint without adapters is returned as it is.
  """
  config, stored = checkpoint.config, checkpoint.tensors
  if not config.adapter_rank:
    return checkpoint
  own, block = checkpoint_names.ADAPTERS, "bert/encoder/transformer/group_"
  others = [name for name in stored if not name.startswith((own, block))]
  tensors = {name: stored[name] for name in others}
  for index in range(config.num_blocks):
    layer, inner = divmod(index, config.inner_group_num)
    old = f"{block}{config.group_of_layer(layer)}/inner_group_{inner}/"
    new = f"{block}{layer}/inner_group_{inner}/"
    for name, value in stored.items():
      part = name.removeprefix(old)
      if part == name or checkpoint_names.is_slot(name):
        continue
      if part in _ADAPTED:
        kernel, place = _ADAPTED[part]
        pair = (np.asarray(stored[f"{own}{kernel}_{x}"]) for x in "ab")
        a, b = (stack[index] for stack in pair)  # [I, R], [R, O or 3 * O]
        parts = np.split(b, b.shape[1] // value.shape[1], axis=1)
        value = np.asarray(value) + a @ parts[place]
      tensors[new + part] = value
  merged = dataclasses.replace(
    config, adapter_rank=0, num_hidden_groups=config.num_hidden_layers
  )
  return dataclasses.replace(checkpoint, config=merged, tensors=tensors)
