"""Answers in Python with any model: `official_albert.load`.

`open_source` reads weights of any format into a model that can be served. An
`Engine` answers rows of text by the signatures of an export, or by the same
signatures in memory. `LoadedModel` has a method for each question.
"""

from official_albert.inference.engine import (
  Backend,
  Engine,
  open_export,
  predict,
)
from official_albert.inference.loaded_model import LoadedModel, load, open_model
from official_albert.inference.source import ENCODER, Source, open_source
