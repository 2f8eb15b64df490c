"""The model card of a Hugging Face folder, and its upload to their Hub.

Source: the metadata of model cards, huggingface.co/docs/hub/model-cards.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from typing import TYPE_CHECKING, Mapping

from official_albert import files
from official_albert.settings import setting

if TYPE_CHECKING:  # Flags are parsed before TensorFlow is loaded.
  from official_albert import checkpoints

CARD_FILE, REPORT_FILE = "README.md", "conversion.json"
_NAME = re.compile(r"[\w.-]+/[\w.-]+")
# Of heads that are no classification of texts.
_PIPELINES = {
  "none": "feature-extraction",
  "pretraining": "fill-mask",
  "masked_lm": "fill-mask",
  "multiple_choice": "multiple-choice",
  "squad1": "question-answering",
  "token_classification": "token-classification",
  "embedding": "sentence-similarity",
}
_TEXT = """
# {name}

An [ALBERT](https://arxiv.org/abs/1909.11942), trained on {data}. In TensorFlow,
`official_albert.load("{name}")` opens it; in PyTorch:

```python
{code}
```
"""
_CODE = """from transformers import AutoTokenizer, {architecture}

tokenizer = AutoTokenizer.from_pretrained("{name}")
model = {architecture}.from_pretrained("{name}")"""
_EMBEDDING_CODE = """from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{name}")
vectors = model.encode(["It rains.", "It is wet."])"""


@dataclasses.dataclass(frozen=True)
class Card:
  """What the model card of --to=hf says that no checkpoint knows."""

  license: str = setting("", "On the model card: a license, as in apache-2.0.")
  language: str = setting("", "On the model card: languages, as in en,de.")
  base_model: str = setting(
    "", "On the model card: the Hub's name of the model that was fine-tuned."
  )
  datasets: str = setting(
    "", "On the model card: the training data, as in a,b."
  )


def write(
  card: Card,
  name: str,
  checkpoint: checkpoints.PortableCheckpoint,
  results: Mapping[str, Mapping[str, float]],
) -> str:
  """Returns the text of the card.

  The Hub shows the scores of its metadata as a table.

  Args:
    card: what the user says.
    name: USER/NAME on the Hub, or the name of the folder.
    checkpoint: the model, with a head that Hugging Face has.
    results: the content of the eval_results.json of the model.
  """
  from official_albert import checkpoints  # Programs parse flags before.

  task = (checkpoint.record.get("data") or {}).get("task", "")
  datasets, languages = (
    [x.strip() for x in text.split(",") if x.strip()]
    for text in (card.datasets, card.language)
  )
  kind = _PIPELINES.get(checkpoint.head, "text-classification")
  found = [
    {
      "task": {"type": kind},
      "dataset": {"name": task, "type": (*datasets, task)[0], "split": split},
      "metrics": [
        {"type": metric, "value": value}
        for metric, value in scores.items()
        if not metric.endswith("threshold") and math.isfinite(value)
      ],
    }
    for split, scores in results.items()
  ]
  is_embedding = checkpoint.head == "embedding"
  library = "sentence-transformers" if is_embedding else "transformers"
  metadata = {
    "library_name": library,
    "pipeline_tag": kind,
    "tags": ["albert", *[library] * is_embedding],
    "license": card.license,
    "language": languages,
    "base_model": card.base_model,
    "datasets": datasets,
    "model-index": [{"name": name, "results": found}] if found else [],
  }
  # Each value is JSON, which YAML includes.
  head = [f"{x}: {json.dumps(y)}" for x, y in metadata.items() if y]
  code = _EMBEDDING_CODE if is_embedding else _CODE
  architecture = checkpoints.ARCHITECTURES[checkpoint.head]
  text = _TEXT.format(
    name=name,
    code=code.format(name=name, architecture=architecture),
    data=", ".join(datasets) or "data that is not recorded",
  )
  return "\n".join(["---", *head, "---", text])


def check_push(name: str) -> None:
  """Refuses a push that cannot succeed, before any work.

  Raises:
    ValueError, OSError: one of the name, library, token or Hub is missing.
  """
  if not _NAME.fullmatch(name):
    raise ValueError(f"--push_to={name} is not USER/NAME.")
  try:
    import huggingface_hub

    huggingface_hub.HfApi().whoami()
  except ModuleNotFoundError as error:
    raise ValueError(
      "--push_to needs a package: pip install huggingface_hub."
    ) from error
  except Exception as error:  # Of the library's HTTP client.
    raise OSError(
      f"--push_to={name}: no login to the Hugging Face Hub ({_line(error)}): "
      "run `hf auth login`, set HF_TOKEN, or try again later."
    ) from error


def push(folder: str, name: str) -> str:
  """Uploads a folder to a repository, made private if new; returns its URL.

  Raises:
    OSError: the upload failed.
  """
  import huggingface_hub

  api = huggingface_hub.HfApi()
  try:
    with files.local_copy(folder) as path:
      api.create_repo(name, private=True, exist_ok=True)
      # The report has paths of this machine.
      api.upload_folder(
        repo_id=name, folder_path=path, ignore_patterns=[REPORT_FILE]
      )
  except Exception as error:  # Of the library's HTTP client.
    raise OSError(
      f"{folder} is written, but was not pushed to {name} ({_line(error)}): "
      f"run `hf upload {name} {folder}`."
    ) from error
  return f"{api.endpoint}/{name}"


def _line(error: Exception) -> str:
  return str(error).strip().partition("\n")[0][:200]
