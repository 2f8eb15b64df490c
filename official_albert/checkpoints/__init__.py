"""Finds, reads and writes pretrained weights of every format.

One table (names.py) maps the names of weights between google-research/albert,
Hugging Face and this package. Readers return a `PortableCheckpoint`, which
`fill` loads into a model and writers write.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

READ_FORMATS = ("tf1", "tf_hub", "hf", "official_albert")
WRITE_FORMATS = ("tf1", "hf", "official_albert")
# How to initialize the additional positions of a longer model.
POSITION_METHODS = ("tile", "interpolate")
