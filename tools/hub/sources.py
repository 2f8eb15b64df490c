"""Where a Hub module's weights are from: a run, or a released checkpoint.

Which weights of a folder, which heads are whole, which tokenizer belongs to
them, and what the run's own records say that they can do.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from typing import Any, Iterator, Mapping, Optional

from official_albert import checkpoints, distribution, modeling, training
from official_albert.tokenization import in_graph
from tasks import pretraining
from tools.hub import metrics as hub_metrics

# Of each part of the model, how its weights begin by the names of TF1 and of
# our own checkpoints.
_PARTS = {
  "masked_lm": ("cls/predictions/", "masked_lm/"),
  "sentence_order": ("cls/seq_relationship/", "sentence_order/"),
}
_POOLER = ("bert/pooler/", "albert/pooler/")


@dataclasses.dataclass(frozen=True)
class Source:
  """What is to be published.

  Attributes:
    path: as the user named it.
    kind: a key of `checkpoints.READERS`.
    step: the training step; 0 if the source does not know it.
    model: with the weights, in float32.
    heads: of "masked_lm" and "sentence_order" those whose weights are there.
    tokenizer: its file, which may go when the source is closed.
    text_layer: the same tokenizer in the graph.
    data: what run.json says of the training data; {} if there is none.
    measured: what the weights can do; None if that was not measured.
    notes: what was assumed, one sentence each.
  """

  path: str
  kind: str
  step: int
  model: pretraining.AlbertForPretraining
  heads: tuple[str, ...]
  tokenizer: checkpoints.TokenizerFile
  text_layer: in_graph.TextLayer
  data: Mapping[str, Any]
  measured: Optional[hub_metrics.Measured]
  notes: tuple[str, ...]

  @property
  def config(self) -> modeling.AlbertConfig:
    """The encoder's."""
    return self.model.config


@contextlib.contextmanager
def opened(
  path: str,
  checkpoint: str = "",
  config_file: str = "",
  tokenizer: Optional[checkpoints.TokenizerFile] = None,
  num_hidden_layers: int = 0,
) -> Iterator[Source]:
  """Reads weights and tokenizer; the process computes in float32 from then on.

  Args:
    path: what `AlbertModel.from_checkpoint` takes; of several runs with
      different seeds, the folder above them means the best.
    checkpoint: of a run, see `checkpoint_files.find_prefix`.
    config_file: where none lies beside a TensorFlow checkpoint.
    tokenizer: instead of the one beside the weights.
    num_hidden_layers: how many times shared layers are applied; 0: as trained.

  Raises:
    ValueError, OSError: one sentence.
  """
  with checkpoints.unpacked_archive(path) as folder:
    yield _read(
      path, folder, checkpoint, config_file, tokenizer, num_hidden_layers
    )


def _read(path, folder, checkpoint, config_file, tokenizer, depth) -> Source:
  folder = checkpoints.run_folder(folder)
  kind, weights = checkpoints.choose(folder, checkpoint)
  distribution.set_precision("float32")
  read = checkpoints.READERS[kind](weights, config_file=config_file)
  config = read.config.at_depth(depth) if depth else read.config
  model = pretraining.AlbertForPretraining(config, name="model")
  report = checkpoints.fill(model, read)
  if any(name.startswith(_POOLER) for name in report.missing):
    raise ValueError(
      f"{path} has no pooler, so that pooled_output would be noise: publish a "
      "model that was pretrained or fine-tuned with one."
    )
  heads = tuple(
    part
    for part, beginnings in _PARTS.items()
    if not any(name.startswith(beginnings) for name in report.missing)
  )
  lost = [
    name
    for name in report.missing
    if not name.startswith(sum(_PARTS.values(), ()))
  ]
  if lost:
    raise ValueError(f"{path} lacks the weight {lost[0]}: it is not whole.")
  tokenizer = tokenizer or read.tokenizer
  if tokenizer is None:
    raise ValueError(
      f"no tokenizer beside {path}: give --spm_model_file, or --vocab_file for "
      "WordPiece."
    )
  text_layer = in_graph.make_text_layer(
    tokenizer.kind, tokenizer.path, tokenizer.lower_case
  )
  if text_layer.vocab_size > read.config.vocab_size:
    raise ValueError(
      f"the tokenizer {tokenizer.path} has {text_layer.vocab_size} pieces, but "
      f"the model has vocab_size {read.config.vocab_size}: give the one that "
      "the model was pretrained with."
    )
  step = read.step or _step_of(weights, kind)
  about = []
  if kind == "official_albert":
    shown = weights.replace(folder, path, 1)  # An archive's folder will go.
    about.append(f"the weights are {shown}, step {step:,}.")
  record = _record(folder)
  measured = None
  if record and config == read.config:  # At another depth nothing was.
    measured = hub_metrics.read(folder, weights, checkpoints.is_best(weights))
  return Source(
    path=path,
    kind=kind,
    step=step,
    model=model,
    heads=heads,
    tokenizer=tokenizer,
    text_layer=text_layer,
    data=record.get("data", {}),
    measured=measured,
    notes=(*read.notes, *about),
  )


def _record(folder: str) -> dict[str, Any]:
  if os.path.exists(os.path.join(folder, training.RECORD_FILE)):
    return training.read_run(folder)
  return {}


def _step_of(weights: str, kind: str) -> int:
  try:
    return training.step_of(weights) if kind == "official_albert" else 0
  except ValueError:  # Not a name that a run gives.
    return 0
