"""Plants faults in the sources, one at a time, and looks for tests that fail.

    python -m tools.testing.planted_faults > planted_faults.md
    python -m tools.testing.planted_faults modeling squad

Each line of planted_faults.jsonl has a `file`, an `old` text that is in it
once, and the `new` text: a sign, an axis, a seed that is not used. Arguments
select the faults whose files have one of them in their path.

The faults are planted in a copy of the sources in git's index (`git add` what
is new). The test module of the file runs first, then those beside it, then
those of `_FARTHER`. A fault that no test catches is an error: write the test
that it lacks.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from typing import Sequence

from official_albert import files
from official_albert.tools.cli import command_line

MAX_ARGUMENTS = 99  # Parts of paths.
ROOT = pathlib.Path(__file__).resolve().parents[2]
FAULTS = pathlib.Path(__file__).with_name("planted_faults.jsonl")
# Tests of a folder's files in other folders.
_FARTHER = {
  "official_albert": ["official_albert/modeling"],
  "official_albert/modeling": ["tasks/pretraining/model_test.py"],
  "official_albert/tokenization": ["official_albert/tokenization/in_graph"],
  "tfrecords": ["tasks/pretraining/task_test.py"],
}
_SECONDS = 1800  # Tests that take longer have failed.
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Fault:
  """A text of a file, and the wrong text in its place."""

  file: str
  old: str
  new: str

  def plant(self, root: pathlib.Path) -> str:
    """Changes the file below `root`; returns its content before."""
    content = (root / self.file).read_text("utf-8")
    if content.count(self.old) != 1:
      raise ValueError(
        f"{self.file} has {files.quote(self.old)} {content.count(self.old)} "
        f"times, not once: correct the fault in {FAULTS.name}."
      )
    changed = content.replace(self.old, self.new)
    (root / self.file).write_text(changed, "utf-8")
    return content

  def tests(self, root: pathlib.Path) -> list[str]:
    """Returns the tests to run, the nearest first."""
    folder, own = os.path.dirname(self.file), self.file[:-3] + "_test.py"
    beside = [
      os.path.join(folder, path.name)
      for path in sorted((root / folder).glob("*_test.py"))
    ]
    return sorted(beside, key=own.__ne__) + _FARTHER.get(folder, [])


def read_faults(parts: Sequence[str] = ("",)) -> list[Fault]:
  """Returns the faults whose paths have one of the parts."""
  lines = FAULTS.read_text("utf-8").splitlines()
  faults = [
    files.parse_json(line, FAULTS.name, Fault, "correct the line")
    for line in lines
  ]
  return [x for x in faults if any(part in x.file for part in parts)]


def catch(fault: Fault, root: pathlib.Path) -> str:
  """Plants a fault below `root`; returns the test that fails, or ""."""
  content = fault.plant(root)
  try:
    failed = _first_failure(fault.tests(root), root)
  finally:
    (root / fault.file).write_text(content, "utf-8")
  if failed and _first_failure([failed], root):
    raise ValueError(f"{failed} fails without a fault: mend that first.")
  return failed


def _first_failure(tests: Sequence[str], root: pathlib.Path) -> str:
  """Returns the first test that fails, or "".

  If the tests cannot be read or take too long, that is their first file.
  """
  try:
    found = subprocess.run(
      [sys.executable, "-m", "pytest", "--quiet", "--exitfirst", *tests],
      cwd=root,
      # Compiled code of a fault would outlive it within a second.
      env={
        **os.environ,
        "PYTHONPATH": str(root),
        "PYTHONDONTWRITEBYTECODE": "1",
      },
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
      timeout=_SECONDS,
    )
  except subprocess.TimeoutExpired:
    return tests[0]
  failed = _FAILED.search(found.stdout)
  return failed[1] if failed else tests[0] if found.returncode else ""


def main(argv: Sequence[str]) -> None:
  faults = read_faults(argv[1:] or [""])
  if not faults:
    raise ValueError("no fault is in such a file: give a part of its path.")
  missed = 0
  print("| file | text | planted | caught by |\n|---|---|---|---|")
  with tempfile.TemporaryDirectory(prefix="planted-") as folder:
    root = pathlib.Path(folder) / "tree"
    copy = ["git", "checkout-index", "--all", f"--prefix={root}/"]
    subprocess.run(copy, cwd=ROOT, check=True)
    if (ROOT.parent / "shared").exists():  # Some tests read more there.
      (root.parent / "shared").symlink_to(ROOT.parent / "shared")
    for fault in faults:
      test = catch(fault, root)
      missed += not test
      cells = [fault.file, _code(fault.old), _code(fault.new), test or "none"]
      print(f"| {' | '.join(cells)} |", flush=True)
  if missed:
    raise ValueError(
      f"no test caught {missed} of {len(faults)} faults: write the tests."
    )


def _code(text: str) -> str:
  """Returns a text on one line as code in a table."""
  line = " ".join(text.split()).replace("|", "\\|")
  return f"`{line}`" if line else "nothing"


if __name__ == "__main__":
  command_line.run(main)
