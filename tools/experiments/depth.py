"""Accuracy against the mean number of layers of fine-tuned classifiers.

    python -m tools.experiments.depth OUT SST-2/dev.tsv plain=RUN random=RUN,RUN

Asks runs (several seeds: with commas) for the rows of a table (the text, then
the label) at each exit layer and with thresholds. Writes OUT.json with the
numbers of each run, which docs/draw.py draws. Milliseconds are of the
processor, per text, with everything around the model: of batches of 32, and of
the first hundred texts one by one. Each number is of a second pass.
"""

from __future__ import annotations

import pathlib
import time
from typing import Any, Mapping, Sequence

import numpy as np

from official_albert import files, machine
from official_albert.tools.cli import command_line

MAX_ARGUMENTS = 99

if __name__ == "__main__":
  # `--help` ends here, before TensorFlow is loaded.
  command_line.parse()

from official_albert import inference

_THRESHOLDS = (0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98)


def _ask(
  model: inference.LoadedModel,
  rows: Sequence[tuple[str, str]],
  depth: Mapping[str, Any],
) -> dict[str, float]:
  texts = [text for text, _ in rows]
  for _ in range(2):
    start = time.process_time()
    answers = model.classify(texts, **depth)
    middle = time.process_time()
    for text in texts[:100]:
      model.classify(text, **depth)
    end = time.process_time()
  layers = model.config.num_hidden_layers
  right = [x.label == label for x, (_, label) in zip(answers, rows)]
  return {
    "accuracy in percent": 100 * np.mean(right),
    "mean number of layers": np.mean([x.exit_layer or layers for x in answers]),
    "milliseconds a text, batches of 32": 1000 * (middle - start) / len(texts),
    "milliseconds of one text": 1000 * (end - middle) / len(texts[:100]),
  }


def main(arguments: Sequence[str]) -> None:
  if len(arguments) < 4 or not all("=" in x for x in arguments[3:]):
    raise ValueError("give OUT, a table, and NAME=RUN for each kind of run.")
  _, output, table, *named = arguments
  lines = pathlib.Path(table).read_text("utf-8").splitlines()[1:]
  rows: list[Any] = [line.split("\t") for line in lines]
  if not rows or any(len(row) != 2 for row in rows):
    raise ValueError(
      f"{table} must have a heading and rows of a text, a tab and its label."
    )
  results: dict[str, list[dict[str, Any]]] = {}
  for name, runs in (argument.split("=", 1) for argument in named):
    models = [inference.load(run) for run in runs.split(",")]
    layers = range(1, models[0].config.num_hidden_layers + 1)
    depths: list[dict[str, Any]] = [{}, *({"exit_layer": x} for x in layers)]
    results[name] = []
    for depth in [*depths, *({"exit_threshold": x} for x in _THRESHOLDS)]:
      each = [_ask(model, rows, depth) for model in models]
      numbers = {x: [round(float(y[x]), 3) for y in each] for x in each[0]}
      results[name].append({**depth, **numbers})
      print(name, results[name][-1], flush=True)
  machine_name = machine.describe_machine()
  files.write_json(f"{output}.json", {"machine": machine_name, **results})


if __name__ == "__main__":
  command_line.run(main)
