"""Tests of handles and pages: TF Hub's format, and only known facts."""

from __future__ import annotations

import re
import types

import pytest

from official_albert import AlbertConfig, checkpoints
from tools.hub import handle as hub_handle
from tools.hub import page as hub_page
from tools.hub import sources as hub_sources

_CONFIG = AlbertConfig(
  vocab_size=1097,
  embedding_size=6,
  hidden_size=12,
  num_hidden_layers=5,
  num_attention_heads=3,
  intermediate_size=14,
  max_position_embeddings=33,
  hidden_dropout_prob=0.125,
)


def _source(**changes):
  values = dict(
    path="run",
    kind="official_albert",
    step=7000,
    model=types.SimpleNamespace(config=_CONFIG),
    heads=("masked_lm", "sentence_order"),
    tokenizer=checkpoints.TokenizerFile("x", "sentencepiece", False),
    text_layer=types.SimpleNamespace(vocab_size=1095),
    data={"max_seq_length": 31},
    measured=hub_sources.Measured(
      "held-out data", "metrics.jsonl", {"masked_lm_loss": 4.56097}
    ),
    notes=(),
  )
  return hub_sources.Source(**{**values, **changes})


def _publication(**changes):
  values = dict(
    handle="my-team/albert_en/2",
    license="mit",
    language="en",
    asset_root="https://example.org/hub/",
  )
  return hub_handle.Publication(**{**values, **changes})


@pytest.mark.parametrize(
  "handle, parts",
  [
    ("my-team/albert_en/3", ("my-team", "albert_en", 3)),
    ("t5/bert/L-2.x/12", ("t5", "bert/L-2.x", 12)),
  ],
)
def test_handles(handle, parts):
  found = _publication(handle=handle)
  assert (found.publisher, found.name, found.version) == parts


@pytest.mark.parametrize(
  "handle",
  [
    "albert_en/3",
    "My-Team/albert/3",
    "my-team/albert/v3",
    "my-team/../3",
    "my-team/a b/3",
    "my-team//3",
    "https://tfhub.dev/me/albert/3",
  ],
)
def test_invalid_handles(handle):
  with pytest.raises(ValueError, match="must be PUBLISHER/NAME/VERSION"):
    _publication(handle=handle)


@pytest.mark.parametrize("description", ["two\nlines", "<!-- x -->"])
def test_descriptions_that_the_site_would_refuse(description):
  with pytest.raises(ValueError, match="must be one line"):
    _publication(description=description)


def _tags(page):
  """Reads a page as tools/validator.py of tensorflow/tfhub.dev does."""
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
  return first, description, tags


def test_the_heads_of_both_pages():
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
  assert tags == {
    "asset-path": "https://example.org/hub/albert_en_preprocess/2.tar.gz",
    "task": "text-preprocessing",
    "fine-tunable": "false",
    "format": "saved_model_2",
    "language": "en",
    "license": "mit",
  }


def test_known_facts():
  page = hub_page.encoder_page(_publication(description="Mine."), _source())
  assert _tags(page)[1] == "Mine."
  rows = [re.sub(" +", " ", line) for line in page.splitlines()]
  for row in (
    "| layers L | 5 |",
    "| pieces in the vocabulary | 1,097 |",
    f"| parameters of the encoder | {_CONFIG.parameter_count():,} |",
    "| dropout of hidden states, while training | 0.125 |",
    "| training steps | 7,000 |",
    "| longest sequence in training | 31 |",
    "| masked_lm_loss | 4.561 |",
    "| `encoder_outputs` | a list of 5, the last is `sequence_output` |",
    "Held-out data (`metrics.jsonl` of the run):",
  ):
    assert row in rows
  sections = re.findall(r"^## (.*)", page, re.MULTILINE)
  assert sections == ["Overview", "Usage", "Assets", "Metrics", "License"]
  assert "`mlm_logits`, `[batch, predictions, 1097]`" in page
  assert "`sop_logits`" in page and "tokenizer.model" in page
  assert "$" not in page and "{" not in page


def test_unknown_facts_are_left_out():
  page = hub_page.encoder_page(
    _publication(language="", asset_root=""),
    _source(measured=None, heads=(), step=0, data={"head": "none"}, kind="hf"),
  )
  assert "\n## Metrics\n\nNot measured.\n" in page
  assert "there is no `mlm` and no `sop`" in page
  assert "training steps" not in page and "language" not in page
  assert _tags(page)[2]["asset-path"] == "albert_en/2.tar.gz"
  alone = hub_page.encoder_page(_publication(), _source(heads=("masked_lm",)))
  assert ").mlm, trainable" in alone and "`sop" not in alone


def test_preprocessors():
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
