"""Draws a pretraining run's curves, training and held-out, as a PNG.

    python -m tools.plot_curves --model_dir=RUN --output_file=curves.png

See tools/inspection/plot.py for what is drawn; tools.run_pretraining
draws it at the end of a run.
"""

from __future__ import annotations

from absl import flags

from official_albert import files
from official_albert.tools.cli import command_line, path_flags

_MODEL_DIR = path_flags.define(
  "model_dir", None, "Folder of tools.run_pretraining."
)
_OUTPUT_FILE = path_flags.define("output_file", None, "The PNG to write.")
_UNIGRAM_ENTROPY = flags.DEFINE_float(
  "unigram_entropy", 0.0, "Drawn as a line in the loss panel, in nats."
)


if __name__ == "__main__":
  flags.mark_flags_as_required(["model_dir", "output_file"])
  command_line.parse()  # `--help` ends here, before Matplotlib is loaded.

from official_albert.tools.inspection import plot


def main(argv) -> None:
  del argv
  files.check_file(_OUTPUT_FILE.value)
  plot.plot_curves(_MODEL_DIR.value, _OUTPUT_FILE.value, _UNIGRAM_ENTROPY.value)
  print(f"wrote {_OUTPUT_FILE.value}")


if __name__ == "__main__":
  command_line.run(main)
