"""The custom training loop and everything that a run consists of.

`train` is the loop, `make_train_step` one update and `TrainConfig` the
settings. A `Task` (objective.py) defines the model, the data and the losses.
The room also has LAMB and AdamW, schedules, evaluation, the checkpoint manager,
reporting and the run's folder. The loop does not depend on ALBERT.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={
    "checkpoint_manager": (
      "BEST_FOLDER BestCheckpoint CheckpointManager best_prefix "
      "is_finished list_checkpoints newest_step read_best step_of"
    ).split(),
    "continuous_evaluation": (
      "EVALUATION_FOLDER Evaluator evaluate_continuously "
      "read_train_config wait_for_run"
    ).split(),
    "evaluation": (
      "gather_predictions make_evaluation make_prediction own_rows"
    ).split(),
    "loop": "Program train train_in_folder".split(),
    "objective": "Batch Divergence ONE_PIPELINE PredictingTask Ratio".split(),
    "optimization": "WarmupPolynomialDecay make_optimizer".split(),
    "reporting": (
      "METRICS_FILE Reporter duration read_metrics read_report summarize_run"
    ).split(),
    "run_record": (
      "CONFIG_FILE RECORD_FILE check check_tokenizer combined_data "
      "max_seq_length read_run write_run"
    ).split(),
    "train_config": (
      "Phase TrainConfig choose_learning_rate for_finetuning "
      "parse_depth_schedule parse_depths scaled_learning_rate"
    ).split(),
    "train_step": (
      "draw_depth make_loss_scale make_train_loop make_train_step "
      "make_variables run_step"
    ).split(),
    "update_norms": ["make_update_norms"],
    "warm_starting": "Head warm_start".split(),
  },
)

OPTIMIZERS = ("lamb", "adamw")
# With "original", the rate drops when the warm-up ends.
DECAYS = ("original", "continuous")
# Which value of a held-out metric is the best.
DIRECTIONS = ("lowest", "highest")
# Exit code of --mode=evaluate_continuously if no new checkpoint appears.
TIMEOUT_EXIT_CODE = 124
