"""The custom training loop and everything that a run consists of.

`train` is the loop, `make_train_step` one update and `TrainConfig` the
settings. A `Task` (objective.py) defines the model, the data and the losses.
The package also has LAMB and AdamW, schedules, evaluation, the checkpoint
manager, reporting and the run's folder. The loop does not depend on ALBERT.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

OPTIMIZERS = ("lamb", "adamw", "muon")
# With "original", the rate drops when the warm-up ends.
DECAYS = ("original", "continuous")
# Which value of a held-out metric is the best.
DIRECTIONS = ("lowest", "highest")
# Exit code of --mode=evaluate_continuously if no new checkpoint appears.
TIMEOUT_EXIT_CODE = 124
