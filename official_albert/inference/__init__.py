"""Answers in Python with any model: `official_albert.load`.

`open_source` reads weights of any format into a model that can be served. A
`LoadedModel` asks it, or an export, by the same signatures, with a method for
each question; `predict` answers rows of text by one of them.
"""

from official_albert.inference.engine import Backend, predict
from official_albert.inference.loaded_model import LoadedModel
from official_albert.inference.source import (
  ENCODER,
  load,
  make_model,
  open_model,
  open_source,
)
