"""Reads SQuAD's files, and splits their questions into sequences of tokens.

    {"data": [{"title": "...", "paragraphs": [{"context": "...", "qas": [
      {"id": "...", "question": "...", "is_impossible": false,
       "answers": [{"text": "...", "answer_start": 17}]}]}]}]}

Or a table of JSON lines, Parquet or Arrow with a question in each row, as
Hugging Face distributes SQuAD; its answers are {"text": [...], "answer_start":
[...]}, and empty if there is none.

`is_impossible` and questions without an answer belong to version 2.0. For
prediction, answers may be missing. Every question is checked, because the model
would silently learn a wrong answer from a wrong offset.

A sequence is [CLS] question [SEP] context [SEP]. A context that is too long is
split into overlapping windows. The characters of each token are known, so an
answer is an exact substring of the context. `serving` does the same in the
graph.

Deviation: the original aligns pieces and text by their longest common
subsequence within a band of characters, and drops a question if that fails,
even in evaluation. The tokenizer's offsets need no search and drop no question.

Reference: google-research/albert squad_utils.py (read_squad_examples,
convert_examples_to_features).
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Optional

from typing_extensions import TypedDict

from official_albert import files, tokenization
from official_albert.settings import setting
from official_albert.tasks import common
from official_albert.tasks.common import rows


@dataclasses.dataclass(frozen=True)
class Recipe(common.Recipe):
  """The settings of fine-tuning on one version of SQuAD.

  Source: arXiv 1909.11942, Table 14. Windows and decoding have the defaults of
  run_squad_v1.py and run_squad_v2.py of google-research/albert.
  """

  doc_stride: int = setting(
    128, "SQuAD: tokens from one window to the next; by default 128.", least=1
  )
  max_query_length: int = setting(
    64, "SQuAD: maximum tokens of a question; by default 64.", least=1
  )
  n_best_size: int = setting(
    20, "SQuAD: answers to keep for each question; by default 20.", least=1
  )
  max_answer_length: int = setting(
    30, "SQuAD: maximum tokens of an answer; by default 30.", least=1
  )
  start_n_top: int = setting(
    5, "SQuAD 2.0: starts to try in prediction; by default 5.", least=1
  )
  end_n_top: int = setting(
    5, "SQuAD 2.0: ends to try for each start; by default 5.", least=1
  )


RECIPES = {
  "squad_v1": Recipe(5e-5, 48, 3649, 365, max_seq_length=384),
  "squad_v2": Recipe(3e-5, 48, 8144, 814, max_seq_length=512),
}


@dataclasses.dataclass(frozen=True)
class SquadExample:
  """A question about a paragraph.

  Attributes:
    question_id: the unique id.
    answers: pairs (text, start) where `context[start:]` begins with the text.
      Training files have one, held-out files several. Empty if there is no
      answer or it is unknown.
    is_impossible: whether the file marks the question as unanswerable.
  """

  question_id: str
  question: str
  context: str
  answers: tuple[tuple[str, int], ...] = ()
  is_impossible: bool = False


_ADVICE = "; correct it, or give --skip_invalid."
_FORMAT = (
  'SQuAD\'s format is {"data": [{"paragraphs": [{"context": ..., "qas": '
  '[{"id": ..., "question": ..., "answers": [{"text": ..., "answer_start": '
  "...}]}]}]}]}"
)


class _Paragraph(TypedDict):
  context: Any
  qas: list[dict[str, Any]]  # `_fault` checks what is in them.


class _Article(TypedDict):
  paragraphs: list[_Paragraph]


class _File(TypedDict):
  data: list[_Article]


def read_examples(
  path: str,
  is_training: bool = False,
  needs_answers: bool = False,
  may_be_impossible: bool = True,
  invalid: Optional[common.InvalidRows] = None,
) -> list[SquadExample]:
  """Reads the questions of a file, in file order.

  Args:
    path: the file, of which the end of its name tells the format.
    is_training: whether each question must have exactly one answer, or
      `is_impossible`.
    needs_answers: whether questions must have answers, or an empty list of
      them, or `is_impossible`.
    may_be_impossible: whether a question may have no answer, as in SQuAD 2.0.
    invalid: refuses invalid questions, or leaves them out.

  Raises:
    ValueError: the file is not in this format, has no question, or has an
      invalid one that is refused.
  """
  invalid = invalid or common.InvalidRows()
  is_table = files.is_dir(path) or rows.is_table(path)
  is_table = is_table and not rows.plain_name(path).endswith(".json")
  entries = _rows(path, invalid) if is_table else _questions(path)
  examples: dict[str, SquadExample] = {}
  for where, context, entry in entries:
    with invalid:
      name, answers = entry.get("id"), entry.get("answers")
      if type(name) is int:  # As in GermanQuAD.
        entry["id"] = name = str(name)
      if isinstance(name, str) and name.strip():
        where = f"{path}, question {files.quote(name, most=40)}"
      _check(where, context, entry)
      count, is_impossible = len(answers or ()), entry.get("is_impossible")
      if is_impossible:
        fits = may_be_impossible
      elif is_training:
        fits = count == 1
      elif needs_answers:  # An empty list means that there is no answer.
        fits = count > 0 or may_be_impossible and answers is not None
      else:
        fits = True
      if not fits:
        raise common.InvalidRow(
          where,
          f" has {count} answers",
          f", but needs {'exactly one for training' if is_training else 'one'},"
          f" or in SQuAD 2.0 (--task=squad_v2) is_impossible{_ADVICE}",
        )
      if name in examples:
        raise common.InvalidRow(
          where, " occurs twice", f": predictions are stored by id{_ADVICE}"
        )
      pairs = tuple((x["text"], x["answer_start"]) for x in answers or ())
      examples[name] = SquadExample(
        name, entry["question"], context, pairs, bool(is_impossible)
      )
  return list(examples.values())


def _questions(path: str) -> list[tuple[str, Any, dict[str, Any]]]:
  """Returns the place, the context and the fields of each question."""
  text = "".join(line for _, line in common.read_lines(path))
  content = files.parse_json(text, path, _File, _FORMAT)
  entries = [
    (
      f"{path}, article {a}, paragraph {p}, question {q}",
      paragraph["context"],
      entry,
    )
    for a, article in enumerate(content["data"])
    for p, paragraph in enumerate(article["paragraphs"])
    for q, entry in enumerate(paragraph["qas"])
  ]
  if not entries:
    raise ValueError(f"{path} has no questions: is it the right file?")
  return entries


def _rows(
  path: str, invalid: common.InvalidRows
) -> Iterator[tuple[str, Any, dict[str, Any]]]:
  """Yields the same of a table."""
  columns, optional = ["id", "context", "question"], "answers is_impossible"
  known = rows.first_record(path, columns).cells
  columns += [x for x in optional.split() if x in known]
  for where, cells in rows.read_table(path, columns, invalid):
    entry, answers = {**cells}, cells.get("answers")
    if isinstance(answers, dict):
      both = [answers.get("text"), answers.get("answer_start")]
      if all(isinstance(x, list) for x in both) and len({*map(len, both)}) == 1:
        answers = [{"text": x, "answer_start": i} for x, i in zip(*both)]
        impossible = entry.get("is_impossible") or not answers
        entry.update(answers=answers, is_impossible=impossible)
    yield where, entry["context"], entry


def _check(where: str, context: Any, entry: dict[str, Any]) -> None:
  """Raises InvalidRow for what is wrong with a question, whatever it is for."""
  kind, details = "", ""
  answers, is_impossible = entry.get("answers"), entry.get("is_impossible")
  answers = [] if answers is None else answers
  for name in ("id", "question", "context"):
    text = {**entry, "context": context}.get(name)
    if not (isinstance(text, str) and text.strip()):
      kind, details = f' has no text as "{name}"', f", but {files.quote(text)}"
      raise common.InvalidRow(where, kind, details + _ADVICE)
    common.refuse_surrogates(text, where, f": {name!r}")
  if not isinstance(is_impossible, (bool, type(None))):
    kind = ' has an "is_impossible" that is not true or false'
  elif not isinstance(answers, list) or not all(map(_is_answer, answers)):
    kind = ' has an answer without "text" or a whole "answer_start"'
  elif answers and is_impossible:
    kind = " has is_impossible and answers (guesses are plausible_answers)"
  else:
    for text, start in ((x["text"], x["answer_start"]) for x in answers):
      if start < 0 or not context.startswith(text, start):
        kind = " has an answer that is not at its answer_start"
        details = f" {start:,} of the context, {files.quote(text, most=40)}"
  if kind:
    raise common.InvalidRow(where, kind, details + _ADVICE)


def _is_answer(value: Any) -> bool:
  fields = value if isinstance(value, dict) else {}
  text, start = fields.get("text"), fields.get("answer_start")
  return isinstance(text, str) and bool(text.strip()) and type(start) is int


class Window(NamedTuple):
  """A part of a context with the question before it, without padding.

  Attributes:
    context: all tokens of the context, which the windows of a question share.
    context_start: the position of the first context token.
    first_token: the index of that token in the context, from 0.
    start_position, end_position: the answer's first and last token; 0, the
      position of [CLS], if the window does not contain the whole answer.
  """

  question_id: str
  context: tokenization.EncodedText
  input_ids: list[int]
  context_start: int
  first_token: int
  start_position: int = 0
  end_position: int = 0

  @property
  def length(self) -> int:
    """The number of context tokens."""
    return len(self.input_ids) - self.context_start - 1

  def segment_ids(self) -> list[int]:
    """Returns 0 for the question and 1 for the context and its [SEP]."""
    return [0] * self.context_start + [1] * (self.length + 1)


def make_windows(
  examples: Iterable[SquadExample],
  tokenizer: tokenization.Tokenizer,
  max_seq_length: int,
  doc_stride: int = Recipe.doc_stride,
  max_query_length: int = Recipe.max_query_length,
) -> Iterator[Window]:
  """Yields the windows of each question, at least one.

  Positions are those of the first answer. `doc_stride` is the number of tokens
  from the start of one window to that of the next.
  """
  encode_context = functools.cache(tokenizer.encode_with_offsets)
  for example in examples:
    query = tokenizer.encode(example.question)[:max_query_length]
    space = max_seq_length - len(query) - 3
    if space < 1:
      raise ValueError(
        f"max_seq_length {max_seq_length} leaves no space for the context of "
        f"question {example.question_id!r}, whose question has {len(query)} "
        "tokens, and [CLS] and two [SEP] need three: raise max_seq_length or "
        "lower max_query_length."
      )
    context = encode_context(example.context)
    answer = None
    if example.answers:
      answer = answer_tokens(context, *example.answers[0])
    count = len(context.ids)
    stride = min(space, doc_stride)  # A larger one would skip tokens.
    head = [tokenizer.cls_id, *query, tokenizer.sep_id]
    for begin in range(0, max(count - space, 0) + stride, stride):
      end = min(begin + space, count)
      positions = 0, 0
      if answer and begin <= answer[0] and answer[1] < end:
        shift = len(head) - begin
        positions = answer[0] + shift, answer[1] + shift
      ids = [*head, *context.ids[begin:end], tokenizer.sep_id]
      yield Window(
        example.question_id, context, ids, len(head), begin, *positions
      )


def answer_tokens(
  context: tokenization.EncodedText, text: str, start: int
) -> Optional[tuple[int, int]]:
  """Returns the first and the last token of an answer.

  Characters without a token, such as zero-width spaces, use the nearest token.
  The result is None if the context has no tokens.
  """
  if not context.ids:
    return None
  end = start + len(text.rstrip())
  start += len(text) - len(text.lstrip())
  first = bisect.bisect_right(context.ends, start)
  last = bisect.bisect_left(context.starts, end) - 1
  first = min(first, len(context.ids) - 1)
  return first, max(first, last)
