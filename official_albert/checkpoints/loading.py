"""Opens checkpoints of any format, and loads their values into models."""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from typing import Any, Iterator, Mapping, NamedTuple, Optional

import numpy as np
import tensorflow as tf

from official_albert import archives, modeling, runs
from official_albert.checkpoints import (
  hf_checkpoints,
  hubs,
  names,
  portable,
  sentence_transformers,
  tf_checkpoints,
)

# writer(checkpoint, folder) -> path of the weights.
WRITERS = {
  "tf1": tf_checkpoints.write_tf1,
  "hf": hf_checkpoints.write,
  "official_albert": tf_checkpoints.write_own,
}
# The names of a classifier's head in a checkpoint.
_HEAD = ("output_bias", "output_weights")


@contextlib.contextmanager
def open(
  path: str,
  config_file: str = "",
  *,
  checkpoint: str = "",
  head: str = "",
  include_optimizer: bool = False,
  default_config: Optional[modeling.AlbertConfig] = None,
) -> Iterator[portable.PortableCheckpoint]:
  """Opens a checkpoint of any format, or an archive; `fill` loads its values.

  >>> from official_albert import AlbertForSequenceClassification, checkpoints
  >>> with checkpoints.open("albert_toy_hf") as checkpoint:
  ...   model = AlbertForSequenceClassification(checkpoint.config, 3)
  ...   checkpoints.fill(model, checkpoint).missing
  ('output_bias', 'output_weights')
  >>> checkpoint.tensors["bert/pooler/dense/kernel"].shape
  (24, 24)

  Values are read when they are used. Those of an archive need the context.
  Notes, and errors of the body, name files as the user would write them.

  Args:
    path: see `AlbertModel.from_checkpoint`.
    config_file: the configuration of a TensorFlow checkpoint; the default is
      the albert_config*.json beside it.
    checkpoint: which checkpoint of a run; see `find_prefix`.
    head: a key of `names.HEADS`; "" detects it.
    include_optimizer: whether to include optimizer state. As the best
      checkpoint of a run has none, the default is the latest then.
    default_config: the configuration of a TensorFlow checkpoint that has no
      albert_config*.json beside it.

  Raises:
    ValueError, OSError: there is no valid checkpoint.
  """
  local = hubs.downloaded(path)
  with archives.naming(path, local), archives.unpacked(local) as folder:
    run = runs.run_folder(folder)
    encoder = sentence_transformers.encoder_folder(run)
    if hf_checkpoints.is_folder(encoder):
      if checkpoint or config_file or include_optimizer:
        raise ValueError(
          f"{run} is a folder of Hugging Face, which holds one model, its "
          "configuration and no optimizer state: leave out --checkpoint, "
          "--albert_config_file and --include_optimizer."
        )
      result = hf_checkpoints.read(run, head)
    else:
      result = tf_checkpoints.read(
        *(run, checkpoint, config_file, head, include_optimizer, default_config)
      )
    result.shown = lambda text: text.replace(folder, path)
    result.notes = list(map(result.shown, result.notes))
    result.head_problem = result.shown(result.head_problem)
    file = result.tokenizer
    if folder != path and file and not file.problem:  # It outlives the archive.
      result.tokenizer = dataclasses.replace(
        file, path=result.shown(file.path), content=file.read()
      )
    yield result


def read_checkpoint(
  path: str, config_file: str = "", **kwargs: Any
) -> portable.PortableCheckpoint:
  """Opens a checkpoint that is not an archive, and needs no context."""
  with open(path, config_file, **kwargs) as checkpoint:
    return checkpoint


@dataclasses.dataclass(frozen=True)
class LoadReport:
  """The names of variables in the checkpoint and in the model.

  Attributes:
    matched: names that were loaded into the model.
    missing: names in the model that were not loaded: the checkpoint lacks them,
      has them in another shape, or for another task.
    unexpected: names in the checkpoint that the model lacks, without optimizer
      state.
    notes: what was inferred, one sentence each.
    source: the checkpoint, as the user would write it.
  """

  matched: tuple[str, ...]
  missing: tuple[str, ...]
  unexpected: tuple[str, ...]
  notes: tuple[str, ...] = ()
  source: str = ""

  def __str__(self) -> str:
    return "\n".join(
      [
        f"{len(self.matched)} variables matched, {len(self.missing)} missing, "
        f"{len(self.unexpected)} unexpected",
        f"  read from {self.source}",
        *(f"  {note}" for note in self.notes),
        *(f"  not loaded: {name}" for name in self.missing),
        *(f"  unexpected in it: {name}" for name in self.unexpected),
      ]
    )


def tf1_variables(model: tf.keras.Model) -> dict[str, tf.Variable]:
  """Returns the variables of a model by their TF1 names.

  Those of unknown heads have attribute paths. The model is an `AlbertModel`, or
  has one as its attribute `albert`.
  """
  prefix = "" if hasattr(model, "albert") else "albert/"
  paths = {f"{prefix}{path}": x for path, x in portable.by_path(model).items()}
  rows = names.rows(getattr(model, "albert", model).config, *names.HEADS)
  found = {row.tf1: paths.pop(row.own) for row in rows if row.own in paths}
  return {**found, **paths}


class Head(NamedTuple):
  """The meaning of the outputs of a model's head.

  Attributes:
    kind: "classification", "multi_label", "regression" or "multiple_choice".
    labels: the names of the classes in the order of the outputs; () if the
      head has none or they are unknown.
  """

  kind: str
  labels: tuple[str, ...] = ()

  def __str__(self) -> str:
    if self.kind == "regression":
      return "a number"
    if self.kind == "multiple_choice":
      return "the options of a question"
    kind = "several labels of" if self.kind == "multi_label" else "the classes"
    names = f"{kind} {', '.join(self.labels)}"
    return names if self.labels else "classes without names"


def _match(stored: Head, head: Head) -> tuple[Optional[list[int]], str]:
  """Matches the rows of a stored head with those of the model's head.

  Returns:
    The indices of the stored rows in the order of `head`, or None if the heads
    do not match; and a sentence for the log.
  """
  same_kind = stored.kind == head.kind
  if same_kind and {*stored.labels} == {*head.labels}:
    return [*map(stored.labels.index, head.labels)] or [0], (
      f"the head is kept, for {head}; in the checkpoint, it is for {stored}"
    )
  if same_kind and not stored.labels:
    return [*range(len(head.labels))], (
      "warning: the checkpoint does not name the classes of its head, which "
      f"is kept: they are taken to be {', '.join(head.labels)}, in this order"
    )
  note = f"a new head is trained, for {head}: the checkpoint's is for {stored}"
  if same_kind and len(stored.labels) == len(head.labels):
    note += "; to keep it, give the data the same names"
  return None, note


def fill(
  model: tf.keras.Model,
  checkpoint: portable.PortableCheckpoint,
  head: Optional[Head] = None,
) -> LoadReport:
  """Loads a checkpoint, whose files must still exist, into a model.

  Variables that the checkpoint lacks keep their values. A head of another shape
  belongs to another task and is not loaded. For example, a model for the three
  classes of MNLI may be fine-tuned for the two of RTE.

  Args:
    model: the model (see `tf1_variables`). It must have the checkpoint's
      configuration. If all layers share their weights, the number of layers may
      differ. Adapters that the checkpoint lacks begin anew.
    checkpoint: the opened checkpoint.
    head: the meaning of the outputs of a model that will be trained. It is
      compared with that of the checkpoint's head. If the classes are the same,
      their rows are put in this order; a head with another meaning is not read,
      and a regression keeps the scale of its targets. None reads the head
      unchanged.

  Raises:
    ValueError: a shape of the encoder differs, or what its layers share; no
      value is assigned then.
  """
  source = checkpoint.source
  stored = checkpoint.tensors
  variables = tf1_variables(model)
  config = getattr(model, "albert", model).config
  if config.sharing != checkpoint.config.sharing:
    raise ValueError(
      f"{source} has sharing={checkpoint.config.sharing!r}, but the model has "
      f"sharing={config.sharing!r}: choose the same."
    )
  if (rank := checkpoint.config.adapter_rank) not in (0, config.adapter_rank):
    raise ValueError(
      f"{source} has adapters of rank {rank}, but the model has adapter_rank="
      f"{config.adapter_rank}: choose the same."
    )
  matched = []
  for name in sorted({*stored} & {*variables}):
    found, own = list(stored[name].shape), variables[name].shape.as_list()
    if found == own:
      matched.append(name)
    elif name.startswith(("bert/", "albert/")):
      raise ValueError(
        f"{name} has shape {found} in {source} but {own} in the model: the "
        "checkpoint is of another size or vocabulary."
      )
  notes, rows, new = list(checkpoint.notes), None, []
  if config.adapter_rank and not rank:
    new = [name for name in variables if name.startswith(names.ADAPTERS)]
    notes.append(
      f"new adapters of rank {config.adapter_rank} begin without a difference "
      "between the layers: A is random, B is zero."
    )
  if head and _HEAD[0] in stored:
    rows, note = _match(Head(checkpoint.head, checkpoint.labels), head)
    if rows is None:
      matched = [name for name in matched if name not in _HEAD]
    if rows is None or _HEAD[0] in matched:
      notes.append(note)
  classifier = getattr(model, "classifier", None)
  scale = getattr(classifier, "target_scale", None)
  scaled: Mapping[str, portable.Array] = {}
  if scale is not None and _HEAD[0] in matched:  # A regression.
    own_scale, scaled = scale.numpy(), checkpoint.scaled_head
    classifier.set_target_scale(
      scaled.get(portable.TARGET_SCALE, np.zeros(2)), keep_outputs=False
    )
  for name in new:  # The model may have been trained before.
    if name.endswith("_b"):
      variables[name].assign(tf.zeros_like(variables[name]))
  for name in matched:
    value = np.asarray(scaled.get(name, stored[name]))
    variables[name].assign(value[rows] if rows and name in _HEAD else value)
  if scale is not None and _HEAD[0] in matched and head:
    # It will be trained on targets of its own scale.
    classifier.set_target_scale(own_scale, keep_outputs=True)
  return LoadReport(
    matched=tuple(matched),
    missing=tuple(sorted({*variables} - {*matched, *new})),
    unexpected=tuple(
      name
      for name in sorted({*stored} - {*variables} - {names.GLOBAL_STEP})
      if not names.is_slot(name)
    ),
    notes=tuple(notes),
    source=checkpoint.shown(source),
  )


def from_checkpoint(
  cls: type[modeling.AlbertModel],
  path: str,
  albert_config_file: str = "",
  **kwargs: Any,
) -> modeling.AlbertModel:
  """Returns an encoder with pretrained weights of any supported format.

  A warning names the weights that the checkpoint lacks, such as a pooler's.

  >>> from official_albert import AlbertModel
  >>> model = AlbertModel.from_checkpoint("albert_toy")
  >>> print(model.load_report)
  25 variables matched, 0 missing, 7 unexpected
    read from albert_toy/model.ckpt-best
    unexpected in it: cls/predictions/output_bias
  ...

  Args:
    cls: the class of the result.
    path: the folder or a checkpoint of a run, a TF1 checkpoint of
      google-research/albert or its folder, the folder of a TF1 module of TF
      Hub, of tools.publish_hub_module or of a Hugging Face model, or a
      .tar.gz or .tgz of any of these. A name such as albert/albert-base-v2,
      which is no path here, is a model of the Hugging Face Hub, one such as
      keras/albert/keras/albert_base_en_uncased of Kaggle; their packages
      huggingface_hub and kagglehub download it.
    albert_config_file: the configuration of a TensorFlow checkpoint. The
      default is the file beside the checkpoint.
    **kwargs: further arguments of `AlbertModel`.

  Raises:
    ValueError, OSError: there is no checkpoint, it is damaged, or it belongs
      to another model.
  """
  with open(path, albert_config_file) as checkpoint:
    model = cls(checkpoint.config, **kwargs)
    model.load_report = fill(model, checkpoint)
  if missing := ", ".join(model.load_report.missing):
    warnings.warn(
      f"{path} has no weights of {missing}: they are random.", stacklevel=2
    )
  return model


def load_tf1_checkpoint(
  model: tf.keras.Model, path: str, head: Optional[Head] = None
) -> LoadReport:
  """Loads a checkpoint of google-research/albert into a model.

  >>> from official_albert import AlbertConfig, AlbertModel
  >>> from official_albert.checkpoints import load_tf1_checkpoint
  >>> config = AlbertConfig.from_json_file("albert_toy/albert_config.json")
  >>> model = AlbertModel(config)
  >>> report = load_tf1_checkpoint(model, "albert_toy/model.ckpt-best")
  >>> report.missing
  ()

  The model need not have all variables of the checkpoint, nor the checkpoint
  all of its. Optimizer state is not read. `path` is that of
  `AlbertModel.from_checkpoint`, of any format; for the others see `fill`.

  Raises:
    ValueError, OSError: there is no checkpoint, it is damaged, or it belongs
      to another model.
  """
  config = getattr(model, "albert", model).config
  with open(path, default_config=config) as checkpoint:
    return fill(model, checkpoint, head)


# It begins a training with weights of any format.
warm_start = load_tf1_checkpoint
# `modeling` imports no checkpoints.
modeling.AlbertModel.from_checkpoint = classmethod(from_checkpoint)  # type: ignore[assignment]
