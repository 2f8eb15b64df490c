"""This project's training step beside those of other ALBERTs.

The others have virtual environments of their own, which are made when needed.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import Mapping, NamedTuple, Optional, Sequence

from official_albert import distribution, modeling
from tasks import pretraining
from tools.benchmarks.peers import environments as peer_venvs
from tools.benchmarks.peers import huggingface_step as peer_huggingface
from tools.benchmarks.peers import keras_hub_step as peer_keras_hub
from tools.benchmarks.peers import model_garden_step as peer_model_garden
from tools.benchmarks.peers import official_albert_step as peer_official_albert
from tools.benchmarks.peers import process as peer_process
from tools.benchmarks.peers import protocol as peer_protocol
from tools.benchmarks.peers import results as peer_results
from tools.benchmarks.peers import rounds as peer_rounds

_GIB = 2**30


class System(NamedTuple):
  """A program, its variant, its virtual environment's name, and variables."""

  program: str
  variant: str = ""
  venv: Optional[str] = None
  environment: Mapping[str, str] = {}


# PyTorch gives each large tensor back to the system and gets the next one from
# it, page by page: a quarter of a step. With these glibc keeps the memory.
# TensorFlow's programs were not faster with them.
KEEP_MEMORY = {
  "MALLOC_MMAP_THRESHOLD_": str(4 * _GIB),
  "MALLOC_TRIM_THRESHOLD_": str(16 * _GIB),
  "MALLOC_TOP_PAD_": str(_GIB // 4),
}


def _huggingface(variant: str, environment: Mapping[str, str] = KEEP_MEMORY):
  return System(peer_huggingface.__name__, variant, "huggingface", environment)


SYSTEMS = {
  peer_results.OURS: System(peer_official_albert.__name__),
  # As users run it, then with ever more help.
  "hf_eager": _huggingface("eager", {}),
  "hf_sdpa": _huggingface("sdpa", {}),
  "hf_eager_malloc": _huggingface("eager"),
  "hf_tuned": _huggingface("tuned"),
  "hf_compiled": _huggingface("compiled"),
  "keras_hub": System(peer_keras_hub.__name__, "", "keras_hub"),
  "keras_hub_jit": System(peer_keras_hub.__name__, "jit", "keras_hub"),
  "model_garden": System(peer_model_garden.__name__, "", "model_garden"),
  "model_garden_jit": System(peer_model_garden.__name__, "jit", "model_garden"),
}
# The others: compiled by XLA as a whole, the two take twice as long on a CPU;
# torch.compile needs a C++ compiler, and gains little.
DEFAULT_SYSTEMS = tuple(
  name for name in SYSTEMS if not name.endswith(("_jit", "_compiled"))
)


@dataclasses.dataclass(frozen=True)
class Settings:
  """What is compared, and where it goes; see the flags of tools.benchmark."""

  preset: str = "albert_base_v2"
  batch_size: int = 16
  max_seq_length: int = 128
  precision: str = "mixed_bfloat16"
  rounds: int = 3
  steps: int = 4
  systems: Sequence[str] = DEFAULT_SYSTEMS
  peers_dir: str = "~/.cache/official_albert/peers"
  output_dir: str = ""
  machine: str = ""


def run(settings: Settings) -> peer_results.Comparison:
  """Compares, prints the table, and saves table, figures and plot.

  Raises:
    ValueError: unknown systems or sizes, an environment that cannot be made,
      or this project's own step failed.
  """
  unknown = set(settings.systems) - set(SYSTEMS)
  if unknown:
    raise ValueError(
      f"unknown systems {', '.join(sorted(unknown))}; there are "
      f"{', '.join(SYSTEMS)}."
    )
  workload = workload_of(
    settings.preset,
    settings.batch_size,
    settings.max_seq_length,
    settings.precision,
  )
  peers = [name for name in settings.systems if name != peer_results.OURS]
  interpreters = {None: sys.executable}
  for name in peers:
    venv = SYSTEMS[name].venv
    if venv not in interpreters:
      interpreters[venv] = peer_venvs.make(venv, settings.peers_dir)

  def start(name: str) -> peer_process.PeerProcess:
    system = SYSTEMS[name]
    return peer_process.PeerProcess(
      interpreters[system.venv],
      system.program,
      dataclasses.replace(workload, variant=system.variant),
      system.environment,
    )

  results, product_flops = peer_rounds.compare(
    start, peers, workload.tokens, settings.rounds, settings.steps
  )
  comparison = peer_results.Comparison(
    settings.machine,
    settings.preset,
    workload,
    flops_per_token(workload),
    product_flops,
    results,
  )
  print(peer_results.table(comparison), flush=True)
  if settings.output_dir:
    save(comparison, settings.output_dir)
  return comparison


def save(comparison: peer_results.Comparison, folder: str) -> None:
  """Figures, and table and plot of all comparisons in the folder."""
  from tools.benchmarks.peers import plot as peer_plot

  peer_results.save(comparison, folder)
  everything = peer_results.load_all(folder)
  peer_results.write(
    os.path.join(folder, "peers.md"),
    "\n".join(peer_results.table(each) for each in everything),
  )
  peer_plot.plot(everything, os.path.join(folder, "benchmark_peers.png"))


def workload_of(
  preset: str,
  batch_size: int,
  max_seq_length: int,
  precision: str,
  dropout: bool = False,
  ours_alone: bool = False,
) -> peer_protocol.Workload:
  """The workload with the sizes of a preset, on all cores.

  `dropout`: with the preset's, if it has any. `ours_alone`: also of a model
  with layers of their own, which the peers do not have.

  Raises:
    ValueError: no such preset or precision, or a size out of range.
  """
  config = modeling.AlbertConfig.from_preset(preset)
  if max_seq_length > config.max_position_embeddings:
    raise ValueError(
      f"{preset} takes at most {config.max_position_embeddings} tokens, not "
      f"{max_seq_length}."
    )
  one_block = config.num_hidden_groups == config.inner_group_num == 1
  if not one_block or (config.sharing != "all" and not ours_alone):
    raise ValueError(f"{preset} does not share one block among its layers.")
  sizes = {
    field.name: getattr(config, field.name)
    for field in dataclasses.fields(peer_protocol.Workload)
    if hasattr(config, field.name)
  }
  if not dropout:
    sizes.update(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
  return peer_protocol.Workload(
    batch_size=batch_size,
    max_seq_length=max_seq_length,
    precision=precision,
    threads=distribution.cpu_count(),
    **sizes,
  )


def check_own(
  preset: str, batch_size: int, max_seq_length: int, precision: str
) -> None:
  """Refuses a step that this project's own program cannot compute.

  Unlike a `Workload`, it may have any of the project's precisions.

  Raises:
    ValueError: no such preset or precision, or a size out of range.
  """
  distribution.check_precision(precision)
  workload_of(preset, batch_size, max_seq_length, "float32", ours_alone=True)


def flops_per_token(workload: peer_protocol.Workload) -> float:
  """Of a step: forward, gradient, and the head on masked positions only."""
  names = {field.name for field in dataclasses.fields(modeling.AlbertConfig)}
  sizes = {
    name: value
    for name, value in dataclasses.asdict(workload).items()
    if name in names
  }
  flops = pretraining.training_flops(
    modeling.AlbertConfig(**sizes),
    workload.max_seq_length,
    workload.predictions,
  )
  return flops / workload.max_seq_length
