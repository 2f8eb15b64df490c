"""Tests of what a build remembers of itself."""

from __future__ import annotations

import os
import pathlib

import pytest

from tasks.pretraining.data import build_journal


def test_entries_come_back(tmp_path):
  journal = build_journal.Journal(str(tmp_path))
  assert (journal.fingerprint, journal.holds_work) == (None, False)
  journal.start({"seed": 3})
  assert not journal.holds_work
  journal.put("store", {"documents": 7})
  journal.put("shards", [1, 2])
  journal.put("shards", None)
  again = build_journal.Journal(str(tmp_path))
  assert again.fingerprint == {"seed": 3}
  assert again.get("store") == {"documents": 7}
  assert again.get("shards") is None
  assert os.listdir(tmp_path) == ["progress.json"]
  again.start({"seed": 4})
  assert build_journal.Journal(str(tmp_path)).get("store") is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null"])
def test_unreadable_journal_is_none(tmp_path, text):
  (tmp_path / build_journal.JOURNAL_FILE).write_text(text)
  journal = build_journal.Journal(str(tmp_path))
  assert (journal.fingerprint, journal.holds_work) == (None, False)


def test_failed_write_leaves_the_old_journal(tmp_path, monkeypatch):
  journal = build_journal.Journal(str(tmp_path))
  journal.start({})
  journal.put("a", 1)

  def full(*unused):
    raise OSError("full")

  monkeypatch.setattr(os, "replace", full)
  with pytest.raises(OSError, match="full"):
    journal.put("a", 2)
  assert build_journal.Journal(str(tmp_path)).get("a") == 1


def test_passing_states_are_due_now_and_then(tmp_path, monkeypatch):
  now = [100.0]
  monkeypatch.setattr(build_journal.time, "monotonic", lambda: now[0])
  journal = build_journal.Journal(str(tmp_path))
  journal.start({})
  now[0] += 4.9
  assert not journal.is_due()
  now[0] += 0.2
  assert journal.is_due()
  journal.put("a", 1)
  assert not journal.is_due()


def _fingerprint(paths, seed=1, sha256="ab"):
  settings = {"seed": seed, "lengths": (3, 5)}
  return build_journal.fingerprint(settings, [str(p) for p in paths], sha256)


def test_differences_are_named(tmp_path):
  text = pathlib.Path(tmp_path / "a.txt")
  text.write_text("one")
  journal = build_journal.Journal(str(tmp_path))
  journal.start(_fingerprint([text]))
  journal = build_journal.Journal(str(tmp_path))  # By way of JSON.
  assert journal.differences(_fingerprint([text])) == []
  assert journal.differences(_fingerprint([text], seed=2)) == ["seed"]
  assert journal.differences(_fingerprint([text], 2, "cd")) == [
    "tokenizer",
    "seed",
  ]
  assert journal.differences(_fingerprint([text, text])) == ["input_files"]
  text.write_text("three")
  assert journal.differences(_fingerprint([text])) == ["input_files"]
  assert build_journal.Journal("nowhere").differences({"a": 1}) == ["a"]


def test_files_of_other_file_systems(tmp_path):
  # TensorFlow knows file:// too.
  text = tmp_path / "a.txt"
  text.write_text("one")
  ((path, size, _),) = _fingerprint([f"file://{text}"])["input_files"]
  assert (path, size) == (f"file://{text}", 3)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
