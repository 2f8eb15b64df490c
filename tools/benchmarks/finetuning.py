"""Measures fine-tuning with and without length buckets, in examples per second.

Trains repeatedly on the first window of the reader, whose batches have all
lengths. The first pass, which traces the step for each length, is reported
separately.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
import tempfile
import time
from typing import Optional

from official_albert import distribution, modeling, tokenization, training
from tasks import common
from tools import finetuning
from tools.benchmarks import comparison
from tools.cli import markdown

# The batches that the reader sorts together.
_UPDATES = 32
_BUCKETING = {"length buckets": True, "padded to S": False}


@dataclasses.dataclass(frozen=True)
class Settings:
  """What is measured; see the flags of tools.benchmark."""

  task: str
  data_dir: str
  spm_model_file: str
  preset: str
  max_seq_length: int
  batch_size: int
  precision: str
  repeats: int
  work_dir: Optional[str] = None


def run(settings: Settings) -> None:
  """Measures both in turns, and prints a table.

  Raises:
    ValueError: unknown sizes, or the data is wrong.
  """
  comparison.check_own(
    settings.preset,
    settings.batch_size,
    settings.max_seq_length,
    settings.precision,
  )
  examples = _UPDATES * settings.batch_size
  with tempfile.TemporaryDirectory(dir=settings.work_dir) as cache_dir:
    trainers = {
      name: _Trainer(settings, cache_dir, bucketing)
      for name, bucketing in _BUCKETING.items()
    }
    first = {name: trainer.seconds() for name, trainer in trainers.items()}
    later = {name: [] for name in trainers}
    for _ in range(settings.repeats):
      for name, trainer in trainers.items():
        later[name].append(trainer.seconds())
  print(
    f"{settings.task}, {settings.preset}, S {settings.max_seq_length}, batch "
    f"{settings.batch_size}, {settings.precision}; {examples} examples"
  )
  rows = [row(name, examples, first[name], later[name]) for name in trainers]
  print(markdown.table(("batches", "examples/s", "first pass, s"), rows))
  ratios = [padded / buckets for buckets, padded in zip(*later.values())]
  print(
    f"Buckets: {statistics.median(ratios):.2f} times as fast, the median of "
    f"{', '.join(f'{ratio:.2f}' for ratio in ratios)}."
  )


def row(
  name: str, examples: int, first: float, later: list[float]
) -> tuple[str, ...]:
  """Returns the cells of a row, given the seconds of the passes."""
  return name, f"{examples / statistics.median(later):,.0f}", f"{first:.1f}"


class _Trainer:
  """Trains a GLUE task from random weights on its first window."""

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
    """Returns the seconds of one pass."""
    start = time.monotonic()
    for batch in self._dataset.take(_UPDATES):
      norm = self._step(batch)["gradient_norm"].total
    float(norm)  # Waits for the last update.
    return time.monotonic() - start
