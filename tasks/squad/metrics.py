"""Predicted answers to SQuAD's questions, their files and official metrics.

predictions.json, nbest_predictions.json and null_odds.json have the format of
google-research/albert, which the official programs read. They map question ids
to the answer, to a list of candidates with the best first, and to the null
odds.

The metrics, in percent, equal those of evaluate-v1.1.py and evaluate-v2.0.py,
including the differences between the two. Answers are compared in lower case,
without ASCII punctuation and the articles a, an, the. If a question has several
gold answers, the best match counts.

Scripts without spaces between words make a whole answer one word there, and F1
equals EM. If most gold answers are in such scripts, each of their characters is
compared, as in the evaluation of CMRC 2018: punctuation of all scripts is left
out, and F1 is that of the longest common run of characters.

Gold answers map question ids to the texts of the answers; the list is empty for
a question of SQuAD 2.0 without an answer.
"""

from __future__ import annotations

import collections
import difflib
import itertools
import os
import re
import string
import unicodedata
from typing import Any, Iterable, Mapping, NamedTuple, Optional, Sequence

import numpy as np

from official_albert import files
from official_albert.tasks import common

# The default of run_squad_v2.py's flag of this name. Null odds are logits, so
# it means a probability of one half.
NULL_SCORE_DIFF_THRESHOLD = 0.0
# The threshold chosen for other data, where none is given.
CHOSEN_THRESHOLD = "best_null_score_diff_threshold"
# The metrics in percent end in these names; others are fractions and numbers.
IN_PERCENT = ("exact", "exact_match", "f1")
_SEGMENT = re.compile(f"[{common.NO_SPACES}]|[^{common.NO_SPACES}\\s]+")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


class Candidate(NamedTuple):
  """A possible answer to a question.

  Attributes:
    text: a span of the context; "" if there is no candidate.
    probability: the probability among the candidates of the question.
    start_score, end_score: the log-probability (2.0) or logit (1.1) of the
      first and the last token; None if there is no candidate.
  """

  text: str
  probability: float
  start_score: Optional[float] = None
  end_score: Optional[float] = None


class QuestionAnswers(NamedTuple):
  """The prediction for one question.

  Attributes:
    n_best: at least one candidate, the best first, with different texts.
    null_odds: high if the question seems to have no answer; None in SQuAD 1.1.
  """

  n_best: list[Candidate]
  null_odds: Optional[float] = None

  def text(self, threshold: Optional[float] = None) -> str:
    """Returns the answer; "" if the null odds are above the threshold."""
    if threshold is not None and self.null_odds > threshold:
      return ""
    return self.n_best[0].text


# By question.
Gold = Mapping[str, Sequence[str]]
Answers = Mapping[str, QuestionAnswers]


def write_predictions(
  output_dir: str, answers: Answers, threshold: Optional[float] = None
) -> list[str]:
  """Writes the files of all questions; returns their paths.

  The threshold applies only to predictions.json; without null odds (SQuAD 1.1),
  there is no null_odds.json.
  """
  odds = {q: x.null_odds for q, x in answers.items() if x.null_odds is not None}
  scores = "log_prob" if odds else "logit"
  fields = "text", "probability", f"start_{scores}", f"end_{scores}"
  values: dict[str, Any] = {
    "predictions.json": {q: x.text(threshold) for q, x in answers.items()},
    "nbest_predictions.json": {
      q: [dict(zip(fields, candidate)) for candidate in x.n_best]
      for q, x in answers.items()
    },
  }
  if odds:
    values["null_odds.json"] = odds
  files.make_folder(output_dir)
  paths = []
  for name, value in values.items():
    paths.append(os.path.join(output_dir, name))
    files.write_json(paths[-1], value, indent=4)
  return paths


def gold_answers(examples: Iterable[Any]) -> dict[str, list[str]]:
  """Returns the gold answers of `SquadExample`s."""
  return {e.question_id: [text for text, _ in e.answers] for e in examples}


def normalize_answer(text: str) -> str:
  """Returns the normalized words for comparison, separated by spaces."""
  text = text.lower().translate(_NO_PUNCTUATION)
  return " ".join(_ARTICLES.sub(" ", text).split())


def segment(text: str) -> list[str]:
  """Returns characters of scripts without spaces, and other words.

  In lower case, without punctuation and symbols of any script, as for CMRC
  2018 and DRCD.
  """
  kept = "".join(
    " " if unicodedata.category(c)[0] in "PS" else c for c in text.lower()
  )
  return _SEGMENT.findall(kept)


def score_answers(
  gold: Gold, answers: Answers, threshold: Optional[float] = None
) -> dict[str, float]:
  """Returns the official metrics of the answers to the same questions.

  For SQuAD 1.1, these are `exact_match` and `f1` of evaluate-v1.1.py. For 2.0,
  they are those of evaluate-v2.0.py, with numbers of questions called `total`.
  As in the script, `best_exact_thresh` and `best_f1_thresh` are the first best
  thresholds in the order of the odds, equal odds are processed one by one, and
  0 may mean a threshold below all odds.

  Added are `null_score_diff_threshold`, that of `exact`, `f1` and those of
  HasAns and NoAns: the given one, or else 0. Without a given one,
  `best_null_score_diff_threshold` is the choice for other data: the official
  `best_f1_thresh`, or less than all odds if it is best to drop every answer.

  Deviation: the original reports `exact` and `f1` at the best threshold for the
  evaluated file, for which the official program has names of their own.

  Deviation: a threshold keeps answers with odds <= threshold, as in the script.
  The original searches for the best threshold by that rule and then applies <.
  """
  odds = {q: x.null_odds for q, x in answers.items() if x.null_odds is not None}
  scores, how = _scores(gold, answers, is_v1=not odds)
  if not odds:
    exact, f1 = (100.0 * sum(x.values()) / len(gold) for x in scores.values())
    return {"exact_match": exact, "f1": f1, **how}
  applied = NULL_SCORE_DIFF_THRESHOLD if threshold is None else threshold
  dropped = {q for q in gold if odds[q] > applied}
  values = {}
  for prefix, ids in (
    ("", list(gold)),
    ("HasAns_", [q for q in gold if gold[q]]),
    ("NoAns_", [q for q in gold if not gold[q]]),
  ):
    if ids:
      for name, by_question in scores.items():
        total = sum(
          float(not gold[q]) if q in dropped else by_question[q] for q in ids
        )
        values[prefix + name] = 100.0 * total / len(ids)
      values[f"{prefix}total"] = len(ids)
  for name, by_question in scores.items():
    values[f"best_{name}"], values[f"best_{name}_thresh"] = _official_best(
      gold, answers, by_question, odds
    )
  values |= {**how, "null_score_diff_threshold": applied}
  if threshold is None:
    chosen = values["best_f1_thresh"]
    # 0, which may also be odds, stands for no answers.
    if values["best_f1"] == 100.0 * values.get("NoAns_total", 0) / len(gold):
      chosen = min(0.0, float(np.nextafter(min(odds.values()), -np.inf)))
    values[CHOSEN_THRESHOLD] = chosen
  return values


def _scores(
  gold: Gold, answers: Answers, is_v1: bool
) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
  """Returns `exact` and `f1` by question, without a threshold, as fractions.

  In 2.0, an empty answer has the F1 1 if the gold answer is empty, and only the
  other gold answers count, if there are any. In 1.1, all count, and it has 0.
  Also returns `by_characters` for the metrics, if characters are compared.
  """
  # Whether most answers with letters hold one of such a script.
  counts = collections.Counter(
    bool(re.search(f"[{common.NO_SPACES}]", text))
    for text in itertools.chain(*gold.values())
    if any(map(str.isalpha, text))
  )
  by_characters = counts[True] > counts[False]

  def parts(text: str) -> list[str]:
    return segment(text) if by_characters else normalize_answer(text).split()

  exact, f1 = {}, {}
  for question_id, texts in gold.items():
    golds = [parts(text) for text in texts]
    if not is_v1:
      golds = [words for words in golds if words] or [[]]
    answer = parts(answers[question_id].text())
    exact[question_id] = float(answer in golds)
    f1[question_id] = max(_f1(answer, words, by_characters) for words in golds)
    if not (answer or is_v1):
      f1[question_id] = exact[question_id]
  how = {"by_characters": 1.0} if by_characters else {}
  return {"exact": exact, "f1": f1}, how


def _f1(
  words: Sequence[str], gold_words: Sequence[str], by_characters: bool
) -> float:
  """Returns the F1 of two multisets, or of the longest common run."""
  if by_characters:
    match = difflib.SequenceMatcher(None, words, gold_words, autojunk=False)
    same = match.find_longest_match().size
  else:
    common = collections.Counter(words) & collections.Counter(gold_words)
    same = sum(common.values())
  if not same:
    return 0.0
  precision, recall = same / len(words), same / len(gold_words)
  return 2 * precision * recall / (precision + recall)


def _official_best(
  gold: Gold,
  answers: Answers,
  scores: Mapping[str, float],
  null_odds: Mapping[str, float],
) -> tuple[float, float]:
  """Returns the best score of any threshold, in percent, and the threshold."""
  ids = sorted(null_odds, key=null_odds.__getitem__)
  # Starts without any answers, and adds one question after the other.
  totals = [float(sum(not texts for texts in gold.values()))]
  for q in ids:
    missed = -1.0 if answers[q].text() else 0.0
    totals.append(scores[q] if gold[q] else missed)
  sums = np.cumsum(totals)
  best = int(np.argmax(sums))
  threshold = float(null_odds[ids[best - 1]]) if best else 0.0
  return float(100.0 * sums[best] / len(gold)), threshold
