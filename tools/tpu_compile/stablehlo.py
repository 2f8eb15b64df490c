"""What has to change in a lowered step before the TPU's compiler takes it.

On text, so that it needs neither TensorFlow nor JAX: the program that runs
with JAX imports it, and so do tests without.
"""

from __future__ import annotations

import re

# What `tools.tpu_compile.step` calls in the place of a sum over replicas.
ALL_REDUCE = "official_albert.all_reduce"

_TENSOR = r"tensor<[^<>]*>"
_COPY = re.compile(rf"mhlo\.copy (%[\w#:]+) : ({_TENSOR})")
_CUSTOM_CALL = re.compile(
  r"(%[\w#:]+) = stablehlo\.custom_call @"
  + rf'"?{re.escape(ALL_REDUCE)}"?\((%[\w#:]+)\)[^\n]*? : '
  + rf"\(({_TENSOR})\) -> {_TENSOR}"
)
_ELEMENT = re.compile(r"tensor<(?:\d+x)*([a-z]\w*)>")


def for_tpu(text: str, replicas: int) -> str:
  """StableHLO that is ready for the TPU's compiler.

  Args:
    text: a module as `jaxlib` prints it.
    replicas: how many take part in each sum.

  Raises:
    ValueError: the module has something that would be left over.
  """
  text = _CUSTOM_CALL.sub(lambda match: _all_reduce(match, replicas), text)
  # TensorFlow ends its programs with copies, which StableHLO does not know.
  text = _COPY.sub(r"stablehlo.reshape \1 : (\2) -> \2", text)
  for left in (ALL_REDUCE, "mhlo.copy"):
    if left in text:
      line = next(line for line in text.splitlines() if left in line)
      raise ValueError(f"this use of {left} is not understood: {line.strip()}")
  return text


def _all_reduce(match: re.Match, replicas: int) -> str:
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


def count_all_reduces(text: str) -> int:
  """Sums over replicas in a module."""
  return text.count("stablehlo.all_reduce")


# It says one of these, the second where activations alone are too much:
#   Used 11.84G of 7.48G hbm.
#   ... required for HLO temporaries (174.00G) exceeds available HBM (15.75G).
_SIZE = r"([\d.]+)([KMGT]?)"
_REFUSALS = (
  re.compile(rf"Used {_SIZE} of {_SIZE} hbm"),
  re.compile(rf"\({_SIZE}\) exceeds available HBM \({_SIZE}\)"),
)
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def out_of_memory(message: str) -> tuple[int, int]:
  """Bytes that were needed and that there are, of a compiler's refusal.

  Args:
    message: what the compiler raised; (0, 0) if it is about something else.
  """
  found = [pattern.search(message) for pattern in _REFUSALS]
  match = next(filter(None, found), None)
  if match is None:
    return 0, 0
  used, used_unit, available, available_unit = match.groups()
  return (
    round(float(used) * _UNITS[used_unit]),
    round(float(available) * _UNITS[available_unit]),
  )
