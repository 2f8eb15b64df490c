"""Runs the tool as its users do."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import sentencepiece

from official_albert import tokenization
from official_albert.tools import train_vocabulary
from official_albert.tools.testing import many_commands


@pytest.fixture(scope="module")
def text(tmp_path_factory):
  """Two hundred lines over 300 made-up words, with accents and capitals."""
  rng = np.random.default_rng(0)
  letters = list("aeiouklmnprst")
  words = ["".join(rng.choice(letters, 5)).capitalize() for _ in range(300)]
  words[:9] = ["Éa", "1922,", "(it)", '"so"', "£5", "€7", "a–b", "x-y", "end."]
  path = tmp_path_factory.mktemp("text") / "a.txt"
  lines = [" ".join(rng.choice(words, 12)) for _ in range(200)]
  path.write_text("\n".join(lines), encoding="utf-8")
  return path


def test_same_text_gives_the_same_vocabulary(text, tmp_path):
  common = [f"--input_files={text}", "--vocab_size=211"]
  lines = [
    # A sample of the 200 lines.
    [*common, f"--output_dir={tmp_path / x}", "--input_sentence_size=150"]
    for x in "ab"
  ]
  lines.append([*common, f"--output_dir={tmp_path}/cased", "--nodo_lower_case"])
  *twice, _ = many_commands.run("train_vocabulary", lines)
  made = []
  for name, result in zip("ab", twice):
    # One line of the program, nothing of the trainer.
    assert re.fullmatch(r"Training on 0\.0 MB of files; .*\n", result.err)
    made.append({p.name: p.read_bytes() for p in (tmp_path / name).iterdir()})
  assert made[0] == made[1]
  assert sorted(made[0]) == ["tokenizer.model", "tokenizer.vocab"]
  assert re.search(
    "▁[A-Z]", (tmp_path / "cased" / "tokenizer.vocab").read_text("utf-8")
  )

  tokenizer = tokenization.SentencePieceTokenizer(
    str(tmp_path / "a" / "tokenizer.model")
  )
  assert [tokenizer.id_to_piece(i) for i in range(13)] == (
    '<pad> <unk> [CLS] [SEP] [MASK] ( ) " - . – £ €'.split()
  )
  assert tokenizer.vocab_size == 211
  vocab = (tmp_path / "a" / "tokenizer.vocab").read_text("utf-8").splitlines()
  assert len(vocab) == 211
  # Trained on normalized text.
  pieces = "".join(line.split("\t")[0] for line in vocab[13:])
  assert pieces == pieces.lower()
  assert "é" not in pieces


def test_long_words_are_cut_into_parts_of_unequal_lengths():
  word, start = "a" * 3_000_000, time.monotonic()
  parts = list(train_vocabulary.regroup([word], 0))
  assert "".join(parts) == word
  # Copies of the rest of the word took 10 s.
  assert time.monotonic() - start < 3
  # Parts of equal length would repeat themselves.
  assert len(set(map(len, parts))) > 5


def test_copies_of_a_document_have_other_parts():
  rng = np.random.default_rng(0)
  document = [*rng.choice(["horse", "tiger", "zebra"], 999)]
  parts = list(train_vocabulary.regroup(document * 2, 3))
  assert " ".join(parts) == " ".join(document * 2)
  assert parts == list(train_vocabulary.regroup(document * 2, 3))
  # Where the parts of each copy start, in words.
  starts = np.cumsum([0, *(len(part.split()) for part in parts)])
  different = {*starts[starts < 999]} ^ {*starts[starts >= 999] - 999}
  # The parts of only one copy start at some word, on average every seventh.
  assert np.diff(sorted(different)).max() < 100


def test_pieces_are_those_of_whole_sentences(text):
  lines = text.read_text("utf-8").splitlines() * 2
  made, expected = io.BytesIO(), io.BytesIO()
  made.write(train_vocabulary.train(lines, 211, 1.0, 1))
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(lines),
    model_writer=expected,
    vocab_size=211,
    character_coverage=1.0,
    num_threads=16,
    **{"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1},
    control_symbols=["[CLS]", "[SEP]", "[MASK]"],
    user_defined_symbols=["(", ")", '"', "-", ".", "–", "£", "€"],
    minloglevel=2,
  )
  models = []
  for model in made, expected:
    models.append(sentencepiece.SentencePieceProcessor())
    models[-1].LoadFromSerializedProto(model.getvalue())
  pieces, same = (
    [(m.id_to_piece(i), m.get_score(i)) for i in range(211)] for m in models
  )
  assert pieces == same


def test_ctrl_c_ends_the_training_at_once(tmp_path):
  rng = np.random.default_rng(1)
  words = np.array(
    ["".join(rng.choice(list("abcdefg"), 9)) for _ in range(999)]
  )
  text = "\n".join(" ".join(line) for line in rng.choice(words, (40000, 12)))
  (tmp_path / "a.txt").write_text(text)
  # A process whose stderr is a terminal prints the trainer's log.
  terminal, stderr = os.openpty()
  process = subprocess.Popen(
    [
      *(sys.executable, "-m", "tools.train_vocabulary", "--vocab_size=900"),
      f"--input_files={tmp_path / 'a.txt'}",
      f"--output_dir={tmp_path / 'v'}",
    ],
    cwd=many_commands.ROOT,
    stderr=stderr,
    # Tests in the background ignore Ctrl-C from the start.
    preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
  )
  os.close(stderr)
  log = b""
  while b"Making suffix array" not in log:
    log += os.read(terminal, 1 << 16)
  sent = time.monotonic()
  process.send_signal(signal.SIGINT)
  assert process.wait(timeout=60) == -signal.SIGINT
  assert time.monotonic() - sent < 2
  os.close(terminal)
  assert os.listdir(tmp_path) == ["a.txt"]


def _check_refusals(*cases):
  # After a line on the text.
  return many_commands.check_refusals("train_vocabulary", cases, 2)


def test_the_largest_size_works_and_nothing_is_overwritten(text, tmp_path):
  line = [f"--input_files={text}", f"--output_dir={tmp_path / 'v'}"]
  named = "cannot learn 30000 pieces from this text: Vocabulary"
  (much,) = _check_refusals((line, named))
  assert os.listdir(tmp_path) == []
  most = re.search(r"<= (\d+)\. Change --vocab_size", much.err)[1]
  line.append(f"--vocab_size={most}")
  many_commands.run("train_vocabulary", [line])
  _check_refusals((line, "tokenizer.model exists already"))


_REFUSALS = [
  (b"a cat", "--vocab_size=9", "cannot learn 9 pieces from this text: Vocab"),
  (b"\n\n", "", "holds no document"),
  (b"a", "--character_coverage=0.5", "not a number in the range [0.98, 1.0", 2),
  (b"a", "--input_files=nowhere", "no input file matches 'nowhere'"),
  (b"ok\n\xff", "", "4.txt, line 2, is not UTF-8"),
  # Before the text is read, which is not UTF-8 either.
  (b"\xff", f"--output_dir={__file__}", "_test.py is a file: name a fold"),
  (b"a", f"--input_files={__file__}:2", "leave out its weight"),
]


def test_bad_input_is_one_sentence(tmp_path):
  cases = []
  for i, (content, flag, *more) in enumerate(_REFUSALS):
    path = tmp_path / f"{i}.txt"
    path.write_bytes(content)
    line = [f"--input_files={path}", f"--output_dir={tmp_path / 'v'}"]
    cases.append(([*line, *flag.split()], *more))
  _check_refusals(*cases)
  assert not (tmp_path / "v").exists()
