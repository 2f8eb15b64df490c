"""Tests of statistics, tables and files of made-up comparisons."""

from __future__ import annotations

import pytest

from tools.benchmarks.peers import protocol as peer_protocol
from tools.benchmarks.peers import results as peer_results

_OURS = peer_results.Result(
  "official_albert",
  [200.0, 300.0, 220.0],
  [],
  3 * 2**29,
  [11.0, 10.5],
  9.0,
  2.0,
  "as it is",
  {"tensorflow": "2.15.1"},
)
_PEER = peer_results.Result(
  "other", [100.0, 100.0, 220.0], [2.0, 3.0, 1.0], 2**30, [11.0, 10.75]
)
_BROKEN = peer_results.Result("broken", failure="no torch")


def make(
  precision: str = "float32", batch_size: int = 3
) -> peer_results.Comparison:
  return peer_results.Comparison(
    "a machine",
    "albert_tiny",
    peer_protocol.Workload(batch_size, 7, precision, 5),
    1e6,
    4e8,
    [_OURS, _PEER, _BROKEN],
  )


def test_rows():
  rows = [peer_results.row(make(), result) for result in make().results]
  # 220 tokens a second of a megaflop are 55% of 400 megaflops a second.
  assert rows[0] == (
    *("official_albert", "220", "200 to 300", "1", "1.50 GiB", "55%"),
    *("11.00 to 10.50", "tensorflow 2.15.1: as it is"),
  )
  assert rows[1][:5] == (
    *("other", "100", "100 to 220", "2.00 (1.00 to 3.00)", "1.00 GiB"),
  )
  assert rows[2] == ("broken", "failed: no torch")


def test_table():
  lines = peer_results.table(make()).splitlines()
  assert lines[0] == (
    "albert_tiny, S 7, B 3, float32: a machine, 5 threads; matrix products "
    "reach 0 GFLOP/s."
  )
  assert {line.count("|") for line in lines[2:]} == {9} and len(lines) == 7


def test_what_is_saved_can_be_loaded(tmp_path):
  folder = tmp_path / "new"
  for comparison in (make(), make("mixed_bfloat16"), make()):
    peer_results.save(comparison, str(folder))
  assert peer_results.load_all(str(folder)) == [make(), make("mixed_bfloat16")]
  assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("text", ["{", "{}", "[]", '{"workload": {"S": 3}}'])
def test_another_file_is_refused(tmp_path, text):
  (tmp_path / "peers-x.json").write_text(text)
  with pytest.raises(ValueError, match="peers-x.json is not what"):
    peer_results.load_all(str(tmp_path))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
