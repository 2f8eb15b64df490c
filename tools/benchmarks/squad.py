"""Measures the speed and the exactness of converting SQuAD to windows."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import NamedTuple

from official_albert import tokenization
from tasks import squad
from tools.cli import markdown

# Characters shown around an answer that is not recovered.
_CONTEXT = 12


class Recovered(NamedTuple):
  """How many answers equal the text of their own tokens.

  Attributes:
    answers: the number of answers; held-out questions have several.
    exact: those that are equal in each character.
    normalized: those that are equal after the official normalization.
    questions: the number of questions with answers.
    reached: those with an answer in `normalized`; an upper bound on the exact
      match of any model.
    rest: a line for each other answer.
  """

  answers: int
  exact: int
  normalized: int
  questions: int
  reached: int
  rest: list[str]


def run(
  squad_file: str, spm_model_file: str, max_seq_length: int, repeats: int
) -> None:
  """Measures, prints tables, then the answers that are not recovered."""
  examples = squad.read_examples(squad_file)
  tokenizer = tokenization.SentencePieceTokenizer(spm_model_file)
  seconds = []
  for _ in range(repeats):
    start = time.perf_counter()
    made = squad.make_all_windows(examples, tokenizer, max_seq_length)
    windows = sum(1 for _ in made)
    seconds.append(time.perf_counter() - start)
  median, questions = statistics.median(seconds), len(examples)
  cells = f"{questions:,}", f"{windows:,}", f"{median:.2f}"
  head = ("questions", "windows", "seconds", "questions/s")
  print(f"\n{markdown.table(head, [(*cells, f'{questions / median:,.0f}')])}")
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
    print("\nThe others, whose pieces are longer than the answer:")
    print("\n".join(f"  {line}" for line in found.rest))


def share(part: int, whole: int) -> str:
  """Returns text such as "1,234 (56.78%)"."""
  return f"{part:,} ({100 * part / whole:.2f}%)"


def recover(
  examples: Sequence[squad.SquadExample],
  tokenizer: tokenization.Tokenizer,
) -> Recovered:
  """Converts each answer to its tokens and back."""
  answers = exact = 0
  reached = set()
  rest = []
  contexts = {example.context for example in examples}
  encoded = {text: tokenizer.encode_with_offsets(text) for text in contexts}
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
        around = example.context[max(0, start - _CONTEXT) : after + _CONTEXT]
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
