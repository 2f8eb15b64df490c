"""The toys have the signatures that they say, and add up their weights."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from official_albert import tokenization
from tools import prediction
from tools.testing import prediction_toy_models as toys


def test_text_and_ids_agree_with_the_table(tmp_path):
  folder = tmp_path / "toy"
  toy = toys.write(str(folder))
  loaded = tf.saved_model.load(str(folder))
  tokenizer = tokenization.open_tokenizer(
    str(folder / "assets" / "tokenizer.model")
  )
  texts = ["the old tree", "a cold dark day by the sea " * 3]
  said = loaded.signatures["serving_default"](tf.constant(texts))
  for row, text in enumerate(texts):
    ids = [2, *tokenizer.encode(text)[: toys.MAX_SEQ_LENGTH - 2], 3]
    logits = toy.table.numpy()[ids].sum(0)
    np.testing.assert_allclose(said["logits"][row], logits, rtol=1e-5)
    assert said["label"].numpy()[row].decode() == toys.LABELS[logits.argmax()]
  export = prediction.saved_model.read_export(str(folder))
  assert export.signatures == ("ids", "classify")
  assert export.default_signature == "classify"
  assert export.tokenizer_file == f"{folder}/assets/tokenizer.model"
  with pytest.raises(tf.errors.InvalidArgumentError, match="outside of 0 to"):
    bad = tf.constant([[2, 99, 3]])
    loaded.signatures["ids"](input_ids=bad, input_mask=bad, segment_ids=bad)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
