"""Tests of names, addresses and what they may be."""

from __future__ import annotations

import pytest

from tools.hub import handle as hub_handle


def _publication(**changes):
  values = dict(publisher="my-team", name="albert_en", version=3, license="mit")
  return hub_handle.Publication(**{**values, **changes})


@pytest.mark.parametrize(
  "handle, parts",
  [
    ("my-team/albert_en/3", ("my-team", "albert_en", 3)),
    ("t5/bert/L-2.x/12", ("t5", "bert/L-2.x", 12)),
  ],
)
def test_handles(handle, parts):
  assert hub_handle.parse_handle(handle) == parts


@pytest.mark.parametrize(
  "handle",
  [
    "albert_en/3",
    "My-Team/albert/3",
    "my-team/albert",
    "my-team/albert/v3",
    "my-team/../3",
    "my-team/a b/3",
    "/albert/3",
    "my-team//3",
    "https://tfhub.dev/me/albert/3",
  ],
)
def test_other_handles_are_refused(handle):
  with pytest.raises(ValueError, match="must be PUBLISHER/NAME/VERSION"):
    hub_handle.parse_handle(handle)


def test_addresses():
  here = _publication()
  assert here.preprocess_name == "albert_en_preprocess"
  assert here.archive(here.name) == "albert_en/3.tar.gz"
  there = _publication(asset_root="https://storage.googleapis.com/bucket/")
  assert there.archive(there.preprocess_name) == (
    "https://storage.googleapis.com/bucket/albert_en_preprocess/3.tar.gz"
  )


@pytest.mark.parametrize(
  "changes, message",
  [
    ({"license": "apache"}, "unknown license 'apache'; choose one of apache-2"),
    ({"language": "English"}, "no code of ISO 639-1"),
    ({"description": "two\nlines"}, "must be one line"),
    ({"description": "<!-- x -->"}, "must be one line"),
    ({"asset_root": "bucket/hub"}, "must be an address"),
  ],
)
def test_what_the_site_would_refuse(changes, message):
  with pytest.raises(ValueError, match=message):
    _publication(**changes)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
