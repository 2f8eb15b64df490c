"""Reads the model to publish: weights, heads and tokenizer."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any, Mapping, Optional

from official_albert import checkpoints, modeling, runs
from official_albert.tasks.pretraining import model as model_lib
from official_albert.tokenization import in_graph

# How the names of the weights of each head begin.
_HEADS = {
  "masked_lm": "cls/predictions/",
  "sentence_order": "cls/seq_relationship/",
}


@dataclasses.dataclass(frozen=True)
class Source:
  """A model to publish.

  `kind` is one of `checkpoints.READ_FORMATS`, `heads` those of "masked_lm" and
  "sentence_order" that have weights, `data` that of run.json; `notes` are
  assumptions, one sentence each.
  """

  kind: str
  step: int
  model: model_lib.AlbertForPretraining
  heads: tuple[str, ...]
  tokenizer: checkpoints.TokenizerFile
  text_layer: in_graph.TextLayer
  data: Mapping[str, Any]
  notes: tuple[str, ...]

  @property
  def config(self) -> modeling.AlbertConfig:
    return self.model.config


def read(
  path: str,
  checkpoint: str = "",
  config_file: str = "",
  tokenizer: Optional[checkpoints.TokenizerFile] = None,
  num_hidden_layers: int = 0,
) -> Source:
  """Reads weights, in float32, and the tokenizer.

  `path` is that of `AlbertModel.from_checkpoint`, or the folder of several runs
  with different seeds, whose best run is used. For `checkpoint` see
  `checkpoints.find_prefix`. 0 for `num_hidden_layers` keeps the number.
  """
  with checkpoints.open(path, config_file, checkpoint=checkpoint) as stored:
    depth = num_hidden_layers or stored.config.num_hidden_layers
    model = model_lib.AlbertForPretraining(
      stored.config.at_depth(depth), name="model", dtype="float32"
    )
    missing = checkpoints.fill(model, stored).missing

    def lacks(prefix: str) -> bool:
      return any(name.startswith(prefix) for name in missing)

    # A checkpoint that lacks other weights of the encoder is refused above.
    if lacks("bert/pooler/"):
      raise ValueError(
        f"{path} has no pooler, so that pooled_output would be noise: publish "
        "a model that was pretrained or fine-tuned with one."
      )
    tokenizer = tokenizer or stored.tokenizer
    if tokenizer is None:
      raise ValueError(
        f"no tokenizer beside {path}: give --spm_model_file, or --vocab_file "
        "for WordPiece."
      )
    text_layer = tokenizer.make_layer()
    model.config.check_fits(text_layer.vocab_size, 0)
    step, notes = stored.step, [*stored.notes]
    if stored.format == "official_albert":
      with contextlib.suppress(ValueError):  # Not a name that a run gives.
        step = step or runs.step_of(stored.source)
      notes.append(
        f"the weights are {stored.shown(stored.source)}, step {step:,}."
      )
    return Source(
      kind=stored.format,
      step=step,
      model=model,
      heads=tuple(head for head in _HEADS if not lacks(_HEADS[head])),
      tokenizer=tokenizer,
      text_layer=text_layer,
      data=stored.record.get("data") or {},
      notes=tuple(notes),
    )
