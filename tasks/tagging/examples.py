"""Reads tagged words: CoNLL files, and tables with lists of tags or of spans.

    EU    B-ORG        {"tokens": ["EU", "rejects"], "tags": ["B-ORG", "O"]}
    rejects  O         {"text": "EU rejects",
                        "spans": [{"start": 0, "end": 2, "label": "ORG"}]}

Tags of all schemes become BIO, which have the same entities; see `tags`.
"""

from __future__ import annotations

import bisect
import collections
import dataclasses
import itertools
import re
from typing import Any, Callable, Iterable, Iterator, Mapping, Optional

from official_albert import files, tokenization
from official_albert import labels as labels_lib
from official_albert.tasks import common
from official_albert.tasks.common import rows
from official_albert.tasks.tagging import tags as tags_lib

_TEXT, _LABEL = "text", "label"  # The defaults of the flags.
_TAGS, _SPANS = ("tags", "ner_tags"), ("spans", "entities")
_BLANKS = " \t\r\n"
# Of B-ORG, and of schemes that write B_ORG, B:ORG or ORG-B: mark and name.
_MARKS = re.compile("(?:([BIESLUMW])[-_:+](.+))|(?:(.+)[-_:+]([BIESLUMW]))")
_NAMELESS = {*"BIESLUM"}  # Tags of one kind of entities, here "ENTITY".
_LANGUAGE = re.compile("[a-z]{2,3}(-[a-z]+)*")
_Lines = list[tuple[str, list[str]]]  # The place and the cells of each.


@dataclasses.dataclass(frozen=True)
class TaggedText:
  """A text with its words; tokens of a file are joined by spaces.

  Attributes:
    guid: its id in the file, or its number from 0, also of invalid ones.
    words: where each word begins and ends.
    tags: the tag of each word, BIO if they make entities; None if unknown.
    where: the place in the file, for messages.
  """

  guid: str
  text: str
  words: tuple[tuple[int, int], ...]
  tags: Optional[tuple[str, ...]] = None
  where: str = dataclasses.field(default="", repr=False, compare=False)

  @property
  def texts(self) -> list[str]:
    """The text."""
    return [self.text]


def read_examples(
  names: str,
  columns: Mapping[str, str],
  check: Callable[[TaggedText], None],
  invalid: rows.InvalidRows,
  note: Callable[[str], None],
  labels: Iterable[str] = (),
) -> list[TaggedText]:
  """Reads files; `names` are those of `common.rows.find_tables`.

  `columns` has those of the roles `text`, `label` and `id`. Texts that are not
  valid, also for `check`, are refused, or left to `invalid`. `labels` are those
  of the training data, which tell the scheme of other files, too.

  Raises:
    ValueError: a file is not in one of the formats, or tags are of several
      schemes.
  """
  examples: list[TaggedText] = []
  inexact: list[str] = []
  for path in rows.find_tables(names):
    if rows.plain_name(path).endswith((".csv", ".xlsx", ".ann")):
      raise ValueError(
        f"{path} must be a CoNLL file, JSON lines, Parquet or Arrow."
      )
    if rows.is_table(path):
      read = _read_table(path, columns, inexact, invalid)
    else:
      read = _read_conll(path, columns, invalid)
    for example in read:
      guid = example.guid or str(len(examples) + invalid.count)
      examples.append(dataclasses.replace(example, guid=guid))
  if inexact:
    note(
      f"{names}: {len(inexact):,} spans begin or end within a word, which has "
      f"the label as a whole; the first is {inexact[0]}"
    )
  known = {tag for example in examples for tag in example.tags or ()}
  has_entities = tags_lib.make_entities({*labels} or known)
  plain = {tag for tag in known if not tags_lib.make_entities([tag])}
  marked = known - plain - {tags_lib.OUTSIDE}
  if has_entities and plain and marked:
    raise ValueError(
      f"{names} has the tags {files.quote(*sorted(plain)[:3])} without B- or "
      f"I-, and {files.quote(*sorted(marked)[:3])} with one: write all in one "
      "scheme."
    )
  marks = collections.defaultdict[str, set[str]](set)
  for parts in filter(None, map(_MARKS.fullmatch, known)):
    marks[parts[2] or parts[3]].add(parts[1] or parts[4])
  # Beside those of other marks, OntoNotes has (ORG*, * and *).
  if plain and (any({"B"} < x for x in marks.values()) or "*)" in plain):
    raise ValueError(
      f"{names} has the tags {files.quote(*sorted(plain)[:3])}: write the "
      "scheme as B-ORG, I-ORG and O."
    )
  is_nameless = has_entities and plain <= _NAMELESS
  is_nameless &= not {"B", "I", "B-ENTITY"}.isdisjoint({*labels} or plain)
  found: list[TaggedText] = []
  changed: list[tuple[str, str]] = []
  for example in examples:
    before = tags = example.tags
    if before and has_entities:
      if is_nameless:
        tags = (*(f"{x}-ENTITY" if x in _NAMELESS else x for x in before),)
      tags = tags_lib.to_bio(len(before), tags_lib.spans(tags))
      changed += [pair for pair in zip(before, tags) if pair[0] != pair[1]]
    with invalid:
      check(example := dataclasses.replace(example, tags=tags))
      found += [example] if example.words else []
  small = [tag for tag in plain if re.fullmatch("[bieslu]-.+", tag)]
  if small and not has_entities:
    note(
      f"warning: {names}: {files.quote(small[0])} is a tag of one word, "
      "because only tags with capitals, such as B-, make entities"
    )
  if changed:
    note(
      f"{names}: tags become BIO with the same entities, such as "
      f"{changed[0][0]} here {changed[0][1]}"
    )
  return found


def find_labels(examples: Iterable[TaggedText], path: str) -> tuple[str, ...]:
  """Returns the classes: O, then B- and I- of each name; or all other tags."""
  known = {tag for example in examples for tag in example.tags or ()}
  if not known - {tags_lib.OUTSIDE}:
    raise ValueError(f"{path}: no word of the training data has a tag but O.")
  if bad := [tag for tag in known if not labels_lib.fits_cell(tag)]:
    raise ValueError(f"{path}: the tag {bad[0]!r} has a line break: rename it.")
  if not tags_lib.make_entities(known):
    return tuple(sorted(known))
  names = sorted({tag[2:] for tag in known - {tags_lib.OUTSIDE}})
  marked = (f"{mark}-{name}" for name in names for mark in "BI")
  return (tags_lib.OUTSIDE, *marked)


def _joined(
  where: str, words: list[str], tags: Optional[list[str]], guid: str = ""
) -> TaggedText:
  """Returns the text of words, which are joined by spaces."""
  spans, begin = [], 0
  for word in words:
    spans.append((begin, begin + len(word)))
    begin += len(word) + 1
  known = None if tags is None else (*tags,)
  return TaggedText(guid, " ".join(words), (*spans,), known, where)


def _read_conll(
  path: str, columns: Mapping[str, str], invalid: rows.InvalidRows
) -> Iterator[TaggedText]:
  """Yields the sentences of a file with a word on each line."""
  is_ud = rows.plain_name(path).endswith(".conllu")
  width, word, tag = 0, 0, 0
  for lines in _sentences(path, is_ud):
    if not width:
      where, cells = lines[0]
      if cells[0].startswith('{"'):
        raise ValueError(f"{where} is JSON: end the file's name in .jsonl.")
      width = len(cells)
      word, tag, has_header = _places(where, cells, columns, is_ud)
      lines = lines[has_header:]
      is_id = [x.lower().startswith(("sentence", "sent_")) for x in cells]
      is_id[word] = is_id[tag] = False
      ids = {
        *itertools.chain(*(itertools.compress(x, is_id) for _, x in lines))
      }
      words = [x for _, cells in lines for x in cells[word : word + 1]]
      starts = {x.partition(":")[0] if ":" in x else "" for x in words}
      problem = ""
      if has_header and len(ids - {""}) > 1:
        problem = (
          "a column numbers the sentences, but here a blank line must end each"
        )
      elif len(words) > 1 and columns[_TEXT] == _TEXT and not is_ud:
        numbers = [*map(str, range(len(words) + 1))]
        same = words[:1] * len(words) if words[0].isdecimal() else []
        if width > 2 and words in (numbers[:-1], numbers[1:], same):
          problem = (
            f"column {word + 1} numbers the words: name others, such as "
            "--text_column=2 --label_column=3"
          )
        elif len(starts) == 1 and _LANGUAGE.fullmatch(min(starts)):
          problem = (
            f"words begin with {starts.pop()}:, as in WikiANN: leave it out"
          )
      if problem:
        raise ValueError(f"{where}: {problem}.")
    with invalid:
      for where, cells in lines:
        rows.check_utf8(where, cells)
        if len(cells) != width:
          raise rows.InvalidRow(
            where,
            " has another number of columns than the first line",
            f": {len(cells)} instead of {width}; write a word and its tag on "
            "each line, and a blank line after each sentence.",
          )
        if not (cells[word] and cells[tag]) or "\r" in "".join(cells):
          problem = " has an empty word or tag, or a carriage return in it"
          raise rows.InvalidRow(where, problem, ": correct it.")
      if lines:
        tags = [cells[tag] for _, cells in lines] if width > 1 else None
        yield _joined(lines[0][0], [cells[word] for _, cells in lines], tags)


def _sentences(path: str, is_ud: bool) -> Iterator[_Lines]:
  """Yields the lines of each sentence.

  A blank line, or -DOCSTART-, ends a sentence. Columns are separated by tabs or
  spaces. In .conllu, comments and the lines of several words (1-2) and of empty
  nodes (1.1) are skipped.
  """
  lines: _Lines = []
  read = rows.read_lines(path, strict=False)
  for number, line in itertools.chain(read, [(0, "")]):
    stripped = line.strip(_BLANKS)
    cells = [x.strip(" ") for x in line.rstrip("\r\n").split("\t")]
    if len(cells) == 1:
      cells = re.split(" +", stripped)
    if not stripped or cells[0] == "-DOCSTART-":
      if lines:
        yield lines
      lines = []
    elif not is_ud or (line[0] != "#" and cells[0].isdecimal()):
      lines.append((f"{path}, line {number}", cells))


def _places(
  where: str, cells: list[str], columns: Mapping[str, str], is_ud: bool
) -> tuple[int, int, bool]:
  """Returns the indices of word and tag, and whether this is a header.

  Columns are numbers from 1, which are no names, or names in a header.
  Otherwise, they are the first and the last one; in .conllu FORM and UPOS.
  """
  columns_of = {_TEXT: 1 if is_ud else 0, _LABEL: 3 if is_ud else -1}
  names = {x for x in map(columns.get, columns_of) if not x.isdecimal()}
  given = names - {*columns_of}
  has_header = bool(given or names and names <= {*cells})
  found = []
  for role, default in columns_of.items():
    name, place = columns[role], default % len(cells)
    if name.isdecimal():
      place = int(name) - 1
    elif has_header and name in cells:
      place = cells.index(name)
    is_known = name not in given or name in cells
    is_taken = place in found and len(cells) > 1
    if not (is_known and 0 <= place < len(cells)) or is_taken:
      raise ValueError(
        f"{where}: there is no {'other ' * is_taken}column {name!r}, the "
        f"columns are {files.quote(*cells)}; give a name of this line, or a "
        "number from 1."
      )
    found.append(place)
  return found[0], found[1], has_header


def header(path: str) -> Mapping[str, Any]:
  """Returns the columns of a table by its first valid row; else {}."""
  return rows.first_record(path).cells if rows.is_table(path) else {}


def _read_table(
  path: str,
  columns: Mapping[str, str],
  inexact: list[str],
  invalid: rows.InvalidRows,
) -> Iterator[TaggedText]:
  """Yields the rows of JSON lines, Parquet or Arrow.

  `inexact` gets the places of spans that begin or end within a word.
  """
  known, id_column = header(path), columns["id"]
  # A given name is obeyed; without one, the usual ones are found.
  labels, names = [columns["label"]], [columns["text"]]
  if labels == [_LABEL] and _LABEL not in known:
    usual = [x for x in (*_TAGS, *_SPANS) if x in known]
    if len(usual) > 1:
      raise ValueError(
        f"{path} has the columns {files.quote(*usual)}: name one of them by "
        "--label_column."
      )
    labels += [*_TAGS, *_SPANS]
  label = next((x for x in labels if x in known), None)
  if names == [_TEXT]:
    names.insert(label not in _TAGS, "tokens")
  text = next((x for x in names if x in known), columns["text"])
  others = [x for x in (label, id_column) if x and x in known]
  absent = [id_column, *(labels if label is None else ())]
  absent = [x for x in absent if x and x not in known]
  for record in rows.read_table(path, [text, *others], invalid, absent):
    with invalid:
      where, words = record.where, record.cells[text]
      guid = common.plain_cell(record, id_column) if id_column in others else ""
      values = record.cells[label] if label else None
      if label:
        rows.refuse_rejected(record, [text, *others])
      if values is not None and not isinstance(values, list):
        raise rows.InvalidRow(where, f": {label!r} must be a list", ".")
      if isinstance(words, list):
        for what, some in ((text, words), (label, values or ())):
          if not all(isinstance(x, str) and x.strip() for x in some):
            raise rows.InvalidRow(
              where,
              f": {what!r} must have words or names of tags, none empty",
              f", got {files.quote(some)}; look up the names of numbers.",
            )
        if values is not None and len(values) != len(words):
          raise rows.InvalidRow(
            where,
            " has another number of tags than of words",
            f": {len(values)} instead of {len(words)}.",
          )
        example = _joined(where, words, values, guid)
      else:
        words = common.text_cell(record, text)
        places, tags = tags_lib.split_words(words), None
        if values is not None:
          tags = _tags_of(where, words, places, values, inexact)
        example = TaggedText(guid, words, (*places,), tags, where)
      rows.refuse_surrogates(example.text + "".join(example.tags or ()), where)
      yield example


def _tags_of(
  where: str,
  text: str,
  words: list[tuple[int, int]],
  values: list[Any],
  inexact: list[str],
) -> tuple[str, ...]:
  """Returns the tags of words by spans of characters."""
  found: list[tags_lib.Span] = []
  starts, ends = zip(*words)
  end_before = (0, 0)  # In characters, and in words.
  for start, end, label in sorted(_span(where, text, x) for x in values):
    shown = files.quote(text[start:end], most=40)
    first = bisect.bisect_right(ends, start)
    stop = bisect.bisect_left(starts, end)
    if first >= stop:
      raise rows.InvalidRow(where, ": a span has no word", f", {shown}.")
    if start < end_before[0] or first < end_before[1]:
      raise rows.InvalidRow(
        where,
        ": a span overlaps another one or is in the same word",
        f", {shown} from {start} to {end}, but a word has one tag: leave one "
        "out.",
      )
    if len(text[start:end].strip()) != ends[stop - 1] - starts[first]:
      inexact.append(f"{shown} in {where}")
    end_before = end, stop
    found.append(tags_lib.Span(label, first, stop))
  return tags_lib.to_bio(len(words), found)


def _span(where: str, text: str, value: Any) -> tuple[int, int, str]:
  """Returns start, end and label of a dict, or of a list of them.

  The dict may also have the text, which offsets in bytes do not give.
  """
  shown: Any = None
  if isinstance(value, dict):
    shown, suffix = value.get("text"), "_offset" * ("start_offset" in value)
    names = (f"start{suffix}", f"end{suffix}", "label")  # doccano's, too.
    labels = value.get("labels")  # Label Studio has a list of them.
    if isinstance(labels, list) and len(labels) == 1:
      value = {**value, "label": labels[0]}
    value = [value.get(name) for name in names]
  fits = isinstance(value, list) and list(map(type, value)) == [int, int, str]
  if not fits or not 0 <= value[0] < value[1] <= len(text) or not value[2]:
    raise rows.InvalidRow(
      where,
      ": a span must have a label and characters start < end",
      f" from 0 to {len(text)}, got {files.quote(value)}.",
    )
  start, end, label = value
  if isinstance(shown, str) and shown.strip() != text[start:end].strip():
    raise rows.InvalidRow(
      where,
      ": a span has another text than its characters",
      f" {start} to {end}: {files.quote(shown)}, but "
      f"{files.quote(text[start:end])}; count characters, not bytes.",
    )
  return start, end, label


@dataclasses.dataclass(frozen=True)
class Window:
  """A part of a text as [CLS] pieces [SEP]; each piece is its own in one.

  Attributes:
    example: the index of the text.
    begin: the first piece.
    own: the pieces that are tagged here.
  """

  example: int
  input_ids: list[int]
  begin: int
  own: range


def make_windows(
  encoded: Iterable[tokenization.EncodedText],
  tokenizer: tokenization.Tokenizer,
  max_seq_length: int,
) -> Iterator[Window]:
  """Yields the windows of each text, which overlap by a half.

  So a piece has at least a quarter of a window on both sides, or the end of the
  text. `serving` does the same in the graph.
  """
  space = tokenization.available_tokens(max_seq_length, 1)
  margin, step = overlap(space)
  for number, (ids, _, _) in enumerate(encoded):
    steps = -(-max(len(ids) - space, 0) // step)
    for i in range(steps + 1):
      begin = i * step
      first = begin + margin if i else 0
      end = begin + margin + step if i < steps else len(ids)
      part = ids[begin : begin + space]
      packed = [tokenizer.cls_id, *part, tokenizer.sep_id]
      yield Window(number, packed, begin, range(first, end))


def overlap(space: int) -> tuple[int, int]:
  """Returns the pieces before those of a window's own, and how many these are.

  `space` is the number of pieces in a window.
  """
  return space // 4, space - 2 * (space // 4)
