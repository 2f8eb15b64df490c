"""Exports: frozen encoder, signatures, and the folder of a SavedModel.

`hub` has the reusable SavedModels of TF Hub.
"""

from official_albert.serving.early_exit import (
  AT_DEPTH,
  BY_LAYER,
  DEPTH_INPUTS,
  model_of_layers,
)
from official_albert.serving.frozen_encoder import outside_strategy
from official_albert.serving.request_checks import (
  IDS,
  TOKEN_BYTES,
  after_checks,
  check_range,
  check_rank,
  limit_bytes,
  limit_windows,
  refuse_unless,
  shape_of,
)
from official_albert.serving.saved_model_folder import (
  ASSETS,
  DEFAULT_SIGNATURE,
  EXPORT_FILE,
  Source,
  write_assets,
  write_saved_model,
)
from official_albert.serving.served_module import (
  PAIR,
  TEXT,
  TEXT_SIGNATURES,
  ServedEncoder,
  ServedLogits,
  ServedModule,
  ServedMultiLabel,
  ServedTextTask,
  Tensors,
  TextFunction,
  encode_functions,
  encoder_outputs,
)
