"""A task small enough to compute by hand, for tests of the loop.

    python -m official_albert.testing.toy_task \\
      '{"model_dir": "RUN", "config": {}, "distribution": "mirrored", ...}'

trains it for tests of several devices: TensorFlow can create logical devices,
or connect to other workers, only once in a process. See `main`.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import socket
import subprocess
import sys
from typing import Any, Iterator, Sequence

import numpy as np
import tensorflow as tf

# Python code in a tf.data pipeline would hang a process that exits meanwhile.
from tensorflow.python.data.experimental.ops import testing

from official_albert import distribution, modeling, run_logs, training
from official_albert.training import TrainConfig

FEATURES, EXAMPLES = 5, 37
_SECONDS = 400  # Much longer than a job takes on a busy machine.


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


def main(text: str) -> int:
  """Trains with the settings in a JSON text; returns the exit code.

  These are `model_dir`, `config` (of the TrainConfig), `distribution`,
  `num_devices` and `task` (of the task). Every worker but the chief has a log
  of its own.
  """
  logging.getLogger("tensorflow").setLevel(logging.ERROR)
  settings = json.loads(text)
  folder, task = settings["model_dir"], settings.get("task", {})
  try:
    strategy = distribution.make_strategy(
      settings["distribution"], settings["num_devices"]
    )
    cfg = config(folder, **settings["config"])
    if not distribution.is_chief(strategy):
      folder = log_folder(folder, strategy.cluster.index)
    lost = distribution.naming_lost_workers(strategy)
    with lost, training.Reporter(folder) as report:
      made = PredictingToyTask(**task)
      training.Trainer([made], cfg, strategy, report).run()
  except tf.errors.OutOfRangeError:
    return 0 if task.get("stop_after") else 1
  except (OSError, ValueError) as error:
    print(error, file=sys.stderr)
    return 1
  return 0


def log_folder(model_dir: str, worker: int) -> str:
  """Returns the log folder of a worker that is not the chief."""
  return os.path.join(model_dir, f"worker-{worker}")


def free_addresses(count: int) -> list[str]:
  """Returns addresses of this machine with free ports."""
  sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
  ports = [s.getsockname()[1] for s in sockets]
  for each in sockets:
    each.close()
  return [f"127.0.0.1:{port}" for port in ports]


@contextlib.contextmanager
def started(
  workers: int, command: Sequence[str], **popen: Any
) -> Iterator[list[subprocess.Popen]]:
  """Runs `command` once for each worker; kills survivors at the end."""
  cluster, processes = {"worker": free_addresses(workers)}, []
  popen |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
  try:
    for index in range(workers):
      task = {"type": "worker", "index": index}
      job = json.dumps({"cluster": cluster, "task": task})
      env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "TF_CONFIG": job}
      processes.append(subprocess.Popen(command, env=env, **popen))
    yield processes
  finally:
    for process in processes:
      process.kill()
      process.communicate()


def ended(process: subprocess.Popen) -> tuple[int, str]:
  """Waits for a process; returns its exit code and standard error."""
  _, stderr = process.communicate(timeout=_SECONDS)
  return process.returncode, without_notices(stderr)


def without_notices(stderr: str) -> str:
  """Removes what TensorFlow 2.20 logs whatever TF_CPP_MIN_LOG_LEVEL is."""
  notice = r"^(WARNING: All log messages before absl|I0000 ).*\n"
  return re.sub(notice, "", stderr, flags=re.MULTILINE)


def command(model_dir, config, **settings: Any) -> list[str]:
  """Returns the command line of `main` with these settings."""
  settings.update(model_dir=str(model_dir), config=config)
  module = "official_albert.testing.toy_task"
  return [sys.executable, "-m", module, json.dumps(settings)]


def run_job(workers: int, model_dir, config, **settings: Any) -> None:
  """Runs a job that must end without an error."""
  with started(workers, command(model_dir, config, **settings)) as processes:
    for process in processes:
      assert ended(process) == (0, "")


if __name__ == "__main__":
  sys.exit(main(sys.argv[1]))
