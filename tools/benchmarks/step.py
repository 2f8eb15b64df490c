"""Speed and memory of the pretraining step, alone or beside Hugging Face's.

Batches are random, without padding, and use all predictions. Each system has
its own process, because a process never returns all of its memory.
"""

from __future__ import annotations

import dataclasses
import statistics
from typing import Any, Sequence

from official_albert import machine
from official_albert.config import AlbertConfig
from official_albert.tools.benchmarks import turns
from official_albert.tools.benchmarks.peers import protocol

_RECOMPUTE = {"recompute_activations": True}
_OWN_SYSTEMS = {
  turns.OURS: turns.System("ours"),
  "recompute": turns.System("ours", settings=_RECOMPUTE),
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
_PEERS = (turns.OURS, "hf_eager", "hf_sdpa", "hf_tuned")
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
  peers_dir: str,
  output_dir: str,
) -> None:
  """Measures, prints a table, and saves it if there is a folder; see the flags.

  `benchmark` is "step", which measures our step; "memory", its variants, one
  after the other; or "peers", the systems in turns, with AdamW and no dropout.
  """
  changes: dict[str, Any] = {}
  names = [turns.OURS]
  if benchmark == "memory":
    names = list(_OWN_SYSTEMS)
  elif benchmark == "peers":
    names = turns.choose(systems, SYSTEMS, _PEERS)
    turns.check_comparable(preset, precision)
    optimizer = "adamw"
    changes = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
  workload = dataclasses.replace(
    turns.workload_of(preset, batch_size, max_seq_length, precision, **changes),
    settings={"optimizer": optimizer},
  )
  hf_python = turns.find_environment(map(SYSTEMS.get, names), peers_dir)
  results = []
  for group in [names] if benchmark == "peers" else [[name] for name in names]:
    results += turns.take_turns(
      group,
      lambda name: turns.start(SYSTEMS[name], workload, hf_python),
      *(workload.tokens, repeats, steps),
    )
  _report(benchmark, preset, workload, results, output_dir)


def _report(
  benchmark: str,
  preset: str,
  workload: protocol.Workload,
  results: Sequence[turns.Result],
  output_dir: str,
) -> None:
  """Prints a row for each system, and saves it."""
  length, batch_size = workload.max_seq_length, workload.batch_size
  config = AlbertConfig.from_dict(workload.config)
  flops = config.pretraining_flops(length, workload.predictions) / length
  product_flops = max(result.product_flops for result in results)
  # The first system takes turns with every other one. Losses are compared after
  # as many steps as every system has taken.
  steps = min(len(x.results) for x in results if not x.failure)

  def cells(result: turns.Result) -> Sequence[str]:
    rates = result.tokens_per_second
    median = statistics.median(rates)
    losses = result.results[0], result.results[steps - 1]
    return (
      f"{median:,.0f}",
      f"{min(rates):,.0f} to {max(rates):,.0f}",
      result.ratio(),
      f"{result.peak_bytes / 2**30:.2f} GiB",
      f"{median * flops / product_flops:.0%}",
      f"{result.trace_seconds:.1f}",
      f"{result.start_seconds:.1f}",
      f"{losses[0]:.2f} to {losses[1]:.2f}",
    )

  precision = workload.precision
  text = (
    f"{preset}, S {length}, B {batch_size}, {precision}, "
    f"{workload.threads} threads: {machine.describe_machine()}; matrix "
    f"products reach {product_flops / 1e9:,.0f} GFLOP/s.\n\n"
    f"{turns.table(_HEAD, results, cells)}"
  )
  name = f"{benchmark}-{preset}-s{length}-b{batch_size}-{precision}"
  turns.save(output_dir, name, text, workload, results)
