"""Tests that the documents and the code say the same."""

from __future__ import annotations

import collections
import pathlib
import re

import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_DOCUMENTS = [*_ROOT.glob("*.md"), *_ROOT.glob("docs/*.md")]


def _text(path):
  return path.read_text(encoding="utf-8")


def _anchors(path):
  """What GitHub makes of the headings."""
  headings = re.findall(r"^#+ +(.+)$", _text(path), re.MULTILINE)
  kept = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
  return {heading.replace(" ", "-") for heading in kept}


@pytest.mark.parametrize("path", _DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
  for link in re.findall(r"\]\(([^)\s]+)\)", _text(path)):
    if re.match(r"https?:|mailto:", link):
      continue
    name, _, anchor = link.partition("#")
    target = path.parent / name if name else path
    assert target.exists(), link
    if anchor:
      assert anchor in _anchors(target), link


@pytest.mark.parametrize("path", _DOCUMENTS, ids=lambda path: path.name)
def test_named_modules_exist(path):
  if path.name == "CHANGELOG.md":  # It names what was removed, too.
    return
  for name in re.findall(r"`([a-z_]+/[a-z0-9_/]+\.py)`", _text(path)):
    places = (_ROOT, _ROOT / "official_albert")
    assert any((place / name).is_file() for place in places), name


def test_one_update_is_short_to_read():
  text = _text(_ROOT / "ARCHITECTURE.md").partition("One update of pretr")[2]
  files = re.findall(r"^\| `([\w/]+\.py)` \|", text, re.MULTILINE)
  assert files[0] == "tools/run_pretraining.py" and 8 < len(files) <= 12
  assert sum(len(_text(_ROOT / name).splitlines()) for name in files) <= 3000


def test_every_deviation_is_told_and_marked():
  marked = {
    str(source.relative_to(_ROOT)): _text(source).count("Deviation:")
    for room in ("official_albert", "tasks", "tfrecords", "tools")
    for source in (_ROOT / room).rglob("*.py")
    if not source.name.endswith("_test.py")
  }
  table = _text(_ROOT / "docs/deviations.md")
  files = re.findall(r"`([\w/]+\.py)`", table.partition("| what |")[2])
  assert collections.Counter(files) == +collections.Counter(marked)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
