"""How many examples a second fine-tuning trains on, with length buckets or not.

One window of the reader, that is batches of all lengths, is trained on again
and again; the first time, in which programs for each length are made, is
reported by itself.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
import tempfile
import time
from typing import NamedTuple, Optional

from official_albert import distribution, modeling, tokenization, training
from tasks import common
from tools import finetuning
from tools.benchmarks import peers_command as benchmark_peers
from tools.cli import markdown

# As many updates as the reader sorts together have batches of all lengths.
_UPDATES = 32


@dataclasses.dataclass(frozen=True)
class Settings:
  """What is measured: training of a GLUE task from random weights."""

  task: str
  data_dir: str
  spm_model_file: str
  preset: str
  max_seq_length: int = 512
  batch_size: int = 32
  precision: str = "float32"
  repeats: int = 3
  work_dir: Optional[str] = None


class Speed(NamedTuple):
  """Seconds of the first pass over a window, and of each later one."""

  first_seconds: float
  seconds: list[float]


def run(settings: Settings) -> None:
  """Measures both ways in turns, and prints a Markdown table.

  Raises:
    ValueError: unknown sizes, or the data is not what it must be.
  """
  # Refuses what no model can be made of, before records are made.
  benchmark_peers.check_own(
    settings.preset,
    settings.batch_size,
    settings.max_seq_length,
    settings.precision,
  )
  examples = _UPDATES * settings.batch_size
  ways = {"length buckets": True, "padded to S": False}
  with tempfile.TemporaryDirectory(dir=settings.work_dir) as cache_dir:
    trainers = {
      name: _Trainer(settings, cache_dir, bucketing)
      for name, bucketing in ways.items()
    }
    first = {name: trainer.seconds() for name, trainer in trainers.items()}
    later = {name: [] for name in ways}
    for _ in range(settings.repeats):
      for name, trainer in trainers.items():
        later[name].append(trainer.seconds())
  print(
    f"{settings.task}, {settings.preset}, S {settings.max_seq_length}, batch "
    f"{settings.batch_size}, {settings.precision}; {examples} examples"
  )
  rows = [row(name, examples, Speed(first[name], later[name])) for name in ways]
  print(markdown.table(("batches", "examples/s", "first pass, s"), rows))
  ratios = [b / a for a, b in zip(*later.values())]
  print(
    f"Buckets: {statistics.median(ratios):.2f} times as fast, the median of "
    f"{', '.join(f'{ratio:.2f}' for ratio in ratios)}."
  )


def row(name: str, examples: int, speed: Speed) -> tuple[str, ...]:
  """Returns the cells of a row; the rate is a median."""
  rate = examples / statistics.median(speed.seconds)
  return name, f"{rate:,.0f}", f"{speed.first_seconds:.1f}"


class _Trainer:
  """Trains on the first window of a task, whenever it is asked to."""

  def __init__(self, settings: Settings, cache_dir: str, bucketing: bool):
    import tensorflow as tf

    distribution.start_compiler()
    distribution.set_precision(settings.precision)
    tf.keras.utils.set_random_seed(1)
    tokenizer = tokenization.SentencePieceTokenizer(settings.spm_model_file)
    job = finetuning.text_jobs.GlueJob(
      settings.task,
      finetuning.jobs.Options(
        settings.data_dir,
        os.path.join(cache_dir, "records"),
        tokenizer,
        max_seq_length=settings.max_seq_length,
        length_bucketing=bucketing,
        note=lambda text: None,
      ),
    )
    albert_config = dataclasses.replace(
      modeling.AlbertConfig.from_preset(settings.preset),
      vocab_size=tokenizer.vocab_size,
    )
    task = job.make_task(
      ["train"], albert_config, common.ModelSettings(), seed=1
    )
    model = task.build_model()
    config = training.TrainConfig(
      model_dir="",
      num_train_steps=10**6,
      num_warmup_steps=0,
      learning_rate=1e-5,
      train_batch_size=settings.batch_size,
      optimizer="adamw",
    )
    optimizer = config.make_optimizer()
    optimizer._create_all_weights(model.trainable_variables)
    self._dataset = task.train_dataset(settings.batch_size, 0)
    step = training.make_train_step(task, model, optimizer, config)
    self._step = tf.function(step, input_signature=[self._dataset.element_spec])

  def seconds(self) -> float:
    begun = time.monotonic()
    for batch in self._dataset.take(_UPDATES):
      loss = self._step(batch)["gradient_norm"].total
    float(loss)
    return time.monotonic() - begun
