"""RACE: exam questions about a passage, with four options each."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={
    "examples": [
      "LETTERS",
      "RECIPES",
      "RaceExample",
      "accuracy_by_level",
      "make_all_inputs",
      "read_examples",
    ],
    "task": [
      "AlbertForMultipleChoice",
      "RaceTask",
      "ServedMultipleChoice",
      "pack_options",
    ],
  },
)
