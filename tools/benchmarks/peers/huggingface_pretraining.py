"""Pretrains Hugging Face's ALBERT in PyTorch as its users do.

`tools.benchmark quality` starts it in a separate virtual environment; see
`comparison`. Model, collator and schedule are the library's. The loop does what
its Trainer does on one device: linear warm-up and decay, no weight decay of
biases and layer normalization, gradients clipped to norm 1.

The library's own dataset for sentence order, `LineByLineWithSOPTextDataset`
(transformers 4.57, deprecated, for text with <doc> tags), cuts documents as
google-research/albert does, and draws once for each pair whether it is swapped.
Here the pairs are those of unmasked records, which were cut in the same way,
and `Pairs` draws the swaps. That dataset's `DataCollatorForSOP` is deprecated
for `DataCollatorForLanguageModeling`, which is used here: it masks 15% of the
tokens, not whole words, anew in each epoch.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import statistics
import time
from typing import Any, Iterator, Mapping

import numpy as np

from official_albert.tools.benchmarks.peers import huggingface, protocol
from official_albert.tools.cli import child_programs

_IGNORED = -100  # A label without a loss.
_EVAL_BATCH_SIZE = 64


@dataclasses.dataclass(frozen=True)
class Run(protocol.Workload):
  """A run: `variant` is the attention, `learning_rate` the highest one."""

  initializer_range: float = 0.02
  steps: int = 10
  # Held-out evaluations at equal distances; 0: measures the speed only.
  evaluations: int = 0
  # The speed is the median over parts of this many steps.
  steps_per_part: int = 100
  # Arrays of records: unmasked, and two with different masks.
  train_file: str = ""
  heldout_file: str = ""
  token_heldout_file: str = ""
  tokenizer_file: str = ""
  # The folder for the model and, written last, result.json.
  output_dir: str = ""


class Pairs:
  """Unmasked records as examples of a map-style dataset, half of them swapped.

  The swap of a pair is drawn once, so it is the same in each epoch.
  """

  def __init__(self, records: Mapping[str, np.ndarray], seed: int):
    self._ids = records["input_ids"]
    self._ends = records["input_mask"].sum(axis=1)
    self._starts_of_b = self._ends - records["segment_ids"].sum(axis=1)
    self._swapped = np.random.default_rng(seed).random(len(self._ids)) < 0.5

  def __len__(self) -> int:
    return len(self._ids)

  def __getitem__(self, index: int) -> dict[str, Any]:
    middle, end = self._starts_of_b[index], self._ends[index]
    ids = self._ids[index, :end].tolist()
    a, b = ids[1 : middle - 1], ids[middle:-1]
    swapped = int(self._swapped[index])
    if swapped:
      a, b = b, a
    cls, sep = ids[0], ids[-1]
    return {
      "input_ids": [cls, *a, sep, *b, sep],
      "token_type_ids": [0] * (len(a) + 2) + [1] * (len(b) + 1),
      "special_tokens_mask": [1, *[0] * len(a), 1, *[0] * len(b), 1],
      "sentence_order_label": swapped,
    }


def train(run: Run) -> dict[str, Any]:
  """Trains a model; returns its speed and its held-out results.

  They are `seconds_per_step`, `versions` and, with evaluations, `curve`: a dict
  per evaluation with `step` and the metrics of `evaluate`; and
  `token_masked_lm_loss`, that at the end for `token_heldout_file`.
  """
  import torch
  import transformers

  torch.set_num_threads(run.threads)
  torch.manual_seed(run.seed)
  config = huggingface.make_config(
    run,
    # The same function as gelu_new in one operation instead of eight.
    hidden_act="gelu_pytorch_tanh",
    initializer_range=run.initializer_range,
    attn_implementation=run.variant,
  )
  model = transformers.AlbertForPreTraining(config)
  matrices = [p for p in model.parameters() if p.ndim > 1]
  vectors = [p for p in model.parameters() if p.ndim == 1]
  optimizer = torch.optim.AdamW(
    [
      {"params": matrices, "weight_decay": run.weight_decay},
      {"params": vectors, "weight_decay": 0.0},
    ],
    lr=run.learning_rate,
    betas=(0.9, 0.999),
    fused=True,
  )
  schedule = transformers.get_linear_schedule_with_warmup(
    optimizer, run.steps // 10, run.steps
  )
  batches = _batches(run)
  heldout = dict(np.load(run.heldout_file, allow_pickle=False))

  def measure(records: Mapping[str, np.ndarray]) -> dict[str, float]:
    model.eval()
    with _autocast(run):
      return evaluate(model, records)

  every = run.steps // run.evaluations if run.evaluations else 0
  curve = [{"step": 0, **measure(heldout)}] if every else []
  seconds, parts = 0.0, []
  for step in range(1, run.steps + 1):
    start = time.monotonic()
    model.train()
    batch = next(batches)
    with _autocast(run):
      loss = model(**batch).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), run.clip_norm)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    last_loss = loss.item()
    seconds += time.monotonic() - start
    if step % run.steps_per_part == 0 or step == run.steps:
      size = step - run.steps_per_part * len(parts)
      parts.append(seconds / size)
      rate, seconds = size * run.batch_size / seconds, 0.0
      print(
        f"step {step:,}/{run.steps:,}  loss {last_loss:.3f}  "
        f"{rate:.1f} sequences/s",
        flush=True,
      )
    if every and step % every == 0:
      curve.append({"step": step, **measure(heldout)})
      values = "  ".join(f"{k} {v:.4g}" for k, v in curve[-1].items())
      print(f"held-out  {values}", flush=True)
  result = {
    # The first part includes the start of the library.
    "seconds_per_step": statistics.median(parts[1:] or parts),
    "versions": {
      "torch": torch.__version__,
      "transformers": transformers.__version__,
    },
    "curve": curve,
  }
  if every:
    metrics = measure(dict(np.load(run.token_heldout_file, allow_pickle=False)))
    result["token_masked_lm_loss"] = metrics["masked_lm_loss"]
    model.save_pretrained(run.output_dir)
  return result


def _autocast(run: Run):
  import torch

  enabled = run.product_dtype == "bfloat16"
  return torch.autocast("cpu", torch.bfloat16, enabled=enabled)


def _batches(run: Run) -> Iterator[dict[str, Any]]:
  """Yields masked batches endlessly, in a new order in each epoch."""
  import torch
  import transformers

  tokenizer = transformers.AlbertTokenizer(run.tokenizer_file)
  loader = torch.utils.data.DataLoader(
    Pairs(np.load(run.train_file, allow_pickle=False), run.seed),
    run.batch_size,
    shuffle=True,
    collate_fn=transformers.DataCollatorForLanguageModeling(tokenizer),
    drop_last=True,
  )
  if not len(loader):
    raise ValueError(f"{run.train_file} has less than a batch of records.")
  while True:
    yield from loader


def evaluate(model: Any, records: Mapping[str, np.ndarray]) -> dict[str, float]:
  """Returns the metrics of tools.run_pretraining for masked records."""
  import torch

  sums = np.zeros(6)
  with torch.inference_mode():
    for start in range(0, len(records["input_ids"]), _EVAL_BATCH_SIZE):
      batch = {
        name: torch.from_numpy(values[start : start + _EVAL_BATCH_SIZE]).long()
        for name, values in records.items()
      }
      outputs = model.albert(
        input_ids=batch["input_ids"],
        attention_mask=batch["input_mask"],
        token_type_ids=batch["segment_ids"],
      )
      rows = torch.arange(len(batch["input_ids"]))[:, None]
      hidden = outputs.last_hidden_state[rows, batch["masked_lm_positions"]]
      ids = batch["masked_lm_ids"]
      labels = ids.masked_fill(batch["masked_lm_weights"] == 0, _IGNORED)
      order = batch["next_sentence_labels"][:, 0]
      sums += [
        *_sums(model.predictions(hidden).flatten(0, 1), labels.flatten()),
        *_sums(model.sop_classifier(outputs.pooler_output), order),
      ]
  loss, right, count, order_loss, order_right, order_count = sums.tolist()
  return {
    "masked_lm_loss": loss / count,
    "masked_lm_accuracy": right / count,
    "sentence_order_loss": order_loss / order_count,
    "sentence_order_accuracy": order_right / order_count,
  }


def _sums(logits: Any, labels: Any) -> tuple[float, int, int]:
  """Returns the summed loss, right predictions and labels of a batch."""
  import torch

  loss = torch.nn.functional.cross_entropy(
    logits.float(), labels, ignore_index=_IGNORED, reduction="sum"
  )
  right = (logits.argmax(-1) == labels).sum()
  return loss.item(), int(right), int((labels != _IGNORED).sum())


if __name__ == "__main__":
  (values,) = child_programs.arguments("benchmark", child_programs.json_object)
  run = Run(**values)
  folder = pathlib.Path(run.output_dir)
  folder.mkdir(parents=True, exist_ok=True)
  (folder / "result.json").write_text(json.dumps(train(run)))
