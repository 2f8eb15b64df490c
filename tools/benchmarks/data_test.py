"""Tests of one measurement on a tiny corpus, and of a table's line."""

from __future__ import annotations

import pytest

import tfrecords
from official_albert.testing import toy_vocabulary
from tools.benchmarks import data as benchmark_data


@pytest.fixture(scope="module")
def text(tmp_path_factory):
  folder = tmp_path_factory.mktemp("corpus")
  lines = "tea and rain. stone in the river.\ncloud and amber.\n\n" * 40
  (folder / "a.txt").write_text(lines)
  (folder / "m.model").write_bytes(toy_vocabulary.train(lines.split("\n"), 30))
  return str(folder / "a.txt"), str(folder / "m.model"), 32


def test_counts_agree_with_the_manifest(text, tmp_path):
  output = str(tmp_path / "data")
  made = benchmark_data.make(*text, "static", 1, output)
  splits = tfrecords.read_manifest(output).splits
  assert made.tokens == sum(s.statistics["tokens"] for s in splits.values())
  assert made.written_bytes == sum(
    path.stat().st_size for path in (tmp_path / "data").glob("*.tfrecord")
  )
  # The child begins as a copy of this process, which may be large.
  assert made.seconds > 0 and 2**20 < made.peak_bytes < 2**36


def test_a_failed_run_is_an_error(text, tmp_path):
  with pytest.raises(ValueError, match="failed"):
    benchmark_data.make(*text, "none", 1, str(tmp_path / "data"))


def test_row_has_the_median_and_the_worst_memory():
  runs = [
    benchmark_data.Made(4.0, 2**29, 1000, 5_000_000),
    benchmark_data.Made(1.0, 2**30, 1000, 5_000_000),
    benchmark_data.Made(2.0, 2**29, 1000, 5_000_000),
  ]
  assert benchmark_data.making_row("static", 2, runs) == (
    *("static", "2", "1,000", "2.0", "500", "5 MB", "1.00 GiB"),
  )


def test_speedup_is_the_median_of_rounds_and_not_of_times():
  def runs(*seconds):
    return [benchmark_data.Made(x, 1, 1, 1) for x in seconds]

  line = benchmark_data.speedup("static", runs(4, 9, 30), runs(2, 6, 10))
  assert line == (
    "static: 2 workers are 2.00 times as fast as 1 (median of 3 rounds)"
  )


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
