"""The custom training loop and everything that a run consists of.

`Trainer` is the loop, `make_train_step` one update and `TrainConfig` the
settings. A `Task` (objective.py) defines the model, the data and the losses.
The package also has LAMB and AdamW, schedules, evaluation, the checkpoint
manager and reporting.
"""

from official_albert.train_config import Phase, TrainConfig, for_finetuning
from official_albert.training.checkpoint_manager import (
  BestCheckpoint,
  CheckpointManager,
)
from official_albert.training.evaluation import Evaluation
from official_albert.training.objective import (
  ONE_PIPELINE,
  Divergence,
  PredictingTask,
  Ratio,
  shown,
)
from official_albert.training.optimization import (
  LAMB,
  AdamW,
  WarmupPolynomialDecay,
  optimizer_of,
)
from official_albert.training.reporting import Reporter, open_report
from official_albert.training.train_step import make_train_step
from official_albert.training.trainer import Trainer, check_batch_size
