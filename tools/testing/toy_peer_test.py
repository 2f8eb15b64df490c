"""Tests of what the peers' tests share."""

from __future__ import annotations

import pytest

from tools.testing import toy_peer


def test_environments_lie_where_the_variable_says(monkeypatch, tmp_path):
  python = tmp_path / "official_albert_kiln/bin/python"
  monkeypatch.setenv("PEERS_DIR", str(tmp_path))
  assert toy_peer.venv_python("kiln") == str(python)
  assert toy_peer.needs_venv("kiln").args == (True,)
  python.parent.mkdir(parents=True)
  python.touch()
  assert toy_peer.needs_venv("kiln").args == (False,)


@pytest.mark.heavy
def test_a_peer_that_does_not_learn_fails():
  """Guessing among 97 pieces has another entropy than the one that is given."""
  with pytest.raises(AssertionError):
    toy_peer.check_it_trains(
      "official_albert", "", "float32", toy_peer.MASKED_LM_ENTROPY
    )


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
