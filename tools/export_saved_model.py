"""Exports a model as a SavedModel that takes raw text, for TFLite or ONNX.

    python -m tools.export_saved_model --model_dir=RUN --export_dir=albert/1

RUN is a folder of tools.run_pretraining or tools.run_finetuning (of several
seeds, the best run is taken), or a checkpoint of google-research/albert, TF Hub
or Hugging Face. The tokenizer is part of the graph, so a server needs
tensorflow and tensorflow_text, and nothing of this package; for
--signatures=ids, tensorflow alone. docs/signatures.md describes the signatures
of each task, and docs/serving.md how to start TF Serving.
"""

from __future__ import annotations

from absl import flags

from official_albert import files, settings
from official_albert.tasks import registry
from official_albert.tools.cli import command_line, path_flags

_CHECKPOINT = path_flags.define_shared("checkpoint")
_NUM_HIDDEN_LAYERS = path_flags.define_num_hidden_layers()
_MODEL_DIR = path_flags.define(
  "model_dir",
  None,
  "Folder of a run or another checkpoint, or a .tar.gz of it.",
)
_EXPORT_DIR = path_flags.define(
  "export_dir", None, "New folder; for TF Serving, its name must be a number."
)
_CONFIG_FILE = path_flags.define(
  "albert_config_file", "", "Configuration; by default that of the weights."
)
_TASK_MODULE = path_flags.define_shared("task_module")
_HEAD = flags.DEFINE_enum(
  "head",
  "",
  ["", "encoder"],
  "encoder: the outputs of the encoder alone; by default those of the head.",
)
_TEXT_TASK = flags.DEFINE_enum(
  "task",
  None,
  registry.TEXT_TASKS,
  "The task of a classifier or regression in a format that does not name it.",
)
_SIGNATURES = flags.DEFINE_enum(
  "signatures",
  "all",
  settings.SELECTIONS,
  "text: take raw texts; ids: take ids or tf.Examples, for servers without "
  "tensorflow_text; all: both.",
)
_PRECISION = flags.DEFINE_enum(
  "precision",
  "float32",
  tuple(settings.EXPORT_PRECISIONS),
  "Of matrix products; bfloat16 is slow on processors without it.",
)
_TOP_K = flags.DEFINE_integer(
  "top_k", 0, "Pieces returned for each mask; 0: five."
)
_DEPTH_SIGNATURES = flags.DEFINE_bool(
  "depth_signatures",
  False,
  "Also write signatures that take the number of layers, and those of a "
  "classifier the threshold of an early exit: classify_at_depth, ids_at_depth.",
)
_MAX_SEQ_LENGTH = flags.DEFINE_integer(
  "max_seq_length", 0, "Longer texts are truncated; 0: the training's length."
)
_FORMAT = flags.DEFINE_enum(
  "format",
  "saved_model",
  ["saved_model", "tflite", "onnx"],
  "tflite and onnx: a folder with model.tflite or model.onnx, which takes ids; "
  "see docs/tflite_onnx.md.",
)
_QUANTIZATION = flags.DEFINE_enum(
  "quantization",
  "none",
  settings.QUANTIZATIONS,
  "For --format=tflite or onnx: how weights are stored.",
)
_SEQUENCE_LENGTH = flags.DEFINE_integer(
  "sequence_length", 128, "For --format=tflite: of all sequences."
)
# The flags that have no effect with a format.
_OF_SAVED_MODELS = (_SIGNATURES, _PRECISION, _TOP_K, _DEPTH_SIGNATURES)
_UNUSED = {
  "saved_model": (_QUANTIZATION, _SEQUENCE_LENGTH),
  "tflite": (*_OF_SAVED_MODELS, _MAX_SEQ_LENGTH),
  "onnx": (*_OF_SAVED_MODELS, _SEQUENCE_LENGTH),
}


if __name__ == "__main__":
  flags.mark_flags_as_required(["model_dir", "export_dir"])
  command_line.parse()  # `--help` ends here, before TensorFlow is loaded.

from official_albert import inference, serving
from official_albert.tools.conversion import tflite_export


def main(_) -> None:
  registry.load_module(_TASK_MODULE.value)
  is_saved_model = _FORMAT.value == "saved_model"
  for flag in _UNUSED[_FORMAT.value]:
    if flag.present:
      raise ValueError(
        f"--{flag.name} has no effect with --format={_FORMAT.value}: leave it "
        "out."
      )
  if _FORMAT.value == "onnx":
    try:
      from official_albert.tools.conversion import onnx_export
    except ModuleNotFoundError as error:
      raise ValueError(
        f"--format=onnx needs {error.name}: python -m pip install "
        "'onnx<1.19' onnxruntime; requirements-dev.txt has the tested releases."
      ) from error
  signatures = _SIGNATURES.value if is_saved_model else "ids"
  export_dir = _EXPORT_DIR.value
  files.check_new_folder(export_dir, "--export_dir")
  source = inference.open_source(
    _MODEL_DIR.value,
    checkpoint=_CHECKPOINT.value,
    head=_HEAD.value,
    task=_TEXT_TASK.value or "",
    with_texts=signatures != "ids",
    max_seq_length=_MAX_SEQ_LENGTH.value,
    top_k=_TOP_K.value,
    num_hidden_layers=_NUM_HIDDEN_LAYERS.value,
    config_file=_CONFIG_FILE.value,
    dtype=settings.EXPORT_PRECISIONS[_PRECISION.value],
  )
  if _FORMAT.value == "tflite":
    tflite_export.write_folder(
      source, export_dir, _QUANTIZATION.value, _SEQUENCE_LENGTH.value
    )
  elif _FORMAT.value == "onnx":
    onnx_export.write_folder(source, export_dir, _QUANTIZATION.value)
  else:
    serving.write_saved_model(
      source, export_dir, signatures, _PRECISION.value, _DEPTH_SIGNATURES.value
    )
  print(f"exported {source.checkpoint} to {export_dir}")


if __name__ == "__main__":
  command_line.run(main)
