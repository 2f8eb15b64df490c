"""The experiments: the tables and figures of arXiv 1909.11942, and our own.

Numbers are those of the last version (v6): dev sets, in percent, SQuAD as (F1,
exact match). The paper pretrained all models for 125,000 steps of 4,096
sequences unless a row says otherwise. Figures are those of the first version.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence

from tools.experiments import declaration
from tools.experiments.declaration import SPEED, TASKS, Row, Table

_COLUMNS = (*TASKS, declaration.AVERAGE)


def _scores(line: str, columns: Sequence[str] = _COLUMNS) -> dict[str, Any]:
  """Returns the numbers of a line of the paper, "F1/EM" for SQuAD."""
  numbers = [tuple(map(float, cell.split("/"))) for cell in line.split()]
  values = [n if len(n) == 2 else n[0] for n in numbers]
  return dict(zip(columns, values, strict=True))


def _row(
  label: str,
  model: Mapping[str, Any],
  scores: str,
  parameters: str = "",
  compared_with: Optional[str] = None,
  **options: Any,
) -> Row:
  """Returns a row with the paper's scores, one line of `_scores`."""
  return Row(
    label,
    model,
    compared_with=compared_with,
    paper=_scores(scores),
    paper_parameters=parameters,
    **options,
  )


def _layers(count: int) -> str:
  return f"{count} layers" if count > 1 else "1 layer"


# The scale translates "depth"; `num_hidden_layers` is used as it is.
_LARGE = {"hidden_size": 1024, "depth": 24}
_XXLARGE = {"hidden_size": 4096, "depth": 12}
_BERT = {"embedding_size": "H", "sharing": "none"}

# Label, preset, model, the paper's parameters, speed and scores.
_OVERALL = (
  ("BERT-base", "bert_base", {**_BERT, "hidden_size": 768})
  + ("108M", 4.7, "90.4/83.2 80.4/77.6 84.5 92.8 68.2 82.3"),
  ("BERT-large", "bert_large", {**_BERT, **_LARGE})
  + ("334M", 1.0, "92.2/85.5 85.0/82.2 86.6 93.0 73.9 85.2"),
  ("ALBERT-base", "albert_base_v1", {})
  + ("12M", 5.6, "89.3/82.3 80.0/77.1 81.6 90.3 64.0 80.1"),
  ("ALBERT-large", "albert_large_v1", _LARGE)
  + ("18M", 1.7, "90.6/83.9 82.3/79.4 83.5 91.7 68.5 82.4"),
  ("ALBERT-xlarge", "albert_xlarge_v1", {**_LARGE, "hidden_size": 2048})
  + ("60M", 0.6, "92.5/86.1 86.1/83.1 86.4 92.4 74.8 85.5"),
  ("ALBERT-xxlarge", "albert_xxlarge_v1", _XXLARGE)
  + ("235M", 0.3, "94.1/88.3 88.1/85.1 88.0 95.2 82.3 88.7"),
)
# Sequences per step and tokens per sequence of table 1.
SPEED_BATCH, SPEED_LENGTH = 4, 128
TABLE_1 = Table(
  name="1",
  title="Configurations and their speed",
  source="tables 1 and 2",
  question=(
    "How many parameters, how many operations, and how fast compared with "
    f"BERT-large? Real sizes, {SPEED_BATCH} sequences of {SPEED_LENGTH} tokens "
    "per step."
  ),
  rows=tuple(
    Row(
      label,
      preset=preset,
      paper={SPEED: speed},
      paper_parameters=parameters,
    )
    for label, preset, _, parameters, speed, _ in _OVERALL
  ),
  tasks=False,
  speed_reference="BERT-large",
)

TABLE_2 = Table(
  name="2",
  title="BERT and ALBERT",
  source="table 2",
  question=(
    "What do larger sizes bring, and what do they cost? In the paper "
    "ALBERT-xxlarge is best, with 70% of BERT-large's parameters and 0.3 times "
    "its speed."
  ),
  rows=tuple(
    Row(
      label,
      model,
      compared_with="BERT-large" if label != "BERT-large" else None,
      paper={SPEED: speed, **_scores(scores)},
      paper_parameters=parameters,
    )
    for label, _, model, parameters, speed, scores in _OVERALL
  ),
  speed_reference="BERT-large",
)

_E_SCORES = (
  ("none", 64, "87M", "89.9/82.9 80.1/77.8 82.9 91.5 66.7 81.3"),
  ("none", 128, "89M", "89.9/82.8 80.3/77.3 83.7 91.5 67.9 81.7"),
  ("none", 256, "93M", "90.2/83.2 80.3/77.4 84.1 91.9 67.3 81.8"),
  ("none", 768, "108M", "90.4/83.2 80.4/77.6 84.5 92.8 68.2 82.3"),
  ("all", 64, "10M", "88.7/81.4 77.5/74.8 80.8 89.4 63.5 79.0"),
  ("all", 128, "12M", "89.3/82.3 80.0/77.1 81.6 90.3 64.0 80.1"),
  ("all", 256, "16M", "88.8/81.5 79.1/76.3 81.5 90.3 63.4 79.6"),
  ("all", 768, "31M", "88.6/81.5 79.2/76.6 82.0 90.6 63.3 79.8"),
)
_STRATEGIES = {
  "all": "all-shared",
  "attention": "shared-attention",
  "ffn": "shared-FFN",
  "none": "not-shared",
}
TABLE_3 = Table(
  name="3",
  title="Embedding size",
  source="table 3",
  question=(
    "Which embedding size E is enough? In the paper larger sizes help a little "
    "without sharing, and 128 is best with full sharing."
  ),
  rows=tuple(
    _row(
      f"{_STRATEGIES[sharing]}, E {size}",
      {"embedding_size": size, "sharing": sharing},
      *(scores, parameters),
      f"{_STRATEGIES[sharing]}, E 128" if size != 128 else None,
    )
    for sharing, size, parameters, scores in _E_SCORES
  ),
)

_SHARING_SCORES = (
  (768, "all", "31M", "88.6/81.5 79.2/76.6 82.0 90.6 63.3 79.8"),
  (768, "attention", "83M", "89.9/82.7 80.0/77.2 84.0 91.4 67.7 81.6"),
  (768, "ffn", "57M", "89.2/82.1 78.2/75.4 81.5 90.8 62.6 79.5"),
  (768, "none", "108M", "90.4/83.2 80.4/77.6 84.5 92.8 68.2 82.3"),
  (128, "all", "12M", "89.3/82.3 80.0/77.1 82.0 90.3 64.0 80.1"),
  (128, "attention", "64M", "89.9/82.8 80.7/77.9 83.4 91.9 67.6 81.7"),
  (128, "ffn", "38M", "88.9/81.6 78.6/75.6 82.3 91.7 64.4 80.2"),
  (128, "none", "89M", "89.9/82.8 80.3/77.3 83.2 91.5 67.9 81.6"),
)
TABLE_4 = Table(
  name="4",
  title="Sharing strategies",
  source="table 4; the groups of section 4.5",
  question=(
    "What does sharing cost? In the paper most of the loss comes from sharing "
    "the feed-forward half, and more groups lose less."
  ),
  rows=(
    *(
      _row(
        f"E {size}, {_STRATEGIES[sharing]}",
        {"embedding_size": size, "sharing": sharing},
        *(scores, parameters),
        f"E {size}, all-shared" if sharing != "all" else None,
      )
      for size, sharing, parameters, scores in _SHARING_SCORES
    ),
    # Section 4.5 says that more groups are better, without numbers.
    *(
      Row(
        f"E 128, {groups} groups",
        {"embedding_size": 128, "num_hidden_groups": groups},
        compared_with="E 128, all-shared",
        paper_says=1,
      )
      for groups in (2, 4)
    ),
  ),
)

_PAIR_SCORES = {
  "none": "54.9 52.4 53.3 88.6/81.5 78.1/75.3 81.5 89.9 61.7 79.0",
  "nsp": "54.5 90.5 52.0 88.4/81.5 77.2/74.6 81.6 91.1 62.3 79.2",
  "sop": "54.0 78.9 86.5 89.3/82.3 80.0/77.1 82.0 90.3 64.0 80.1",
}
TABLE_5 = Table(
  name="5",
  title="The loss between sentences: none, NSP, SOP",
  source="table 5",
  question=(
    "What does a model learn from predicting the next sentence (NSP) or the "
    "order of two sentences (SOP)? In the paper NSP does not help with order, "
    "but SOP helps with NSP."
  ),
  rows=tuple(
    Row(
      pair.upper() if pair != "none" else "none",
      sentence_pair=pair,
      compared_with="SOP" if pair != "sop" else None,
      paper=_scores(scores, ("MLM", "NSP", "SOP", *_COLUMNS)),
    )
    for pair, scores in _PAIR_SCORES.items()
  ),
  pairs=("nsp", "sop"),
)

TABLE_6 = Table(
  name="6",
  title="Equal time instead of equal steps",
  source="table 6",
  question=(
    "Is the wide shared model still better if BERT trains for the same time? "
    "In the paper it is: 32 hours of ALBERT-xxlarge, 34 of BERT-large."
  ),
  rows=(
    _row(
      *("ALBERT-xxlarge", _XXLARGE),
      *("94.0/88.1 88.3/85.3 87.8 95.4 82.5 88.7", "235M"),
    ),
    _row(
      *("BERT-large", {**_LARGE, **_BERT}),
      *("93.5/87.4 86.9/84.3 87.8 94.6 77.3 87.2", "334M", "ALBERT-xxlarge"),
      equal_time=True,
    ),
  ),
)

TABLE_7 = Table(
  name="7",
  title="More data",
  source="table 7",
  question=(
    "Does additional text help? In the paper it does, except for SQuAD, which "
    "is built from Wikipedia."
  ),
  rows=(
    _row(
      *("no additional data", {}),
      *("89.3/82.3 80.0/77.1 81.6 90.3 64.0 80.1", "12M"),
    ),
    _row(
      *("with additional data", {}),
      *("88.8/81.7 79.1/76.3 82.4 92.8 66.0 80.8", "12M"),
      compared_with="no additional data",
      more_data=True,
    ),
  ),
  curves=True,
)


def _dropout(rate: float) -> dict[str, Any]:
  return {
    **_XXLARGE,
    "hidden_dropout_prob": rate,
    "attention_probs_dropout_prob": rate,
  }


TABLE_8 = Table(
  name="8",
  title="Dropout on and off",
  source="table 8",
  question=(
    "Does dropout hurt? In the paper ALBERT-xxlarge is better without it, "
    "after a million steps."
  ),
  rows=(
    _row(
      *("with dropout", _dropout(0.1)),
      "94.7/89.2 89.6/86.9 90.0 96.3 85.7 90.4",
    ),
    _row(
      *("without dropout", _dropout(0.0)),
      "94.8/89.5 89.9/87.2 90.4 96.5 86.1 90.7",
      compared_with="with dropout",
    ),
  ),
  curves=True,
)

_DEPTH_SCORES = {
  1: "31.1/22.9 50.1/50.1 66.4 80.8 40.1 52.9",
  3: "79.8/69.7 64.4/61.7 77.7 86.7 54.0 71.2",
  6: "86.4/78.4 73.8/71.1 81.2 88.9 60.9 77.2",
  12: "89.8/83.3 80.7/77.9 83.3 91.7 66.7 81.5",
  24: "90.3/83.3 81.8/79.0 83.3 91.5 68.7 82.1",
  48: "90.0/83.1 81.8/78.9 83.4 91.9 66.9 81.8",
}
TABLE_11 = Table(
  name="11",
  title="Depth",
  source="table 11",
  question=(
    "How many times should the shared layer be applied? In the paper the gain "
    "becomes small after 12, and 48 is worse than 24."
  ),
  rows=tuple(
    _row(
      _layers(layers),
      {"hidden_size": 1024, "num_hidden_layers": layers},
      *(scores, "18M"),
      compared_with=_layers(before) if before else None,
      # From three layers on, each starts with the weights of the one before.
      starts_from=_layers(before) if before else None,
    )
    for before, (layers, scores) in zip(
      (None, *_DEPTH_SCORES), _DEPTH_SCORES.items()
    )
  ),
)

_WIDTH_SCORES = {
  1024: ("18M", "79.8/69.7 64.4/61.7 77.7 86.7 54.0 71.2"),
  2048: ("60M", "83.3/74.1 69.1/66.6 79.7 88.6 58.2 74.6"),
  4096: ("225M", "85.0/76.4 71.0/68.1 80.3 90.4 60.4 76.3"),
  6144: ("499M", "84.7/75.8 67.8/65.4 78.1 89.1 56.0 74.0"),
}
TABLE_12 = Table(
  name="12",
  title="Width",
  source="table 12",
  question=(
    "How wide should the shared layer be if it is applied three times? In the "
    "paper 4096 is best and 6144 is worse."
  ),
  rows=tuple(
    _row(
      f"H {width}",
      {"hidden_size": width, "num_hidden_layers": 3},
      *(scores, parameters),
      f"H {before}" if before else None,
    )
    for before, (width, (parameters, scores)) in zip(
      (None, *_WIDTH_SCORES), _WIDTH_SCORES.items()
    )
  ),
)

TABLE_13 = Table(
  name="13",
  title="Depth of a wide model",
  source="table 13",
  question="Must a wide model also be deep? In the paper it need not be.",
  rows=(
    _row("12 layers", _XXLARGE, "94.0/88.1 88.3/85.3 87.8 95.4 82.5 88.7"),
    _row(
      *("24 layers", {**_XXLARGE, "depth": 24}),
      "94.1/88.3 88.1/85.1 88.0 95.2 82.3 88.7",
      compared_with="12 layers",
    ),
  ),
)

_WIDTHS = (1024, 2048, 4096)
FIGURE_1 = Table(
  name="figure_1",
  title="Wider, without sharing and with it",
  source="figure 1 of arXiv 1909.11942v1",
  question=(
    "Does a wider BERT degrade? In the paper BERT-xlarge, twice as wide as "
    "BERT-large, has a lower held-out masked-LM accuracy."
  ),
  rows=tuple(
    Row(
      f"{name}, H {width}",
      {**_LARGE, "hidden_size": width, **changes},
      compared_with=f"{name}, H {before}" if before else None,
      # The printed curves allow no more precise reading.
      paper_says=-1 if (name, width) == ("BERT", 2048) else None,
    )
    for name, changes in (("BERT", _BERT), ("ALBERT", {"embedding_size": 128}))
    for before, width in zip((None, *_WIDTHS), _WIDTHS)
  ),
  direction=declaration.ACCURACY,
  tasks=False,
  curves=True,
)

FIGURE_2 = Table(
  name="figure_2",
  title="What a layer changes",
  source="figure 2 of arXiv 1909.11942v1, figure 1 of v6",
  question=(
    "How far apart are the input and output of each layer? In the paper the "
    "distances change smoothly from layer to layer in ALBERT, but not in BERT, "
    "and converge to 0 in neither. Angles are in degrees; a jump is the "
    "difference between two consecutive layers."
  ),
  rows=(
    Row("shared (ALBERT)", _LARGE),
    Row(
      "not shared (BERT)",
      {**_LARGE, **_BERT},
      compared_with="shared (ALBERT)",
      paper_says=1,
    ),
  ),
  direction=declaration.JUMP,
  tasks=False,
  layers=True,
)

_CONSTANT = "12 throughout"
_BEST_SCHEDULE = "3:0.5,6:0.25,12:0.25"
_SCHEDULES = (
  *("3:0.25,12:0.75", "3:0.5,12:0.5", "3:0.75,12:0.25", _BEST_SCHEDULE),
)


def _scheduled(schedule: str, rate: float = 1.0, suffix: str = "") -> Row:
  """Returns a row that ends with 12 layers; a schedule "" is constant."""
  label = (schedule or _CONSTANT) + suffix
  # The constant depth of another rate is compared with the full rate's.
  reference = _CONSTANT + suffix if schedule else _CONSTANT
  return Row(
    label,
    {"num_hidden_layers": 12},
    training={"depth_schedule": schedule} if schedule else {},
    rate=rate,
    compared_with=reference if label != reference else None,
  )


def _schedule_table(
  name: str, title: str, question: str, rate: float, more_rows: tuple = ()
) -> Table:
  def row(label: str, depth: int, share: float) -> Row:
    model = {"num_hidden_layers": depth}
    return Row(label, model, share=share, rate=rate, compared_with=_CONSTANT)

  return Table(
    name=name,
    title=title,
    source="not in the paper, whose table 11 starts deeper models from "
    "shallower",
    question=(
      f"{question} The schedules share their number of steps and learning "
      "rates, and only losses at full depth count."
    ),
    rows=(
      *(_scheduled(schedule, rate) for schedule in ("", *_SCHEDULES)),
      # As many operations as the last schedule.
      row(f"{_CONSTANT}, half the steps", 12, 0.5),
      # What depth is worth at this scale.
      row("3 throughout", 3, 1.0),
      *more_rows,
    ),
    direction=declaration.ACCURACY,
    tasks=False,
    curves=True,
    time_to_loss=True,
  )


DEPTH_SCHEDULE = _schedule_table(
  "depth_schedule",
  "Depth as a dial: shallow first",
  "How much sooner does a model of 12 layers reach the final held-out "
  "masked-LM loss of constant depth if the same weights are applied fewer "
  "times at first?",
  rate=1.0,
  # With a rate that suits a deep model, a shallow start may bring less.
  more_rows=tuple(
    _scheduled(schedule, rate, f", {name} of the rate")
    for name, rate in (("a third", 1 / 3), ("a tenth", 1 / 10))
    for schedule in ("", _BEST_SCHEDULE)
  ),
)
# depth_schedule showed that at tiny's rate, and at a third of it, 12 layers
# learn almost nothing without a shallow start.
LOW_RATE = _schedule_table(
  "depth_schedule_low_rate",
  "Depth as a dial, at a tenth of the learning rate",
  "Where depth 12 trains from the start too: which schedule is the first to "
  "reach the final held-out masked-LM loss of constant depth 12, and which "
  "ends lowest?",
  rate=1 / 10,
)

# One model is pretrained and fine-tuned at 12 layers. One copy trains further
# at random depths, another at its own depth; all three are measured at each.
DEPTH_INFERENCE = Table(
  name="depth_inference",
  title="Depth as a dial: fewer layers for an answer",
  source="not in the paper",
  question=(
    "How good is a model of 12 shared layers, pretrained shallow first, if "
    "only some of them are applied, or more? And after a few hundred steps at "
    "random depths, compared with as many at its own depth?"
  ),
  rows=tuple(
    Row(
      _layers(depth),
      {"num_hidden_layers": 12},
      # At tiny, constant depth 12 learns only how frequent each piece is.
      training={"depth_schedule": _BEST_SCHEDULE},
      num_applied_layers=depth,
    )
    for depth in (1, 2, 3, 4, 6, 8, 12, 16, 24)
  ),
)

TABLES = {
  table.name: table
  for table in (
    *(TABLE_1, TABLE_2, TABLE_3, TABLE_4, TABLE_5, TABLE_6, TABLE_7, TABLE_8),
    *(TABLE_11, TABLE_12, TABLE_13, FIGURE_1, FIGURE_2),
    *(DEPTH_SCHEDULE, LOW_RATE, DEPTH_INFERENCE),
  )
}
