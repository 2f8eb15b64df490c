"""Formats the findings of tools.inspect_model for a terminal."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

_NAMES = {
  "word_embeddings": "word embeddings",
  "position_embeddings": "position embeddings",
  "segment_embeddings": "segment embeddings",
  "embedding_projection": "projection E -> H",
  "attention": "attention",
  "ffn": "feed-forward",
  "layer_norms": "LayerNorms",
  "pooler": "pooler",
  "masked_lm_head": "masked LM head",
  "sentence_order_head": "sentence-order head",
}
_SUMS = {"encoder": "encoder", "pretraining": "with the heads of pretraining"}
_MEMORY = {
  "weights": "weights",
  "gradients": "gradients",
  "moments": "m and v",
  "cast_weights": "kernels in bfloat16",
  "activations": "activations (estimate)",
  "total": "together",
}
_RECOMPUTED = "with --recompute_activations"


def describe(values: Mapping[str, Any]) -> str:
  """Returns one model's numbers as text.

  Args:
    values: an element of `models` in inspection.json; see inspect_model.py.
  """
  parts = [
    f"== {values['model']} ==",
    _shape(values["config"]),
    _parameters(values["parameters"]),
    _flops(values["flops_per_token"]),
    _memory(values["memory"]),
  ]
  if values["layers"]:
    parts += [
      _sentences(values["sentences"]),
      _layers(values["layers"]),
      _heads(values["attention"]),
    ]
  return "\n\n".join(parts)


def _shape(config: Mapping[str, Any]) -> str:
  c = config
  shared = c.get("sharing", "all")
  groups = c["num_hidden_groups"]
  return (
    f"{c['num_hidden_layers']} layers of {groups} group"
    f"{'s' if groups > 1 else ''}, sharing {shared}; V {c['vocab_size']:,}, "
    f"E {c['embedding_size']:,}, H {c['hidden_size']:,}, "
    f"I {c['intermediate_size']:,}, {c['num_attention_heads']} heads"
  )


def _parameters(parameters: Mapping[str, int]) -> str:
  whole = parameters["pretraining"]
  rows = [
    [name, f"{parameters[key]:,}", f"{parameters[key] / whole:.1%}"]
    for key, name in {**_NAMES, **_SUMS}.items()
  ]
  return table(["parameters", "", "share"], rows)


def _flops(flops: Mapping[str, float]) -> str:
  rows = [
    ["forward, encoder", f"{flops['forward'] / 1e6:,.1f}"],
    ["training, heads too", f"{flops['training'] / 1e6:,.1f}"],
  ]
  title = f"MFLOP a token, {flops['max_seq_length']:,} tokens a sequence"
  return table([title, ""], rows)


def _memory(memory: Mapping[str, Any]) -> str:
  training, inference = memory["training"], memory["inference"]
  precisions = list(training)
  length = memory["max_seq_length"]
  title = f"training, MiB, batch {memory['train_batch_size']} x {length:,}"
  rows = [
    [name, *(_mib(training[p][key]) for p in precisions)]
    for key, name in _MEMORY.items()
  ]
  recomputed = memory["training_recomputed"]
  rows.append(
    [_RECOMPUTED, *(_mib(recomputed[p]["total"]) for p in precisions)]
  )
  first = table([title, *precisions], rows)
  title = f"inference, MiB, batch {memory['batch_size']} x {length:,}"
  rows = [
    [_MEMORY[key], *(_mib(inference[p][key]) for p in precisions)]
    for key in ("weights", "activations", "total")
  ]
  return f"{first}\n{memory['note']}\n\n{table([title, *precisions], rows)}"


def _mib(size: int) -> str:
  return f"{size / 2**20:,.0f}"


def _sentences(sentences: Mapping[str, int]) -> str:
  cut = sentences["cut"]
  return (
    f"means over {sentences['tokens']:,} tokens of {sentences['count']:,} "
    f"sentence{'s' if sentences['count'] > 1 else ''}"
    + (f", {cut:,} of which were truncated" if cut else "")
  )


def _layers(layers: Sequence[Mapping[str, Any]]) -> str:
  rows = [
    [str(x["layer"]), f"{x['l2_distance']:.3f}", f"{x['degrees']:.2f}"]
    for x in layers
  ]
  return table(["layer: output against input", "L2", "degrees"], rows)


def _heads(layers: Sequence[Mapping[str, Any]]) -> str:
  keys = ("distance", "entropy", "cls_share", "sep_share", "self_share")
  rows = [
    [
      f"layer {layer['layer']}, head {head['head']}",
      *(f"{head[key]:.3f}" for key in keys),
    ]
    for layer in layers
    for head in layer["heads"]
  ]
  heading = ["attention", "distance", "nats", "[CLS]", "[SEP]", "itself"]
  return table(heading, rows)


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
  """Returns a table: the first column left-aligned, others right-aligned."""
  import tabulate  # Here, so that --help is quick.

  return tabulate.tabulate(
    [heading, *rows],
    tablefmt="plain",
    colalign=["left"] + ["right"] * (len(heading) - 1),
    disable_numparse=True,
  )
