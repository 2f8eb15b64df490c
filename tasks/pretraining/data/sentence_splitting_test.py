"""Tests of splitting paragraphs: hard cases of several languages."""

from __future__ import annotations

import pytest

from tasks.pretraining.data import sentence_splitting


@pytest.mark.parametrize(
  ("language", "sentences"),
  [
    ("en", ["One.", "Two!", "Three?", "Four"]),
    ("en", ["Dr. Gray went to Leeds.", "He arrived at 5 p.m. on Monday."]),
    ("en", ["It rose 3.5 percent to $4.25.", "Shares fell."]),
    ("en", ["Acme Inc. and Foo Corp. merged in Jan. 1999.", "Both failed."]),
    ("en", ["Version 2.0.1 is at example.com now.", "It works."]),
    ("en", ["Mr. Jones lives in St. Louis.", "He is old."]),
    ("en", ["The U.S. Army came.", "It left in 1945."]),
    ("es", ["¿Quién es?", "¡Hola!", "No."]),
    ("de", ["Das ist Dr. Müller.", "Er wohnt hier."]),
    ("de", ["Am 3. Oktober kam er z. B. nach Berlin.", "Dort blieb er."]),
    ("ru", ["Он писал стихи.", "Да?"]),
    ("ru", ["А. С. Пушкин родился в Москве.", "Он писал стихи."]),
    ("hi", ["यह एक वाक्य है।", "क्या यह सच है?"]),
    ("zh", ["北京是中国的首都。", "人口约2.15亿。"]),
    ("zh", ["你呢？", "“好的。”", "他说。"]),
    ("ja", ["彼は来た。", "彼女は行った！"]),
  ],
)
def test_sentences(language, sentences):
  space = "" if language in ("zh", "ja") else " "
  paragraph = space.join(sentences)
  assert sentence_splitting.split_sentences(paragraph, language) == sentences


@pytest.mark.parametrize("language", ["en", "zh", "xx"])
def test_nothing_is_lost_but_space(language):
  for paragraph in (
    "",
    " ",
    "...",
    "a.b.c",
    '("x.") y.',
    "“”。。『』",
    "\t1. 2.",
  ):
    found = sentence_splitting.split_sentences(paragraph, language)
    assert "".join("".join(found).split()) == "".join(paragraph.split())
    assert all(sentence == sentence.strip() != "" for sentence in found)


def test_half_a_surrogate_pair_is_dropped():
  assert sentence_splitting.split_sentences("A\ud800 tea. Two.") == [
    "A tea.",
    "Two.",
  ]


def test_language_codes():
  for code in ("en", "zh", "pt-BR", "yue", "zh_Hant"):
    sentence_splitting.check_language(code)
  for code in ("", "English", "EN", "e"):
    with pytest.raises(ValueError, match="must be an ISO code such as en"):
      sentence_splitting.check_language(code)


def test_the_name_has_the_version():
  name, version = sentence_splitting.splitter_name().split()
  assert name == "sentencex" and version[0].isdigit()


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
