"""Extracts English sentences from docstrings.

Documentation mixes prose with code, tables and markup. `paragraphs` drops code
blocks by their layout and removes markup; `is_prose` accepts a sentence by its
words. Some prose is lost, which is no harm to a demonstration. Standard library
only.
"""

from __future__ import annotations

import inspect
import re

_MIN_WORDS, _MAX_WORDS = 4, 80
# Prose has over 97% letters and simple punctuation.
_MIN_LETTER_SHARE = 0.85
# Words such as `batch_size`, `tf.Tensor` or `f(x)`.
_MAX_CODE_WORD_SHARE = 0.25
# In English prose nearly half of the words are function words.
_MIN_FUNCTION_WORD_SHARE = 0.125

_FENCE = re.compile(r"```|~~~")
# The underline of a heading.
_RULE = re.compile(r"([=\-~^*#+\"_.])\1{2,}$")
# Directives, tables, Markdown headings, headings such as "Args:", grammar,
# numpydoc's "name : type", and code.
_NOT_TEXT = re.compile(
  r"\.\. |[|+@$%)\]}]|#{1,6} |[A-Z]\w*(?: \w+){0,2}:$"
  r"|.*(?:::=|\|.*\|)|\S+   +\S"
  r"|[\w*, ]+ : |(?:from \S+ )?import |(?:def|class) \w|return \w+$"
  r"|(?:with|for|if|while) .*:$|[\w.]+\(.*\)$|[\w.\[\], ]+ [-+*/]?= "
)
# "- item", "1. item", "name: text", "*args: text", "name (int): text".
_ITEM = re.compile(
  r"(?:[-*+•] +|\(?(?:\d{1,2}|[a-z])[.)] +)?"
  r"(?:(?::\w+ )?\*{0,2}`?[A-Za-z_][\w.]*`?(?: *\([^()]*\))?: +)?(?=\S)"
)
_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()\s]*\)|`([^`<>]+?) *<[^<>`]*>`_*")
_MARKUP = re.compile(
  r":[a-z]+(?::[a-z]+)?:(?=`)|`[~!]?|`_*| ?\[#?[\w-]*\]_"
  r"|(?<![\w*_])(?:\*{1,2}|_)(?=[A-Za-z])"
  r"|(?<=[A-Za-z])(?:\*{1,2}|_)(?![\w*_])"
)
_PLAIN = {0x2018: "'", 0x2019: "'", 0x201C: '"', 0x201D: '"'}
_PLAIN |= {0x2013: "-", 0x2014: " - ", 0xA0: " "}
# Not after abbreviations and initials.
_SENTENCE_END = re.compile(
  r"(?:(?<=[.!?])|(?<=[.!?][\"')]))"
  r"(?<!e\.g\.)(?<!i\.e\.)(?<!\bvs\.)(?<!\bcf\.)(?<!\b[A-Z]\.)"
  r"\s+(?=[\"'(]?[A-Z])"
)
_NOT_PROSE = re.compile(
  r"[{}\\|^~$\u0080-\uffff]|[=<>\[\]@#%]{2}|\s[=+*/<>]\s|https?:|www\.|::"
  r"|\w/\w+/|\.\.\.|[-+*/]{2}|TODO|FIXME|Copyright"
)
_CODE_WORD = re.compile(r"[_\d=<>\[\]+*/@#%]|\w\.\w|\w\(|[a-z][A-Z]")
_NAMES_LIKE_CODE = frozenset(
  ["TensorFlow", "TensorBoard", "NumPy", "e.g", "i.e"]
)
_FUNCTION_WORDS = frozenset(
  """a about after all also an and any are as at be because been before but by
  can cannot could do does each either for from had has have how however if in
  into is it its may might more most must no not of on once one only or other
  otherwise over same should so some such than that the their them then there
  these they this those through to under until up use used we were what when
  where whether which while who will with within without would you your
  """.split()
)


def paragraphs(docstring: str) -> list[str]:
  """Returns paragraphs, list items and descriptions, without markup."""
  blocks: list[list[str]] = [[]]
  in_fence = in_doctest = False
  skipped_indent = None  # Skips lines that are indented deeper.
  for line in inspect.cleandoc(docstring).splitlines():
    text = line.strip()
    indent = len(line) - len(line.lstrip())
    if _RULE.match(text):
      blocks[-1] = []  # The heading above it.
      continue
    fences = len(_FENCE.findall(text))
    in_doctest = bool(text) and (in_doctest or text.startswith(">>>"))
    if text and skipped_indent is not None and indent <= skipped_indent:
      skipped_indent = None
    skipped = in_fence or in_doctest or skipped_indent is not None
    if skipped or not text or fences or _NOT_TEXT.match(text):
      blocks.append([])
      in_fence ^= fences == 1
      if text.startswith(".. ") and skipped_indent is None:
        skipped_indent = indent
      continue
    if text.endswith("::"):
      skipped_indent = indent
      text = text[:-1]
    item = _ITEM.match(text)
    if item.end():
      blocks.append([])
      text = text[item.end() :]
    blocks[-1].append(text)
  return [_drop_markup(" ".join(block)) for block in blocks if block]


def _drop_markup(text: str) -> str:
  text = _LINK.sub(lambda match: match[1] or match[2] or "", text)
  text = _MARKUP.sub("", text.translate(_PLAIN))
  return " ".join(text.split())


def split_sentences(paragraph: str) -> list[str]:
  """Splits after `.`, `!` or `?` if a capital letter follows."""
  return [sentence for sentence in _SENTENCE_END.split(paragraph) if sentence]


def is_prose(sentence: str) -> bool:
  """Whether the sentence has mostly English words and little code."""
  words = sentence.split()
  if not _MIN_WORDS <= len(words) <= _MAX_WORDS or _NOT_PROSE.search(sentence):
    return False
  if not re.match(r"[\"'(]?[A-Za-z]", sentence) or sentence.count('"') % 2:
    return False
  if any(sentence.count(a) != sentence.count(b) for a, b in ("()", "[]")):
    return False
  characters = "".join(words)
  letters = sum(c.isalpha() or c in ".,;:'" for c in characters)
  bare = [word.strip(".,;:!?\"'") for word in words]
  code = sum(
    bool(_CODE_WORD.search(word)) and word not in _NAMES_LIKE_CODE
    for word in bare
  )
  known = sum(word.strip("()").lower() in _FUNCTION_WORDS for word in bare)
  return (
    letters >= _MIN_LETTER_SHARE * len(characters)
    and code <= _MAX_CODE_WORD_SHARE * len(words)
    and known >= _MIN_FUNCTION_WORD_SHARE * len(words)
  )


def normalized(sentence: str) -> str:
  """Returns the key by which equal sentences are recognized."""
  return re.sub(r"[^a-z]+", " ", sentence.lower()).strip()


def prose_sentences(docstring: str) -> list[str]:
  """Returns the prose sentences of a docstring, in order."""
  return [
    sentence
    for paragraph in paragraphs(docstring)
    for sentence in split_sentences(paragraph)
    if is_prose(sentence)
  ]
