"""Tables 2 to 8 and 11 to 13 of arXiv 1909.11942 (v6), with their numbers.

Dev sets, in percent, SQuAD as (F1, exact match). All models of the paper were
pretrained for 125,000 steps of 4,096 sequences unless a row says otherwise.
"""

from __future__ import annotations

from typing import Any

from tools.experiments.declaration import Row, Table

_COLUMNS = ("SQuAD1.1", "SQuAD2.0", "MNLI", "SST-2", "RACE", "Avg")
# A "depth" is one that the scale translates; `num_hidden_layers` is as it says.
_LARGE = {"hidden_size": 1024, "depth": 24}
_XXLARGE = {"hidden_size": 4096, "depth": 12}


def _scores(*values: Any) -> dict[str, Any]:
  return dict(zip(_COLUMNS, values))


_OVERALL = {
  "BERT-base": (
    {"embedding_size": "H", "sharing": "none", "hidden_size": 768},
    *("108M", 4.7),
    *((90.4, 83.2), (80.4, 77.6), 84.5, 92.8, 68.2, 82.3),
  ),
  "BERT-large": (
    {"embedding_size": "H", "sharing": "none", **_LARGE},
    *("334M", 1.0),
    *((92.2, 85.5), (85.0, 82.2), 86.6, 93.0, 73.9, 85.2),
  ),
  "ALBERT-base": (
    {},
    *("12M", 5.6),
    *((89.3, 82.3), (80.0, 77.1), 81.6, 90.3, 64.0, 80.1),
  ),
  "ALBERT-large": (
    _LARGE,
    *("18M", 1.7),
    *((90.6, 83.9), (82.3, 79.4), 83.5, 91.7, 68.5, 82.4),
  ),
  "ALBERT-xlarge": (
    {**_LARGE, "hidden_size": 2048},
    *("60M", 0.6),
    *((92.5, 86.1), (86.1, 83.1), 86.4, 92.4, 74.8, 85.5),
  ),
  "ALBERT-xxlarge": (
    _XXLARGE,
    *("235M", 0.3),
    *((94.1, 88.3), (88.1, 85.1), 88.0, 95.2, 82.3, 88.7),
  ),
}
TABLE_2 = Table(
  name="2",
  title="BERT and ALBERT",
  source="table 2",
  question=(
    "What do the sizes bring, and cost? In the paper ALBERT-xxlarge is best "
    "with 70% of BERT-large's parameters, at 0.3 times its speed."
  ),
  rows=tuple(
    Row(
      label,
      model,
      paper={"speed": speed, **_scores(*scores)},
      paper_parameters=parameters,
    )
    for label, (model, parameters, speed, *scores) in _OVERALL.items()
  ),
  compare={label: "BERT-large" for label in _OVERALL if label != "BERT-large"},
  speed_reference="BERT-large",
)

_E_SCORES = {
  ("none", 64): ("87M", (89.9, 82.9), (80.1, 77.8), 82.9, 91.5, 66.7, 81.3),
  ("none", 128): ("89M", (89.9, 82.8), (80.3, 77.3), 83.7, 91.5, 67.9, 81.7),
  ("none", 256): ("93M", (90.2, 83.2), (80.3, 77.4), 84.1, 91.9, 67.3, 81.8),
  ("none", 768): ("108M", (90.4, 83.2), (80.4, 77.6), 84.5, 92.8, 68.2, 82.3),
  ("all", 64): ("10M", (88.7, 81.4), (77.5, 74.8), 80.8, 89.4, 63.5, 79.0),
  ("all", 128): ("12M", (89.3, 82.3), (80.0, 77.1), 81.6, 90.3, 64.0, 80.1),
  ("all", 256): ("16M", (88.8, 81.5), (79.1, 76.3), 81.5, 90.3, 63.4, 79.6),
  ("all", 768): ("31M", (88.6, 81.5), (79.2, 76.6), 82.0, 90.6, 63.3, 79.8),
}
_SHARED = {"all": "all-shared", "none": "not-shared"}
TABLE_3 = Table(
  name="3",
  title="Embedding size",
  source="table 3",
  question=(
    "Which embedding size E is enough? In the paper larger ones help a little "
    "where nothing is shared, and 128 is best where everything is."
  ),
  rows=tuple(
    Row(
      f"{_SHARED[sharing]}, E {size}",
      {"embedding_size": size, "sharing": sharing},
      paper=_scores(*values),
      paper_parameters=parameters,
    )
    for (sharing, size), (parameters, *values) in _E_SCORES.items()
  ),
  compare={
    f"{name}, E {size}": f"{name}, E 128"
    for name in _SHARED.values()
    for size in (64, 256, 768)
  },
)

_SHARING_SCORES = {
  (768, "all"): ("31M", (88.6, 81.5), (79.2, 76.6), 82.0, 90.6, 63.3, 79.8),
  (768, "attention"): (
    "83M",
    *((89.9, 82.7), (80.0, 77.2), 84.0, 91.4, 67.7, 81.6),
  ),
  (768, "ffn"): ("57M", (89.2, 82.1), (78.2, 75.4), 81.5, 90.8, 62.6, 79.5),
  (768, "none"): ("108M", (90.4, 83.2), (80.4, 77.6), 84.5, 92.8, 68.2, 82.3),
  (128, "all"): ("12M", (89.3, 82.3), (80.0, 77.1), 82.0, 90.3, 64.0, 80.1),
  (128, "attention"): (
    "64M",
    *((89.9, 82.8), (80.7, 77.9), 83.4, 91.9, 67.6, 81.7),
  ),
  (128, "ffn"): ("38M", (88.9, 81.6), (78.6, 75.6), 82.3, 91.7, 64.4, 80.2),
  (128, "none"): ("89M", (89.9, 82.8), (80.3, 77.3), 83.2, 91.5, 67.9, 81.6),
}
_STRATEGIES = {
  "all": "all-shared",
  "attention": "shared-attention",
  "ffn": "shared-FFN",
  "none": "not-shared",
}
# Section 4.5 says of N groups that more of them are better; it has no numbers.
_GROUPS = tuple(
  Row(
    f"E 128, {groups} groups",
    {"embedding_size": 128, "num_hidden_groups": groups},
  )
  for groups in (2, 4)
)
TABLE_4 = Table(
  name="4",
  title="Sharing strategies",
  source="table 4; the groups of section 4.5",
  question=(
    "What does sharing cost? In the paper most of the loss comes from sharing "
    "the feed-forward half, and groups lose less the more of them there are."
  ),
  rows=(
    *(
      Row(
        f"E {size}, {_STRATEGIES[sharing]}",
        {"embedding_size": size, "sharing": sharing},
        paper=_scores(*values),
        paper_parameters=parameters,
      )
      for (size, sharing), (parameters, *values) in _SHARING_SCORES.items()
    ),
    *_GROUPS,
  ),
  compare={
    **{
      f"E {size}, {name}": f"E {size}, all-shared"
      for size in (768, 128)
      for name in _STRATEGIES.values()
      if name != "all-shared"
    },
    **{row.label: "E 128, all-shared" for row in _GROUPS},
  },
  paper_says={row.label: 1 for row in _GROUPS},
)

_PAIR_SCORES = {
  "none": (
    *(54.9, 52.4, 53.3),
    *((88.6, 81.5), (78.1, 75.3), 81.5, 89.9, 61.7, 79.0),
  ),
  "nsp": (
    *(54.5, 90.5, 52.0),
    *((88.4, 81.5), (77.2, 74.6), 81.6, 91.1, 62.3, 79.2),
  ),
  "sop": (
    *(54.0, 78.9, 86.5),
    *((89.3, 82.3), (80.0, 77.1), 82.0, 90.3, 64.0, 80.1),
  ),
}
TABLE_5 = Table(
  name="5",
  title="The loss between sentences: none, NSP, SOP",
  source="table 5",
  question=(
    "What does a model learn from predicting the next sentence or the order of "
    "two? In the paper NSP brings nothing for order, and order much for NSP."
  ),
  rows=tuple(
    Row(
      pair.upper() if pair != "none" else "none",
      sentence_pair=pair,
      paper=dict(zip(("MLM", "NSP", "SOP", *_COLUMNS), values)),
    )
    for pair, values in _PAIR_SCORES.items()
  ),
  compare={"none": "SOP", "NSP": "SOP"},
  pairs=("nsp", "sop"),
)

TABLE_6 = Table(
  name="6",
  title="Equal time instead of equal steps",
  source="table 6",
  question=(
    "Is the wide shared model still better when a BERT may train as long? In "
    "the paper it is: 32 hours of ALBERT-xxlarge, 34 of BERT-large."
  ),
  rows=(
    Row(
      "ALBERT-xxlarge",
      _XXLARGE,
      paper=_scores((94.0, 88.1), (88.3, 85.3), 87.8, 95.4, 82.5, 88.7),
      paper_parameters="235M",
    ),
    Row(
      "BERT-large",
      {**_LARGE, "embedding_size": "H", "sharing": "none"},
      equal_time=True,
      paper=_scores((93.5, 87.4), (86.9, 84.3), 87.8, 94.6, 77.3, 87.2),
      paper_parameters="334M",
    ),
  ),
  compare={"BERT-large": "ALBERT-xxlarge"},
)

TABLE_7 = Table(
  name="7",
  title="More data",
  source="table 7",
  question=(
    "Does additional text help? In the paper it does, but for SQuAD, which is "
    "Wikipedia's."
  ),
  rows=(
    Row(
      "no additional data",
      paper=_scores((89.3, 82.3), (80.0, 77.1), 81.6, 90.3, 64.0, 80.1),
      paper_parameters="12M",
    ),
    Row(
      "with additional data",
      more_data=True,
      paper=_scores((88.8, 81.7), (79.1, 76.3), 82.4, 92.8, 66.0, 80.8),
      paper_parameters="12M",
    ),
  ),
  compare={"with additional data": "no additional data"},
  curves=True,
)

TABLE_8 = Table(
  name="8",
  title="Dropout on and off",
  source="table 8",
  question=(
    "Does dropout hurt? In the paper ALBERT-xxlarge gets better without, after "
    "a million steps."
  ),
  rows=(
    Row(
      "with dropout",
      {
        **_XXLARGE,
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
      },
      paper=_scores((94.7, 89.2), (89.6, 86.9), 90.0, 96.3, 85.7, 90.4),
    ),
    Row(
      "without dropout",
      {
        **_XXLARGE,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
      },
      paper=_scores((94.8, 89.5), (89.9, 87.2), 90.4, 96.5, 86.1, 90.7),
    ),
  ),
  compare={"without dropout": "with dropout"},
  curves=True,
)

_DEPTH_SCORES = {
  1: ((31.1, 22.9), (50.1, 50.1), 66.4, 80.8, 40.1, 52.9),
  3: ((79.8, 69.7), (64.4, 61.7), 77.7, 86.7, 54.0, 71.2),
  6: ((86.4, 78.4), (73.8, 71.1), 81.2, 88.9, 60.9, 77.2),
  12: ((89.8, 83.3), (80.7, 77.9), 83.3, 91.7, 66.7, 81.5),
  24: ((90.3, 83.3), (81.8, 79.0), 83.3, 91.5, 68.7, 82.1),
  48: ((90.0, 83.1), (81.8, 78.9), 83.4, 91.9, 66.9, 81.8),
}
_DEPTHS = tuple(_DEPTH_SCORES)
TABLE_11 = Table(
  name="11",
  title="Depth",
  source="table 11",
  question=(
    "How many times should the one layer be applied? In the paper the gain "
    "gets small after 12, and 48 is worse than 24."
  ),
  rows=tuple(
    Row(
      f"{layers} layers" if layers > 1 else "1 layer",
      {"hidden_size": 1024, "num_hidden_layers": layers},
      # From three layers on, each begins with the weights of the one before.
      starts_from=(
        f"{before} layers" if before and before > 1 else before and "1 layer"
      ),
      paper=_scores(*_DEPTH_SCORES[layers]),
      paper_parameters="18M",
    )
    for before, layers in zip((None, *_DEPTHS), _DEPTHS)
  ),
  compare={
    f"{layers} layers": f"{before} layers" if before > 1 else "1 layer"
    for before, layers in zip(_DEPTHS, _DEPTHS[1:])
  },
)

_WIDTH_SCORES = {
  1024: ("18M", (79.8, 69.7), (64.4, 61.7), 77.7, 86.7, 54.0, 71.2),
  2048: ("60M", (83.3, 74.1), (69.1, 66.6), 79.7, 88.6, 58.2, 74.6),
  4096: ("225M", (85.0, 76.4), (71.0, 68.1), 80.3, 90.4, 60.4, 76.3),
  6144: ("499M", (84.7, 75.8), (67.8, 65.4), 78.1, 89.1, 56.0, 74.0),
}
_WIDTHS = tuple(_WIDTH_SCORES)
TABLE_12 = Table(
  name="12",
  title="Width",
  source="table 12",
  question=(
    "How wide should the one layer be, with three applications? In the paper "
    "4096 is best and 6144 worse."
  ),
  rows=tuple(
    Row(
      f"H {width}",
      {"hidden_size": width, "num_hidden_layers": 3},
      paper=_scores(*values),
      paper_parameters=parameters,
    )
    for width, (parameters, *values) in _WIDTH_SCORES.items()
  ),
  compare={
    f"H {width}": f"H {before}" for before, width in zip(_WIDTHS, _WIDTHS[1:])
  },
)

TABLE_13 = Table(
  name="13",
  title="Depth of a wide model",
  source="table 13",
  question="Must a wide model be deep too? In the paper it need not.",
  rows=(
    Row(
      "12 layers",
      _XXLARGE,
      paper=_scores((94.0, 88.1), (88.3, 85.3), 87.8, 95.4, 82.5, 88.7),
    ),
    Row(
      "24 layers",
      {**_XXLARGE, "depth": 24},
      paper=_scores((94.1, 88.3), (88.1, 85.1), 88.0, 95.2, 82.3, 88.7),
    ),
  ),
  compare={"24 layers": "12 layers"},
)

TABLES = (
  *(TABLE_2, TABLE_3, TABLE_4, TABLE_5, TABLE_6, TABLE_7, TABLE_8),
  *(TABLE_11, TABLE_12, TABLE_13),
)
