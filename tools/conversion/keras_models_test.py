"""Runs models of transformers' TensorFlow classes, KerasHub, Model Garden.

Each environment is a folder or a link in PEERS_DIR:

    official_albert_tf_transformers  tensorflow 2.15, tf_keras, transformers 4
    official_albert_keras_hub        keras-hub 0.32
    official_albert_model_garden     tensorflow and tf-models-official 2.15
"""

from __future__ import annotations

import json
import os
import subprocess

import numpy as np
import pytest

from official_albert import checkpoints
from official_albert.testing import toy_models, toy_vocabulary
from official_albert.tools.conversion import conversion

pytestmark = pytest.mark.heavy


def _check(python, program, head, settings, tmp_path, **options):
  """Compares the outputs of a program's model with ours, in float32."""
  folder, batch_file = str(tmp_path / "model"), str(tmp_path / "batch.npz")
  outputs = str(tmp_path / "outputs.npz")
  rng = np.random.default_rng(4)
  shape = (3, 2, 11) if head == "multiple_choice" else (3, 11)
  mask = np.ones(shape, np.int32)
  mask[-1, ..., 8:] = 0
  batch = {
    "input_ids": rng.integers(0, 97, shape, np.int32),
    "input_mask": mask,
    "segment_ids": np.sort(rng.integers(0, 2, shape, np.int32)),
  }
  np.savez(batch_file, **batch)
  legacy = str(int("keras_hub" not in python))
  keras = {"TF_USE_LEGACY_KERAS": legacy, "KERAS_BACKEND": "tensorflow"}
  command = [python, "-c", program, folder, batch_file, outputs]
  command.append(json.dumps(settings))
  done = subprocess.run(
    command, capture_output=True, text=True, env={**os.environ, **keras}
  )
  assert not done.returncode, done.stderr[-2000:]
  read = checkpoints.read_checkpoint(folder, **options)
  assert read.head == head and not read.unexpected
  # transformers saves no problem_type, which a pipeline would need.
  assert len(read.notes) == (head == "regression")
  assert all("problem_type" in note for note in read.notes)
  positions = np.tile(np.arange(11, dtype=np.int32), [3, 1])
  batch["masked_lm_positions"] = positions
  ours = dict(conversion.own_outputs(read, batch))
  with np.load(outputs) as expected:
    assert expected.files
    for name in expected.files:
      found = np.asarray(ours[name])
      assert np.std(expected[name]) > 1e-3, name
      error = np.abs(found - expected[name]).max()
      print(f"{head} {name} {error:.1e}")
      assert error < 1e-5, name
  # All formats have it.
  ours = str(tmp_path / "ours")
  conversion.convert("official_albert", folder, ours, **options)
  return read


# Random biases too, and different numbers of groups.
_TF = """
import json, sys
import numpy as np, transformers
folder, batch_file, outputs, settings = sys.argv[1:]
settings = json.loads(settings)
name = settings.pop("class")
config = transformers.AlbertConfig(
  vocab_size=97, embedding_size=16, hidden_size=24, num_attention_heads=3,
  num_hidden_layers=4, intermediate_size=40, max_position_embeddings=37,
  **settings)
model = getattr(transformers, name)(config)
batch = dict(np.load(batch_file))
inputs = dict(
  input_ids=batch["input_ids"], attention_mask=batch["input_mask"],
  token_type_ids=batch["segment_ids"])
model(inputs)
rng = np.random.default_rng(5)
for v in model.weights:
  v.assign_add(0.2 * rng.standard_normal(v.shape).astype(np.float32))
found = model(inputs)
names = dict(
  last_hidden_state="sequence_output", pooler_output="pooled_output",
  prediction_logits="masked_lm_logits", sop_logits="sentence_order_logits")
if name == "TFAlbertForMaskedLM":
  names["logits"] = "masked_lm_logits"
np.savez(outputs, **{names.get(k, k): v.numpy() for k, v in found.items()})
model.save_pretrained(folder)
"""


@pytest.mark.parametrize(
  "name, head, settings",
  [
    ("Model", "none", {}),
    ("ForPreTraining", "pretraining", {"num_hidden_groups": 2}),
    ("ForMaskedLM", "masked_lm", {}),
    ("ForSequenceClassification", "classification", {"num_labels": 3}),
    ("ForSequenceClassification", "regression", {"num_labels": 1}),
    ("ForQuestionAnswering", "squad1", {"inner_group_num": 2}),
    ("ForMultipleChoice", "multiple_choice", {}),
    ("ForTokenClassification", "token_classification", {"num_labels": 3}),
  ],
)
def test_models_of_tensorflow_in_transformers(
  name, head, settings, tmp_path, peer_python
):
  settings = {"class": f"TFAlbert{name}", **settings}
  _check(peer_python("tf_transformers"), _TF, head, settings, tmp_path)


_KERAS_HUB = """
import json, sys
import keras_hub, numpy as np
folder, batch_file, outputs, settings = sys.argv[1:]
model = keras_hub.models.AlbertBackbone(
  vocabulary_size=97, num_layers=4, num_heads=3, hidden_dim=24,
  embedding_dim=16, intermediate_dim=40, max_sequence_length=37,
  **json.loads(settings))
rng = np.random.default_rng(5)
for v in model.weights:
  v.assign(v + 0.2 * rng.standard_normal(v.shape).astype(np.float32))
batch = np.load(batch_file)
found = model(dict(
  token_ids=batch["input_ids"], padding_mask=batch["input_mask"],
  segment_ids=batch["segment_ids"]))
np.savez(outputs, **{k: np.asarray(v) for k, v in found.items()})
model.save_to_preset(folder)
"""


@pytest.mark.parametrize(
  "settings", [{}, {"num_groups": 2, "num_inner_repetitions": 2}]
)
def test_presets_of_keras_hub(settings, tmp_path, peer_python):
  _check(peer_python("keras_hub"), _KERAS_HUB, "none", settings, tmp_path)


_MODEL_GARDEN = """
import sys
import numpy as np, tensorflow as tf
from official.nlp.configs import encoders
from official.nlp.tools import export_tfhub_lib
folder, batch_file, outputs, settings = sys.argv[1:]
config = encoders.EncoderConfig(type="albert")
values = dict(
  vocab_size=97, embedding_width=16, hidden_size=24, num_layers=4,
  num_attention_heads=3, intermediate_size=40, max_position_embeddings=37,
  type_vocab_size=2)
for name, value in values.items():
  setattr(config.albert, name, value)
core, pretrainer = export_tfhub_lib._create_model(
  encoder_config=config, with_mlm=True)
rng = np.random.default_rng(5)
for v in pretrainer.weights:
  v.assign_add(0.2 * rng.standard_normal(v.shape).astype(np.float32))
path = tf.train.Checkpoint(**pretrainer.checkpoint_items).save(folder + "-ck")
export_tfhub_lib.export_model(
  folder, encoder_config=config, model_checkpoint_path=path, with_mlm=True,
  sp_model_file=outputs + ".model")
batch = np.load(batch_file)
positions = np.tile(np.arange(11, dtype=np.int32), [3, 1])
found = tf.saved_model.load(folder).mlm(dict(
  input_word_ids=batch["input_ids"], input_mask=batch["input_mask"],
  input_type_ids=batch["segment_ids"], masked_lm_positions=positions))
np.savez(outputs, masked_lm_logits=found["mlm_logits"].numpy(),
         sequence_output=found["sequence_output"].numpy())
"""


def test_tf2_modules_of_the_model_garden(tmp_path, peer_python):
  config = toy_models.config(
    97,
    37,
    num_hidden_layers=4,
    num_attention_heads=3,
    hidden_size=24,
    embedding_size=16,
    intermediate_size=40,
  )
  path = str(tmp_path / "albert_config.json")
  config.to_json_file(path)
  python = peer_python("model_garden")
  vocabulary = toy_vocabulary.numbers(97)
  (tmp_path / "outputs.npz.model").write_bytes(vocabulary)
  _check(python, _MODEL_GARDEN, "masked_lm", {}, tmp_path, config_file=path)
