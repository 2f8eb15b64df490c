"""Speed and memory of the pretraining step, alone or beside Hugging Face's.

Batches are random, without padding, and use all predictions. Each system has
its own process, because a process never returns all of its memory.
"""

from __future__ import annotations

import dataclasses
import statistics
from typing import Sequence

from official_albert import machine
from official_albert.config import AlbertConfig
from official_albert.tools.benchmarks import turns

_RECOMPUTE = {"recompute_activations": True}
_OWN_SYSTEMS = {
  "official_albert": turns.System("ours"),
  "recompute": turns.System("ours", settings=_RECOMPUTE),
  "no_chains": turns.System("ours", settings={"compile_chains": False}),
  "xla": turns.System("ours", settings={"xla": True}),
  "xla_recompute": turns.System("ours", settings={"xla": True, **_RECOMPUTE}),
}
SYSTEMS = {
  **_OWN_SYSTEMS,
  # As users run it, then with more and more tuning.
  "hf_eager": turns.System("huggingface", "eager"),
  "hf_sdpa": turns.System("huggingface", "sdpa"),
  "hf_tuned": turns.System("huggingface", "tuned", turns.MALLOC_TUNED),
  "hf_compiled": turns.System("huggingface", "compiled", turns.MALLOC_TUNED),
}
# Without those that are slow on CPUs (XLA for the whole step takes 1.3 to 2
# times as long) or need a C++ compiler (torch.compile, which gains little).
_PEERS = ("official_albert", "hf_eager", "hf_sdpa", "hf_tuned")
_HEAD = (
  *("tokens/s", "lowest to highest", "official_albert, times as fast"),
  *("peak memory", "of the products' rate", "s to trace"),
  *("s to the first loss", "loss, first to last"),
)


def run(
  benchmark: str,
  preset: str,
  batch_size: int,
  max_seq_length: int,
  precision: str,
  optimizer: str,
  systems: Sequence[str],
  repeats: int,
  steps: int,
  output_dir: str,
) -> None:
  """Measures, prints a table, and saves it if there is a folder; see the flags.

  `benchmark` is "step", which measures our step; "memory", its variants, one
  after the other; or "peers", the systems in turns, with AdamW and no dropout.
  """
  workload = turns.workload_of(preset, batch_size, max_seq_length, precision)
  groups = [["official_albert"]]
  if benchmark == "memory":
    groups = [[name] for name in _OWN_SYSTEMS]
  elif benchmark == "peers":
    groups = [turns.choose(systems, SYSTEMS, _PEERS, workload)]
    optimizer = "adamw"
    no_dropout = {
      "hidden_dropout_prob": 0.0,
      "attention_probs_dropout_prob": 0.0,
    }
    config = {**workload.config, **no_dropout}
    workload = dataclasses.replace(workload, config=config)
  workload = dataclasses.replace(workload, settings={"optimizer": optimizer})
  results = []
  for names in groups:
    results += turns.take_turns(
      names,
      lambda name: turns.Peer(name, SYSTEMS[name], workload),
      *(repeats, steps),
    )
  model = AlbertConfig.from_dict(workload.config)
  flops = model.pretraining_flops(max_seq_length, workload.predictions)
  product_flops = max(result.product_flops for result in results)
  # The first system takes turns with every other one. Losses are compared after
  # as many steps as every system has taken.
  last = min(len(x.results) for x in results if not x.failure) - 1

  def cells(result: turns.Result) -> Sequence[str]:
    rates = result.tokens_per_second
    median = statistics.median(rates)
    return (
      f"{median:,.0f}",
      f"{min(rates):,.0f} to {max(rates):,.0f}",
      result.ratio(),
      f"{result.peak_bytes / 2**30:.2f} GiB",
      f"{median * flops / max_seq_length / product_flops:.0%}",
      f"{result.trace_seconds:.1f}",
      f"{result.start_seconds:.1f}",
      f"{result.results[0]:.2f} to {result.results[last]:.2f}",
    )

  size = f"s{max_seq_length}-b{batch_size}-{precision}"
  title = (
    f"{preset}, S {max_seq_length}, B {batch_size}, {precision}, "
    f"{workload.threads} threads: {machine.describe_machine()}; matrix "
    f"products reach {product_flops / 1e9:,.0f} GFLOP/s."
  )
  turns.report(
    *(output_dir, f"{benchmark}-{preset}-{size}", title, _HEAD, cells),
    *(workload, results),
  )
