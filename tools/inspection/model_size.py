"""Counts parameters and operations from a configuration alone."""

from __future__ import annotations

from typing import Any, Mapping

from official_albert import modeling
from official_albert.tasks.pretraining import data as data_lib


def measure(
  name: str, config: modeling.AlbertConfig, max_seq_length: int = 0
) -> dict[str, Any]:
  """Returns the numbers of a configuration, as in docs/inspect_model.md.

  0 for `max_seq_length` uses all positions of the model.
  """
  longest = config.max_position_embeddings
  length = max_seq_length or longest
  if length > longest:
    raise ValueError(
      f"--max_seq_length is {length}, but the model has only {longest} "
      "position embeddings: lower it."
    )
  predictions = data_lib.num_to_predict(length)
  return {
    "model": name,
    "config": config.to_dict(),
    "parameters": parameters(config),
    # Operations of matrix products; a multiply-add counts as two. Training
    # includes the heads, and the last block computes only what they need.
    "flops_per_token": {
      "forward": config.forward_flops(length) / length,
      "training": config.pretraining_flops(length, predictions) / length,
      "max_seq_length": length,
      "max_predictions_per_seq": predictions,
    },
    "layers": [],
    "sentences": None,
  }


def describe(values: Mapping[str, Any]) -> str:
  """Returns the numbers of one model, see `measure`, as text."""
  from tabulate import tabulate  # Here, so that --help is quick.

  c, flops, counts = (
    values[key] for key in ("config", "flops_per_token", "parameters")
  )
  shares = [
    [name.replace("_", " "), count, f"{count / counts['pretraining']:.1%}"]
    for name, count in counts.items()
  ]
  products = [[x, flops[x] / 1e6] for x in ("forward", "training")]
  head = f"MFLOP per token, {flops['max_seq_length']:,} tokens per sequence"
  parts = [
    f"== {values['model']} ==",
    f"layers {c['num_hidden_layers']}, groups {c['num_hidden_groups']}, "
    f"sharing {c.get('sharing', 'all')}, V {c['vocab_size']:,}, "
    f"E {c['embedding_size']:,}, H {c['hidden_size']:,}, "
    f"I {c['intermediate_size']:,}, heads {c['num_attention_heads']}",
    tabulate(shares, ["parameters", "", "share"], "plain", intfmt=","),
    tabulate(products, [head, ""], "plain", floatfmt=",.1f"),
  ]
  if values["layers"]:
    found = values["sentences"]
    parts += [
      f"means over {found['tokens']:,} tokens of {found['count']:,} sentences, "
      f"of which {found['cut']:,} were truncated",
      tabulate(values["layers"], "keys", "plain", floatfmt=".3f"),
    ]
  return "\n\n".join(parts)


def parameters(config: modeling.AlbertConfig) -> dict[str, int]:
  """Returns the parameters of each part, and two sums.

  `encoder` is from embeddings to pooler; `pretraining` includes the heads.
  """
  v, e, h = config.vocab_size, config.embedding_size, config.hidden_size
  heads = {
    # Dense H -> E, LayerNorm, a bias per piece; the word table is shared.
    "masked_lm_head": (h * e + e) + 2 * e + v,
    "sentence_order_head": 2 * h + 2,
  }
  total = config.parameter_count()
  sums = {"encoder": total, "pretraining": total + sum(heads.values())}
  return {**config.parameters_by_part(), **heads, **sums}
