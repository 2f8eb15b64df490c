"""SQuAD 1.1 and 2.0: answers that are spans of a paragraph."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={
    "answers": [
      "Candidate",
      "NBEST_FILE",
      "PREDICTIONS_FILE",
      "QuestionAnswers",
      "average_answers",
      "read_answers",
      "read_null_odds",
      "write_predictions",
    ],
    "decoding": ["decode"],
    "examples": ["RECIPES", "SquadExample", "read_examples"],
    "metrics": [
      "CHOSEN_THRESHOLD",
      "IN_PERCENT",
      "evaluate_v1",
      "evaluate_v2",
      "gold_answers",
      "normalize_answer",
      "score_answers",
      "uses_characters",
    ],
    "model": ["AlbertForSpans", "AlbertForSpansOrNone"],
    "serving": ["served_squad"],
    "task": ["Questions", "SquadTask"],
    "windows": [
      "Window",
      "answer_tokens",
      "make_all_windows",
      "make_windows",
      "p_mask",
    ],
  },
)
