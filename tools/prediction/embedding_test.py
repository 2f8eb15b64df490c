"""Tests of vectors of a trained model of embeddings, and of its export."""

from __future__ import annotations

import numpy as np
import pytest

import official_albert
from official_albert import checkpoints, files
from official_albert.tools.testing import toy_runs

_TEXTS = ["the sunny sea was cold", "", "Straße é ﬁ½ 😀 old rain"]


@pytest.mark.parametrize(
  "pooling, normalize", [("mean", True), ("cls", False), ("pooler", True)]
)
def test_the_export_and_copies_of_a_run_have_its_vectors(
  tmp_path, pooling, normalize
):
  run, export, own = (str(tmp_path / x) for x in ("run", "1", "own"))
  settings = {"pooling": pooling, "normalize": normalize}
  toy_runs.write_finetuned(run, "text_embedding", None, 9, **settings)
  toy_runs.write_export(export, run)
  files.make_folder(own)
  checkpoints.WRITERS["official_albert"](checkpoints.read_checkpoint(run), own)
  loaded = official_albert.load(run)
  assert loaded.kind == "embedding" and loaded.methods == ("embed",)
  assert vars(loaded.pooling) == settings
  found = loaded.embed(_TEXTS)
  lengths = np.linalg.norm(found, axis=1)
  assert np.allclose(lengths, 1, atol=1e-6) == normalize
  for path in (export, own):
    np.testing.assert_array_equal(
      official_albert.load(path).embed(_TEXTS), found
    )
  # Other poolings are computed from the same weights.
  plain = loaded.embed(_TEXTS, pooling=pooling, normalize=not normalize)
  unit = found / lengths[:, None]
  np.testing.assert_allclose(
    plain / np.linalg.norm(plain, axis=1)[:, None], unit, atol=1e-6
  )
  with pytest.raises(ValueError, match="only has the vectors of single texts"):
    official_albert.load(export).embed(_TEXTS, normalize=not normalize)
  short = loaded.embed(_TEXTS[0], dimensions=5)
  expected = found[0, :5]
  if normalize:
    expected = expected / np.linalg.norm(expected)
  np.testing.assert_allclose(short, expected, rtol=1e-6)
