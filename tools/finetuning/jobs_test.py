"""What all jobs share: a share of the data, the recipe, tables that fit."""

from __future__ import annotations

import numpy as np
import pytest

from tasks import classification, common
from tools.finetuning import jobs as finetuning_jobs


def options(**changes):
  return finetuning_jobs.Options(
    data_dir="", cache_dir="", tokenizer=None, **changes
  )


class Letters(finetuning_jobs.Job):
  """Counts how often it reads."""

  reads = 0

  def sources(self, split):
    if split == "test":
      raise FileNotFoundError("no test.")
    return []

  def _read(self, split):
    self.reads += 1
    return "abcdefg" if split == "train" else "vwxyz"


def test_examples_are_read_once_and_spread_over_the_data():
  job = Letters(
    classification.Recipe(), options(max_train_examples=3, max_eval_examples=5)
  )
  assert job.examples("train") == ["a", "c", "e"]
  assert job.num_train_examples() == 3
  assert job.examples("dev") == "vwxyz"  # No more than there are.
  assert job.examples("train") == ["a", "c", "e"] and job.reads == 2
  assert (
    Letters(classification.Recipe(), options()).examples("train") == "abcdefg"
  )


def test_only_what_is_missing_is_no_split():
  job = Letters(classification.Recipe(), options())
  assert job.has_split("dev") and not job.has_split("test")


def test_the_recipe_and_what_changes_it():
  job = Letters(classification.Recipe(), options())
  assert job.max_seq_length == classification.Recipe().max_seq_length == 128
  assert (
    Letters(classification.Recipe(), options(max_seq_length=7)).max_seq_length
    == 7
  )
  job = Letters(
    classification.Recipe(), options(recipe={"train_batch_size": 3})
  )
  assert job.recipe.train_batch_size == 3
  with pytest.raises(ValueError, match="--doc_stride says nothing to this"):
    Letters(classification.Recipe(), options(recipe={"doc_stride": 3}))


@pytest.mark.parametrize(
  "name", ["max_seq_length", "max_train_examples", "max_eval_examples"]
)
def test_negative_numbers_are_refused(name):
  with pytest.raises(ValueError, match=f"{name} must not be negative, got -1"):
    options(**{name: -1})


def test_tables_must_be_of_the_examples():
  ids, labels = ("a", "b"), ("no", "yes")
  table = common.ProbabilityTable(ids, labels, np.eye(2))
  finetuning_jobs.check_table("dev", table, labels, ids)
  for said, labels_, ids_, message in (
    (
      table,
      ("yes", "no"),
      ids,
      "have the labels no, yes, but the task has yes",
    ),
    (table, (), ids, "have the labels no, yes, but the task has none"),
    (table, labels, ("a", "c"), "row 2 of the predictions of dev is of b, but"),
    (table, labels, ("a",), "row 2 .* is of b, but the data has nothing there"),
    (table, labels, (*ids, "c"), "row 3 .* is of nothing, but the data has c"),
    ({"q": None}, labels, ids, "are answers to SQuAD's questions"),
  ):
    with pytest.raises(ValueError, match=message):
      finetuning_jobs.check_table("dev", said, labels_, ids_)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
