"""Systems that a benchmark measures in turns, and the tables of their numbers.

Every system is a process that keeps its model. Our system takes turns with each
of the others, so a busy minute of the machine affects both, and ratios are
computed within a round.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
from typing import Any, Mapping, NamedTuple, Optional, Sequence

from official_albert import files, machine
from official_albert.config import AlbertConfig
from official_albert.settings import setting
from official_albert.tools.benchmarks.peers.protocol import Workload
from official_albert.tools.cli import command_line, printing

# glibc keeps memory instead of returning it to the system. Otherwise PyTorch
# spends a quarter of a step on getting large tensors page by page. TensorFlow
# does not become faster.
_MALLOC_TUNED = {
  "MALLOC_MMAP_THRESHOLD_": str(4 << 30),
  "MALLOC_TRIM_THRESHOLD_": str(16 << 30),
  "MALLOC_TOP_PAD_": str(1 << 28),
}
_PROGRAMS = "official_albert.tools.benchmarks.peers"
PEERS_DIR = os.environ.get("PEERS_DIR", "~/.cache/official_albert/peers")
_REQUIREMENTS = pathlib.Path(__file__).parent / "peers/requirements"
# Where the top-level package is, also in a clone, where tools is a link.
_ROOT = pathlib.Path(__file__).absolute().parents[3]
# Untimed steps. The first includes compilation.
_WARMUP_STEPS = 3


@dataclasses.dataclass(frozen=True)
class Options:
  """What the program is asked for: its flags."""

  preset: str = setting("albert_base_v2", "Model to measure.")
  batch_size: int = setting(32, "Sequences per step.", least=1)
  max_seq_length: int = setting(512, "Tokens per sequence.", least=1)
  precision: str = setting(
    "float32",
    "Precision of the step.",
    ("float32", "mixed_bfloat16"),  # What all systems support.
  )
  repeats: int = setting(3, "Turns of each variant.", least=1)
  steps: int = setting(4, "Steps per turn.", least=1)
  systems: Sequence[str] = ()
  batch_sizes: str = setting("1,8", "Of serving: sequences of a request.")
  lengths: str = setting(
    "", "Of serving: tokens of a sequence; default: --max_seq_length."
  )
  classify: bool = setting(
    False,
    "Of serving: probabilities of two classes instead of pooled outputs; of "
    "systems saved_model... and hf_...",
  )
  padded: bool = setting(
    False,
    "Of serving: also send batches whose rows have random lengths from a "
    "quarter of the first row's on.",
  )
  input_files: str = setting(
    "", "Of embeddings: a file with a text on each line.", is_path=True
  )
  spm_model_file: str = setting("", "SentencePiece model.", is_path=True)
  finetuning_flags: str = setting(
    "",
    "Flags of tools.run_finetuning, with --task, its data and "
    "--init_checkpoint; --repeats is the number of seeds, from 1.",
  )
  portion_dir: str = setting(
    "", "Of pretraining: --output_dir of tools.run_portion.", is_path=True
  )
  peer_flags: str = setting(
    "", "Of pretraining: 'optimizer=adamw learning_rate=0.001' for the other."
  )
  minutes: float = setting(10.0, "Of pretraining: those of updates.", above=0)
  log_file: str = setting(
    "", "Of pretraining: default: log.jsonl in --portion_dir.", is_path=True
  )
  output_dir: str = setting(
    "", "Folder for tables and raw numbers; default: print only.", is_path=True
  )

  def workload(self) -> Workload:
    """Returns the workload of the model on all cores."""
    config = AlbertConfig.from_preset(self.preset)
    if self.max_seq_length > config.max_position_embeddings:
      raise ValueError(
        f"{self.preset} takes at most {config.max_position_embeddings} tokens, "
        f"not {self.max_seq_length}."
      )
    return Workload(
      *(config.to_dict(), self.batch_size, self.max_seq_length),
      *(self.precision, machine.cpu_count()),
    )


class System(NamedTuple):
  """How to run a program of `tools.benchmarks.peers`; see `Workload`."""

  program: str
  variant: str = ""
  environment: Mapping[str, str] = {}
  settings: Mapping[str, Any] = {}

  def python(self) -> str:
    """Returns its interpreter, or raises ValueError with how to install it."""
    libraries, name = "huggingface|runtimes|sentence_transformers", self.program
    library = re.search(libraries, f"{name} {self.variant}")
    if not library:
      return sys.executable
    # The only Python for which all of the requirements have packages.
    return command_line.find_environment(
      pathlib.Path(PEERS_DIR, f"official_albert_{library[0]}").expanduser(),
      *(_REQUIREMENTS / f"{library[0]}.txt", "3.11"),
    )

  def start(
    self,
    workload: Mapping[str, Any],
    stdout: Optional[int] = subprocess.PIPE,
    **environment: str,
  ) -> subprocess.Popen[Any]:
    """Starts the program, whose argument is `workload` with its variant."""
    text = json.dumps({**workload, "variant": self.variant})
    return subprocess.Popen(
      [self.python(), "-m", f"{_PROGRAMS}.{self.program}", text],
      cwd=_ROOT,
      env={**os.environ, **environment, **self.environment},
      stdin=subprocess.PIPE,
      stdout=stdout,
    )


_LITERT = {"interpreter": "ai_edge_litert.interpreter"}
_TF_LITE = {"interpreter": "tensorflow.lite.python.interpreter"}
SYSTEMS = {
  "official_albert": System("ours"),
  "recompute": System("ours", settings={"recompute_activations": True}),
  "xla": System("ours", settings={"xla": True}),
  "no_chains": System("ours", settings={"compile_chains": False}),
  "compiled_attention": System("ours", settings={"attention": "compiled"}),
  "fused_attention": System("ours", settings={"attention": "fused"}),
  "xla_compiled_attention": System(
    "ours", settings={"attention": "compiled", "xla": True}
  ),
  "xla_fused_attention": System(
    "ours", settings={"attention": "fused", "xla": True}
  ),
  "embed": System("embeddings", "run"),
  "embed_export": System("embeddings", "exports"),
  "sentence_transformers": System("embeddings", "sentence_transformers"),
  # As users run it, then with more and more tuning.
  "hf_eager": System("huggingface", "eager"),
  "hf_sdpa": System("huggingface", "sdpa"),
  "hf_tuned": System("huggingface", "tuned", _MALLOC_TUNED),
  "hf_compiled": System("huggingface", "compiled", _MALLOC_TUNED),
  # Of serving: exports and files of this package, then Hugging Face's model.
  "saved_model": System("exports", "exports_float32"),
  "saved_model_bfloat16": System("exports", "exports_bfloat16"),
  "c_api": System("c_api", "float32"),
  "c_api_bfloat16": System("c_api", "bfloat16"),
  "c_api_bfloat16_packed": System(
    "c_api", "bfloat16", {"TF_ONEDNN_ASSUME_FROZEN_WEIGHTS": "1"}
  ),
  "onnxruntime": System("exports", "onnx_none"),
  "onnxruntime_int8": System("exports", "onnx_int8"),
  "litert": System("exports", "tflite_none", settings=_LITERT),
  "litert_int8": System("exports", "tflite_int8", settings=_LITERT),
  "tf_lite": System("exports", "tflite_none", settings=_TF_LITE),
  "tf_lite_int8": System("exports", "tflite_int8", settings=_TF_LITE),
  "onnxruntime_optimized": System("runtimes", "onnxruntime float32"),
  "onnxruntime_optimized_int8": System("runtimes", "onnxruntime int8"),
  "openvino": System("runtimes", "openvino float32"),
  "openvino_bfloat16": System("runtimes", "openvino bfloat16"),
  "openvino_int8": System("runtimes", "openvino int8"),
  "openvino_onnx": System("runtimes", "openvino_onnx float32"),
  "openvino_onnx_bfloat16": System("runtimes", "openvino_onnx bfloat16"),
  "hf_sdpa_bfloat16": System(
    "huggingface", "sdpa", settings={"dtype": "bfloat16"}
  ),
  # torch.compile for each size of requests, for GPUs.
  **{
    f"hf_graphs_{dtype}": System(
      *("huggingface", "compiled", _MALLOC_TUNED),
      settings={"mode": "reduce-overhead", "dtype": dtype},
    )
    for dtype in ("float32", "bfloat16", "float16")
  },
  # Of pretraining and finetuning; see the programs.
  "hf_pretrained": System("pretraining", "huggingface tuned", _MALLOC_TUNED),
  "hf_pretrained_compiled": System(
    "pretraining", "huggingface compiled", _MALLOC_TUNED
  ),
  "hf_finetuned": System("finetuning", "huggingface", _MALLOC_TUNED),
  "hf_finetuned_sdpa": System("finetuning", "huggingface sdpa", _MALLOC_TUNED),
  "hf_finetuned_compiled": System(
    "finetuning", "huggingface sdpa compiled", _MALLOC_TUNED
  ),
  "hf_frozen": System("finetuning", "huggingface frozen", _MALLOC_TUNED),
  "st_finetuned": System("finetuning", "sentence_transformers"),
}
DEFAULTS = {
  "memory": ["official_albert", "recompute", "no_chains"],
  # Without the one that needs a C++ compiler (torch.compile gains little).
  "peers": ["official_albert", "hf_eager", "hf_sdpa", "hf_tuned"],
  "pretraining": ["hf_pretrained"],
  "embeddings": ["embed_export", "sentence_transformers"],
  "serving": ["c_api", "hf_eager", "hf_sdpa"],
}


@dataclasses.dataclass
class Result:
  """The measurements of one system."""

  system: str
  tokens_per_second: list[float] = dataclasses.field(default_factory=list)
  # Our speed divided by its speed, in each round.
  ratios: list[float] = dataclasses.field(default_factory=list)
  # Of all steps.
  results: list[float] = dataclasses.field(default_factory=list)
  # The last ones of its program; see `protocol.Facts`.
  facts: dict[str, Any] = dataclasses.field(default_factory=dict)
  # Of the first step, with tracing and compilation.
  first_seconds: float = 0.0

  def row(self, tokens: int, steps: int) -> dict[str, str]:
    """Returns a row of a table: `tokens` of a step, `steps` of every system."""
    rates, results = self.tokens_per_second, self.results
    return {
      "system": self.system,
      "tokens/s": printing.spread(rates, ",.0f"),
      "ms a step": printing.spread([1e3 * tokens / x for x in rates], ".1f"),
      "ours, times as fast": printing.spread(self.ratios, ".2f"),
      "first step": f"{self.first_seconds:.1f} s",
      "peak memory": f"{self.facts['peak_bytes'] / 2**30:.2f} GiB",
      # Losses, or means of outputs.
      "first and last result": f"{results[0]:.2f}, {results[steps - 1]:.2f}",
      "set up as": self.facts["about"],
    }


class Process:
  """A system in a process of its own, which answers lines of text."""

  def __init__(self, name: str, system: System, workload: Workload):
    """Starts it."""
    self._name = name
    settings = {**workload.settings, **system.settings}
    self._process: Any = system.start(
      {**dataclasses.asdict(workload), "settings": settings},
      OMP_NUM_THREADS=str(workload.threads),
      # Two programs share a GPU, which TensorFlow would fill.
      TF_FORCE_GPU_ALLOW_GROWTH="true",
    )

  def ask(self, line: str) -> dict[str, Any]:
    """Returns the answer to a line; a ValueError says that it has ended."""
    with contextlib.suppress(BrokenPipeError):  # It has ended: see below.
      self._process.stdin.write(f"{line}\n".encode())
      self._process.stdin.flush()
    answer = self._process.stdout.readline()
    if not answer:
      code = self._process.wait()
      reason = "killed: perhaps memory ran out" if code == -9 else "see above"
      raise ValueError(f"{self._name} ended with exit code {code} ({reason}).")
    return json.loads(answer)

  def __enter__(self):
    return self

  def __exit__(self, *unused) -> None:
    """Ends the program, which has nothing left to do."""
    self._process.kill()
    self._process.communicate()


class Peer(Process):
  """A system that has warmed up and takes turns; `result` grows with them."""

  def __init__(self, name: str, system: System, workload: Workload):
    """Starts it; a ValueError says that it has ended, also in `turn`."""
    self.result, self._tokens = Result(name), workload.tokens
    super().__init__(name, system, workload)
    try:
      self.result.first_seconds = self._take(1)
      self._take(_WARMUP_STEPS - 1)
    except BaseException:
      self.__exit__()
      raise

  def turn(self, steps: int) -> float:
    """Takes steps; returns the tokens per second."""
    rate = self._tokens * steps / self._take(steps)
    self.result.tokens_per_second.append(rate)
    return rate

  def _take(self, steps: int) -> float:
    """Takes steps; returns their seconds."""
    self.result.facts = self.ask(str(steps))
    self.result.results += self.result.facts.pop("results")
    return self.result.facts.pop("seconds")


def take_turns(
  names: Sequence[str], workload: Workload, options: Options
) -> list[Result]:
  """Measures the first system, which is ours, in turns with each of the others.

  One ends before the next one starts, so at most two models are in memory.
  """
  for name in names:
    SYSTEMS[name].python()
  rounds, steps = options.repeats, options.steps
  first, *others = dict.fromkeys(names)
  with Peer(first, SYSTEMS[first], workload) as own:
    results = [own.result]
    for name in others:
      with Peer(name, SYSTEMS[name], workload) as peer:
        for i in range(rounds):
          pair = [own, peer]
          rates = {x: x.turn(steps) for x in (pair[::-1] if i % 2 else pair)}
          peer.result.ratios.append(rates[own] / rates[peer])
        results.append(peer.result)
    while len(own.result.tokens_per_second) < rounds:  # No other took turns.
      own.turn(steps)
  return results


def run(benchmark: str, options: Options) -> None:
  """Measures, prints a table, and saves it if there is a folder.

  `benchmark` is "memory", our step and its variants, or "peers", the systems
  with AdamW and without dropout.
  """
  workload = options.workload()
  config, optimizer = dict(workload.config), "lamb"
  if benchmark == "peers":
    optimizer = "adamw"
    config["hidden_dropout_prob"] = config["attention_probs_dropout_prob"] = 0.0
  workload = dataclasses.replace(
    workload, config=config, settings={"optimizer": optimizer}
  )
  names = ["official_albert", *(options.systems or DEFAULTS[benchmark])]
  results = take_turns(names, workload, options)
  # The first has taken turns with every other one.
  steps = min(len(x.results) for x in results)
  rows = [x.row(workload.tokens, steps) for x in results]
  name = case_name(benchmark, options.preset, workload)
  report(options, name, workload, results, rows)


def case_name(benchmark: str, subject: str, workload: Workload) -> str:
  """Returns the name of the files of results, such as peers-NAME-s512-b4-..."""
  size = f"s{workload.max_seq_length}-b{workload.batch_size}"
  return f"{benchmark}-{subject}-{size}-{workload.precision}"


def report(
  options: Options,
  name: str,
  workload: Workload,
  results: Any,
  rows: Sequence[Mapping[str, str]],
) -> None:
  """Prints a table.

  If there is a folder, it gets the table, and the raw results as JSON.
  """
  about = f"{options.repeats} turns, {workload.threads} threads"
  title = f"{name}, {about}: {machine.describe_machine()}"
  table = printing.table(list(rows[0]), [list(x.values()) for x in rows])
  text = f"{title}\n\n{table}\n"
  print(f"\n{text}", flush=True)
  if options.output_dir:
    path = os.path.join(options.output_dir, name)
    numbers = {"title": title, "workload": workload, "results": results}
    files.write_json(f"{path}.json", numbers, default=dataclasses.asdict)
    files.write_text(f"{path}.md", text)
