"""Converts ALBERT checkpoints between Google, Hugging Face and this package.

    python -m tools.convert_checkpoint --to=official_albert \\
      --input=albert_base_v2.tar.gz --output=albert_base_v2
    python -m tools.convert_checkpoint --to=hf --input=RUN --output=FOLDER

Before the output appears, all its values are compared with those of the input.
If torch and transformers are installed, so are the outputs of both models for a
batch. The report is printed and written to conversion.json; see
docs/checkpoints.md.
"""

from __future__ import annotations

import json

from absl import flags

from official_albert import settings
from official_albert.tools.cli import command_line, encoder_flags, path_flags
from official_albert.tools.conversion import model_card

_CHECKPOINT = path_flags.define_shared("checkpoint")
_TO = flags.DEFINE_enum(
  "to", None, list(settings.WRITE_FORMATS), "Format of --output."
)
_INPUT = path_flags.define(
  "input",
  None,
  "A folder or a .tar.gz of one, or the prefix of a TensorFlow checkpoint. The "
  "best checkpoint of a run is read, and the best run of several seeds.",
)
_OUTPUT = path_flags.define(
  "output", None, "The new folder; must be empty or not exist."
)
_HEAD = flags.DEFINE_enum(
  "head",
  "",
  ["", *settings.HEADS],
  "The head to carry; by default the one of the input.",
)
_INCLUDE_OPTIMIZER = flags.DEFINE_bool(
  "include_optimizer",
  False,
  "Carry optimizer state (m, v, step) between tf1 and official_albert.",
)
_HF_PYTHON = path_flags.define(
  "hf_python",
  "",
  "An interpreter with torch and transformers to compare outputs; by default "
  "this one, if it has them.",
)
_PUSH_TO = flags.DEFINE_string(
  "push_to",
  "",
  "USER/NAME: upload the output of --to=hf to this repository of the Hugging "
  "Face Hub, which is made private if it is new.",
)
_CARD = path_flags.define_settings(model_card.Card)

if __name__ == "__main__":
  flags.mark_flags_as_required(["to", "input", "output"])
  command_line.parse()  # `--help` ends here, before TensorFlow is loaded.

from official_albert.tools.conversion import conversion


def main(_) -> None:
  report = conversion.convert(
    _TO.value,
    _INPUT.value,
    _OUTPUT.value,
    head=_HEAD.value,
    include_optimizer=_INCLUDE_OPTIMIZER.value,
    config_file=encoder_flags.CONFIG_FILE.value,
    tokenizer=encoder_flags.chosen_tokenizer(),
    hf_python=_HF_PYTHON.value,
    card=model_card.Card(**{name: x.value for name, x in _CARD.items()}),
    push_to=_PUSH_TO.value,
    checkpoint=_CHECKPOINT.value,
  )
  print(json.dumps(report, indent=2))


if __name__ == "__main__":
  command_line.run(main)
