"""Tests of articles from a dump, with markup of every kind."""

from __future__ import annotations

import bz2
from xml.sax.saxutils import escape

import pytest

from official_albert import machine

# Bazel runs this file as a program.
pytest.importorskip("mwparserfromhell")

from official_albert.tools.cli import printing
from official_albert.tools.corpus import wikipedia

_ARTICLE = """{{short description|A bay}}
{{Infobox bay
| name  = Grey Bay
| depth = {{convert|5|m}} <!-- in the middle -->
}}
[[File:Bay.jpg|thumb|The ''bay'' from the [[Lighthouse|tower]]. It is grey.]]
'''Grey Bay''' ({{lang|fr|Baie}}; also ''the Bay'') is a [[bay]] on the
[[North Coast|northern coast]].<ref name="a">{{cite book
|title=Bays|page=[https://a.b 3]}}</ref><ref name="b" />
Its caf\u00e9s are 3&nbsp;km away, at {{coord|1|2}} , and
[https://example.org their] guests &amp; boats come by sea.

== History ==
The bay<ref group=n>No fish.</ref> was a harbor until 1903, when O'Neill's
''Sea Wolf'' sank.<br/>It was <small>then
[[Category:Never here]]closed</small> to ships.
{| class="wikitable"
! Year !! Ships
|-
| 1902 || 12 {{!}} 13
{|
| inner
|}
|}
The energy of a wave is <math>E = \\rho g H^2 / 8</math>, as 波浪 show.

=== Ships ===
* The first of the ships was named after the bay. It sank.
*# The second one was never named, and it is there.
; Term : The definition of a term that is long enough.
:: An indented answer, which is long enough to be read.

<gallery>
File:A.jpg|A picture of the bay, taken from the tower.
</gallery>
<syntaxhighlight lang="python">
print("There is code in this block of the article.")
</syntaxhighlight>
<blockquote>{{quote}}The bay is never blue, and nobody minds.
* No quote, but an item of some list within it.</blockquote>
__NOTOC__
== References ==
{{reflist}}
[[Category:Bays]]
[[fr:Baie grise de la côte du nord]]
"""
_SENTENCES = [
  "Grey Bay (also the Bay) is a bay on the northern coast.",
  "Its cafés are 3 km away, at, and their guests & boats come by sea.",
  "The bay was a harbor until 1903, when O'Neill's Sea Wolf sank.",
  "It was then closed to ships.",
  "The energy of a wave is, as 波浪 show.",
  "The bay is never blue, and nobody minds.",
]
_LONG = (
  "This is number {} of the sentences about {}, which all have many words. "
)


def article(name):
  return "".join(_LONG.format(number, name) for number in range(4))


def page(title, text, ns=0, redirect=""):
  redirect = f'<redirect title="{redirect}" />' if redirect else ""
  return (
    f"<page><title>{title}</title><ns>{ns}</ns><id>1</id>{redirect}<revision>"
    f"<id>2</id><contributor><username>x</username></contributor>"
    f'<text bytes="3" xml:space="preserve">{escape(text)}</text></revision>'
    "</page>\n"
  )


def dump(*pages, language="en", names=("File", "Category")):
  return (
    '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" '
    f'version="0.11" xml:lang="{language}"><siteinfo><namespaces>'
    f'<namespace key="6">{names[0]}</namespace>'
    f'<namespace key="14">{names[1]}</namespace><namespace key="0" />'
    f"</namespaces></siteinfo>\n{''.join(pages)}</mediawiki>\n"
  ).encode()


def test_only_sentences_of_paragraphs_remain(tmp_path, monkeypatch):
  path = tmp_path / "wiki.xml.bz2"
  path.write_bytes(
    bz2.compress(
      dump(
        page("Grey", "#REDIRECT [[Bay]]\n\n" + article("x"), 0, "Grey Bay"),
        page("Grey Bay", _ARTICLE),
        page("Talk:Grey Bay", article("talk"), 1),
        page("Grey (name)", "'''Grey''' may refer to:\n* [[Grey Bay]], a bay"),
        page("Empty", ""),
        page("Stub", "It is a stub. It has no more than two sentences."),
        page("One", "It is one sentence with words and words" * 9 + "."),
        page("Sea", article("the sea")),
      )
    )
  )
  shown = []
  monkeypatch.setattr(
    printing.ProgressLine, "show", lambda line, *x: shown.append(x)
  )
  assert list(wikipedia.articles([str(path)])) == [
    _SENTENCES,
    [_LONG.format(number, "the sea").strip() for number in range(4)],
  ]
  assert shown == [("reading", 1, 0, "0 of 0 MB, 8 pages")]


_WORDS = "and these are many further words"


@pytest.mark.parametrize(
  "markup, expected",
  [
    ("<p>A {0}.</p><P class=x>B {0}.</p>", ["A {0}.", "B {0}."]),
    ("A {0}.<div>B {0}.\n</div>C {0}.", ["A {0}.", "B {0}.", "C {0}."]),
    ("Smith (\u2013) was (-5) {0} ( - ).", ["Smith was (-5) {0}."]),
    (
      "A<ref name=a> {0}.\n \nB {0}.<ref>\nno\nno</ref>\n\nC {0}.",
      ["A {0}.", "B {0}.", "C {0}."],
    ),
    ("A<ref>{{{{a\n\n|b}}}}</ref> {0}.", ["A {0}."]),
    # Quadratic time would be half an hour.
    (f"A{' ' * 300_000}{{0}}.", ["A {0}."]),
    ("[[Re:Zero]], {0}.\n[[fr:Non]] [[ak:No|is]]", ["Re:Zero, {0}. is"]),
  ],
)
def test_broken_and_rare_markup(markup, expected):
  found = wikipedia.paragraphs(markup.format(_WORDS))
  assert found == [text.format(_WORDS) for text in expected]


def test_the_language_and_the_namespaces_are_those_of_the_dump(tmp_path):
  text = (
    "[[Datei:A.jpg|mini|Ein Bild der Bucht, das Herr Dr. Maier aufnahm.]]\n"
    "Die Bucht ist seit dem 3. Mai eisfrei, sagt Prof. Dr. Maier. "
    * 4
    + "\n\n[[Kategorie:Bucht an der Nordküste des Landes]]"
  )
  path = tmp_path / "wiki.xml"
  names = ("Datei", "Kategorie")
  path.write_bytes(dump(page("B", text), language="de", names=names))
  (sentences,) = wikipedia.articles([str(path)])
  assert (
    sentences
    == ["Die Bucht ist seit dem 3. Mai eisfrei, sagt Prof. Dr. Maier."] * 4
  )


def test_the_order_is_that_of_the_dump(tmp_path, monkeypatch):
  names = [f"topic {number}" for number in range(23)]
  parts = []
  for part in range(2):
    path = tmp_path / f"{part}.xml"
    pages = [page(name, article(name)) for name in names[part::2]]
    path.write_bytes(dump(*pages))
    parts.append(str(path))
  found = []
  for processes, characters in ((1, 1 << 18), (3, 600)):
    monkeypatch.setattr(wikipedia, "_BATCH_CHARACTERS", characters)
    monkeypatch.setattr(machine, "cpu_count", lambda n=processes: n)
    found.append(list(wikipedia.articles(parts)))
  assert found[0] == found[1]
  subjects = [sentences[0].split(" about ")[1] for sentences in found[0]]
  expected = [f"{x}, which all have many words." for x in names]
  assert subjects == expected[::2] + expected[1::2]


_DUMP = dump(*[page(f"A{i}", article(f"a{i}")) for i in range(50)])


@pytest.mark.parametrize(
  "name, content, message",
  [
    ("cut.xml.bz2", bz2.compress(_DUMP)[:-9], "Compressed file ended before"),
    ("bad.xml.bz2", b"PK" + _DUMP, "after 0 pages: Invalid data stream"),
    ("cut.xml", _DUMP[:-13], "after 50 pages: no element found"),
    # Between two streams of a multistream dump.
    ("half.xml.bz2", bz2.compress(_DUMP[:9000]), "element found|unclosed"),
    ("page.xml", b"<html><body>404</body></html>", "its root is <html>"),
    ("text.xml", b"This is no XML.", "after 0 pages: syntax error"),
  ],
)
def test_damaged_dumps(tmp_path, name, content, message):
  path = tmp_path / name
  path.write_bytes(content)
  with pytest.raises(ValueError, match=message) as error:
    list(wikipedia.articles([str(path)]))
  assert str(error.value).startswith(f"{path} is not a complete XML dump of ")
  assert "\n" not in str(error.value)
