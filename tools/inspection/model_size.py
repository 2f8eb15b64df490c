"""Computes parameters, operations and bytes from a configuration alone.

Weights, gradients and moments are exact. Activations are an estimate: what this
package's training step keeps for the gradient of each block (`_kept`), and the
largest temporary tensors. The memory of allocators, compilers and TensorFlow
itself is not included. docs/inspect_model.md compares the estimate with
measured peaks.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping

from official_albert import modeling
from official_albert.tasks.pretraining import data as data_lib

_FLOAT32 = 4
# Bytes of a number in matrix products.
PRECISIONS = {"float32": _FLOAT32, "mixed_bfloat16": 2}
_NOTE = (
  "Activations are an estimate. The TPU's compiler laid out 16% less to 20% "
  "more than\nall of this together; a process on a CPU took 0.8 to 1 GiB more."
)


@dataclasses.dataclass(frozen=True)
class Setting:
  """Sizes of a training step or a request."""

  batch_size: int  # Sequences B per device.
  max_seq_length: int  # Tokens S per sequence.
  predictions: int = 0  # Masked tokens P per sequence, for training.
  precision: str = "float32"
  recompute_activations: bool = False

  @property
  def tokens(self) -> int:
    """Tokens per step."""
    return self.batch_size * self.max_seq_length

  @property
  def width(self) -> int:
    """Bytes per number."""
    return PRECISIONS[self.precision]


def measure(
  name: str,
  config: modeling.AlbertConfig,
  train_batch_size: int,
  batch_size: int,
  max_seq_length: int = 0,
  max_predictions_per_seq: int = 0,
) -> dict[str, Any]:
  """Returns the numbers of a configuration, as in docs/inspect_model.md.

  0 for `max_seq_length` uses all positions of the model, 0 for
  `max_predictions_per_seq` 15% of the tokens.
  """
  longest = config.max_position_embeddings
  length = max_seq_length or longest
  predictions = max_predictions_per_seq or data_lib.num_to_predict(length)
  if length > longest:
    raise ValueError(
      f"--max_seq_length is {length}, but the model has only {longest} "
      "position embeddings: lower it."
    )
  if predictions > length:
    raise ValueError(
      f"--max_predictions_per_seq is {predictions}, more than the {length} "
      "tokens of a sequence: lower it."
    )
  training, recomputed, inference = {}, {}, {}
  for precision in PRECISIONS:
    step = Setting(train_batch_size, length, predictions, precision)
    request = Setting(batch_size, length, precision=precision)
    training[precision] = training_bytes(config, step)
    recomputed[precision] = training_bytes(
      config, dataclasses.replace(step, recompute_activations=True)
    )
    inference[precision] = inference_bytes(config, request)
  training_flops = config.pretraining_flops(length, predictions)
  return {
    "model": name,
    "config": config.to_dict(),
    "parameters": parameters(config),
    # Operations of matrix products; a multiply-add counts as two. Training
    # includes the heads, and the last block computes only what they need.
    "flops_per_token": {
      "forward": config.forward_flops(length) / length,
      "training": training_flops / length,
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
      "note": _NOTE,
    },
    "layers": [],
    "attention": [],
    "sentences": None,
  }


def describe(values: Mapping[str, Any]) -> str:
  """Returns the numbers of one model, see `measure`, as text."""
  from tabulate import tabulate  # Here, so that --help is quick.

  c, flops, memory = (
    values[key] for key in ("config", "flops_per_token", "memory")
  )
  counts, length = values["parameters"], memory["max_seq_length"]
  shares = [
    [name.replace("_", " "), count, f"{count / counts['pretraining']:.1%}"]
    for name, count in counts.items()
  ]
  parts = [
    f"== {values['model']} ==",
    f"layers {c['num_hidden_layers']}, groups {c['num_hidden_groups']}, "
    f"sharing {c.get('sharing', 'all')}, V {c['vocab_size']:,}, "
    f"E {c['embedding_size']:,}, H {c['hidden_size']:,}, "
    f"I {c['intermediate_size']:,}, heads {c['num_attention_heads']}",
    tabulate(shares, ["parameters", "", "share"], "plain", intfmt=","),
    tabulate(
      [[name, flops[name] / 1e6] for name in ("forward", "training")],
      [f"MFLOP per token, {length:,} tokens per sequence", ""],
      "plain",
      floatfmt=",.1f",
    ),
  ]
  for kind, batch in (
    ("training", memory["train_batch_size"]),
    ("inference", memory["batch_size"]),
  ):
    by_part = {
      name.replace("_", " "): [memory[kind][p][name] for p in PRECISIONS]
      for name in memory[kind]["float32"]
    }
    if kind == "training":
      recomputed = memory["training_recomputed"]
      by_part["total with --recompute_activations"] = [
        recomputed[p]["total"] for p in PRECISIONS
      ]
    title = f"{kind}, MiB, batch {batch} x {length:,}"
    rows = [
      [name, *(size / 2**20 for size in sizes)]
      for name, sizes in by_part.items()
    ]
    parts.append(tabulate(rows, [title, *PRECISIONS], "plain", floatfmt=",.0f"))
  parts.append(memory["note"])
  if values["layers"]:
    heads = [
      {"layer": layer["layer"], **head}
      for layer in values["attention"]
      for head in layer["heads"]
    ]
    found = values["sentences"]
    parts += [
      f"means over {found['tokens']:,} tokens of {found['count']:,} sentences, "
      f"of which {found['cut']:,} were truncated",
      tabulate(values["layers"], "keys", "plain", floatfmt=".3f"),
      tabulate(heads, "keys", "plain", floatfmt=".3f"),
    ]
  return "\n\n".join(parts)


def training_bytes(
  config: modeling.AlbertConfig, setting: Setting
) -> dict[str, int]:
  """Returns the bytes of a pretraining step, including the heads.

  `weights`, `gradients` and `moments` (m and v) are float32 in both precisions,
  `cast_weights` are the kernels in bfloat16, `activations` an estimate.
  """
  counts = parameters(config)
  count = counts["pretraining"]
  cast = 0
  if setting.width != _FLOAT32:
    cast = setting.width * (
      counts["word_embeddings"] + counts["attention"] + counts["ffn"]
    )
  parts = {
    "weights": _FLOAT32 * count,
    "gradients": _FLOAT32 * count,
    "moments": 2 * _FLOAT32 * count,
    "cast_weights": cast,
    "activations": _activations(config, setting),
  }
  return {**parts, "total": sum(parts.values())}


def inference_bytes(
  config: modeling.AlbertConfig, setting: Setting
) -> dict[str, int]:
  """Returns the bytes of a served encoder, whose weights are cast.

  `activations` are the largest of one block.
  """
  c, s = config, setting
  # Scores and probabilities next to query, key and value; or the intermediate
  # layer before and after its activation.
  attention = 4 * c.hidden_size + 2 * c.num_attention_heads * s.max_seq_length
  ffn = c.hidden_size + 2 * c.intermediate_size
  weights = s.width * c.parameter_count()
  activations = s.tokens * s.width * max(attention, ffn)
  return {
    "weights": weights,
    "activations": activations,
    "total": weights + activations,
  }


def _activations(config: modeling.AlbertConfig, setting: Setting) -> int:
  """Returns the largest memory other than weights and their gradients.

  The peak is either at the start of the backward pass, when everything is
  kept, or at its end, when the gradients of all applications of a shared kernel
  wait for the last one.
  """
  c, s = config, setting
  blocks = c.num_hidden_layers * c.inner_group_num
  rows = s.batch_size * min(s.predictions + 1, s.max_seq_length)
  whole, last = _kept(c, s, s.tokens), _kept(c, s, rows)
  embeddings = s.tokens * c.embedding_size * (_FLOAT32 + s.width)
  # The larger of probabilities with scores, or the two tensors of the FFN.
  scores = c.num_attention_heads * s.max_seq_length
  moment = s.tokens * s.width * 2 * max(scores, c.intermediate_size)
  kernels = _waiting_kernel_gradients(c, s)
  head_kept, head_moment = _head(c, s)
  if s.recompute_activations:
    inputs = s.tokens * c.hidden_size * s.width
    start = embeddings + blocks * inputs
    start += max(head_kept + head_moment, last + moment)
    # At the end, only the first block's input is left.
    end = embeddings + inputs + whole + moment + kernels
    if blocks > 1:
      start = max(start, embeddings + (blocks - 1) * inputs + whole + moment)
  else:
    start = embeddings + (blocks - 1) * whole + last + head_kept
    start += max(head_moment, moment - head_kept)
    end = embeddings + whole + moment + kernels
  return max(start, end)


def _kept(config: modeling.AlbertConfig, s: Setting, rows: int) -> int:
  """Returns the bytes that a block keeps to compute `rows` positions."""
  h, i = config.hidden_size, config.intermediate_size
  scores = config.num_attention_heads * s.max_seq_length
  # The block's input, keys and values, for all positions.
  numbers = s.tokens * 3 * h
  # Query, context, output projection and LayerNorm of the attention; the
  # intermediate layer before and after its activation, and its projection. The
  # block's output is the next block's input.
  numbers += rows * (5 * h + 2 * i + scores)
  # The gather, if only some rows are computed.
  numbers += rows * h if rows < s.tokens else 0
  size = numbers * s.width
  # Mean and scale of two LayerNorms.
  size += rows * 4 * _FLOAT32
  # Dropout masks have one byte per number. Probabilities are kept twice: before
  # dropout for the softmax, after it for the matrix product.
  if config.hidden_dropout_prob:
    size += rows * 2 * h
  if config.attention_probs_dropout_prob:
    size += rows * scores * (1 + s.width)
  return size


def _waiting_kernel_gradients(config: modeling.AlbertConfig, s: Setting) -> int:
  """Returns the gradients of shared kernels, summed only when all exist."""
  uses = config.num_hidden_layers / config.num_hidden_groups
  parts = config.parameters_by_part()
  shared = [x for x in ("attention", "ffn") if config.sharing in ("all", x)]
  if uses <= 1:
    return 0
  return sum(int(parts[part] * uses) * s.width for part in shared)


def _head(config: modeling.AlbertConfig, s: Setting) -> tuple[int, int]:
  """Returns what the masked LM head keeps, and its logits' gradient."""
  rows = s.batch_size * s.predictions
  e, h, v = config.embedding_size, config.hidden_size, config.vocab_size
  kept = rows * (s.width * (h + 3 * e) + _FLOAT32 * v)
  cast = s.width if s.width != _FLOAT32 else 0
  return kept, rows * v * (_FLOAT32 + cast)


def parameters(config: modeling.AlbertConfig) -> dict[str, int]:
  """Returns the parameters of each part, and two sums.

  `encoder` is from embeddings to pooler; `pretraining` includes the heads.
  """
  v, e, h = config.vocab_size, config.embedding_size, config.hidden_size
  parts = config.parameters_by_part()
  total = sum(parts.values())
  heads = {
    # Dense H -> E, LayerNorm, a bias per piece; the word table is shared.
    "masked_lm_head": (h * e + e) + 2 * e + v,
    "sentence_order_head": 2 * h + 2,
  }
  pretraining_total = total + sum(heads.values())
  return {**parts, **heads, "encoder": total, "pretraining": pretraining_total}
