"""Opens checkpoints of any format, and starts models from them."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import warnings
from typing import Any, Iterator, Optional

import tensorflow as tf

from official_albert import archives, files, modeling, runs
from official_albert.checkpoints import (
  hf_checkpoints,
  hf_config,
  loading,
  portable,
  tf_checkpoints,
)

# writer(checkpoint, folder) -> path of the weights.
WRITERS = {
  "tf1": tf_checkpoints.write_tf1,
  "hf": hf_checkpoints.write,
  "official_albert": tf_checkpoints.write_own,
}


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
  with archives.unpacked(path) as folder:
    run = runs.run_folder(folder)
    if files.exists(os.path.join(run, hf_config.CONFIG_FILE)):
      if checkpoint or include_optimizer:
        raise ValueError(
          f"{run} is a folder of Hugging Face, which holds one model and no "
          "optimizer state: leave out --checkpoint and --include_optimizer."
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
      .tar.gz or .tgz of any of these.
    albert_config_file: the configuration of a TensorFlow checkpoint. The
      default is the file beside the checkpoint.
    **kwargs: further arguments of `AlbertModel`.

  Raises:
    ValueError, OSError: there is no checkpoint, it is damaged, or it belongs
      to another model.
  """
  with open(path, albert_config_file) as checkpoint:
    model = cls(checkpoint.config, **kwargs)
    model.load_report = loading.fill(model, checkpoint)
  if missing := ", ".join(model.load_report.missing):
    warnings.warn(
      f"{path} has no weights of {missing}: they are random.", stacklevel=2
    )
  return model


def load_tf1_checkpoint(model: tf.keras.Model, path: str) -> loading.LoadReport:
  """Loads a checkpoint of google-research/albert into a model.

  >>> from official_albert import AlbertConfig, AlbertModel
  >>> from official_albert.checkpoints import load_tf1_checkpoint
  >>> config = AlbertConfig.from_json_file("albert_toy/albert_config.json")
  >>> model = AlbertModel(config)
  >>> report = load_tf1_checkpoint(model, "albert_toy/model.ckpt-best")
  >>> report.missing
  ()

  For the model see `tf1_variables`. It need not have all variables of the
  checkpoint, nor the checkpoint all of its.

  Raises:
    ValueError, OSError: there is no checkpoint, it is damaged, or it belongs
      to another model.
  """
  return warm_start(model, path)


def warm_start(
  model: tf.keras.Model, path: str, head: Optional[loading.Head] = None
) -> loading.LoadReport:
  """Reads the weights of a model from a checkpoint, without optimizer state.

  `path` is that of `AlbertModel.from_checkpoint`. For the other arguments, and
  what is raised, see `fill`.
  """
  config = getattr(model, "albert", model).config
  with open(path, default_config=config) as checkpoint:
    return loading.fill(model, checkpoint, head)


# `modeling` imports no checkpoints.
modeling.AlbertModel.from_checkpoint = classmethod(from_checkpoint)  # type: ignore[assignment]
