"""Exports: frozen encoder, signatures, and the folder of a SavedModel.

`hub` has the reusable SavedModels of TF Hub.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

# Which signatures an export has: of texts, of ids, or both.
SELECTIONS = ("all", "text", "ids")
# The Keras policy of each precision of an export.
EXPORT_PRECISIONS = {"float32": "float32", "bfloat16": "mixed_bfloat16"}
