"""Names models, reads sentences, and reports numbers as JSON and as text."""

from __future__ import annotations

import os
from typing import Any, Mapping, Sequence

from official_albert import modeling
from tasks.pretraining import data
from tools.inspection import model_size

# Measured as described in docs/inspect_model.md.
NOTE = (
  "Activations are an estimate. The TPU's compiler laid out 16% less to 20% "
  "more than\nall of this together; a process on a CPU took 0.8 to 1 GiB more."
)
_PARAMETERS = {
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
  "encoder": "encoder",
  "pretraining": "with the heads of pretraining",
}
_MEMORY = {
  "weights": "weights",
  "gradients": "gradients",
  "moments": "m and v",
  "cast_weights": "kernels in bfloat16",
  "activations": "activations (estimate)",
  "total": "together",
}


def names_of(paths: Sequence[str]) -> list[str]:
  """Returns the last part of each path, or the whole path if it is ambiguous.

  Checkpoints in a run keep the run's name: RUN/best.

  Raises:
    ValueError: a path is repeated.
  """
  if len(set(paths)) < len(paths):
    raise ValueError("--model names the same path twice.")
  last = []
  for path in paths:
    folder, name = os.path.split(os.path.normpath(path))
    if name == "best" or ".ckpt" in name:
      name = os.path.join(os.path.basename(folder), name)
    last.append(name)
  return [
    name if last.count(name) == 1 else path for name, path in zip(last, paths)
  ]


def read_sentences(texts: Sequence[str], input_files: str) -> list[str]:
  """Returns the sentences of --text, then those of --input_files.

  Raises:
    OSError: a file cannot be read.
    ValueError: a text is empty, or a file is empty or damaged.
  """
  if not all(text.strip() for text in texts):
    raise ValueError("--text is empty: set it to a sentence.")
  found = list(texts)
  if input_files:
    paths = data.find_files(input_files)
    for document in data.DocumentReader(paths, data.ReaderSettings()):
      found += document
  return found


def figures(
  name: str,
  config: modeling.AlbertConfig,
  train_batch_size: int = 32,
  batch_size: int = 1,
  max_seq_length: int = 0,
  max_predictions_per_seq: int = 0,
) -> dict[str, Any]:
  """Returns the numbers of a configuration; see inspect_model.py for the keys.

  Args:
    name: the name of the model.
    config: the configuration of the model.
    train_batch_size: the sequences per device in training.
    batch_size: the sequences per request in inference.
    max_seq_length: the tokens per sequence; 0 uses all positions of the model.
    max_predictions_per_seq: the masked tokens; 0 uses 15% of the tokens.

  Raises:
    ValueError: a sequence is longer than the model's positions, or has fewer
      tokens than predictions.
  """
  longest = config.max_position_embeddings
  if max_seq_length > longest:
    raise ValueError(
      f"--max_seq_length is {max_seq_length}, but the model has only "
      f"{longest} position embeddings: lower it."
    )
  length = max_seq_length or longest
  predictions = max_predictions_per_seq or max(1, int(0.15 * length))
  if predictions > length:
    raise ValueError(
      f"--max_predictions_per_seq is {predictions}, more than the {length} "
      "tokens of a sequence: lower it."
    )
  training, recomputed, inference = {}, {}, {}
  for precision in model_size.PRECISIONS:
    for target, recompute in ((training, False), (recomputed, True)):
      setting = model_size.Setting(
        train_batch_size, length, predictions, precision, recompute
      )
      target[precision] = model_size.training_bytes(config, setting)
    setting = model_size.Setting(batch_size, length, precision=precision)
    inference[precision] = model_size.inference_bytes(config, setting)
  return {
    "model": name,
    "config": config.to_dict(),
    "parameters": model_size.parameters(config),
    "flops_per_token": {
      **model_size.flops_per_token(config, length, predictions),
      "max_seq_length": length,
      "max_predictions_per_seq": predictions,
    },
    "memory": {
      "train_batch_size": train_batch_size,
      "batch_size": batch_size,
      "max_seq_length": length,
      "training": training,
      "training_recomputed": recomputed,
      "inference": inference,
      "note": NOTE,
    },
    "layers": [],
    "attention": [],
    "sentences": None,
  }


def describe(values: Mapping[str, Any]) -> str:
  """Returns the numbers of one model, see `figures`, as text."""
  c, flops = values["config"], values["flops_per_token"]
  groups = c["num_hidden_groups"]
  shape = (
    f"{c['num_hidden_layers']} layers of {groups} group"
    f"{'s' if groups > 1 else ''}, sharing {c.get('sharing', 'all')}; "
    f"V {c['vocab_size']:,}, E {c['embedding_size']:,}, "
    f"H {c['hidden_size']:,}, I {c['intermediate_size']:,}, "
    f"{c['num_attention_heads']} heads"
  )
  counts = values["parameters"]
  parameters = [
    [title, f"{counts[key]:,}", f"{counts[key] / counts['pretraining']:.1%}"]
    for key, title in _PARAMETERS.items()
  ]
  operations = [
    ["forward, encoder", f"{flops['forward'] / 1e6:,.1f}"],
    ["training, heads too", f"{flops['training'] / 1e6:,.1f}"],
  ]
  title = f"MFLOP a token, {flops['max_seq_length']:,} tokens a sequence"
  parts = [
    f"== {values['model']} ==",
    shape,
    table(["parameters", "", "share"], parameters),
    table([title, ""], operations),
    _memory(values["memory"]),
  ]
  if values["layers"]:
    parts += _findings(values)
  return "\n\n".join(parts)


def _memory(memory: Mapping[str, Any]) -> str:
  precisions = list(memory["training"])

  def row(title: str, sizes: Mapping[str, Any], key: str) -> list[str]:
    mib = (f"{sizes[p][key] / 2**20:,.0f}" for p in precisions)
    return [title, *mib]

  length = memory["max_seq_length"]
  head = f"training, MiB, batch {memory['train_batch_size']} x {length:,}"
  rows = [row(x, memory["training"], key) for key, x in _MEMORY.items()]
  rows.append(
    row("with --recompute_activations", memory["training_recomputed"], "total")
  )
  training = table([head, *precisions], rows)
  head = f"inference, MiB, batch {memory['batch_size']} x {length:,}"
  inference = memory["inference"]
  keys = inference[precisions[0]]
  rows = [row(_MEMORY[key], inference, key) for key in keys]
  return f"{training}\n{memory['note']}\n\n{table([head, *precisions], rows)}"


def _findings(values: Mapping[str, Any]) -> list[str]:
  count, tokens, cut = (
    values["sentences"][key] for key in ("count", "tokens", "cut")
  )
  layers = [
    [str(x["layer"]), f"{x['l2_distance']:.3f}", f"{x['degrees']:.2f}"]
    for x in values["layers"]
  ]
  heads = [
    [
      f"layer {layer['layer']}, head {number}",
      *(f"{value:.3f}" for value in numbers),
    ]
    for layer in values["attention"]
    for number, *numbers in (head.values() for head in layer["heads"])
  ]
  return [
    f"means over {tokens:,} tokens of {count:,} "
    f"sentence{'s' if count > 1 else ''}"
    + (f", {cut:,} of which were truncated" if cut else ""),
    table(["layer: output against input", "L2", "degrees"], layers),
    table(["attention", "distance", "nats", "[CLS]", "[SEP]", "itself"], heads),
  ]


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
  """Returns a table: the first column left-aligned, others right-aligned."""
  import tabulate  # Here, so that --help is quick.

  return tabulate.tabulate(
    [heading, *rows],
    tablefmt="plain",
    colalign=["left"] + ["right"] * (len(heading) - 1),
    disable_numparse=True,
  )
