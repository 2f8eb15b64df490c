"""Tests of the program: averages on disk, and members that don't fit."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from official_albert import probability_table
from tools import ensemble

ROOT = pathlib.Path(__file__).parents[1]
DEV, TEST = (f"{split}{probability_table.SUFFIX}" for split in ("dev", "test"))


def write(folder, values, name=DEV, labels=("no", "yes")):
  folder.mkdir(exist_ok=True)
  ids = tuple(f"e{i}" for i in range(len(values)))
  table = probability_table.ProbabilityTable(ids, labels, np.array(values))
  probability_table.write(str(folder / name), table)


def run(*arguments):
  program = (
    "import sys; from tools import command_line, ensemble\n"
    "def main(argv):\n"
    "  ensemble.main(argv)\n"
    "  assert 'tensorflow' not in sys.modules\n"
    "command_line.run(main)"
  )
  return subprocess.run(
    [sys.executable, "-c", program, *arguments],
    cwd=ROOT,
    capture_output=True,
    text=True,
  )


def test_each_split_is_averaged_without_tensorflow(tmp_path):
  for name, share in (("s1", 0.25), ("s2", 0.5), ("s3", 0.0)):
    write(tmp_path / name, [[share, 1 - share], [0.75, 0.25]])
    write(tmp_path / name, [share * 8, -1.5], TEST, labels=())
  output = tmp_path / "new" / "all"
  arguments = (f"--members={tmp_path}/s?", f"--output_dir={output}")
  result = run(*arguments)
  assert (result.returncode, result.stderr) == (0, "")
  assert f"wrote {output / DEV} (2 examples)\n" in result.stdout
  assert sorted(os.listdir(output)) == [DEV, TEST]
  assert (output / DEV).read_text() == (
    "id\tprediction\tno\tyes\ne0\tyes\t0.25\t0.75\ne1\tno\t0.75\t0.25\n"
  )
  assert (output / TEST).read_text() == "id\tprediction\ne0\t2\ne1\t-1.5\n"
  first = (output / DEV).read_bytes()
  assert run(*arguments).returncode == 0  # A second time, over the first.
  assert (output / DEV).read_bytes() == first


def test_a_wrong_command_is_one_sentence_and_writes_nothing(tmp_path):
  write(tmp_path / "a", [[1, 0]])
  write(tmp_path / "b", [[1, 0], [0, 1]])
  a, b, output = (tmp_path / name for name in ("a", "b", "out"))
  for members, target, message in (
    (f"{a},{b}", output, f"{b / DEV} and {a / DEV} cannot be averaged: one ha"),
    (f"{a}", output, "--members names 1 folder(s): an ensemble has two"),
    (f"{a},{tmp_path / 'c'}", output, "--members: there is no folder '"),
    (f"{a},{b}", f"{b}/../a", f"--output_dir {b}/../a is a member, whose pr"),
  ):
    result = run(f"--members={members}", f"--output_dir={target}")
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1 and message in result.stderr
    assert not output.exists()
  assert os.listdir(a) == [DEV]


def test_flags_are_required():
  result = subprocess.run(
    [sys.executable, "-m", "tools.ensemble"],
    cwd=ROOT,
    capture_output=True,
    text=True,
  )
  assert result.returncode != 0 and "--members" in result.stderr


def test_members_without_tables_have_no_averages(tmp_path):
  assert ensemble.average_tables([str(tmp_path)]) == {}


def test_a_split_that_one_member_lacks_is_named(tmp_path):
  a, b = tmp_path / "a", tmp_path / "b"
  write(a, [[1, 0]])
  write(b, [[1, 0]])
  write(b, [[1, 0]], TEST)
  with pytest.raises(ValueError, match=f"{a} has no {TEST}, but {b} has"):
    ensemble.average_tables([str(a), str(b)])


def test_members_are_found_in_order_and_counted_once(tmp_path):
  for name in ("m2", "m1", "other"):
    (tmp_path / name).mkdir()
  (tmp_path / "m3.txt").write_text("")
  found = ensemble.find_members(f"{tmp_path}/other, {tmp_path}/m*,")
  assert found == [str(tmp_path / name) for name in ("other", "m1", "m2")]
  with pytest.raises(ValueError, match="is .*m1 again, and would count twice"):
    ensemble.find_members(f"{tmp_path}/m1,{tmp_path}/other/../m1")


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
