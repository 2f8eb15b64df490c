"""Compiles a lowered step with the TPU's compiler; no TPU is needed, or used.

    python -m tools.tpu_compile.compiler STEP.hlo v3:2x2

Runs with the interpreter of `tools.tpu_compile.environment` and prints a line
of JSON. It loads nothing of this repository that needs TensorFlow.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
import time
from typing import Any, Optional

from tools.cli import started_by
from tools.tpu_compile import stablehlo as tpu_stablehlo


@dataclasses.dataclass(frozen=True)
class Generation:
  """What there is to know of a kind of TPU.

  Attributes:
    topology: the smallest one that has several chips.
    device: what one replica runs on.
    dimensions: of a topology's shape.
    hbm_gib: what the compiler gives a program, of all that the device has. As
      the compiler of requirements-tpu-compile.txt says when it refuses one.
    options: to describe the topology with.
  """

  topology: str
  device: str
  dimensions: int
  hbm_gib: float
  options: tuple[tuple[str, str], ...] = ()


GENERATIONS = {
  "v2": Generation("v2:2x2", "core", 2, 7.48),
  "v3": Generation("v3:2x2", "core", 2, 15.48),
  # Both cores of a chip compute as one, as they do for everyone by default.
  "v4": Generation(
    "v4:2x2x1", "chip", 3, 30.75, (("chip_config_name", "megacore"),)
  ),
  "v5e": Generation("v5e:2x2", "chip", 2, 15.75),
  "v5p": Generation("v5p:2x2x1", "chip", 3, 95.74),
  "v6e": Generation("v6e:2x2", "chip", 2, 31.25),
}
# What libtpu looks for on a TPU's host; without it, it would wait for one.
ENVIRONMENT = {
  "JAX_PLATFORMS": "cpu",
  "TPU_ACCELERATOR_TYPE": "v4-8",
  "TPU_SKIP_MDS_QUERY": "1",
  "TPU_WORKER_HOSTNAMES": "localhost",
  "TPU_WORKER_ID": "0",
}


def generation(topology: str) -> Generation:
  """The kind of TPU of a topology such as "v3:4x4".

  Raises:
    ValueError: the topology is unknown or malformed.
  """
  name, _, shape = topology.partition(":")
  kind = GENERATIONS.get(name)
  if kind is None:
    known = ", ".join(g.topology for g in GENERATIONS.values())
    raise ValueError(
      f"unknown topology {topology!r}; choose of {known}, or a larger one of "
      "these kinds."
    )
  if not re.fullmatch("x".join([r"[1-9]\d*"] * kind.dimensions), shape):
    raise ValueError(
      f"malformed topology {topology!r}: a {name} has {kind.dimensions} "
      f"dimensions of chips, as in {kind.topology}."
    )
  return kind


@dataclasses.dataclass(frozen=True)
class Compiled:
  """What the compiler said; sizes in bytes of one device's HBM.

  Attributes:
    devices: of the topology, one for each replica.
    device_kind: the compiler's name of it.
    fits: False if the compiler refused the program for want of memory, and
      `used` is what it would have needed; or if it made one that is too large.
    used, available: of the program with all it reads and writes.
    arguments: weights, moments and the batch; 0 if it was refused, as all
      that follows.
    aliased: of the arguments what is updated where it is.
    temporary: activations and gradients, with gaps between them.
    peak: the most that is in use at one time, without gaps.
    flops: floating-point operations of the program.
    all_reduces: sums over replicas in the program that was compiled.
    seconds: that the compilation took.
    compiler: versions.
  """

  devices: int
  device_kind: str
  fits: bool
  used: int
  available: int
  arguments: int = 0
  aliased: int = 0
  temporary: int = 0
  peak: int = 0
  flops: float = 0.0
  all_reduces: int = 0
  seconds: float = 0.0
  compiler: str = ""


def compile_step(path: str, topology: str) -> Compiled:
  """Compiles for all devices of a topology.

  Args:
    path: of a serialized HloModuleProto, see `tools.tpu_compile.step`.
    topology: such as "v3:2x2".

  Raises:
    ValueError: libtpu knows no such topology, or refuses the program for
      another reason than memory.
  """
  os.environ.update(ENVIRONMENT)
  import jax
  import jaxlib
  import numpy as np
  from jax._src.interpreters import mlir
  from jax._src.lib import _jax, xla_client
  from jax.experimental import topologies
  from jaxlib.mlir import ir

  kind = generation(topology)
  try:
    description = topologies.get_topology_desc(
      topology, "tpu", **dict(kind.options)
    )
  except Exception as error:  # Of several types, some of them not public.
    raise ValueError(
      f"libtpu does not know the topology {topology} ({_line(error)}): "
      f"{kind.topology} is one that it knows."
    ) from error
  devices = tuple(description.devices)
  with open(path, "rb") as file:
    lowered = file.read()
  context = mlir.make_ir_context()
  with context:
    stablehlo = xla_client._xla.mlir.hlo_to_stablehlo(lowered)
    text = tpu_stablehlo.for_tpu(str(ir.Module.parse(stablehlo)), len(devices))
    module = ir.Module.parse(text)
  options = xla_client.CompileOptions()
  build = options.executable_build_options
  for each in (options, build):
    each.num_replicas, each.num_partitions = len(devices), 1
  build.device_assignment = xla_client.DeviceAssignment.create(
    np.array([[device.id] for device in devices])
  )
  about = dict(
    devices=len(devices),
    device_kind=devices[0].device_kind,
    all_reduces=tpu_stablehlo.count_all_reduces(text),
    compiler=f"jax {jax.__version__}, jaxlib {jaxlib.__version__}",
  )
  start = time.monotonic()
  try:
    program = devices[0].client.compile(
      module, _jax.DeviceList(devices), options
    )
  except Exception as error:
    used, available = tpu_stablehlo.out_of_memory(str(error))
    if not used:
      raise ValueError(
        f"the TPU's compiler refused the step for {topology}: {_line(error)}"
      ) from error
    seconds = time.monotonic() - start
    return Compiled(
      fits=False, used=used, available=available, seconds=seconds, **about
    )
  seconds = time.monotonic() - start
  # Its "optimal_seconds" are negative for a step that sums over replicas.
  costs = program.cost_analysis()
  costs = costs[0] if isinstance(costs, (list, tuple)) else costs
  return Compiled(
    flops=costs["flops"],
    seconds=seconds,
    **account(program.get_compiled_memory_stats(), kind),
    **about,
  )


def account(memory, kind: Generation) -> dict[str, Any]:
  """The memory of a program that the compiler made, as `Compiled` has it.

  Just under the limit the compiler goes by what is in use at one time and may
  make a program whose parts are together more than there is. Whether a TPU
  would load it nobody here can try: it counts as one that does not fit.

  Args:
    memory: the program's `CompiledMemoryStats`.
    kind: what it is for.
  """
  used = (
    memory.argument_size_in_bytes
    # An output that is an updated argument lies where the argument does.
    + memory.output_size_in_bytes
    - memory.alias_size_in_bytes
    + memory.temp_size_in_bytes
    + memory.generated_code_size_in_bytes
  )
  available = round(kind.hbm_gib * 2**30)
  return dict(
    fits=used <= available,
    used=used,
    available=available,
    arguments=memory.argument_size_in_bytes,
    aliased=memory.alias_size_in_bytes,
    temporary=memory.temp_size_in_bytes,
    peak=memory.peak_memory_in_bytes,
  )


def _line(error: Exception) -> str:
  lines = str(error).strip().splitlines()
  return lines[0] if lines else type(error).__name__


def main(argv: Optional[list[str]] = None) -> int:
  """Compiles and prints; returns the exit code."""
  path, topology = started_by.arguments(
    "tools.compile_for_tpu", str, str, argv=argv
  )
  try:
    compiled = compile_step(path, topology)
  except ValueError as error:
    print(error, file=sys.stderr)
    return 1
  print(json.dumps(dataclasses.asdict(compiled)))
  return 0


if __name__ == "__main__":
  sys.exit(main())
