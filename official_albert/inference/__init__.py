"""Answers in Python with any model: `official_albert.load`.

`open_source` reads weights of any format into a model that can be served. An
`Engine` has the signatures of an export, or the same signatures in memory, and
`predict` answers rows of text by one of them. `LoadedModel` has a method for
each question.
"""

from official_albert.inference.engine import Backend, predict
from official_albert.inference.loaded_model import LoadedModel, load, open_model
from official_albert.inference.source import ENCODER, Source, open_source
