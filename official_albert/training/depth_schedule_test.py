"""Tests of the schedule's text: borders by hand, what is refused."""

from __future__ import annotations

import ast
import pathlib

import pytest

from official_albert.training import depth_schedule


def test_the_paper_like_schedule():
  stretches = depth_schedule.parse_depth_schedule("3:0.5,6:0.25,12:0.25", 1000)
  assert stretches == ((3, 500), (6, 250), (12, 250))
  assert stretches[1].num_layers == 6 and stretches[1].steps == 250


def test_borders_are_of_the_sum_so_that_steps_add_up():
  # Borders at 2.333 and 4.667, then the end.
  stretches = depth_schedule.parse_depth_schedule("2:1/3,5:1/3,3:1/3", 7)
  assert stretches == ((2, 2), (5, 3), (3, 2))
  for steps in range(3, 50):
    parts = depth_schedule.parse_depth_schedule(
      "2:0.333,4:0.333,8:0.333", steps
    )
    assert sum(part.steps for part in parts) == steps


def test_shares_are_read_exactly():
  # In floats, 0.1 + 0.2 is more than 0.3.
  text = "1:0.1,2:0.2,3:0.7"
  assert depth_schedule.parse_depth_schedule(text, 10) == (
    (1, 1),
    (2, 2),
    (3, 7),
  )


def test_one_stretch_is_the_whole_run():
  assert depth_schedule.parse_depth_schedule("12:1", 9) == ((12, 9),)


@pytest.mark.parametrize(
  "schedule, message",
  [
    ("", "has to be DEPTH:SHARE"),
    ("3", "has the part '3'"),
    ("3:0.5:1,6:0.5", "has the part '3:0.5:1'"),
    ("x:1", "has the part 'x:1'"),
    ("3:1/0", "has the part '3:1/0'"),
    ("3:half,6:0.5", "has the part '3:half'"),
    ("3:0.5,", "has the part ''"),
    ("0:0.5,6:0.5", "a depth is at least 1"),
    ("3:-0.5,6:1.5", "a share more than 0"),
    ("3:0,6:1", "a share more than 0"),
    ("3:0.5,6:0.4", "add up to 0.9, but have to add up to 1"),
    ("3:0.5,6:0.6", "add up to 1.1, but have to add up to 1"),
    ("3:0.01,6:0.99", "gives depth 3 less than one of 20 steps"),
    ("3:0.99,6:0.01", "gives depth 6 less than one of 20 steps"),
  ],
)
def test_what_is_no_schedule_is_refused(schedule, message):
  with pytest.raises(ValueError, match="depth schedule .*" + message) as error:
    depth_schedule.parse_depth_schedule(schedule, 20)
  assert "\n" not in str(error.value)


def test_depths_to_draw_from():
  assert depth_schedule.parse_depths("3,6,12") == (3, 6, 12)
  assert depth_schedule.parse_depths("5,5,2") == (5, 5, 2)
  for text in ("", "3,", "0,6", "3;6", "-2"):
    with pytest.raises(ValueError, match="whole numbers from 1 on"):
      depth_schedule.parse_depths(text)


def test_it_needs_the_standard_library_only():
  tree = ast.parse(pathlib.Path(depth_schedule.__file__).read_text())
  modules = {
    node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
    for node in ast.walk(tree)
    if isinstance(node, (ast.Import, ast.ImportFrom))
  }
  assert modules == {"__future__", "fractions", "typing"}


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
