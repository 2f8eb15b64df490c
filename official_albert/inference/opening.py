"""Opens a model of any kind to ask it in Python.

import official_albert as albert

albert.load("quickstart/run").fill_mask("The default [MASK] is None.")
albert.load("stars").classify(["Lovely.", "Never again."])
"""

from __future__ import annotations

import os
from typing import Any, Optional, Union

from official_albert import checkpoints, files, serving
from official_albert.inference import engine as engine_lib
from official_albert.inference import source as source_lib
from official_albert.inference.loaded_model import LoadedModel
from official_albert.settings import EXPORT_PRECISIONS


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
  settings: dict[str, Any] = {
    "checkpoint": checkpoint,
    "tokenizer": tokenizer,
    "lower_case": lower_case,
    "keep_accents": keep_accents,
    "max_seq_length": max_seq_length,
    "num_hidden_layers": num_hidden_layers,
  }
  if files.exists(os.path.join(path, serving.ASSETS, serving.EXPORT_FILE)):
    for name, value in settings.items():
      if value not in ("", 0, None):
        raise ValueError(
          f"{path} is an export, which has a fixed {name}: leave it out, or "
          "load the run."
        )
    return open_export(path)
  is_sentencepiece = tokenizer.endswith(".model")
  file = checkpoints.chosen_tokenizer(
    spm_model_file=tokenizer if is_sentencepiece else "",
    vocab_file="" if is_sentencepiece else tokenizer,
  )
  return open_model(path, **{**settings, "tokenizer": file})


def open_export(path: str) -> LoadedModel:
  """Opens a folder of tools.export_saved_model.

  Raises:
    ValueError, OSError: see `load`.
  """
  return LoadedModel(path, *engine_lib.open_export(path))


def open_model(path: str, **settings: Any) -> LoadedModel:
  """Opens a model that is not an export, with a copy of its weights.

  Args:
    path: see `load`.
    **settings: arguments of `open_source`.

  Raises:
    ValueError, OSError: see `load`; or exports do not have the precision.
  """
  source = source_lib.open_source(path, lenient=True, **settings)
  module, policy = source.module, source.model.dtype_policy.name
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
  return LoadedModel(path, engine, record, source.tokenizer, source)
