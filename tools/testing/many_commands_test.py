"""Commands in one process end as they would in processes of their own."""

from __future__ import annotations

import numpy as np
import pytest

from official_albert.tasks import common
from official_albert.tools.testing import many_commands


def test_codes_outputs_and_flags_of_each(tmp_path):
  for name in ("a", "b"):
    (tmp_path / name).mkdir()
    table = common.ProbabilityTable(("x",), (), np.array([1.5]))
    common.write_probabilities(
      str(tmp_path / name / f"dev{common.PROBABILITIES_SUFFIX}"), table
    )
  members = f"--members={tmp_path}/a,{tmp_path}/b"
  first_help, fine, wrong, unknown, without, last_help = many_commands.run(
    "ensemble",
    [
      ["--help"],
      [members, f"--output_dir={tmp_path}/c"],
      [f"--members={tmp_path}/a", f"--output_dir={tmp_path}/d"],
      [members, "--outputdir=x"],
      # Its output_dir is not that of the first.
      [members, "--output_dir="],
      ["--help"],
    ],
  )
  assert fine.code == 0 and fine.err == ""
  assert fine.out.startswith("averaging 2 members")
  assert (wrong.code, wrong.out) == (1, "")
  assert wrong.err.startswith("ensemble: error: --members are ")
  assert (unknown.code, unknown.out) == (2, "")
  assert "'outputdir'. Did you mean: output_dir;" in unknown.err
  for helped in (first_help, last_help):
    assert (helped.code, helped.err) == (0, "")
    # Of the tool, and neither of this program nor of another.
    assert helped.out.startswith("Averages")
    assert "--members:" in helped.out and "--data_dir:" in helped.out
  assert without.code == 1
  assert (tmp_path / "c").exists() and not (tmp_path / "d").exists()


def test_a_bug_is_raised():
  with pytest.raises(RuntimeError, match="no_such_tool"):
    many_commands.run("no_such_tool", [])
