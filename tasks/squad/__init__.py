"""SQuAD 1.1 and 2.0: answers that are spans of a paragraph."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
  __name__,
  submod_attrs={
    "answers": [
      "Candidate",
      "QuestionAnswers",
    ],
    "decoding": [
      "decode_v1",
      "decode_v2",
    ],
    "ensemble": [
      "average_answers",
    ],
    "examples": [
      "RECIPES",
      "SquadExample",
      "read_examples",
    ],
    "metrics": [
      "evaluate_v1",
      "evaluate_v2",
      "gold_answers",
      "normalize_answer",
    ],
    "model": [
      "AlbertForSpans",
      "AlbertForSpansOrNone",
    ],
    "prediction_files": [
      "NBEST_FILE",
      "read_answers",
      "read_null_odds",
      "read_predictions",
      "write_predictions",
    ],
    "serving": [
      "served_squad",
    ],
    "task": [
      "Decoding",
      "Questions",
      "SquadTask",
      "score_answers",
    ],
    "windows": [
      "Window",
      "answer_text",
      "answer_tokens",
      "make_all_windows",
      "make_windows",
      "p_mask",
    ],
  },
)
