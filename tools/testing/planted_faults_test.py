"""The list of planted faults, and the program that plants them."""

from __future__ import annotations

import shutil

import pytest

from official_albert.tools.testing import planted_faults


@pytest.mark.parametrize(
  "fault", planted_faults.read_faults(), ids=lambda x: f"{x.file}: {x.old}"
)
def test_each_fault_can_be_planted(tmp_path, fault):
  path = tmp_path / fault.file
  path.parent.mkdir(parents=True)
  shutil.copy(planted_faults.ROOT / fault.file, path)
  assert fault.plant(tmp_path) != path.read_text("utf-8")
  compile(path.read_text("utf-8"), fault.file, "exec")


def test_the_test_that_fails_is_named(tmp_path):
  (tmp_path / "a.py").write_text("def double(x):\n  return 2 * x\n")
  (tmp_path / "a_test.py").write_text(
    "import a\ndef test_double():\n  assert a.double(2) == 4\n"
  )

  def caught(new: str) -> str:
    fault = planted_faults.Fault("a.py", "2 * x", new)
    return planted_faults.catch(fault, tmp_path)

  assert caught("3 * x") == "a_test.py::test_double"
  assert caught("x ** 2") == ""
  assert caught("(") == "a_test.py"
  assert "2 * x" in (tmp_path / "a.py").read_text()
  with pytest.raises(ValueError, match="a.py has 'return y' 0 times"):
    planted_faults.Fault("a.py", "return y", "").plant(tmp_path)


def test_tests_are_run_from_near_to_far():
  fault = planted_faults.Fault("official_albert/modeling/layers.py", "", "")
  near, *beside, far = fault.tests(planted_faults.ROOT)
  assert near == "official_albert/modeling/layers_test.py"
  assert "official_albert/modeling/model_test.py" in beside
  assert far == "tasks/pretraining/model_test.py"
