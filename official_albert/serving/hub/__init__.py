"""TF Hub modules: a trainable encoder and its preprocessor."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={
    "encoder": [
      "FEATURES",
      "HubEncoder",
      "HubObject",
      "save_hub_object",
    ],
    "preprocessor": [
      "HubPreprocessor",
    ],
  },
)

# Length of the inputs of a preprocessor, where its caller does not say one.
SEQ_LENGTH = 128
