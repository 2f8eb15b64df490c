"""A task small enough to compute by hand, for tests of the loop."""

from __future__ import annotations

import io

import numpy as np
import tensorflow as tf

# Python code in a tf.data pipeline would hang a process that exits meanwhile.
from tensorflow.python.data.experimental.ops import testing

from official_albert import distribution, modeling, run_logs, training
from official_albert.training import TrainConfig

FEATURES, EXAMPLES = 5, 37


class _Model(tf.keras.Model):
  """A model with two layers, whose attribute names are checkpoint keys."""

  def __init__(self):
    super().__init__()
    self.hidden = tf.keras.layers.Dense(4, activation="tanh", name="hidden")
    self.out = tf.keras.layers.Dense(2, name="out")

  def call(self, x):
    return self.out(self.hidden(x))


class ToyTask:
  """Two weighted squared errors with dropout on the input.

  The weights differ between examples, so a mean of means differs from a
  quotient of sums. `starts` has the first example of each training dataset.
  """

  name = "toy"
  tokens_per_example = 3
  flops_per_example = 60

  def __init__(
    self,
    poison_at=None,
    dropout_rate=0.0,
    seed=0,
    stop_after=None,
    step_seconds=0.0,
  ):
    """Creates data of a seed, with infinite features at `poison_at`.

    It ends after `stop_after` updates, as if the process had been killed, and
    takes `step_seconds` a batch.
    """
    rng = np.random.default_rng(seed)
    self.x = rng.normal(size=[EXAMPLES, FEATURES]).astype(np.float32)
    self.y = rng.normal(size=[EXAMPLES, 2]).astype(np.float32)
    self.w = rng.integers(0, 3, [EXAMPLES, 2]).astype(np.float32) + 0.5
    self.eval_x = self.x.copy()
    if poison_at is not None:
      self.x[poison_at] = np.inf
    self.dropout_rate, self._seed = dropout_rate, seed
    self.stop_after, self.step_seconds = stop_after, step_seconds
    self.starts = []

  def build_model(self):
    model = _Model()
    model.build([None, FEATURES])
    return model

  def train_dataset(
    self, batch_size, start_example, context=training.ONE_PIPELINE
  ):
    self.starts.append(start_example)
    data = tf.data.Dataset.from_tensor_slices(
      {"x": self.x, "y": self.y, "w": self.w}
    )
    data = data.repeat().skip(start_example)
    data = data.batch(batch_size, drop_remainder=True).enumerate()
    pipelines = context.num_input_pipelines
    replicas = context.num_replicas_in_sync // pipelines
    data = data.filter(
      lambda number, _: (
        number // replicas % pipelines == context.input_pipeline_id
      )
    )
    data = data.map(lambda _, batch: batch)
    if self.step_seconds:
      data = data.apply(testing.sleep(int(self.step_seconds * 1e6)))
    if self.stop_after is None:
      return data
    return data.take(self.stop_after * replicas)

  def eval_dataset(self, batch_size):
    # The rows that pad the last batch have weight 0.
    rest = [[0, -EXAMPLES % batch_size], [0, 0]]
    columns = {"x": self.eval_x, "y": self.y, "w": self.w}
    data = tf.data.Dataset.from_tensor_slices(
      {name: np.pad(x, rest) for name, x in columns.items()}
    )
    return data.batch(batch_size, drop_remainder=True)

  def loss_weights(self, batch):
    weights = tf.reduce_sum(batch["w"], 0)
    return {"first": weights[0], "second": weights[1]}

  def forward(self, model, batch, training_, dropout_seed):
    x = modeling.seeded_dropout(
      batch["x"], self.dropout_rate, training_, dropout_seed
    )
    outputs = tf.cast(model(x), tf.float32)
    errors = tf.reduce_sum(batch["w"] * (outputs - batch["y"]) ** 2, 0)
    ones = tf.cast(batch["w"][:, 0] > 0, tf.float32)
    big = tf.cast(batch["x"][:, 0] > 0, tf.float32)
    metric = training.Ratio(tf.reduce_sum(big), tf.reduce_sum(ones))
    return {"first": errors[0], "second": errors[1]}, {"share": metric}

  def evaluate(self, model, batch):
    return *self.forward(model, batch, False, None), {}

  def begin(self, model):
    pass

  def describe(self):
    return {"seed": self._seed, "dropout_rate": self.dropout_rate}


class PredictingToyTask(ToyTask):
  """The toy task with predictions, and a metric that is not a sum."""

  def eval_dataset(self, batch_size):
    rows = super().eval_dataset(batch_size).unbatch().enumerate()

    def numbered(number, row):
      real = tf.cast(number < EXAMPLES, tf.float32)
      number = tf.cast(number, tf.int32)
      return {**row, "example_id": number, "example_weight": real}

    return rows.map(numbered).batch(batch_size, drop_remainder=True)

  def evaluate(self, model, batch):
    totals, metrics, _ = super().evaluate(model, batch)
    return totals, metrics, self.predict(model, batch)

  def predict(self, model, batch):
    return {"example_id": batch["example_id"], "outputs": model(batch["x"])}

  def score(self, predictions):
    errors = np.abs(predictions["outputs"] - self.y)
    return {"median_error": float(np.median(errors))}


def config(model_dir, **changes) -> TrainConfig:
  """Returns settings for six steps of twelve examples, with `changes`."""
  values = dict(
    model_dir=str(model_dir),
    num_train_steps=6,
    num_warmup_steps=2,
    learning_rate=0.01,
    train_batch_size=12,
    eval_batch_size=10,
    steps_per_loop=2,
    eval_steps=0,
    save_checkpoints_steps=3,
  )
  return TrainConfig(**{**values, **changes})


def run(task, cfg, trainer=None):
  """Trains a task, or a list with one for each phase.

  Returns the last evaluation, the weights and the log. The list `trainer` is
  filled by the first of several runs that share a trainer.
  """
  tasks = task if isinstance(task, list) else [task]
  stream = io.StringIO()
  trainer = [] if trainer is None else trainer
  with training.Reporter(cfg.model_dir, stream) as report:
    if trainer:
      trainer[0].reset(tasks, cfg, report)
    else:
      strategy = distribution.make_strategy("one_device")
      trainer.append(training.Trainer(tasks, cfg, strategy, report))
    values = trainer[0].run()
  return values, trainer[0].model.get_weights(), stream.getvalue()


def logged(folder, name="loss", kind="train"):
  """Returns the value `name` of each line of a run's log, by step."""
  records = run_logs.read_metrics(str(folder), kind)
  return [record[name] for record in records]


def saved(folder, step=None):
  """Returns the values in a checkpoint by name; by default in the latest."""
  path = f"{folder}/model.ckpt-{step}"
  if step is None:
    path = tf.train.latest_checkpoint(str(folder))
  reader = tf.train.load_checkpoint(path)
  return {
    name: reader.get_tensor(name)
    for name in reader.get_variable_to_shape_map()
    if name != "_CHECKPOINTABLE_OBJECT_GRAPH" and "save_counter" not in name
  }
