"""Compiles a lowered step with the TPU's compiler, without a TPU.

    python -m tools.tpu_compile.compiler STEP.hlo v3:2x2

Runs in the virtual environment of `rows.find_environment` and prints a line of
JSON. Imports nothing that needs TensorFlow.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from typing import Any, Mapping, NamedTuple

# The name of the custom calls that represent sums over replicas.
ALL_REDUCE = "official_albert.all_reduce"


class Generation(NamedTuple):
  """A kind of TPU."""

  topology: str  # The smallest one with several chips.
  hbm_gib: float  # The memory of a program, by the compiler's messages.
  options: Mapping[str, str] = {}  # Of the topology's description.


GENERATIONS = {
  "v2": Generation("v2:2x2", 7.48),
  "v3": Generation("v3:2x2", 15.48),
  # By default both cores of a chip work as one.
  "v4": Generation("v4:2x2x1", 30.75, {"chip_config_name": "megacore"}),
  "v5e": Generation("v5e:2x2", 15.75),
  "v5p": Generation("v5p:2x2x1", 95.74),
  "v6e": Generation("v6e:2x2", 31.25),
}
# libtpu expects these on a TPU host; without them it waits for one.
_ENVIRONMENT = {
  # A host's TPU has one process, but its compiler may have several.
  "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
  "JAX_PLATFORMS": "cpu",
  # The program that starts this one has 0, for TensorFlow.
  "TPU_LOAD_LIBRARY": "1",
  "TPU_ACCELERATOR_TYPE": "v4-8",
  "TPU_SKIP_MDS_QUERY": "1",
  "TPU_WORKER_HOSTNAMES": "localhost",
  "TPU_WORKER_ID": "0",
}


def generation(topology: str) -> Generation:
  """Returns the kind of TPU of a topology such as "v3:4x4"."""
  kind = GENERATIONS.get(topology.partition(":")[0])
  if not kind or topology.count("x") != kind.topology.count("x"):
    known = ", ".join(kind.topology for kind in GENERATIONS.values())
    raise ValueError(
      f"unknown topology {topology!r}; choose one of {known}, or a larger one "
      "with as many dimensions."
    )
  return kind


def compile_step(path: str, topology: str) -> dict[str, Any]:
  """Compiles a serialized HloModuleProto for all devices of a topology.

  Returns what the compiler says about one device, in bytes: whether the program
  "fits", what it has "used" of what is "available", and its parts, unless it
  does not fit. "flops" are of one replica, "all_reduces" sums over replicas.
  """
  os.environ.update(_ENVIRONMENT)
  import jax
  import jaxlib
  import numpy as np
  from jax._src.interpreters import mlir
  from jax._src.lib import _jax, xla_client
  from jax.experimental import topologies
  from jaxlib.mlir import ir

  kind = generation(topology)
  description = topologies.get_topology_desc(topology, "tpu", **kind.options)
  devices = tuple(description.devices)
  with open(path, "rb") as file:
    lowered = file.read()
  with mlir.make_ir_context():
    stablehlo = xla_client._xla.mlir.hlo_to_stablehlo(lowered)
    text = prepare_for_tpu(str(ir.Module.parse(stablehlo)), len(devices))
    module = ir.Module.parse(text)
  settings = xla_client.CompileOptions()
  build = settings.executable_build_options
  for each in (settings, build):
    each.num_replicas, each.num_partitions = len(devices), 1
  build.device_assignment = xla_client.DeviceAssignment.create(
    np.array([[device.id] for device in devices])
  )
  start = time.monotonic()
  try:
    program = devices[0].client.compile(
      module, _jax.DeviceList(devices), settings
    )
  except Exception as error:
    used, available = parse_out_of_memory(str(error))
    if not used:
      raise
    answer = {"fits": False, "used": used, "available": available}
  else:
    answer = memory_of(program.get_compiled_memory_stats(), kind)
    costs = program.cost_analysis()
    costs = costs[0] if isinstance(costs, list) else costs
    answer["flops"] = costs["flops"]
  return {
    **answer,
    "devices": len(devices),
    "device_kind": devices[0].device_kind,
    "all_reduces": text.count("stablehlo.all_reduce"),
    "compiler": f"jax {jax.__version__}, jaxlib {jaxlib.__version__}",
    "seconds": time.monotonic() - start,
  }


def memory_of(stats, kind: Generation) -> dict[str, Any]:
  """Returns the memory of a compiled program.

  Near the limit, the compiler considers only the peak, and may accept a program
  whose parts together exceed the memory. It counts as too large here.
  """
  parts = {
    "arguments": stats.argument_size_in_bytes,  # Weights, moments, the batch.
    "aliased": stats.alias_size_in_bytes,  # Of them, updated in place.
    # Activations and gradients, with gaps between them.
    "temporary": stats.temp_size_in_bytes,
    "peak": stats.peak_memory_in_bytes,  # In use at one time, without gaps.
  }
  # Arguments that are updated in place are outputs too.
  outputs = stats.output_size_in_bytes - parts["aliased"]
  used = parts["arguments"] + outputs + parts["temporary"]
  used += stats.generated_code_size_in_bytes
  available = round(kind.hbm_gib * 2**30)
  fits = used <= available
  return {"fits": fits, "used": used, "available": available, **parts}


_TENSOR = r"tensor<[^<>]*>"
_COPY = re.compile(rf"mhlo\.copy (%[\w#:]+) : ({_TENSOR})")
_CUSTOM_CALL = re.compile(
  r"(%[\w#:]+) = stablehlo\.custom_call @"
  + rf'"?{re.escape(ALL_REDUCE)}"?\((%[\w#:]+)\)[^\n]*? : '
  + rf"\(({_TENSOR})\) -> {_TENSOR}"
)
_ELEMENT = re.compile(r"tensor<(?:\d+x)*([a-z]\w*)>")


def prepare_for_tpu(text: str, replicas: int) -> str:
  """Replaces the operations that the TPU's compiler does not support."""

  def all_reduce(match: re.Match) -> str:
    result, operand, kind = match.groups()
    element = _ELEMENT.fullmatch(kind)[1]
    group = ", ".join(map(str, range(replicas)))
    return (
      f'{result} = "stablehlo.all_reduce"({operand}) <{{replica_groups = '
      f"dense<[[{group}]]> : tensor<1x{replicas}xi64>}}> ({{\n"
      f"    ^bb0(%lhs: tensor<{element}>, %rhs: tensor<{element}>):\n"
      f"      %sum = stablehlo.add %lhs, %rhs : tensor<{element}>\n"
      f"      stablehlo.return %sum : tensor<{element}>\n"
      f"    }}) : ({kind}) -> {kind}"
    )

  text = _CUSTOM_CALL.sub(all_reduce, text)
  # TensorFlow's programs end with copies, which StableHLO does not have.
  text = _COPY.sub(r"stablehlo.reshape \1 : (\2) -> \2", text)
  if left := re.search(rf".*(?:{re.escape(ALL_REDUCE)}|mhlo\.copy).*", text):
    raise ValueError(f"this use is not supported: {left[0].strip()}")
  return text


# The compiler's two messages; the second if activations alone are too large:
#   Used 11.84G of 7.48G hbm.
#   ... required for HLO temporaries (174.00G) exceeds available HBM (15.75G).
_OUT_OF_MEMORY = re.compile(
  r"([\d.]+)([KMGT]?)\)? (?:of|exceeds available HBM) \(?([\d.]+)([KMGT]?)"
)


def parse_out_of_memory(message: str) -> tuple[int, int]:
  """Returns needed and available bytes; (0, 0) for other messages."""
  match = _OUT_OF_MEMORY.search(message)
  if not match:
    return 0, 0
  used, available = (
    round(float(match[i]) * 2 ** (10 * " KMGT".index(match[i + 1] or " ")))
    for i in (1, 3)
  )
  return used, available


if __name__ == "__main__":
  try:
    print(json.dumps(compile_step(*sys.argv[1:])))
  except Exception as error:  # Some types of JAX's errors are not public.
    sys.exit(f"{type(error).__name__}: {error}".splitlines()[0])
