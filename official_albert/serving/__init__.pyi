from .frozen_encoder import (
  FrozenEncoder as FrozenEncoder,
  freeze_encoder as freeze_encoder,
  outside_strategy as outside_strategy,
)
from .request_checks import (
  IDS as IDS,
  after_checks as after_checks,
  check_range as check_range,
  check_rank as check_rank,
  check_texts as check_texts,
  refuse_unless as refuse_unless,
  shape_of as shape_of,
)
from .saved_model_folder import (
  ASSETS as ASSETS,
  DEFAULT_SIGNATURE as DEFAULT_SIGNATURE,
  EXPORT_FILE as EXPORT_FILE,
  ExportOptions as ExportOptions,
  short_path as short_path,
  write_assets as write_assets,
  write_saved_model as write_saved_model,
)
from .served_module import (
  ServedEncoder as ServedEncoder,
  ServedModule as ServedModule,
  TEXT_SIGNATURES as TEXT_SIGNATURES,
  Tensors as Tensors,
  encode_functions as encode_functions,
  encoder_outputs as encoder_outputs,
)
from .served_texts import (
  ServedTextTask as ServedTextTask,
  export_classifier as export_classifier,
  serve_classifier as serve_classifier,
)

SELECTIONS: tuple[str, ...]
EXPORT_PRECISIONS: dict[str, str]
