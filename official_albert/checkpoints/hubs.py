"""Models by their names on the Hugging Face Hub and on Kaggle.

The library of a hub, which need not be installed, knows its cache, the account
and whether to be offline.
"""

from __future__ import annotations

import re

from official_albert import files, settings

# As in albert/albert-base-v2.
_HUGGING_FACE = re.compile(r"(hf://)?([\w.-]+/[\w.-]+)")
# As in keras/albert/keras/albert_base_en_uncased/5, where the third part is the
# framework, and the last the version.
_KAGGLE = re.compile(
  r"kaggle://([\w-]+/[\w-]+/\w+/[\w.-]+(?:/\d+)?)|"
  r"([\w-]+/[\w-]+/(?:keras|tensorflow[12]|transformers)/[\w.-]+(?:/\d+)?)",
  re.IGNORECASE,
)
_FILES = ["*.json", "*.safetensors", "*.model", "vocab.txt"]
# What other formats than safetensors need.
_FURTHER = ["*.h5", "*.spm", "saved_model.pb", "variables/*", "assets/*"]


def downloaded(path: str) -> str:
  """Returns a path, or the local folder of the model of a hub.

  A path here comes first.

  Raises:
    ValueError: the name is none of its hub, or the library is missing.
    FileNotFoundError: the hub and its cache have no such model.
  """
  is_address = path.startswith(settings.HUBS)
  if not is_address and (files.exists(path) or files.exists(f"{path}.index")):
    return path
  kaggle, hugging_face = _KAGGLE.fullmatch(path), _HUGGING_FACE.fullmatch(path)
  if not (kaggle or hugging_face):
    if not is_address:
      return path
    raise ValueError(
      f"{path!r:.120} names no model: give hf://USER/MODEL, or "
      "kaggle://OWNER/MODEL/FRAMEWORK/VARIATION with /VERSION or without."
    )
  try:
    if kaggle:
      import kagglehub

      return kagglehub.model_download(kaggle[1] or kaggle[2])
    import huggingface_hub

    get, name = huggingface_hub.snapshot_download, hugging_face[2]
    folder = get(name, allow_patterns=_FILES)
    if not any(x.endswith(".safetensors") for x in files.list_dir(folder)):
      folder = get(name, allow_patterns=[*_FILES, *_FURTHER])
    return folder
  except ModuleNotFoundError as error:
    if not (kaggle or is_address):  # It may be meant as a path.
      return path
    package = "kagglehub" if kaggle else "huggingface_hub"
    raise ValueError(
      f"{path} needs the package {package}: pip install {package}."
    ) from error
  except Exception as error:  # Those of kagglehub have no common class.
    hub, advice = "the Hugging Face Hub", ""
    if kaggle:
      hub, advice = "Kaggle", "; its cache needs a /VERSION at the end"
    reason = str(error).strip().partition("\n")[0]
    raise FileNotFoundError(
      f"there is no checkpoint at {path}, and none of this name on {hub} or in "
      f"its cache ({reason:.200}){advice}."
    ) from error
