"""The custom training loop and everything that a run consists of.

`train` is the loop, `make_train_step` one update, `TrainConfig` the settings;
a `Task` (objective.py) brings the model, the data and the losses. Around them:
LAMB and AdamW, schedules, evaluation, the checkpoint manager, reporting and the
run's folder. The loop knows nothing of ALBERT.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={
    "best_checkpoint": [
      "BEST_FOLDER",
      "BestCheckpoint",
      "best_prefix",
      "read_best",
    ],
    "checkpoint_manager": [
      "CheckpointManager",
      "Head",
      "list_checkpoints",
      "newest_step",
      "step_of",
      "warm_start",
    ],
    "continuous_evaluation": [
      "EVALUATION_FOLDER",
      "Evaluator",
      "evaluate_continuously",
      "read_train_config",
      "wait_for_run",
    ],
    "depth_schedule": [
      "parse_depth_schedule",
      "parse_depths",
    ],
    "evaluation": [
      "gather_predictions",
      "make_evaluation",
      "make_prediction",
      "own_rows",
    ],
    "learning_rate": [
      "choose_learning_rate",
      "for_finetuning",
    ],
    "loop": [
      "check_batch_sizes",
      "is_finished",
      "train",
    ],
    "loss_scale": [
      "make_loss_scale",
    ],
    "objective": [
      "Batch",
      "Divergence",
      "ONE_PIPELINE",
      "PredictingTask",
      "Ratio",
    ],
    "optimization": [
      "WarmupPolynomialDecay",
      "make_optimizer",
      "scaled_learning_rate",
    ],
    "reporting": [
      "METRICS_FILE",
      "Reporter",
      "duration",
      "make_reporter",
      "read_metrics",
      "read_report",
      "summarize",
      "summarize_run",
    ],
    "run_record": [
      "CONFIG_FILE",
      "RECORD_FILE",
      "check",
      "check_tokenizer",
      "combined_data",
      "copy_tokenizer",
      "max_seq_length",
      "read_run",
      "write_run",
    ],
    "train_config": [
      "ON_DIVERGENCE",
      "Phase",
      "TrainConfig",
    ],
    "train_step": [
      "draw_depth",
      "make_train_loop",
      "make_train_step",
      "run_step",
    ],
  },
)

OPTIMIZERS = ("lamb", "adamw")
# "original" drops a little when the warm-up ends, "continuous" does not.
DECAYS = ("original", "continuous")
# Which value of a held-out number is the best.
DIRECTIONS = ("lowest", "highest")
# Exit code of an evaluation that no new checkpoint has come to for too long.
TIMEOUT_EXIT_CODE = 124
