"""The configuration of a checkpoint that came without one, from its shapes.

Shapes do not say how often shared layers are applied, how many heads there
are, the activation or the dropouts; those are taken from the release that has
the same shapes.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Mapping, Sequence

from official_albert import modeling

_GROUP = re.compile(r"/group_(\d+)/inner_group_(\d+)/")


def infer(
  source: str, shapes: Mapping[str, Sequence[int]]
) -> tuple[modeling.AlbertConfig, str]:
  """The configuration, and a sentence that says what was assumed.

  Args:
    source: for messages.
    shapes: by TF1 names.

  Raises:
    ValueError: no release has these shapes.
  """
  advice = f"{source} has no configuration: give --albert_config_file."
  try:
    vocab_size, embedding_size = shapes["bert/embeddings/word_embeddings"]
    block = "bert/encoder/transformer/group_0/inner_group_0"
    hidden, intermediate = shapes[f"{block}/ffn_1/intermediate/dense/kernel"]
    positions, _ = shapes["bert/embeddings/position_embeddings"]
    types, _ = shapes["bert/embeddings/token_type_embeddings"]
  except (KeyError, ValueError) as error:
    raise ValueError(advice) from error
  blocks = [
    tuple(map(int, m.groups())) for m in map(_GROUP.search, shapes) if m
  ]
  for name, preset in modeling.PRESETS.items():
    same = (preset.hidden_size, preset.intermediate_size) == (
      hidden,
      intermediate,
    )
    chinese = vocab_size == modeling.PRESETS["albert_base_zh"].vocab_size
    if same and preset.sharing == "all" and name.endswith("_v1") == 0:
      if name.endswith("_zh") != chinese:
        continue
      config = dataclasses.replace(
        preset,
        vocab_size=vocab_size,
        embedding_size=embedding_size,
        max_position_embeddings=positions,
        type_vocab_size=types,
        num_hidden_groups=max(group for group, _ in blocks) + 1,
        inner_group_num=max(inner for _, inner in blocks) + 1,
      )
      return config, (
        f"{source} has no configuration: {config.num_hidden_layers} layers, "
        f"{config.num_attention_heads} heads, {config.hidden_act} and no "
        f"dropout are assumed, as in {name}, which has the same shapes; "
        "--albert_config_file says otherwise."
      )
  raise ValueError(advice)
