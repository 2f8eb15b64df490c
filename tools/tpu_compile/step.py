"""Lowers the training step of one replica for the TPU's compiler.

    python -m tools.tpu_compile.step \\
      '{"config": {...}, "batch_size": 8}' STEP.hlo

The step is that of `official_albert.training.train_step` with the losses of
`tasks`, compiled as one program as on a TPU. XLA has no sums over replicas on a
CPU, so they become custom calls named `ALL_REDUCE`, which
`tools.tpu_compile.compiler` replaces.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import sys
from typing import Any, Callable, Mapping

from official_albert import distribution, files, modeling, training
from tasks import classification, common, pretraining, race, squad
from tools.cli import child_programs
from tools.tpu_compile.compiler import ALL_REDUCE

TASKS = (
  "pretraining",
  "classification",
  "squad",
  "squad2",
  "multiple_choice",
)
# TPUs support bfloat16, not float16.
PRECISIONS = ("mixed_bfloat16", "float32")
_CLASSES, _OPTIONS = 2, 4


@dataclasses.dataclass(frozen=True)
class Step:
  """One training step of one replica.

  Attributes:
    config: `AlbertConfig.to_dict`, including the dropout.
    task: one of `TASKS`.
    batch_size: examples of one replica; an example of multiple choice has four
      sequences.
    max_seq_length: tokens per sequence.
    max_predictions_per_seq: masked tokens in pretraining; 0 stands for 15% of
      the tokens, rounded up, as in the recipes.
    optimizer: one of `training.OPTIMIZERS`.
    precision: one of `PRECISIONS`.
    recompute_activations: whether the backward pass recomputes activations.
  """

  config: Mapping[str, Any]
  task: str = "pretraining"
  batch_size: int = 32
  max_seq_length: int = 512
  max_predictions_per_seq: int = 0
  optimizer: str = "lamb"
  precision: str = "mixed_bfloat16"
  recompute_activations: bool = False

  def __post_init__(self):
    least = max(3, self.max_predictions_per_seq)
    most = self.config["max_position_embeddings"]
    if not least <= self.max_seq_length <= most:
      raise ValueError(
        f"max_seq_length must be from {least} to {most}, the model's position "
        f"embeddings, got {self.max_seq_length}."
      )

  @property
  def predictions(self) -> int:
    """Masked tokens per sequence."""
    return self.max_predictions_per_seq or -(-self.max_seq_length * 15 // 100)

  def to_json(self) -> str:
    """Returns the program's argument; equal steps give equal text."""
    return json.dumps(dataclasses.asdict(self), sort_keys=True)


def batch_spec(step: Step):
  """Returns the features of a batch: `tf.TensorSpec`s by name."""
  import tensorflow as tf

  b, s, p = step.batch_size, step.max_seq_length, step.predictions
  tokens = (b, _OPTIONS, s) if step.task == "multiple_choice" else (b, s)
  shapes = dict.fromkeys(("input_ids", "input_mask", "segment_ids"), tokens)
  if step.task == "pretraining":
    shapes |= {
      "masked_lm_positions": (b, p),
      "masked_lm_ids": (b, p),
      "masked_lm_weights": (b, p),
      "next_sentence_labels": (b, 1),
    }
  else:
    shapes["example_weight"] = (b,)
    if step.task in ("classification", "multiple_choice"):
      shapes["label_ids"] = (b,)
    else:
      shapes |= {"start_positions": (b,), "end_positions": (b,)}
    if step.task == "squad2":
      shapes |= {"p_mask": (b, s), "is_impossible": (b,)}
  floats = ("masked_lm_weights", "example_weight", "p_mask")
  return {
    name: tf.TensorSpec(shape, tf.float32 if name in floats else tf.int32)
    for name, shape in shapes.items()
  }


def make_task(step: Step):
  """Returns the task of the step, with model and losses but no data.

  Bypasses the constructors of the tasks, which require records.
  """
  config = modeling.AlbertConfig.from_dict(step.config)
  settings = common.ModelSettings(
    albert_dropout=config.hidden_dropout_prob,
    recompute_activations=step.recompute_activations,
  )
  attributes: dict[str, Any] = {"name": step.task, "settings": settings}
  if step.task == "pretraining":
    kind = pretraining.PretrainingTask
    attributes = {
      "_recompute_activations": step.recompute_activations,
      "_sentence_pair": True,
    }
  elif step.task == "classification":
    kind = classification.ClassificationTask
    attributes["labels"] = tuple(map(str, range(_CLASSES)))
  elif step.task == "multiple_choice":
    kind = race.RaceTask
  else:
    kind = squad.SquadTask
    attributes["has_impossible"] = step.task == "squad2"
    attributes["recipe"] = squad.RECIPES["squad_v2"]
  task = kind.__new__(kind)
  vars(task).update(attributes, config=config)
  return task


def _tpu_replica_context(replica_id):
  """Returns a replica context that looks like a TPU's.

  Its strategy has the type of a TPU's, because layers choose their
  implementation by it, but behaves like the default one. Sums over replicas
  become custom calls.

  Args:
    replica_id: <int32>[], an argument of a TPU's program.
  """
  import tensorflow as tf
  from tensorflow.compiler.tf2xla.python import xla

  class Strategy(tf.distribute.TPUStrategy):
    def __init__(self):
      extended = tf.distribute.get_strategy().extended
      tf.distribute.Strategy.__init__(self, type(extended)(self))

    def scope(self):
      return contextlib.nullcontext()  # The default one cannot be entered.

  class Replica(tf.distribute.ReplicaContext):
    def all_reduce(self, reduce_op, value, options=None):
      del options
      if str(reduce_op).upper().split(".")[-1] != "SUM":
        raise ValueError(f"only sums are reduced here, not {reduce_op}.")

      def reduced(x):
        spec = tf.TensorSpec(x.shape, x.dtype)
        return xla.custom_call_v2(ALL_REDUCE, [x], [spec])[0]

      return tf.nest.map_structure(reduced, value)

  return Replica(Strategy(), replica_id)


def make_step(step: Step) -> Callable[..., Any]:
  """Returns the step as a `tf.function`.

  Its arguments are the replica's number <int32>[] and the features of a batch,
  in the order of `batch_spec`. It returns losses and metrics.
  """
  import tensorflow as tf

  distribution.set_precision(step.precision)
  task = make_task(step)
  model = task.build_model()
  config = training.TrainConfig(
    model_dir="",
    num_train_steps=1000,
    num_warmup_steps=100,
    learning_rate=0.001,
    train_batch_size=step.batch_size,
    optimizer=step.optimizer,
  )
  optimizer = config.make_optimizer()
  # Variables cannot be created inside the program.
  optimizer._create_all_weights(model.trainable_variables)
  update = training.make_train_step(task, model, optimizer, config)

  names = tuple(batch_spec(step))

  @tf.function(jit_compile=True)
  def replica_step(replica_id, *features):
    with _tpu_replica_context(replica_id):
      return update(dict(zip(names, features)))

  return replica_step


def lower(step: Step) -> bytes:
  """Returns the step as a serialized HloModuleProto."""
  import tensorflow as tf

  function = make_step(step)
  arguments = tf.TensorSpec([], tf.int32), *batch_spec(step).values()
  try:
    make_ir = function.experimental_get_compiler_ir(*arguments)
    return make_ir(stage="hlo_serialized")
  except (tf.errors.OpError, TypeError, ValueError) as error:
    # The rest of the message is a stack trace, with escaped line breaks.
    reason = re.split(r"\n|\\n|\{\{", str(error).strip())[0].strip()
    raise ValueError(
      f"the step cannot be compiled as one program: {reason}"
    ) from error


def main() -> None:
  """Lowers the step that the command line describes."""
  values, path = child_programs.arguments(
    "tools.compile_for_tpu", child_programs.json_object, str
  )
  try:
    files.write_bytes(path, lower(Step(**values)))
  except ValueError as error:
    sys.exit(str(error))


if __name__ == "__main__":
  main()
