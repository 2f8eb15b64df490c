"""Fine-tunes ALBERT in PyTorch, as a run of this project does.

The argument is a JSON object that `tools.benchmarks.finetuning` makes. Model,
loss and dropout are those of transformers, or of sentence-transformers for
embeddings; AdamW, the rates and windows sorted by length are as in
tools.run_finetuning. The tanh GELU is one operation. The `variant` of
transformers is "huggingface" with words: "sdpa" and "compiled" (torch.compile)
for speed; with "frozen", the projection from E to H, which the library always
has, is not trained. Runs in a separate virtual environment; see `protocol`.
"""

from __future__ import annotations

import json
import pathlib
import sys
import time
import types
from typing import Any, Callable

import numpy as np
import torch
import transformers

from official_albert.tools.benchmarks.peers import huggingface

_EVAL_BATCH = 64


# The model of a head; others are those of whole texts.
_HEADS = {
  "token_classification": "TokenClassification",
  "multiple_choice": "MultipleChoice",
  "squad1": "QuestionAnswering",
}
# Of the rows of a batch: the loss, or the outputs.
Function = Callable[[list[dict]], Any]


def main(text: str) -> None:
  """Trains, and writes the outputs for each split after each evaluation."""
  x = types.SimpleNamespace(**json.loads(text))
  torch.manual_seed(x.seed)
  # The same function, but the library needs eight operations.
  tanh_gelu = torch.nn.GELU, {"approximate": "tanh"}
  transformers.activations.ACT2FN["gelu_new"] = tanh_gelu
  make = _embedding if x.form else _headed
  model, loss_of, outputs_of = make(x)
  splits = json.loads(pathlib.Path(x.rows).read_text("utf-8"))
  train_rows = splits.pop("train")
  optimizer, schedule = _make_optimizer(x, model)
  generator = np.random.default_rng(x.seed)
  batches: list[np.ndarray] = []
  found: dict[str, Any] = {}
  seconds: list[float] = []
  for step in range(1, x.num_train_steps + 1):
    start = time.monotonic()
    batches = batches or _epoch(x, train_rows, generator)
    model.train()
    with huggingface.autocast(x.precision, "cpu"):
      loss = loss_of([train_rows[i] for i in batches.pop()])
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), x.clip_norm)
    optimizer.step()
    schedule.step()
    seconds.append(time.monotonic() - start)
    if step % 100 == 0:
      print(f"step {step:,}: loss {loss.item():.4f}", flush=True)
    if step % x.eval_steps == 0 or step == x.num_train_steps:
      model.eval()
      for split, rows in splits.items():
        with huggingface.autocast(x.precision, "cpu"):
          found[f"{split} {step}"] = _in_batches(rows, outputs_of)
  timed = seconds[len(seconds) // 2 :]
  speed = x.train_batch_size * len(timed) / sum(timed)
  np.savez(x.output_file, sequences_per_second=speed, **found)


def _in_batches(rows: list[dict], outputs_of: Function) -> np.ndarray:
  """Returns the outputs of rows, computed in batches of similar lengths."""
  order = sorted(range(len(rows)), key=lambda i: _length(rows[i]))
  found: dict[int, np.ndarray] = {}
  for start in range(0, len(order), _EVAL_BATCH):
    part = order[start : start + _EVAL_BATCH]
    with torch.inference_mode():
      found.update(zip(part, outputs_of([rows[i] for i in part])))
  return np.stack([found[i] for i in range(len(rows))])


def _headed(x: Any) -> tuple[Any, Function, Function]:
  """Returns a model, whose head is random, its loss and its outputs."""
  kind = _HEADS.get(x.head, "SequenceClassification")
  model = getattr(transformers, f"AlbertFor{kind}").from_pretrained(
    x.model,
    num_labels=2 if x.head == "squad1" else x.classes,
    hidden_dropout_prob=x.albert_dropout,
    attention_probs_dropout_prob=x.albert_dropout,
    classifier_dropout_prob=x.classifier_dropout,
    attn_implementation="sdpa" if "sdpa" in x.variant else "eager",
  )
  if x.variant.endswith("frozen"):
    projection = model.albert.encoder.embedding_hidden_mapping_in
    projection.requires_grad_(False)

  def outputs_of(rows: list[dict]) -> np.ndarray:
    """Returns <float32>[N, C]; [N, S, C] for tags, [N, S, 2] for spans."""
    outputs = model(**_batch(x, rows))
    if x.head == "squad1":
      logits = torch.stack([outputs.start_logits, outputs.end_logits], -1)
    else:
      logits = outputs.logits
    logits = logits.float().numpy()
    if logits.ndim == 3:
      padding = x.max_seq_length - logits.shape[1]
      logits = np.pad(logits, [(0, 0), (0, padding), (0, 0)])
    return logits * x.std + x.mean

  run = model
  if "compiled" in x.variant:
    run = torch.compile(model, dynamic=True)
  return model, lambda rows: run(**_batch(x, rows)).loss, outputs_of


def _embedding(x: Any) -> tuple[Any, Function, Function]:
  """Returns a model of sentence-transformers, its loss and its outputs."""
  import sentence_transformers
  from sentence_transformers.sentence_transformer import losses, modules

  encoder = modules.Transformer(x.model, max_seq_length=x.max_seq_length)
  width = encoder.get_embedding_dimension()
  model = sentence_transformers.SentenceTransformer(
    modules=[encoder, modules.Pooling(width, pooling_mode=x.pooling)],
    device="cpu",
  )
  kind = losses.MultipleNegativesRankingLoss
  if x.form == "scores":
    kind = losses.CoSENTLoss
  loss = kind(model, scale=x.similarity_scale)

  def texts(rows: list[dict]) -> list[dict]:
    """Returns the inputs of the first texts of rows, and so on."""
    count = range(len(rows[0]["input_ids"]))
    return [_inputs([row["input_ids"][k] for row in rows]) for k in count]

  def loss_of(rows: list[dict]) -> torch.Tensor:
    scores = torch.tensor([row["label_ids"] for row in rows])
    return loss(texts(rows), scores)

  def outputs_of(rows: list[dict]) -> np.ndarray:
    """Returns <float32>[N, K, H]."""
    vectors = [model(y)["sentence_embedding"].float() for y in texts(rows)]
    return torch.stack(vectors, 1).numpy()

  return model, loss_of, outputs_of


def _make_optimizer(x: Any, model: Any) -> tuple[Any, Any]:
  """Returns AdamW and the schedule of its rate."""
  named = {k: y for k, y in model.named_parameters() if y.requires_grad}
  optimizer = huggingface.adamw(x, named)
  warmup, steps = x.num_warmup_steps, x.num_train_steps
  return optimizer, torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda step: step / warmup if step < warmup else 1 - step / steps
  )


def _epoch(x: Any, rows: list[dict], generator: Any) -> list[np.ndarray]:
  """Returns the rows of the batches of an epoch."""
  lengths = np.array([_length(row) for row in rows])
  order, size = generator.permutation(len(rows)), x.train_batch_size
  batches = []
  for start in range(0, len(order), x.window_updates * size):
    window = order[start : start + x.window_updates * size]
    window = window[np.argsort(lengths[window], kind="stable")]
    whole = len(window) - len(window) % size
    batches += [window[i : i + size] for i in range(0, whole, size)]
  generator.shuffle(batches)
  return batches[::-1]  # They are taken from the end.


def _length(row: dict) -> int:
  """Returns the number of tokens of a row, or of its longest text."""
  ids = row["input_ids"]
  return max(map(len, ids)) if isinstance(ids[0], list) else len(ids)


def _pad(lists: list[list[int]]) -> torch.Tensor:
  tensors = [torch.tensor(ids) for ids in lists]
  return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True)


def _inputs(ids: list[list[int]]) -> dict[str, torch.Tensor]:
  """Returns padded inputs of single texts."""
  padded = _pad(ids)
  # The padding is id 0, which no text has.
  mask = (padded != 0).long()
  segments = torch.zeros_like(padded)
  return {
    "input_ids": padded,
    "attention_mask": mask,
    "token_type_ids": segments,
  }


def _batch(x: Any, rows: list[dict]) -> dict[str, torch.Tensor]:
  """Returns padded inputs, and labels as the model takes them.

  Of a question with options, they are [N, options, S].
  """
  names = ["input_ids", "segment_ids"]
  ids, segments = ([row[name] for row in rows] for name in names)
  if x.head == "multiple_choice":
    ids, segments = (sum(lists, []) for lists in (ids, segments))
  inputs = {**_inputs(ids), "token_type_ids": _pad(segments)}
  if x.head == "multiple_choice":
    shape = len(rows), -1, inputs["input_ids"].shape[1]
    inputs = {name: y.reshape(shape) for name, y in inputs.items()}
  if x.head == "squad1":
    names = ["start_positions", "end_positions"]
    return inputs | {n: torch.tensor([row[n] for row in rows]) for n in names}
  if x.head == "token_classification":
    labels = _pad([row["label_ids"] for row in rows]) - 1  # 0 is no tag.
    labels[labels < 0] = -100
  else:
    labels = torch.tensor([row["label_ids"] for row in rows])
    if labels.is_floating_point():
      labels = (labels - x.mean) / x.std
  return {**inputs, "labels": labels}


if __name__ == "__main__":
  main(sys.argv[1])
