"""Reads the real files of GLUE, if they are available."""

from __future__ import annotations

import collections
import pathlib

import pytest

from tasks.classification.glue import benchmark, examples

_REAL = pathlib.Path(__file__).resolve().parents[4] / "shared/data/glue"

# Rows, and how many of them have the first label, of the official files or of
# the parts of them that are available.
_REAL_ROWS = {
  ("cola", "train"): (8551, 2528),
  ("cola", "dev"): (1043, 322),
  ("cola", "test"): (1063, None),
  ("sst2", "train"): (67349, 29780),
  ("sst2", "dev"): (872, 428),
  ("sst2", "test"): (1821, None),
  ("mrpc", "train"): (3668, 1194),
  ("mrpc", "dev"): (408, 129),
  ("mrpc", "test"): (1725, None),
  ("stsb", "train"): (5749, None),
  ("stsb", "dev"): (1500, None),
  ("stsb", "test"): (1379, None),
  ("qqp", "train"): (20000, 12577),
  ("qqp", "dev"): (3496, 2172),
  ("qqp", "test"): (1000, None),
  ("mnli", "train"): (9888, 3349),
  ("mnli", "dev_matched"): (9815, 3213),
  ("mnli", "dev_mismatched"): (1000, 335),
  ("mnli", "ax"): (1104, None),
  ("qnli", "train"): (4000, 1991),
  ("qnli", "dev"): (1463, 711),
  ("qnli", "test"): (5463, None),
  ("rte", "train"): (2490, 1249),
  ("rte", "dev"): (277, 146),
  ("rte", "test"): (3000, None),
  ("wnli", "train"): (635, 323),
  ("wnli", "dev"): (71, 40),
  ("wnli", "test"): (146, None),
}


@pytest.mark.heavy
@pytest.mark.skipif(not _REAL.is_dir(), reason="no GLUE files beside the code")
@pytest.mark.parametrize("name, split", list(_REAL_ROWS))
def test_real_files(name, split):
  task = benchmark.GLUE_TASKS[name]
  found = examples.read_split(str(_REAL), task, split)
  rows, first_label = _REAL_ROWS[name, split]
  assert len(found.examples) == rows
  assert found.skipped_lines == ()
  counts = collections.Counter(e.label for e in found.examples)
  if first_label is not None:
    assert counts[task.labels[0]] == first_label
  elif split in task.test_splits:
    assert counts == {None: rows}
  assert len({example.guid for example in found.examples}) == rows
  for example in found.examples:
    assert example.text_a.strip()
    assert (example.text_b is not None) == (name not in ("cola", "sst2"))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
