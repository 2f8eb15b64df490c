"""From a docstring to its English sentences.

Documentation is prose mixed with code, tables, formulas and the marks of
reStructuredText, Markdown, numpydoc and Google style. Three steps keep the
prose: `paragraphs` drops the blocks that are not prose by their layout,
`split_sentences` cuts at sentence ends, `is_prose` judges each sentence by its
words. Standard library only.
"""

from __future__ import annotations

import inspect
import re
from typing import Iterator

_MIN_WORDS = 4
_MAX_WORDS = 80
# Over 97% of the characters of English prose are letters and the punctuation
# below; formulas, paths and shapes are not.
_MIN_LETTER_SHARE = 0.85
# `batch_size`, `tf.Tensor`, `f(x)`, `float32`, `MyClass`: some belong to the
# sentences of a manual, a list of them does not.
_MAX_CODE_WORD_SHARE = 0.25
# One word in eight; English prose has nearer one in two.
_MIN_FUNCTION_WORD_SHARE = 0.125

# --- Layout -----------------------------------------------------------------

_FENCE = re.compile(r"```|~~~")
_DOCTEST = re.compile(r">>>")
_DIRECTIVE = re.compile(r"\.\. +([\w-]+) ?::")
# Directives whose block is prose; the blocks of all others (code-block, math,
# plot, ...) go with the directive.
_PROSE_DIRECTIVES = frozenset(
  "note warning tip important caution attention hint danger admonition".split()
)
_RST_COMMENT = re.compile(r"\.\.( |$)")
_RULE = re.compile(r"([=\-~^*#+\"_.])\1{2,}$")
_HEADING = re.compile(r"#{1,6} |@\w+$|[A-Z]\w*(?: \w+){0,2}:$")
_TABLE_ROW = re.compile(r"\+[-=+]+|.*\|.*\||(=+ +)+=+$|\S+(?: \S+)?   +\S")
_GRAMMAR = re.compile(r".*::=|\| ")
# "(str) A name", "(optional) The ...".
_LEADING_TYPE = re.compile(r"\([^()]{1,25}\)[:,.]? +(?=[A-Za-z])")
_LIST_ITEM = re.compile(r"(?:[-*+•] +|\(?(?:\d{1,2}|[a-z])[.)] +)(?=\S)")
# `name: text`, `*args: text`, `name (int): text`, `name : array_like`.
_ENTRY = re.compile(
  r"(?::\w+ )?\*{0,2}`?[A-Za-z_][\w.]*`?"
  r"(?:, *\*{0,2}`?[A-Za-z_][\w.]*`?)*(?: *\([^()]*\))?(?P<colon> *: +)"
)
_NUMPYDOC_TYPE = re.compile(r"[^.!?]*$")
_SKIPPED_SECTIONS = frozenset(["see also", "references", "methods"])
_CODE_LINE = re.compile(
  r"(from \S+ )?import |def \w|class \w|return\b|with .*:$|for .* in .*:$"
  r"|if .*:$|@\w|# |\$ |%|[\w.\[\]'\", ]+ [-+*/|&]?= |[\w.]+\(.*\)?,?$|[)\]}]"
)


def _drop_blocks(lines: list[str]) -> Iterator[str]:
  """Yields the lines outside code, doctests, tables and directives.

  A blank line stands for each block that was dropped, so that the text before
  and after it is not joined.
  """
  in_fence = in_doctest = False
  skip_deeper_than = None
  for line in lines:
    text = line.strip()
    indent = len(line) - len(line.lstrip())
    if _FENCE.match(text):
      # A fence that opens and closes on one line holds no other lines.
      if len(_FENCE.findall(text)) == 1:
        in_fence = not in_fence
      in_doctest = False
      yield ""
      continue
    if in_fence:
      continue
    if skip_deeper_than is not None:
      if not text or indent > skip_deeper_than:
        continue
      skip_deeper_than = None
      yield ""
    if _DOCTEST.match(text):
      in_doctest = True
    if in_doctest:
      in_doctest = bool(text)
      if not text:
        yield ""
      continue
    directive = _DIRECTIVE.match(text)
    if directive and directive[1].lower() in _PROSE_DIRECTIVES:
      yield ""
      yield line[:indent] + text[directive.end() :]
      continue
    if directive or _RST_COMMENT.match(text):
      skip_deeper_than = indent
      yield ""
      continue
    if _TABLE_ROW.match(text) or _GRAMMAR.match(text):
      yield ""
      continue
    if text.endswith("::"):
      skip_deeper_than = indent
      line = line.rstrip()[:-1]
    yield line


def _drop_sections(lines: list[str]) -> Iterator[str]:
  """Yields the lines without headings and without sections of mere names."""
  skipping = False
  for i, line in enumerate(lines):
    text = line.strip()
    below = lines[i + 1].strip() if i + 1 < len(lines) else ""
    if text and _RULE.match(below) and len(below) >= len(text) - 3:
      skipping = text.lower() in _SKIPPED_SECTIONS
      yield ""
    elif _RULE.match(text) or _HEADING.match(text):
      yield ""
    elif not skipping:
      yield line


def _drop_markup(text: str) -> str:
  """The words of `text` without reStructuredText and Markdown marks."""
  text = text.translate(_PLAIN_CHARACTERS).replace(" -- ", " - ")
  text = re.sub(r"(?<=\w)---?(?=\w)", " - ", text)
  text = re.sub(r"!?\[([^\[\]]*)\]\([^()\s]*\)", r"\1", text)
  text = re.sub(r"\[([^\[\]]*)\]\[[^\[\]]*\]", r"\1", text)
  text = re.sub(r"`([^`<>]+?) *<[^<>`]*>`_{0,2}", r"\1", text)
  text = re.sub(r" ?\[#?[\w-]*\]_", "", text)
  text = re.sub(r"`(\w[\w.]*)'", r"\1", text)
  text = re.sub(r":[a-z]+(?::[a-z]+)?:`[~!]?([^`]*)`", r"\1", text)
  text = re.sub(r"`+([^`]*)`+_{0,2}", r"\1", text)
  text = re.sub(r"(?<!\w)\*\*(?=\S)(.+?)(?<=\S)\*\*(?!\w)", r"\1", text)
  text = re.sub(r"(?<!\w)\*(?=\S)([^*]+?)(?<=\S)\*(?!\w)", r"\1", text)
  text = re.sub(
    r"(?<![\w_])_(?=[a-zA-Z])([^_]+?)(?<=\w)_(?![\w_])", r"\1", text
  )
  return " ".join(text.split())


_PLAIN_CHARACTERS = str.maketrans(
  {
    "\u2018": "'",
    "\u2019": "'",
    "\u201c": '"',
    "\u201d": '"',
    "\u2013": "-",
    "\u2014": " - ",
    "\u2026": "...",
    "\u00a0": " ",
  }
)


def paragraphs(docstring: str) -> list[str]:
  """The paragraphs, list items and entries of a docstring, markup removed."""
  lines = inspect.cleandoc(docstring).splitlines()
  lines = list(_drop_sections(list(_drop_blocks(lines))))
  blocks: list[list[str]] = [[]]
  for line in lines:
    text = line.strip()
    item = _LIST_ITEM.match(text)
    if item:
      text = text[item.end() :]
    entry = _ENTRY.match(text)
    # "Note: the ..." is an entry by its looks, and so is "Returns: the ...".
    if entry:
      text = text[entry.end() :]
      if entry["colon"].startswith(" ") and _NUMPYDOC_TYPE.match(text):
        text = ""
    leading_type = _LEADING_TYPE.match(text)
    if leading_type and (entry or item or not blocks[-1]):
      text = text[leading_type.end() :]
    if not text or item or entry:
      blocks.append([])
    if text:
      blocks[-1].append(text)
  result = []
  for block in blocks:
    code_lines = sum(bool(_CODE_LINE.match(line)) for line in block)
    if block and code_lines * 2 <= len(block):
      result.append(_drop_markup(" ".join(block)))
  return [text for text in result if text]


# --- Sentences --------------------------------------------------------------

# A sentence may begin with the name of something: "`tf.where` returns ...".
_SENTENCE_END = re.compile(
  r"[.!?][\"')\]]*\s+(?=[\"'(]?(?:[A-Z]|[a-z]\w*[._(]\w))"
)
_ABBREVIATION = re.compile(
  r"\b(?:(?i:e\.g|i\.e|etc|vs|cf|al|approx|resp|no|fig|eq|eqn|sec|ch|vol|pp"
  r"|ed|dr|mr|mrs|st|inc|jr|viz|incl|dept|w\.r\.t|a\.k\.a)"
  r"|[A-Z])\.[\"')\]]*\s+$"
)
# "etc." and "al." may well end a sentence, which a capital then shows.
_MAY_END = re.compile(r"\b(?:etc|al|inc|jr|no)\.[\"')\]]*\s+$")


def split_sentences(paragraph: str) -> list[str]:
  """Cuts after `.`, `!` or `?` where a capital follows.

  A cut is not made after an abbreviation ("e.g. Keras") or an initial
  ("D. E. Knuth").
  """
  sentences = []
  start = 0
  for match in _SENTENCE_END.finditer(paragraph):
    head = paragraph[start : match.end()]
    if _ABBREVIATION.search(head) and not _MAY_END.search(head):
      continue
    sentences.append(head.strip())
    start = match.end()
  sentences.append(paragraph[start:].strip())
  return [sentence for sentence in sentences if sentence]


_NOT_PROSE = re.compile(
  r"[=<>{}\[\]\\|^~$@#%]{2}|[{}\\|^~$\u0080-\uffff]"
  r"|\s[=+*/<>]\s|https?:|www\.|\w/\w+/|\.\.\.|:\w+:|\b0x|::|[-+*/]{2}"
  r"|TODO|FIXME|Copyright"
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


def is_prose(sentence: str) -> bool:
  """True for a sentence of English words, with little code in it."""
  words = sentence.split()
  if not _MIN_WORDS <= len(words) <= _MAX_WORDS or _NOT_PROSE.search(sentence):
    return False
  if not re.match(r"[\"'(]?[A-Za-z]", sentence):
    return False
  if any(sentence.count(mark) % 2 for mark in '"`'):
    return False
  if any(sentence.count(a) != sentence.count(b) for a, b in ("()", "[]")):
    return False
  characters = "".join(words)
  plain = sum(c.isalpha() or c in ".,;:'" for c in characters)
  bare = [word.strip(".,;:!?\"'()").lower() for word in words]
  code = sum(
    bool(_CODE_WORD.search(word)) and word not in _NAMES_LIKE_CODE
    for word in (word.strip(".,;:!?\"'") for word in words)
  )
  known = sum(word in _FUNCTION_WORDS for word in bare)
  return (
    plain >= _MIN_LETTER_SHARE * len(characters)
    and code <= _MAX_CODE_WORD_SHARE * len(words)
    and known >= _MIN_FUNCTION_WORD_SHARE * len(words)
  )


def normalized(sentence: str) -> str:
  """The key under which two sentences count as the same one."""
  return re.sub(r"[^a-z]+", " ", sentence.lower()).strip()


def prose_sentences(docstring: str) -> list[str]:
  """The sentences of a docstring that are English prose, in order."""
  return [
    sentence
    for paragraph in paragraphs(docstring)
    for sentence in split_sentences(paragraph)
    if is_prose(sentence)
  ]
