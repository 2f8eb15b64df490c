"""Reads the articles of a Wikipedia dump as documents.

The dump is the file pages-articles.xml.bz2 of dumps.wikimedia.org, or parts of
it. `ElementTree` reads the XML, and mwparserfromhell, which must be installed,
the markup. The paragraphs of an article remain, without tables, lists,
headings, references, images and formulas. Templates are left out, as they are
not in the article's text: "about {{convert|5|km}} long" becomes "about long".
"""

from __future__ import annotations

import bz2
import importlib.util
import re
from typing import Any, Iterator, Sequence
from xml.etree import ElementTree

from official_albert import files
from official_albert.tasks.pretraining.data import documents, worker_pool
from official_albert.tools.cli import printing

# Shorter articles are stubs, and lists or links to articles of a similar name.
_MIN_SENTENCES, _MIN_CHARACTERS = 2, 200
_MIN_PARAGRAPH = 30  # Characters; shorter ones are captions and such.
_BATCH_CHARACTERS = 1 << 18  # Enough work for one call to another process.
_XML_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
# Their names in English work in each Wikipedia. Interlanguage links have two or
# three lower-case letters: "Re:Zero" is a title.
_FILE, _CATEGORY = "6", "14"
_NAMESPACES = ("file", "image", "category")
_INTERLANGUAGE = re.compile(r"[a-z]{2,3}(-[a-z]+)*")
_MARK = "\0"  # Marks lines to leave out; XML cannot contain it.
_BLOCK_TAG = re.compile(
  r"</?(?:p|div|blockquote|center|h[1-6]|hr)\b[^<>]*>", re.I
)
# mwparserfromhell reads the rest three times as fast without these.
_COMMENT_OR_REFERENCE = re.compile(
  # A reference that is not closed ends with its paragraph.
  r"<!--.*?-->|<ref\b[^<>]*/>"
  r"|<ref\b[^<>]*>[^\n]*?(?:\n(?!\s*\n)[^\n]*?)*?</ref\s*>",
  re.S | re.I,
)
_INNER_TABLE = re.compile(
  r"^[ :]*\{\|(?:(?!^[ :]*\{\|).)*?^ *\|\}(?!\})", re.S | re.M
)
_LEFT_OUT_TAGS = frozenset(
  "pre ref references source syntaxhighlight table li dd dt ol ul".split()
)
# Bold, italic, __NOTOC__ and such, and references that are not closed.
_REST = re.compile(r"'{2,}|__[A-Z]+__|</?ref\b[^<>]*>", re.I)
# What templates leave: "(; born 1912)", "( )", "(-)", "5 , and".
_TIDY = (
  (re.compile(r"\([\s,;:]+"), "("),
  (re.compile(r"\s*\([\s\u2013\u2014-]*\)|\s+(?=[,.)])"), ""),
)


# The language of a wiki, and the prefixes of its links to images and
# categories, in lower case.
_Wiki = tuple[str, frozenset[str]]


def articles(paths: Sequence[str]) -> Iterator[list[str]]:
  """Yields the sentences of each article of a dump, and shows the progress.

  The order is that of the dump, for any number of processors.
  """
  if importlib.util.find_spec("mwparserfromhell") is None:
    raise ValueError(
      "--wikipedia_dump needs mwparserfromhell: python -m pip install "
      "mwparserfromhell; requirements-dev.txt has the tested release."
    )
  with worker_pool.open_pool(None) as parallel_map:
    for batch in parallel_map(_read_batch, _batches(paths)):
      yield from batch


def _batches(paths: Sequence[str]) -> Iterator[tuple[_Wiki, list[str]]]:
  """Yields batches of the articles' markup."""
  line, finished, pages = printing.ProgressLine(), 0, 0
  total = sum(files.stat(path)[0] for path in paths)

  def show(read: int) -> None:
    megabytes = f"{read / 1e6:,.0f} of {total / 1e6:,.0f} MB"
    line.show("reading", read / total, 0, f"{megabytes}, {pages:,} pages")

  for path in paths:
    wiki, batch = None, list[str]()
    with files.open(path, "rb") as opened:
      file: Any = opened
      is_packed = file.peek(3)[:3] == b"BZh" or path.endswith(".bz2")
      source: Any = bz2.BZ2File(file) if is_packed else file
      try:
        events = ElementTree.iterparse(source, ["start", "end"])
        _, root = next(events)
        if _name(root) != "mediawiki":
          raise ElementTree.ParseError(f"its root is <{_name(root)}>")
        for event, element in events:
          if event == "start" or _name(element) != "page":
            continue
          wiki = wiki or _read_wiki(root)
          pages += 1
          is_redirect = element.find("{*}redirect") is not None
          if element.findtext("{*}ns") == "0" and not is_redirect:
            batch.append(element.findtext("{*}revision/{*}text") or "")
          root.clear()  # Empty elements would fill the memory.
          if sum(map(len, batch)) > _BATCH_CHARACTERS:
            show(finished + file.tell())
            yield wiki, batch
            batch = []
      except (EOFError, ElementTree.ParseError, OSError) as error:
        if isinstance(error, OSError) and str(error) != "Invalid data stream":
          raise
        raise ValueError(
          f"{path} is not a complete XML dump of MediaWiki (after {pages:,} "
          f"pages: {error}): download pages-articles.xml.bz2 again."
        ) from error
      finished += file.tell()
    show(finished)
    if wiki:
      yield wiki, batch


def _name(element: ElementTree.Element) -> str:
  """Returns the name of an element without its XML namespace."""
  return element.tag.rpartition("}")[2]


def _read_wiki(root: ElementTree.Element) -> _Wiki:
  prefixes = {
    (namespace.text or "").lower()
    for namespace in root.iterfind("{*}siteinfo/{*}namespaces/{*}namespace")
    if namespace.get("key") in (_FILE, _CATEGORY)
  }
  return root.get(_XML_LANGUAGE, "en"), frozenset({*prefixes, *_NAMESPACES})


def _read_batch(
  unused: None, batch: tuple[_Wiki, list[str]]
) -> list[list[str]]:
  """Returns the sentences of the articles that are not too short."""
  del unused
  (language, prefixes), pages = batch
  found = []
  for page in pages:
    sentences = [
      sentence
      for paragraph in paragraphs(page, prefixes)
      for sentence in documents.split_sentences(paragraph, language)
    ]
    is_short = sum(map(len, sentences)) < _MIN_CHARACTERS
    if len(sentences) >= _MIN_SENTENCES and not is_short:
      found.append(sentences)
  return found


def paragraphs(
  markup: str, prefixes: frozenset[str] = frozenset(_NAMESPACES)
) -> list[str]:
  """Returns the text of an article's paragraphs.

  `prefixes` are those of links to images and categories, in lower case.
  """
  import mwparserfromhell

  markup = _COMMENT_OR_REFERENCE.sub("", markup)
  markup = _BLOCK_TAG.sub("\n\n", markup)
  tables = 1
  while tables:
    markup, tables = _INNER_TABLE.subn("", markup)
  # Bold and italic text takes the parser most of the time.
  code = mwparserfromhell.parse(markup, skip_style_tags=True)
  _replace_nodes(code, prefixes)
  found: list[list[str]] = [[]]
  for line in _REST.sub("", code.strip_code()).split("\n"):
    if line.strip() and _MARK not in line:
      found[-1].append(line)
    else:
      found.append([])
  return [
    paragraph
    for lines in found
    if len(paragraph := _tidy(" ".join(lines))) >= _MIN_PARAGRAPH
  ]


def _tidy(paragraph: str) -> str:
  paragraph = " ".join(paragraph.split())  # The patterns are slow with more.
  for pattern, replacement in _TIDY:
    paragraph = pattern.sub(replacement, paragraph)
  return " ".join(paragraph.split())


def _replace_nodes(code: Any, prefixes: frozenset[str]) -> None:
  """Replaces what `strip_code` would take for text; marks lists, headings."""
  from mwparserfromhell import nodes

  for index, node in enumerate(code.nodes):
    replacement = None
    if isinstance(node, nodes.Heading):
      replacement = f"\n{_MARK}\n"
    elif isinstance(node, nodes.Wikilink):
      prefix, colon, _ = str(node.title).partition(":")
      prefix = prefix.strip()
      if colon and (
        prefix.lower() in prefixes
        or (node.text is None and _INTERLANGUAGE.fullmatch(prefix))
      ):
        replacement = ""
    elif isinstance(node, nodes.Tag):
      name = str(node.tag).strip().lower()
      if node.wiki_markup and node.self_closing:  # "*", "#", ":", ";", "----".
        replacement = _MARK
      elif name == "br":
        replacement = " "
      elif name in _LEFT_OUT_TAGS:
        replacement = ""
      elif node.contents:
        _replace_nodes(node.contents, prefixes)
    if replacement is not None:
      code.nodes[index] = nodes.Text(replacement)
