from .checkpoint_manager import (
  BEST_FOLDER as BEST_FOLDER,
  BestCheckpoint as BestCheckpoint,
  CheckpointManager as CheckpointManager,
  best_prefix as best_prefix,
  list_checkpoints as list_checkpoints,
  newest_step as newest_step,
  read_best as read_best,
  step_of as step_of,
)
from .continuous_evaluation import (
  EVALUATION_FOLDER as EVALUATION_FOLDER,
  Evaluator as Evaluator,
  evaluate_continuously as evaluate_continuously,
  read_train_config as read_train_config,
  wait_for_run as wait_for_run,
)
from .evaluation import (
  gather_predictions as gather_predictions,
  make_evaluation as make_evaluation,
  make_prediction as make_prediction,
  own_rows as own_rows,
)
from .keras_optimizers import AdamW as AdamW, LAMB as LAMB
from .loop import (
  Program as Program,
  train as train,
  train_in_folder as train_in_folder,
)
from .objective import (
  Batch as Batch,
  Divergence as Divergence,
  ONE_PIPELINE as ONE_PIPELINE,
  PredictingTask as PredictingTask,
  Ratio as Ratio,
  shown as shown,
)
from .optimization import (
  WarmupPolynomialDecay as WarmupPolynomialDecay,
  make_optimizer as make_optimizer,
)
from .reporting import (
  METRICS_FILE as METRICS_FILE,
  Reporter as Reporter,
  duration as duration,
  read_metrics as read_metrics,
  read_report as read_report,
  summarize_run as summarize_run,
)
from .run_record import (
  CONFIG_FILE as CONFIG_FILE,
  RECORD_FILE as RECORD_FILE,
  check as check,
  check_tokenizer as check_tokenizer,
  combined_data as combined_data,
  max_seq_length as max_seq_length,
  RunRecord as RunRecord,
  read_run as read_run,
  recorded_data as recorded_data,
  write_run as write_run,
)
from .train_config import (
  Phase as Phase,
  TrainConfig as TrainConfig,
  choose_learning_rate as choose_learning_rate,
  for_finetuning as for_finetuning,
  parse_depth_schedule as parse_depth_schedule,
  parse_depths as parse_depths,
  scaled_learning_rate as scaled_learning_rate,
)
from .train_step import (
  draw_depth as draw_depth,
  make_loss_scale as make_loss_scale,
  make_train_loop as make_train_loop,
  make_train_step as make_train_step,
  make_variables as make_variables,
  run_step as run_step,
)
from .update_norms import make_update_norms as make_update_norms
from .warm_starting import (
  Head as Head,
  choose_head as choose_head,
  warm_start as warm_start,
)

OPTIMIZERS: tuple[str, ...]
DECAYS: tuple[str, ...]
DIRECTIONS: tuple[str, ...]
TIMEOUT_EXIT_CODE: int
