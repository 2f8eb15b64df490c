"""How fast SQuAD becomes windows, and whether its answers survive the trip."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Sequence
from typing import NamedTuple

from official_albert import tokenization
from tasks import squad
from tools.cli import markdown

# Characters shown around an answer that is not recovered.
_AROUND = 12


@dataclasses.dataclass(frozen=True)
class Settings:
  """What is measured; the window's settings are the tool's."""

  squad_file: str
  spm_model_file: str
  max_seq_length: int = 384
  repeats: int = 3


class Recovered(NamedTuple):
  """How many answers are the text of their own tokens.

  Attributes:
    answers: all of them, several for a question of a held-out file.
    exact: to the character.
    normalized: as the official scripts compare; holds the exact ones.
    questions: how many have answers.
    reached: how many of these have one that is recovered after normalisation:
      what a perfect model could have as exact match.
    rest: a line for each of the others.
  """

  answers: int
  exact: int
  normalized: int
  questions: int
  reached: int
  rest: list[str]


def run(settings: Settings) -> None:
  """Measures and prints a Markdown table, then the answers that differ."""
  examples = squad.read_examples(settings.squad_file)
  tokenizer = tokenization.SentencePieceTokenizer(settings.spm_model_file)
  seconds = []
  for _ in range(settings.repeats):
    begun = time.perf_counter()
    windows = sum(
      1
      for _ in squad.make_all_windows(
        examples, tokenizer, settings.max_seq_length
      )
    )
    seconds.append(time.perf_counter() - begun)
  head = ("questions", "windows", "seconds", "questions/s")
  rows = [row(len(examples), windows, seconds)]
  print(f"\n{markdown.table(head, rows)}")
  found = recover(examples, tokenizer)
  if found.answers:
    head = ("answers", "exact", "normalised", "questions with one")
    cells = (
      f"{found.answers:,}",
      share(found.exact, found.answers),
      share(found.normalized, found.answers),
      share(found.reached, found.questions),
    )
    print(f"\n{markdown.table(head, [cells])}")
  if found.rest:
    print("\nThe others, where pieces go beyond the answer:")
  for line in found.rest:
    print(f"  {line}")


def row(
  questions: int, windows: int, seconds: Sequence[float]
) -> tuple[str, ...]:
  """Returns the cells of a row, with the median of `seconds`."""
  median = statistics.median(seconds)
  rate = questions / median
  return f"{questions:,}", f"{windows:,}", f"{median:.2f}", f"{rate:,.0f}"


def share(part: int, whole: int) -> str:
  """As "1,234 (56.78%)"."""
  return f"{part:,} ({100 * part / whole:.2f}%)"


def recover(
  examples: Sequence[squad.SquadExample],
  tokenizer: tokenization.Tokenizer,
) -> Recovered:
  """Takes each answer to its tokens and back."""
  answers = exact = 0
  reached = set()
  rest = []
  encoded = {
    context: tokenizer.encode_with_offsets(context)
    for context in dict.fromkeys(example.context for example in examples)
  }
  for example in examples:
    context = encoded[example.context]
    for text, start in example.answers:
      answers += 1
      tokens = squad.answer_tokens(context, text, start)
      begin, end = start, start
      if tokens is not None:
        begin, end = context.starts[tokens[0]], context.ends[tokens[1]]
      found = example.context[begin:end].strip()
      exact += found == text
      if squad.normalize_answer(found) == squad.normalize_answer(text):
        reached.add(example.question_id)
      else:
        after = start + len(text)
        around = example.context[max(0, start - _AROUND) : after + _AROUND]
        rest.append(
          f"{example.question_id}: {text!r} became {found!r} in {around!r}"
        )
  return Recovered(
    answers,
    exact,
    answers - len(rest),
    sum(bool(example.answers) for example in examples),
    len(reached),
    rest,
  )
