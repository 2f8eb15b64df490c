"""Tests of words, pieces, schemes of tags, and scores against seqeval."""

from __future__ import annotations

import json
import subprocess

import numpy as np
import pytest

from official_albert.tasks.tagging import tags

Span = tags.Span


@pytest.mark.parametrize(
  "text, words",
  [
    ("He lives in London.", "He|lives|in|London|."),
    (' (AT&T), "Paris-based" \t don\'t', '(|AT&T|),|"|Paris-based|"|don\'t'),
    ("Germany's U.S. ... :) 5%", "Germany|'s|U.S|.|...|:)|5%"),
    ("@user’s #tag é\u0301ß ﬁn", "@user|’s|#tag|é\u0301ß|ﬁn"),
    ("我在北京。Tokyoの", "我|在|北|京|。|Tokyo|の"),
    ("😀 a\u00a0b \u200b", "😀|a|b|\u200b"),
    (" \n", ""),
  ],
)
def test_words_of_a_text(text, words):
  found = [text[a:b] for a, b in tags.split_words(text)]
  assert found == [x for x in words.split("|") if x]


def test_first_pieces():
  # A bare piece; "½" of three pieces; an unknown run; a deleted character.
  starts = [0, 0, 4, 4, 4, 6]
  ends = [0, 3, 5, 5, 5, 9]
  words = [(0, 3), (4, 5), (6, 7), (7, 8), (8, 9), (10, 11)]
  pieces = tags.first_pieces(starts, ends, words)
  own = [(0, True), (2, True), (5, True)]
  assert pieces == [*own, (5, False), (5, False), (-1, False)]
  names = ["B-a", "I-a", "O", "B-b", "B-c", "B-d"]
  chances = [0.5, 0.25, 0.75, 0.1, 0.2, 0.3]
  assert tags.of_words(pieces, names, chances) == (
    ["B-a", "O", "B-d", "I-d", "I-d", "O"],
    [0.5, 0.75, 0.3, 0.3, 0.3, 1.0],
  )


@pytest.mark.parametrize(
  "text, bio",
  [
    ("B-x I-x O B-y B-y", "B-x I-x O B-y B-y"),  # IOB2.
    ("I-x I-x B-x I-y O I-x", "B-x I-x B-x B-y O B-x"),  # IOB1.
    ("B-x E-x S-x S-x O B-y I-y E-y", "B-x I-x B-x B-x O B-y I-y I-y"),
    ("B-x L-x U-x U-x O B-y I-y L-y", "B-x I-x B-x B-x O B-y I-y I-y"),
    ("B-x M-x E-x S-y O M-x M-x", "B-x I-x I-x B-y O B-x I-x"),  # BMES.
    ("E-x E-x I-x", "B-x B-x B-x"),
    ("x x O y x", "B-x I-x O B-y B-x"),  # IO.
    ("B-a-b I-a-b I-a", "B-a-b I-a-b B-a"),
  ],
)
def test_schemes_become_bio(text, bio):
  names = text.split()
  assert tags.make_entities([*names, "O"])
  assert list(tags.to_bio(len(names), tags.spans(names))) == bio.split()


def test_other_tags_are_of_single_words():
  names = ["NN", "NN", "E-mail", "VB"]
  assert not tags.make_entities(names) and not tags.make_entities([])
  found = tags.spans(names, has_entities=False)
  assert found == [Span(x, i, i + 1) for i, x in enumerate(names)]
  scores = tags.scores([names], [["NN", "VB", "E-mail", "VB"]], False)
  f1 = (2 / 3 + 1 + 2 / 3) / 3  # Of NN, E-mail and VB.
  assert scores == pytest.approx({"accuracy": 3 / 4, "macro_f1": f1})


def test_scores_by_hand():
  gold = [["B-x", "I-x", "O", "B-y"], ["B-x", "O"], ["O"]]
  predicted = [["B-x", "I-x", "O", "B-x"], ["I-x", "B-z"], ["O"]]
  # Two of four predicted spans are two of three right ones.
  assert tags.scores(gold, predicted, True) == pytest.approx(
    {"f1": 4 / 7, "precision": 1 / 2, "recall": 2 / 3, "accuracy": 4 / 7}
  )
  with pytest.raises(ValueError, match="shorter"):
    tags.scores(gold, predicted[:2], True)
  labels, right, found = tags.span_classes(gold, predicted, True)
  assert labels == ["x", "y", "z"]
  # Of each label: the spans of the data, the predicted ones, and both.
  assert [x.sum(0).tolist() for x in (right, found, right & found)] == [
    [2, 1, 0],
    [3, 0, 1],
    [2, 0, 0],
  ]
  labels, right, found = tags.span_classes([["O"]], [["O"]], True)
  assert labels == [] and right.shape == found.shape == (0, 0)
  assert tags.scores([["O"]], [["O"]], True)["f1"] == 0


def test_spans_of_a_text():
  text = "Ann Lee met Bo"
  words = tags.split_words(text)
  names = ["B-p", "I-p", "O", "B-p"]
  found = tags.find_spans(text, words, names, [0.5, 1.0, 0.9, 0.25], True)
  assert [tuple(x.values()) for x in found] == [
    ("Ann Lee", 0, 7, "p", 0.75),
    ("Bo", 12, 14, "p", 0.25),
  ]


_SEQEVAL = """
import json, sys, warnings
from seqeval.metrics import accuracy_score, classification_report
from seqeval.metrics.sequence_labeling import get_entities
warnings.simplefilter("ignore")
for line in sys.stdin:
  gold, found = json.loads(line)
  values = classification_report(gold, found, output_dict=True, zero_division=0)
  values = {k: [float(x) for x in v.values()] for k, v in values.items()}
  print(json.dumps([get_entities(found), accuracy_score(gold, found), values]))
"""


@pytest.mark.heavy
def test_scores_and_spans_equal_seqeval(peer_python):
  rng, cases = np.random.default_rng(3), []
  marks = {"bio": "BI", "iob1": "IIIB", "bioes": "BIES"}
  for number in range(3000):
    names = [*marks.values()][number % 3]
    known = ["O", "O", *(f"{m}-{x}" for m in names for x in ("a", "b-c", "O"))]
    lengths = rng.integers(1, 9, 3)
    cases.append(
      [[rng.choice(known, n).tolist() for n in lengths] for _ in range(2)]
    )
    cases[-1][0][0][0] = f"{names[0]}-a"  # It refuses data without entities.
  done = subprocess.run(
    [peer_python("huggingface"), "-c", _SEQEVAL],
    input="\n".join(map(json.dumps, cases)),
    capture_output=True,
    text=True,
    check=True,
  )
  for (gold, found), line in zip(cases, done.stdout.splitlines(), strict=True):
    entities, accuracy, values = json.loads(line)
    # It joins the sentences by "O".
    joined = [tag for tags_ in found for tag in (*tags_, "O")]
    ours = [[x.label, x.first, x.end - 1] for x in tags.spans(joined)]
    assert ours == entities
    scores = tags.scores(gold, found, True)
    assert scores["accuracy"] == pytest.approx(accuracy, abs=1e-12)
    average = values["micro avg"]
    assert [*scores.values()][:3] == pytest.approx(
      [average[2], average[0], average[1]], abs=1e-12
    )
    labels, *both = tags.span_classes(gold, found, True)
    for label, right, predicted in zip(labels, *(x.T for x in both)):
      hits = (right & predicted).sum()
      precision, recall = (
        hits / max(predicted.sum(), 1),
        hits / max(right.sum(), 1),
      )
      ours = [precision, recall, right.sum()]
      theirs = [values[label][i] for i in (0, 1, 3)]
      assert ours == pytest.approx(theirs, abs=1e-12)
