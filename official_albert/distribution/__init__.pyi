from .cluster import (
  cpu_count as cpu_count,
  cpu_environment as cpu_environment,
  describe_machine as describe_machine,
  hold_stderr as hold_stderr,
  leave_tpu as leave_tpu,
  prepare_tpu as prepare_tpu,
  read_cluster as read_cluster,
  training_environment as training_environment,
)
from .multi_worker import (
  SharedFlag as SharedFlag,
  barrier as barrier,
  from_chief as from_chief,
  is_chief as is_chief,
  naming_lost_workers as naming_lost_workers,
  num_workers as num_workers,
)
from .strategies import (
  check_precision as check_precision,
  host_of as host_of,
  iterate as iterate,
  make_deterministic as make_deterministic,
  make_strategy as make_strategy,
  set_precision as set_precision,
  start_compiler as start_compiler,
)

STRATEGIES: tuple[str, ...]
PRECISIONS: tuple[str, ...]
