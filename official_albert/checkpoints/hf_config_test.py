"""Tests of the translation of config.json."""

from __future__ import annotations

import json
import pathlib

import pytest

from official_albert import AlbertConfig, modeling
from official_albert.checkpoints import hf_config

_GOLDEN = pathlib.Path(__file__).parents[1] / "testdata" / "hf_one_group"
_IDS = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}


@pytest.mark.parametrize("name", sorted(modeling.PRESETS))
def test_presets(name):
  config = AlbertConfig.from_preset(name)
  values = hf_config.to_hf(config, "pretraining", (), 0, _IDS)
  assert values["hidden_act"] == (
    "relu" if name.endswith("_zh") else "gelu_new"
  )
  if config.sharing == "all":
    assert hf_config.from_hf(values, "config.json") == config


@pytest.mark.parametrize(
  "theirs, ours",
  [
    ("gelu", "gelu_erf"),
    ("gelu_python", "gelu_erf"),
    ("gelu_new", "gelu"),
    ("gelu_pytorch_tanh", "gelu"),
    ("relu", "relu"),
  ],
)
def test_activations(theirs, ours):
  config = AlbertConfig.from_preset("albert_base_v2")
  values = hf_config.to_hf(config, "none", (), 0, _IDS)
  values["hidden_act"] = theirs
  config = hf_config.from_hf(values, "config.json")
  assert config.hidden_act == ours
  again = hf_config.to_hf(config, "none", (), 0, _IDS)["hidden_act"]
  assert again == {"gelu_python": "gelu", "gelu_pytorch_tanh": "gelu_new"}.get(
    theirs, theirs
  )


def test_golden_settings():
  for head in ("pretraining", "squad1", "classification"):
    folder = {
      "squad1": "question_answering",
      "classification": "sequence_classification",
    }.get(head, head)
    values = hf_config.read(str(_GOLDEN / folder))
    assert hf_config.head_of(values) == head
    config = hf_config.from_hf(values, "config.json")
    assert config.hidden_act == "gelu" and config.intermediate_size == 72
    written = hf_config.to_hf(config, head, (), 3, _IDS)
    for key, value in values.items():
      # The version of transformers, and settings of fine-tuning.
      if key not in (
        "transformers_version",
        "dtype",
        "classifier_dropout_prob",
      ):
        assert written[key] == value, key


def test_labels_and_regression():
  config = AlbertConfig.from_preset("albert_base_v2")
  values = hf_config.to_hf(config, "classification", ("no", "yes"), 2, _IDS)
  assert values["id2label"] == {"0": "no", "1": "yes"}
  assert values["label2id"] == {"no": 0, "yes": 1}
  assert hf_config.labels_of(values) == ("no", "yes")
  values = hf_config.to_hf(config, "regression", (), 1, _IDS)
  assert values["problem_type"] == "regression"
  assert hf_config.head_of(values) == "regression"
  assert hf_config.labels_of(values) == ()
  assert hf_config.head_of({}) == ""


@pytest.mark.parametrize(
  "changes, message",
  [
    ({"hidden_act": "silu"}, "hidden_act 'silu'; supported are gelu, gelu_py"),
    ({"hidden_act": ["relu"]}, "supported are"),
    ({"layer_norm_eps": 1e-5}, "layer_norm_eps 1e-05; only 1e-12"),
    ({"position_embedding_type": "relative_key"}, "only 'absolute'"),
    ({"model_type": "bert"}, "model_type 'bert'"),
    ({"vocab_size": None}, "config.json lacks vocab_size"),
    ({"vocab_size": "30000"}, "config.json: vocab_size must be of type int"),
    (
      {"num_hidden_layers": 18, "num_hidden_groups": 14},
      "Hugging Face rounds layer 9 to group 6",
    ),
  ],
)
def test_unsupported_settings(changes, message):
  values = hf_config.to_hf(
    AlbertConfig.from_preset("albert_base_v2"), "none", (), 0, _IDS
  )
  with pytest.raises(ValueError, match=message):
    hf_config.from_hf({**values, **changes}, "config.json")


@pytest.mark.parametrize(
  "names", ["AlbertModel", 3, {"a": 1}, [1], ["AlbertModel", None], [["a"]]]
)
def test_invalid_architectures(names):
  with pytest.raises(ValueError, match="is not a list of names: write"):
    hf_config.head_of({"architectures": names})


@pytest.mark.parametrize("labels", [None, 1, True, "no", ["no"], {}])
def test_invalid_labels(labels):
  name = hf_config.ARCHITECTURES["classification"]
  values = {"architectures": [name], "id2label": labels}
  assert hf_config.head_of(values) == "classification"
  assert hf_config.labels_of(values) == ()


def test_missing_and_invalid_settings(tmp_path):
  with pytest.raises(FileNotFoundError, match="give the folder of a Hugging"):
    hf_config.read(str(tmp_path))
  (tmp_path / "config.json").write_text('{"vocab')
  with pytest.raises(ValueError, match="is not valid JSON"):
    hf_config.read(str(tmp_path))
  (tmp_path / "config.json").write_text(json.dumps([1]))
  with pytest.raises(ValueError, match="must hold a JSON object"):
    hf_config.read(str(tmp_path))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
