"""Tests of jobs.py."""

from __future__ import annotations

import pytest

from tools.experiments import jobs, scales

_TINY = scales.SCALES["tiny"]


@pytest.fixture
def place(tmp_path) -> jobs.Place:
  return jobs.Place(str(tmp_path), "a.txt,b.txt", "c.txt", {"RACE": "race"})


def test_additional_text_comes_last(place):
  arguments = jobs.records(place, _TINY, "nsp", True).arguments({})
  assert arguments[0] == "tools.create_pretraining_data"
  assert "--input_files=a.txt,b.txt,c.txt" in arguments
  assert "--sentence_pair=nsp" in arguments
  assert f"--output_dir={place.path('data/records-nsp-more')}" in arguments


def test_the_name_of_a_model_is_part_of_those_of_its_jobs():
  assert jobs.name_of("models/A/seed_1") == "A-seed_1"


def test_flags():
  values = {"a": 3, "b": True, "c": False, "d": "x,y"}
  assert jobs.as_flags(values) == ["--a=3", "--b", "--noc", "--d=x,y"]


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
