"""Tests of tokenizer files; transformers itself opens them in docs only."""

from __future__ import annotations

import json

import pytest

from official_albert import hf_tokenizer, portable_checkpoint


def _file(folder, kind, content=b"pieces", lower_case=True):
  path = folder / "source"
  path.write_bytes(content)
  return portable_checkpoint.TokenizerFile(str(path), kind, lower_case)


@pytest.mark.parametrize(
  "kind, name, pad",
  [
    ("sentencepiece", "spiece.model", "<pad>"),
    ("wordpiece", "vocab.txt", "[PAD]"),
  ],
)
def test_what_is_written_is_read(kind, name, pad, tmp_path):
  folder = tmp_path / "out"
  folder.mkdir()
  tokenizer = _file(tmp_path, kind, lower_case=False)
  hf_tokenizer.write(tokenizer, str(folder), 33)
  settings = json.loads((folder / "tokenizer_config.json").read_text())
  assert settings["model_max_length"] == 33 and settings["pad_token"] == pad
  special = json.loads((folder / "special_tokens_map.json").read_text())
  assert special["sep_token"] == "[SEP]"
  notes = []
  again = hf_tokenizer.read(str(folder), notes)
  assert (again.kind, again.lower_case) == (kind, False)
  assert again.path == str(folder / name) and not notes
  assert again.sha256() == tokenizer.sha256()


def test_ids_of_special_pieces(tmp_path):
  expected = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
  assert hf_tokenizer.special_ids(None) == expected
  words = _file(tmp_path, "wordpiece", b"[PAD]\na\n[SEP]\n[CLS]\n")
  assert hf_tokenizer.special_ids(words)["bos_token_id"] == 3
  assert hf_tokenizer.special_ids(words)["eos_token_id"] == 2
  with pytest.raises(ValueError, match=r"has no \[CLS\]"):
    hf_tokenizer.special_ids(_file(tmp_path, "wordpiece", b"a\n"))


def test_what_means_something_else_is_said(tmp_path):
  notes = []
  assert hf_tokenizer.read(str(tmp_path), notes) is None and not notes
  (tmp_path / "tokenizer.json").write_text("{}")
  assert hf_tokenizer.read(str(tmp_path), notes) is None
  assert "tokenizer.json is not carried" in notes[0]
  (tmp_path / "spiece.model").write_bytes(b"x")
  settings = tmp_path / "tokenizer_config.json"
  settings.write_text('{"keep_accents": true}')
  assert hf_tokenizer.read(str(tmp_path), notes).lower_case
  assert "keep_accents True" in notes[1]
  settings.write_text("[1]")
  with pytest.raises(ValueError, match="is not a valid JSON object"):
    hf_tokenizer.read(str(tmp_path), notes)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
