"""Speed and memory of the pretraining step, alone or beside Hugging Face's.

Batches are random, without padding, and use all predictions. Each system has
its own process, because a process never returns all of its memory.
"""

from __future__ import annotations

import dataclasses
import statistics

from official_albert.config import AlbertConfig
from official_albert.tools.benchmarks import turns

_OWN_SYSTEMS = {
  "official_albert": turns.System("ours"),
  "recompute": turns.System("ours", settings={"recompute_activations": True}),
  "no_chains": turns.System("ours", settings={"compile_chains": False}),
}
SYSTEMS = {
  **_OWN_SYSTEMS,
  # As users run it, then with more and more tuning.
  "hf_eager": turns.System("huggingface", "eager"),
  "hf_sdpa": turns.System("huggingface", "sdpa"),
  "hf_tuned": turns.System("huggingface", "tuned", turns.MALLOC_TUNED),
  "hf_compiled": turns.System("huggingface", "compiled", turns.MALLOC_TUNED),
}
# Without the one that needs a C++ compiler (torch.compile gains little).
_PEERS = ("official_albert", "hf_eager", "hf_sdpa", "hf_tuned")


def run(benchmark: str, options: turns.Options) -> None:
  """Measures, prints a table, and saves it if there is a folder.

  `benchmark` is "step", which measures our step; "memory", its variants, one
  after the other; or "peers", the systems in turns, with AdamW and no dropout.
  """
  workload = options.workload()
  config, optimizer = dict(workload.config), "lamb"
  groups = [["official_albert"]]
  if benchmark == "memory":
    groups = [[name] for name in _OWN_SYSTEMS]
  elif benchmark == "peers":
    groups = [turns.choose(options.systems, SYSTEMS, _PEERS)]
    optimizer = "adamw"
    config["hidden_dropout_prob"] = config["attention_probs_dropout_prob"] = 0.0
  workload = dataclasses.replace(
    workload, config=config, settings={"optimizer": optimizer}
  )
  results = []
  for names in groups:
    results += turns.take_turns(names, SYSTEMS, workload, options)
  length = options.max_seq_length
  model = AlbertConfig.from_dict(config)
  flops = model.pretraining_flops(length, workload.predictions) / length
  products = max(result.facts.get("product_flops", 0) for result in results)
  # The first system takes turns with every other one. Losses are compared after
  # as many steps as every system has taken.
  last = min(len(x.results) for x in results if not x.failure) - 1

  def row(result: turns.Result) -> dict[str, str]:
    if result.failure:
      return result.cells()
    rates, losses = result.tokens_per_second, result.results
    rate = statistics.median(rates)
    return result.cells(
      **{
        "tokens/s": f"{rate:,.0f} ({min(rates):,.0f} to {max(rates):,.0f})",
        "of the products' rate": f"{rate * flops / products:.0%}",
        "s to trace": f"{result.facts.get('trace_seconds', 0):.1f}",
        "loss, first to last": f"{losses[0]:.2f} to {losses[last]:.2f}",
      }
    )

  note = (
    f"{workload.threads} threads, products at {products / 1e9:,.0f} GFLOP/s"
  )
  rows = [row(result) for result in results]
  turns.report(options, benchmark, note, rows, workload, results)
