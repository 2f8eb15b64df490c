"""Pretrains ALBERT in PyTorch, as a run of this project does.

The argument is a JSON object that `tools.benchmarks.pretraining` makes; it
sends a batch with masks whenever its number is written, and takes the results.
The model and its initial weights are those of transformers, decay and clipping
as in tools.run_pretraining. Runs in a separate virtual environment; see
`protocol`.
"""

from __future__ import annotations

import collections
import json
import re
import sys
import time
import types
from typing import Any

import torch

from official_albert.tools.benchmarks.peers import huggingface, protocol

_UNTIMED_STEPS = 3  # Of a phase; the first one compiles.
_OBJECTIVES = ("masked_lm", "sentence_order")


def main(text: str) -> None:
  """Trains and evaluates."""
  x, stdout = types.SimpleNamespace(**json.loads(text)), protocol.take_stdout()
  torch.set_num_threads(x.threads)
  torch.manual_seed(x.seed)
  device = "cuda" if torch.cuda.is_available() else "cpu"
  variant = x.variant.removeprefix("huggingface ")
  model = huggingface.make_model(x.config, variant, device)

  def ask(source: int) -> dict[str, torch.Tensor]:
    print(source, file=stdout, flush=True)
    return huggingface.tensors(protocol.receive(sys.stdin.buffer), device)

  def sums(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns sums of the losses in nats, of right answers and of weights."""
    with huggingface.autocast(x.precision, device):
      logits = huggingface.pretraining_logits(model, batch)
    labels = batch["masked_lm_ids"], batch["next_sentence_labels"]
    weights = batch["masked_lm_weights"], batch["example_weight"]
    found = {}
    for name, scores, right, weight in zip(
      _OBJECTIVES, logits, labels, weights
    ):
      scores, right, weight = (
        scores.float().flatten(0, -2),
        right.flatten(),
        weight.flatten(),
      )
      each = torch.nn.functional.cross_entropy(scores, right, reduction="none")
      found[f"{name}_loss"] = (each * weight).sum()
      found[f"{name}_accuracy"] = ((scores.argmax(-1) == right) * weight).sum()
      found[name] = weight.sum()
    return found

  compute = torch.compile(sums) if variant == "compiled" else sums
  optimizers = _make_optimizers(x, model)
  whole, elapsed, end = sum(seconds for _, seconds in x.phases), 0.0, 0.0
  steps = [0] * len(x.phases)
  for phase, (layers, seconds) in enumerate(x.phases):
    model.config.num_hidden_layers = layers
    end += seconds
    while elapsed < end:
      start = time.monotonic()
      found = compute(ask(phase))
      rate = (
        min(elapsed / max(x.warmup, 1e-9), (whole - elapsed) / (1 - x.warmup))
        / whole
      )
      for optimizer in optimizers:
        for group in optimizer.param_groups:
          group["lr"] = x.learning_rate * rate
        optimizer.zero_grad()
      sum(found[f"{y}_loss"] / found[y] for y in _OBJECTIVES).backward()
      torch.nn.utils.clip_grad_norm_(model.parameters(), x.clip_norm)
      for optimizer in optimizers:
        optimizer.step()
      if device == "cuda":
        torch.cuda.synchronize()
      steps[phase] += 1
      if steps[phase] > _UNTIMED_STEPS:
        elapsed += time.monotonic() - start
  about = f"torch {torch.__version__}"
  answer = {"about": about, "phase_steps": steps, "minutes": elapsed / 60}
  model.eval()
  for i, split in enumerate(("tuning", "report"), len(x.phases)):
    totals: Any = collections.Counter()
    while batch := ask(i):
      with torch.inference_mode():
        totals.update({name: y.item() for name, y in sums(batch).items()})
    answer[split] = {
      name: y / totals[re.sub("_(loss|accuracy)", "", name)]
      for name, y in totals.items()
      if name not in _OBJECTIVES
    }
  print(json.dumps(answer), file=stdout, flush=True)


def _make_optimizers(x: Any, model: Any) -> list[torch.optim.Optimizer]:
  """Returns AdamW and, for the matrices of the encoder, Muon if asked for."""
  named = dict(model.named_parameters())
  if x.optimizer != "muon":
    return [huggingface.adamw(x, named)]
  is_matrix = {k: ".encoder." in k and y.ndim == 2 for k, y in named.items()}
  matrices = [named.pop(name) for name in is_matrix if is_matrix[name]]
  # With the rate of AdamW, as here.
  same = {"weight_decay": x.weight_decay, "adjust_lr_fn": "match_rms_adamw"}
  muon = torch.optim.Muon(matrices, momentum=x.beta_1, **same)
  return [huggingface.adamw(x, named), muon]


if __name__ == "__main__":
  main(sys.argv[1])
