"""SQuAD 1.1 and 2.0: answers that are spans of a paragraph."""

from official_albert.tasks.squad.answers import (
  NBEST_FILE,
  PREDICTIONS_FILE,
  Candidate,
  QuestionAnswers,
  average_answers,
  read_answers,
  write_predictions,
)
from official_albert.tasks.squad.examples import (
  RECIPES,
  Recipe,
  SquadExample,
  read_examples,
)
from official_albert.tasks.squad.metrics import (
  CHOSEN_THRESHOLD,
  IN_PERCENT,
  evaluate_v1,
  evaluate_v2,
  gold_answers,
  normalize_answer,
  score_answers,
  uses_characters,
)
from official_albert.tasks.squad.windows import (
  Window,
  answer_tokens,
  make_all_windows,
  make_windows,
  p_mask,
)
