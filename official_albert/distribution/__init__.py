"""Devices: strategies, precision, several hosts, TPUs.

`official_albert.machine` has what needs no TensorFlow.
"""

from official_albert.distribution.multi_worker import (
  SharedFlag,
  barrier,
  from_chief,
  is_chief,
  naming_lost_workers,
)
from official_albert.distribution.strategies import (
  host_of,
  iterate,
  make_deterministic,
  make_strategy,
  set_precision,
  start_compiler,
  untuned,
)
