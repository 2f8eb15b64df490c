"""What a conversion changes in the model; see checkpoint_surgery.py."""

from __future__ import annotations

import dataclasses
from typing import Optional

from official_albert import checkpoints


@dataclasses.dataclass(frozen=True)
class Changes:
  """Another model from the same weights; all left out changes nothing.

  Attributes:
    num_hidden_groups: see `checkpoint_surgery.expand_groups`; 0: as it is.
    max_position_embeddings: see `resize_positions`; 0: as it is.
    position_method: a member of `checkpoint_surgery.METHODS`.
    tokenizer: the new vocabulary, see `change_vocabulary`; None: as it is.
  """

  num_hidden_groups: int = 0
  max_position_embeddings: int = 0
  position_method: str = "tile"
  tokenizer: Optional[checkpoints.TokenizerFile] = None

  def __bool__(self) -> bool:
    return bool(
      self.num_hidden_groups or self.max_position_embeddings or self.tokenizer
    )


def apply(checkpoint: checkpoints.PortableCheckpoint, changes: Changes) -> None:
  """Changes configuration, values and tokenizer, and notes what was done.

  Args:
    checkpoint: is changed; its values are all read.
    changes: at least one.

  Raises:
    ValueError: a change that the model does not allow, or a new vocabulary
      where the old one is not known.
  """
  config, tensors = checkpoint.config, checkpoint.tensors
  if changes.num_hidden_groups:
    was = config.num_hidden_groups
    config, tensors = checkpoints.expand_groups(
      config, tensors, changes.num_hidden_groups
    )
    checkpoint.notes.append(
      f"{config.num_hidden_groups} groups instead of {was}, with the same "
      "weights in each layer."
    )
  if changes.max_position_embeddings:
    was = config.max_position_embeddings
    config, tensors = checkpoints.resize_positions(
      config, tensors, changes.max_position_embeddings, changes.position_method
    )
    how = {"tile": "the old table repeated", "interpolate": "interpolated"}
    shorter = config.max_position_embeddings <= was
    checkpoint.notes.append(
      f"{config.max_position_embeddings} positions instead of {was}: "
      f"{'the first ones' if shorter else how[changes.position_method]}."
    )
  if changes.tokenizer:
    if not checkpoint.tokenizer:
      raise ValueError(
        "the vocabulary can only be changed where the old one is known: give "
        "it with --spm_model_file or --vocab_file."
      )
    old, new = checkpoint.tokenizer.open(), changes.tokenizer.open()
    config, tensors, report = checkpoints.change_vocabulary(
      config,
      tensors,
      checkpoints.pieces_of(old),
      checkpoints.pieces_of(new),
      checkpoints.cutter(old),
    )
    checkpoint.tokenizer = changes.tokenizer
    checkpoint.notes.append(f"another vocabulary: {report}.")
  checkpoint.config, checkpoint.tensors = config, tensors
