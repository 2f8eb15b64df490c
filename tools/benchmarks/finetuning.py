"""Measures fine-tuning with and without length buckets, in examples per second.

It trains repeatedly on the first window of the reader, whose batches have all
lengths. The first pass, which traces the step for each length, is reported
separately.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
import tempfile
import time
from typing import Callable, Optional

from official_albert import distribution, modeling, tokenization, training
from tasks import common
from tools import finetuning
from tools.benchmarks import comparison
from tools.cli import markdown

# The batches that the reader sorts together.
_UPDATES = 32
_BUCKETING = {"length buckets": True, "padded to S": False}


def run(
  task: str,
  data_dir: str,
  spm_model_file: str,
  preset: str,
  max_seq_length: int,
  batch_size: int,
  precision: str,
  repeats: int,
  work_dir: Optional[str] = None,
) -> None:
  """Measures both in turns, and prints a table; see the program's flags."""
  comparison.check_own(preset, batch_size, max_seq_length, precision)
  distribution.start_compiler()
  distribution.set_precision(precision)
  tokenizer = tokenization.SentencePieceTokenizer(spm_model_file)
  config = dataclasses.replace(
    modeling.AlbertConfig.from_preset(preset), vocab_size=tokenizer.vocab_size
  )
  with tempfile.TemporaryDirectory(dir=work_dir) as cache_dir:
    passes = {}
    for name, bucketing in _BUCKETING.items():
      options = finetuning.jobs.Options(
        data_dir,
        os.path.join(cache_dir, "records"),
        tokenizer,
        max_seq_length=max_seq_length,
        length_bucketing=bucketing,
        note=lambda text: None,
      )
      job = finetuning.text_jobs.GlueJob(task, options)
      passes[name] = _make_pass(job, config, batch_size)
    first = {name: seconds() for name, seconds in passes.items()}
    later = {name: [] for name in passes}
    for _ in range(repeats):
      for name, seconds in passes.items():
        later[name].append(seconds())
  examples = _UPDATES * batch_size
  print(
    f"{task}, {preset}, S {max_seq_length}, batch {batch_size}, {precision}; "
    f"{examples} examples"
  )
  rows = []
  for name in passes:
    rate = examples / statistics.median(later[name])
    rows.append((name, f"{rate:,.0f}", f"{first[name]:.1f}"))
  print(markdown.table(("batches", "examples/s", "first pass, s"), rows))
  ratios = [padded / buckets for buckets, padded in zip(*later.values())]
  print(
    f"Buckets: {statistics.median(ratios):.2f} times as fast, the median of "
    f"{', '.join(f'{ratio:.2f}' for ratio in ratios)}."
  )


def _make_pass(
  job, albert_config: modeling.AlbertConfig, batch_size: int
) -> Callable[[], float]:
  """Returns a function that trains on the first window, and its seconds."""
  import tensorflow as tf

  tf.keras.utils.set_random_seed(1)
  task = job.make_task(["train"], albert_config, common.ModelSettings(), seed=1)
  model = task.build_model()
  config = training.TrainConfig(
    model_dir="",
    num_train_steps=10**6,
    num_warmup_steps=0,
    learning_rate=1e-5,
    train_batch_size=batch_size,
    optimizer="adamw",
  )
  optimizer = config.make_optimizer()
  optimizer._create_all_weights(model.trainable_variables)
  dataset = task.train_dataset(batch_size, 0)
  step = tf.function(
    training.make_train_step(task, model, optimizer, config),
    input_signature=[dataset.element_spec],
  )

  def seconds() -> float:
    start = time.monotonic()
    for batch in dataset.take(_UPDATES):
      norm = step(batch)["gradient_norm"].total
    float(norm)  # Waits for the last update.
    return time.monotonic() - start

  return seconds
