"""Exports a run as a SavedModel: raw text in, answers out.

    python -m tools.export_saved_model --model_dir=RUN --export_dir=albert/1

RUN is a folder of tools.run_pretraining or tools.run_finetuning (of several
seeds the best is taken), or a checkpoint of another format: google-research's,
a TF Hub module's, Hugging Face's. The tokenizer is part of the graph, so
whoever loads it needs tensorflow and tensorflow_text, and nothing of this
package; of --signatures=ids, tensorflow alone. docs/serving.md has the
signatures of each task, and how TF Serving is started with the result.
"""

from __future__ import annotations

from absl import flags

from official_albert import checkpoints, files, serving
from tools import conversion, finetuning
from tools.cli import (
  command_line,
  model_depth_flag,
  path_flags,
)

_CHECKPOINT = path_flags.define_checkpoint()
_MODEL_DIR = path_flags.define(
  "model_dir",
  None,
  "Folder of a run, or of another checkpoint; or a .tar.gz of one.",
)
_EXPORT_DIR = path_flags.define(
  "export_dir",
  None,
  "Folder of the SavedModel; must not exist yet. TF Serving wants its name to "
  "be a number, the version.",
)
_HEAD = flags.DEFINE_enum(
  "head",
  "",
  ("", "encoder"),
  "encoder: the vectors of the encoder alone; by default all that the weights "
  "can do.",
)
_TEXT_TASK = flags.DEFINE_enum(
  "task",
  None,
  finetuning.registry.TEXT_TASKS,
  "What the model was fine-tuned on. Needed for classifiers and regressions of "
  "other formats, which do not name it.",
)
_SIGNATURES = flags.DEFINE_enum(
  "signatures",
  "all",
  serving.SELECTIONS,
  "text: of raw texts; ids: of ids and of serialized tf.Examples, which a "
  "server without tensorflow_text can load; all: both.",
)
_PRECISION = flags.DEFINE_enum(
  "precision",
  "float32",
  tuple(serving.EXPORT_PRECISIONS),
  "What matrices are multiplied in. bfloat16 is for processors that have "
  "instructions for it, and slow on others.",
)
_TOP_K = flags.DEFINE_integer("top_k", 5, "Pieces returned for each mask.")
_MAX_SEQ_LENGTH = flags.DEFINE_integer(
  "max_seq_length",
  0,
  "Longer texts lose their end; 0: as many as the model was trained with.",
)
_MODEL_NAME = flags.DEFINE_string(
  "model_name", "albert", "What TF Serving is to call the model."
)
_BATCH_SIZES = flags.DEFINE_list(
  "warmup_batch_sizes",
  ["1", "8"],
  "Rows of the requests that TF Serving sends itself when it loads the model; "
  "the largest one is also the largest batch of batching_parameters.txt.",
)
_SEQ_LENGTHS = flags.DEFINE_list(
  "warmup_seq_lengths", ["32", "128"], "Their tokens; empty: no warm-up."
)
_FORMAT = flags.DEFINE_enum(
  "format",
  "saved_model",
  ["saved_model", "tflite"],
  "tflite: a folder with model.tflite, of ids; see docs/tflite.md.",
)
_QUANTIZATION = flags.DEFINE_enum(
  "quantization",
  "none",
  ["none", "float16", "int8"],
  "Of --format=tflite: how weights are stored.",
)
_SEQUENCE_LENGTH = flags.DEFINE_integer(
  "sequence_length",
  128,
  "Of --format=tflite: the one length of its sequences; 0: any.",
)


def _numbers(flag: flags.FlagHolder) -> tuple[int, ...]:
  try:
    return tuple(int(number) for number in flag.value)
  except ValueError as error:
    raise ValueError(
      f"--{flag.name} is a list of numbers such as 1,8, not "
      f"{','.join(flag.value)!r}."
    ) from error


def _refuse_flags_of_the_other_format(on_device: bool) -> None:
  of_servers = (
    *(_SIGNATURES, _PRECISION, _MODEL_NAME),
    *(_BATCH_SIZES, _SEQ_LENGTHS),
  )
  for flag in of_servers if on_device else (_QUANTIZATION, _SEQUENCE_LENGTH):
    if flag.present:
      raise ValueError(
        f"--{flag.name} says nothing to --format={_FORMAT.value}: leave it out."
      )


def main(argv) -> None:
  del argv
  on_device = _FORMAT.value == "tflite"
  _refuse_flags_of_the_other_format(on_device)
  options = serving.ExportOptions(
    # Neither has a phone a tokenizer, nor products of bfloat16.
    signatures="ids" if on_device else _SIGNATURES.value,
    precision="float32" if on_device else _PRECISION.value,
    model_name=_MODEL_NAME.value,
    warmup_batch_sizes=_numbers(_BATCH_SIZES),
    warmup_seq_lengths=_numbers(_SEQ_LENGTHS),
  )
  wanted = conversion.export_source.Wanted(
    checkpoint=_CHECKPOINT.value,
    head=_HEAD.value,
    task=_TEXT_TASK.value or "",
    with_texts=options.signatures != "ids",
    max_seq_length=_MAX_SEQ_LENGTH.value,
    top_k=_TOP_K.value,
    num_hidden_layers=model_depth_flag.NUM_HIDDEN_LAYERS.value,
  )
  files.check_new_folder(_EXPORT_DIR.value, "--export_dir")
  options.set_precision()
  with checkpoints.unpacked_archive(_MODEL_DIR.value) as model_dir:
    source = conversion.export_source.open_source(model_dir, wanted)
    if _TOP_K.present and source.module.kind != "pretraining":
      raise ValueError(
        f"{_MODEL_DIR.value} is no pretraining run but one of {source.task}, "
        "which fills no masks: leave --top_k out, or name a run of "
        "tools.run_pretraining."
        if source.module.kind != "encoder"
        else "--top_k is for masks, and an encoder fills none: leave it out."
      )
    # Of an archive, a folder that will be gone.
    checkpoint = source.checkpoint.replace(model_dir, _MODEL_DIR.value, 1)
    source = source._replace(checkpoint=checkpoint)
    if on_device:
      conversion.tflite_export.write_folder(
        source,
        _EXPORT_DIR.value,
        _QUANTIZATION.value,
        _SEQUENCE_LENGTH.value,
      )
    else:
      serving.write_saved_model(
        source.module,
        _EXPORT_DIR.value,
        options,
        source.task,
        source.checkpoint,
        source.tokenizer,
      )
  print(f"exported {source.checkpoint} to {_EXPORT_DIR.value}")


if __name__ == "__main__":
  flags.mark_flags_as_required(["model_dir", "export_dir"])
  command_line.run(main)
