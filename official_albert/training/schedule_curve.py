"""The whole learning-rate schedule as a curve in TensorBoard.

It is a run of its own (`schedule/` beside `train/`) with the tag that training
uses, so that TensorBoard lays what is to come over what has been.
"""

from __future__ import annotations

import json
import os

import numpy as np
import tensorflow as tf

from official_albert.training import optimization

FOLDER = "schedule"
MAX_POINTS = 200
# Written last: a curve without it was cut short by a kill.
_SETTINGS_FILE = "settings.json"


def points(schedule: optimization.WarmupPolynomialDecay) -> list[int]:
  """Up to `MAX_POINTS` steps, from 0 to the last, with the warm-up's end."""
  last, warmup = schedule.num_train_steps, schedule.num_warmup_steps
  # The rate may fall at once after the warm-up's last step.
  corners = {0, max(warmup - 1, 0), min(warmup, last), last}
  evenly = np.linspace(0, last, MAX_POINTS - len(corners)).round()
  return sorted(corners | {int(step) for step in evenly})


def write(model_dir: str, schedule: optimization.WarmupPolynomialDecay) -> bool:
  """Writes the curve unless that of the same settings is there.

  Args:
    model_dir: the run's folder.
    schedule: what to draw; another schedule replaces the curve that is there.

  Returns:
    Whether it was written.

  Raises:
    OSError: the folder cannot be written.
  """
  folder = os.path.join(model_dir, FOLDER)
  settings_path = os.path.join(folder, _SETTINGS_FILE)
  settings = json.dumps(schedule.get_config(), sort_keys=True)
  if tf.io.gfile.exists(settings_path):
    with tf.io.gfile.GFile(settings_path) as file:
      if file.read() == settings:
        return False
  if tf.io.gfile.isdir(folder):
    tf.io.gfile.rmtree(folder)
  steps = points(schedule)
  rates = schedule(tf.constant(steps)).numpy()
  with tf.summary.create_file_writer(folder).as_default() as writer:
    for step, rate in zip(steps, rates):
      tf.summary.scalar("learning_rate", rate, step=step)
    writer.close()
  with tf.io.gfile.GFile(settings_path, "w") as file:
    file.write(settings)
  return True
