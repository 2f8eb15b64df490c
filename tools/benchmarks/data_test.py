"""Tests of measurements on a tiny corpus, and of rows of tables."""

from __future__ import annotations

import pathlib
import sys

import pytest

from official_albert import tfrecords, tokenization
from official_albert.tasks import squad
from official_albert.testing import toy_vocabulary
from official_albert.tools.benchmarks import data as benchmark_data

_DATA = pathlib.Path(__file__).resolve().parents[3] / "shared" / "data"
_DEV = _DATA / "squad" / "dev-v1.1.json"
_RELEASED = _DATA / "tokenizer" / "30k-clean.model"


@pytest.fixture(scope="module")
def text(tmp_path_factory):
  folder = tmp_path_factory.mktemp("corpus")
  text = "tea and rain. stone in the river.\ncloud and amber {}.\n\n"
  lines = "".join(text.format("ab"[n % 2] * n) for n in range(1, 41))
  (folder / "a.txt").write_text(lines)
  (folder / "m.model").write_bytes(toy_vocabulary.train(lines.split("\n"), 30))
  return str(folder / "a.txt"), str(folder / "m.model"), 32


def test_a_command_is_measured_and_its_failure_reported():
  command = [sys.executable, "-c", "print(len(bytearray(2**27)))"]
  ran = benchmark_data.run_command("ours", command)
  assert ran.output == f"{2**27}\n" and 0 < ran.seconds < 60
  assert 2**27 < ran.peak_bytes < 2**36
  with pytest.raises(ValueError, match="ours failed; see its message above"):
    benchmark_data.run_command("ours", [sys.executable, "-c", "raise OSError"])


def test_counts_agree_with_the_manifest(text, tmp_path):
  output = str(tmp_path / "data")
  made = benchmark_data.make(*text, "static", 1, output)
  splits = tfrecords.read_manifest(output).splits
  assert made.tokens == sum(s.statistics["tokens"] for s in splits.values())
  assert made.written_bytes == sum(
    path.stat().st_size for path in (tmp_path / "data").glob("*.tfrecord")
  )
  # The program starts as a copy of this process, which may be large.
  assert made.seconds > 0 and 2**20 < made.peak_bytes < 2**36


def question(number: int, *answers) -> squad.SquadExample:
  return squad.SquadExample(
    f"q{number}", "what?", "The river, tea and  amber.", answers
  )


@pytest.fixture
def tokenizer(tmp_path):
  path = tmp_path / "vocab.txt"
  words = "the river , tea and amber . what ?".split()
  path.write_text(
    "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + words)
  )
  return tokenization.WordPieceTokenizer(path)


def test_recover(tokenizer):
  found = benchmark_data.recover(
    [
      question(1, ("tea and  amber", 11), ("The river", 0)),
      question(2, ("mber", 21), ("river", 4)),
      question(3),
    ],
    tokenizer,
  )
  assert (found.answers, found.exact, found.normalized) == (4, 3, 3)
  assert (found.questions, found.reached) == (2, 2)
  assert found.rest == ["q2: 'mber' became 'amber' in ', tea and  amber.'"]


@pytest.mark.skipif(
  not (_RELEASED.exists() and _DEV.exists()),
  reason="SQuAD and the released vocabulary are not on this machine",
)
def test_answers_of_squad():
  found = benchmark_data.recover(
    squad.read_examples(str(_DEV)),
    tokenization.SentencePieceTokenizer(str(_RELEASED)),
  )
  assert (found.answers, found.exact, found.normalized) == (34726, 34619, 34653)
  # All answers of one question are "four", a part of the piece "fourth".
  assert (found.questions, found.reached) == (10570, 10569)
  assert all(" became " in line for line in found.rest)
  assert len(found.rest) == 73
