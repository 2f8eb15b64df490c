"""Tests of the pages: TF Hub's format, and nothing that is not known."""

from __future__ import annotations

import re

import pytest

from official_albert import AlbertConfig, checkpoints
from tools.hub import handle as hub_handle
from tools.hub import metrics as hub_metrics
from tools.hub import page as hub_page
from tools.hub import sources as hub_sources


class _Model:
  config = AlbertConfig(
    vocab_size=1097,
    embedding_size=6,
    hidden_size=12,
    num_hidden_layers=5,
    num_attention_heads=3,
    intermediate_size=14,
    max_position_embeddings=33,
    hidden_dropout_prob=0.125,
  )


class _TextLayer:
  vocab_size = 1095


def _source(**changes):
  values = dict(
    path="run",
    kind="official_albert",
    step=7000,
    model=_Model(),
    heads=("masked_lm", "sentence_order"),
    tokenizer=checkpoints.TokenizerFile("x", "sentencepiece", False),
    text_layer=_TextLayer(),
    data={"max_seq_length": 31},
    measured=hub_metrics.Measured(
      "held-out data", "metrics.jsonl", {"masked_lm_loss": 4.56097}
    ),
    notes=(),
  )
  return hub_sources.Source(**{**values, **changes})


def _publication(**changes):
  values = dict(
    publisher="my-team",
    name="albert_en",
    version=2,
    license="mit",
    language="en",
    asset_root="https://example.org/hub",
  )
  return hub_handle.Publication(**{**values, **changes})


def _tags(page):
  """As tools/validator.py of tensorflow/tfhub.dev reads a page."""
  first, description, empty, *lines = page.split("\n")
  assert re.fullmatch(r"# Module [a-z\d-]+/[\w./-]+/\d+", first)
  assert description and not description.startswith("<") and not empty
  tags = {}
  for line in lines:
    match = re.match(r"^<!--(?P<key>(\w|\s|-)+):(?P<value>.+)-->$", line)
    if not match:
      break
    assert match["key"].strip() not in tags
    tags[match["key"].strip()] = match["value"].strip()
  required = {"asset-path", "task", "fine-tunable", "format"}
  optional = {"language", "license", "network-architecture"}
  assert required <= set(tags) <= required | optional
  return first, description, tags


def test_the_head_of_both_pages():
  first, description, tags = _tags(
    hub_page.encoder_page(_publication(), _source())
  )
  assert first == "# Module my-team/albert_en/2"
  assert description == "ALBERT encoder, L=5, H=12, A=3, E=6."
  assert tags == {
    "asset-path": "https://example.org/hub/albert_en/2.tar.gz",
    "task": "text-embedding",
    "fine-tunable": "true",
    "format": "saved_model_2",
    "language": "en",
    "license": "mit",
    "network-architecture": "transformer",
  }
  first, description, tags = _tags(
    hub_page.preprocessor_page(_publication(), _source(), 128)
  )
  assert first == "# Module my-team/albert_en_preprocess/2"
  assert description == "Text preprocessing for albert_en."
  assert tags["task"] == "text-preprocessing"
  assert tags["fine-tunable"] == "false"
  assert tags["asset-path"].endswith("hub/albert_en_preprocess/2.tar.gz")


def test_what_is_known_is_said():
  page = hub_page.encoder_page(_publication(description="Mine."), _source())
  assert _tags(page)[1] == "Mine."
  for row in (
    "| layers L | 5 |",
    "| pieces in the vocabulary | 1,097 |",
    f"| parameters of the encoder | {_Model.config.parameter_count():,} |",
    "| dropout of hidden states, while training | 0.125 |",
    "| training steps | 7,000 |",
    "| longest sequence in training | 31 |",
    "| masked_lm_loss | 4.561 |",
    "| `encoder_outputs` | a list of 5, the last is `sequence_output` |",
  ):
    assert f"\n{row}\n" in page
  assert "Held-out data (`metrics.jsonl` of the run):" in page
  sections = re.findall(r"^## (.*)", page, re.MULTILINE)
  assert sections == ["Overview", "Usage", "Assets", "Metrics", "Licence"]
  assert "`mlm_logits`, `[batch, predictions, 1097]`" in page
  assert "`sop_logits`" in page and "tokenizer.model" in page
  assert "$" not in page


def test_what_is_not_known_is_not_said():
  page = hub_page.encoder_page(
    _publication(language="", asset_root=""),
    _source(measured=None, heads=(), step=0, data={"head": "none"}, kind="hf"),
  )
  assert "\n## Metrics\n\nNot measured.\n" in page
  assert "there is no `mlm` and no `sop`" in page
  assert "training steps" not in page and "language" not in page
  assert _tags(page)[2]["asset-path"] == "albert_en/2.tar.gz"
  alone = hub_page.encoder_page(_publication(), _source(heads=("masked_lm",)))
  assert "Load it by" in alone and "`sop" not in alone


def test_a_preprocessor_of_word_pieces():
  tokenizer = checkpoints.TokenizerFile("x", "wordpiece", True)
  page = hub_page.preprocessor_page(
    _publication(), _source(tokenizer=tokenizer), 33
  )
  assert "`[batch, (words), (tokens)]`" in page and "vocab.txt" in page
  assert "a WordPiece vocabulary of 1,095" in page and "lower-cased" in page
  assert "# seq_length 33" in page
  cased = hub_page.preprocessor_page(_publication(), _source(), 33)
  assert "left in its case" in cased and "`[batch, (tokens)]`" in cased


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
