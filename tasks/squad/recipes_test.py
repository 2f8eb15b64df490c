"""Tests of the recipes against table 14 and the decoder's defaults."""

from __future__ import annotations

import pytest

from tasks.squad import decoding, recipes


@pytest.mark.parametrize(
  "name, row",
  [
    # Learning rate, batch, dropouts, steps, warm-up, length.
    ("squad_v1", (5e-5, 48, 0.0, 0.1, 3649, 365, 384)),
    ("squad_v2", (3e-5, 48, 0.0, 0.1, 8144, 814, 512)),
  ],
)
def test_table_14(name, row):
  recipe = recipes.RECIPES[name]
  assert row == (
    recipe.learning_rate,
    recipe.train_batch_size,
    recipe.albert_dropout,
    recipe.classifier_dropout,
    recipe.num_train_steps,
    recipe.num_warmup_steps,
    recipe.max_seq_length,
  )


@pytest.mark.parametrize("name", ["squad_v1", "squad_v2"])
def test_windows_and_decoding(name):
  recipe = recipes.RECIPES[name]
  assert (recipe.doc_stride, recipe.max_query_length) == (128, 64)
  assert (recipe.start_n_top, recipe.end_n_top) == (5, 5)
  assert recipe.n_best_size == decoding.N_BEST_SIZE == 20
  assert recipe.max_answer_length == decoding.MAX_ANSWER_LENGTH == 30


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
