"""The training step of one replica, lowered for the TPU's compiler.

    python -m tools.tpu_compile.step \\
      '{"config": {...}, "batch_size": 8}' STEP.hlo

It is the step of `official_albert.training.train_step` with the losses of
`tasks`, and the choices that a TPU asks for: everything compiled as one
program, no chain compiled by itself. The sums over replicas, for which XLA has
no code on a CPU, become calls of `ALL_REDUCE`; `tools.tpu_compile.stablehlo`
puts the real ones there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import sys
from typing import Any, Callable, Mapping, Optional

from official_albert import distribution, files, modeling, training
from tasks import classification, common, pretraining, race, squad
from tools.cli import started_by
from tools.tpu_compile.stablehlo import ALL_REDUCE

TASKS = (
  "pretraining",
  "classification",
  "squad",
  "squad2",
  "multiple_choice",
)
# float16 has too small a range for the TPU's units, which know bfloat16 only.
PRECISIONS = ("mixed_bfloat16", "float32")
_CLASSES, _OPTIONS = 2, 4


@dataclasses.dataclass(frozen=True)
class Step:
  """One step of one replica.

  Raises (when made):
    ValueError: an unknown name, no examples, or more tokens than the model has
      positions.
  """

  # `AlbertConfig.to_dict`, with the dropout that is trained with.
  config: Mapping[str, Any]
  # One of `TASKS`.
  task: str = "pretraining"
  # Examples of one replica; a question of multiple choice has four sequences.
  batch_size: int = 32
  max_seq_length: int = 512
  # Of pretraining; 0: 15% of the tokens, rounded up, as the recipes have it.
  max_predictions_per_seq: int = 0
  # One of `optimization.OPTIMIZERS`.
  optimizer: str = "lamb"
  # One of `PRECISIONS`.
  precision: str = "mixed_bfloat16"
  recompute_activations: bool = False

  def __post_init__(self):
    for what, value, known in (
      ("task", self.task, TASKS),
      ("optimizer", self.optimizer, training.OPTIMIZERS),
      ("precision", self.precision, PRECISIONS),
    ):
      if value not in known:
        raise ValueError(
          f"unknown {what} {value!r} for a TPU; choose one of "
          f"{', '.join(known)}."
        )
    for name, least in (
      ("batch_size", 1),
      ("max_seq_length", 3),
      ("max_predictions_per_seq", 0),
    ):
      if getattr(self, name) < least:
        raise ValueError(
          f"{name} must be at least {least}, got {getattr(self, name)}."
        )
    positions = modeling.AlbertConfig.from_dict(
      self.config
    ).max_position_embeddings
    if self.max_seq_length > positions:
      raise ValueError(
        f"max_seq_length {self.max_seq_length} is more than the model's "
        f"{positions} position embeddings: lower it."
      )
    if self.max_predictions_per_seq > self.max_seq_length:
      raise ValueError(
        f"max_predictions_per_seq {self.max_predictions_per_seq} is more than "
        f"max_seq_length {self.max_seq_length}: lower it."
      )

  @property
  def predictions(self) -> int:
    """P, masked tokens of a sequence that are predicted."""
    return self.max_predictions_per_seq or -(-self.max_seq_length * 15 // 100)

  def to_json(self) -> str:
    """For `main`; the same settings always give the same text."""
    return json.dumps(dataclasses.asdict(self), sort_keys=True)


def batch_spec(step: Step):
  """The features of a batch, `tf.TensorSpec`s by name."""
  import tensorflow as tf

  b, s = step.batch_size, step.max_seq_length

  def ids(*shape: int):
    return tf.TensorSpec(shape, tf.int32)

  def floats(*shape: int):
    return tf.TensorSpec(shape, tf.float32)

  tokens = (b, _OPTIONS, s) if step.task == "multiple_choice" else (b, s)
  spec = {
    name: ids(*tokens) for name in ("input_ids", "input_mask", "segment_ids")
  }
  if step.task == "pretraining":
    p = step.predictions
    return {
      **spec,
      "masked_lm_positions": ids(b, p),
      "masked_lm_ids": ids(b, p),
      "masked_lm_weights": floats(b, p),
      "next_sentence_labels": ids(b, 1),
    }
  spec["example_weight"] = floats(b)
  if step.task in ("classification", "multiple_choice"):
    return {**spec, "label_ids": ids(b)}
  spec.update(start_positions=ids(b), end_positions=ids(b))
  if step.task == "squad2":
    spec.update(p_mask=floats(b, s), is_impossible=ids(b))
  return spec


def make_task(step: Step):
  """The `objective.Task` of the step: model and losses, but no data.

  The tasks' own constructors want records to read; what is trained does not
  depend on them.
  """
  config = modeling.AlbertConfig.from_dict(step.config)

  class Pretraining(pretraining.PretrainingTask):
    def __init__(self):
      self.config = config
      self._recompute_activations = step.recompute_activations
      self._sentence_pair = True

  def finetuning(kind: type, **attributes: Any):
    task = kind.__new__(kind)
    task.name = step.task
    task.config = config
    task.settings = common.ModelSettings(
      albert_dropout=config.hidden_dropout_prob,
      recompute_activations=step.recompute_activations,
    )
    vars(task).update(attributes)
    return task

  if step.task == "pretraining":
    return Pretraining()
  if step.task == "classification":
    labels = tuple(str(label) for label in range(_CLASSES))
    return finetuning(classification.ClassificationTask, labels=labels)
  if step.task == "multiple_choice":
    return finetuning(race.RaceTask)
  return finetuning(
    squad.SquadTask,
    has_impossible=step.task == "squad2",
    _decoding=squad.Decoding(),
  )


def _stand_in(replica_id):
  """A replica context that looks like one of a TPU's.

  The strategy is one of TPUs by type, which is what the layers look at when
  they choose between their kernels, and does what the default strategy does.
  Sums over replicas are calls of `ALL_REDUCE`, whatever their number.

  Args:
    replica_id: <int32>[], as a TPU program gets it: an argument.
  """
  import tensorflow as tf
  from tensorflow.compiler.tf2xla.python import xla

  class Strategy(tf.distribute.TPUStrategy):
    def __init__(self):
      extended = tf.distribute.get_strategy().extended
      tf.distribute.Strategy.__init__(self, type(extended)(self))

    def scope(self):
      return contextlib.nullcontext()  # The default one's can't be entered.

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


def make_step(step: Step) -> tuple[Callable[..., Any], Any]:
  """The step as a `tf.function`, and the model whose variables it updates.

  Returns:
    A function from the replica's number <int32>[] and the features of a
    batch, in the order of `batch_spec`, to the step's losses and metrics; and
    the model.
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
  # Inside the program they could not be made.
  optimizer._create_all_weights(model.trainable_variables)
  update = training.make_train_step(task, model, optimizer, config)

  names = tuple(batch_spec(step))

  @tf.function(jit_compile=True)
  def replica_step(replica_id, *features):
    with _stand_in(replica_id):
      return update(dict(zip(names, features)))

  return replica_step, model


def lower(step: Step) -> bytes:
  """The step as a serialized HloModuleProto.

  Raises:
    ValueError: something in the step is not for an accelerator.
  """
  import tensorflow as tf

  function, _ = make_step(step)
  arguments = tf.TensorSpec([], tf.int32), *batch_spec(step).values()
  try:
    make_ir = function.experimental_get_compiler_ir(*arguments)
    return make_ir(stage="hlo_serialized")
  except (tf.errors.OpError, TypeError, ValueError) as error:
    # The rest is where in the graph and in the Python code; its line breaks
    # are written as a backslash and an n.
    reason = re.split(r"\n|\\n|\{\{", str(error).strip())[0].strip()
    raise ValueError(
      f"the step cannot be compiled as one program: {reason}"
    ) from error


def main(argv: Optional[list[str]] = None) -> int:
  """Lowers the step that the JSON says; returns the exit code."""
  values, path = started_by.arguments(
    "tools.compile_for_tpu", started_by.json_object, str, argv=argv
  )
  try:
    lowered = lower(Step(**values))
  except ValueError as error:
    print(error, file=sys.stderr)
    return 1
  files.write_bytes(path, lowered)
  return 0


if __name__ == "__main__":
  sys.exit(main())
