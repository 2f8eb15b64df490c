"""Commands in one process end as they would in processes of their own."""

from __future__ import annotations

import pytest

from official_albert.tools.testing import many_commands


def test_codes_outputs_and_flags_of_each(tmp_path):
  output = f"--output_dir={tmp_path}/d"
  first_help, wrong, unknown, without, last_help = many_commands.run(
    "ensemble",
    [
      ["--help"],
      [f"--members={tmp_path}/a", output],
      ["--members=a,b", "--outputdir=x"],
      # Its folder is not that of the second.
      [f"--members={tmp_path}/a", "--output_dir="],
      ["--help"],
    ],
    codes=(0, 1, 2),
  )
  assert (wrong.code, wrong.out) == (1, "")
  assert wrong.err.startswith("ensemble: error: ") and "/a" in wrong.err
  assert (unknown.code, unknown.out) == (2, "")
  assert "'outputdir'. Did you mean: output_dir;" in unknown.err
  assert without.code == 2 and without.err
  for helped in (first_help, last_help):
    assert (helped.code, helped.err) == (0, "")
    # Of the tool, and neither of this program nor of another.
    assert helped.out.startswith("Averages")
    assert "--members:" in helped.out and "--data_dir:" in helped.out


def test_a_bug_is_raised():
  with pytest.raises(RuntimeError, match="no_such_tool"):
    many_commands.run("no_such_tool", [])
  with pytest.raises(AssertionError, match="'--members=a'"):
    many_commands.run("ensemble", [["--members=a"]])
