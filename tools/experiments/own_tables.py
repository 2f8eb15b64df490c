"""What the paper shows as figures, and what only a shared model can do.

The figures are those of the paper's first version, which the issue of wider
BERTs opens; the last version kept the one of layers (there figure 1).
"""

from __future__ import annotations

from tools.experiments import results
from tools.experiments.declaration import Row, Table

_LARGE = {"hidden_size": 1024, "depth": 24}
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
    )
    for name, changes in (
      ("BERT", {"embedding_size": "H", "sharing": "none"}),
      ("ALBERT", {"embedding_size": 128}),
    )
    for width in _WIDTHS
  ),
  compare={
    f"{name}, H {width}": f"{name}, H {before}"
    for name in ("BERT", "ALBERT")
    for before, width in zip(_WIDTHS, _WIDTHS[1:])
  },
  # The curves can be read no more exactly than that.
  paper_says={"BERT, H 2048": -1},
  direction="MLM",
  tasks=False,
  curves=True,
)

FIGURE_2 = Table(
  name="figure_2",
  title="What a layer changes",
  source="figure 2 of arXiv 1909.11942v1, figure 1 of v6",
  question=(
    "How far apart are input and output of each layer? In the paper the "
    "distances of ALBERT change smoothly from layer to layer and BERT's do "
    "not, and neither converges to 0. Angles in degrees; a jump is between two "
    "layers that follow each other."
  ),
  rows=(
    Row("shared (ALBERT)", _LARGE),
    Row(
      "not shared (BERT)",
      {**_LARGE, "embedding_size": "H", "sharing": "none"},
    ),
  ),
  compare={"not shared (BERT)": "shared (ALBERT)"},
  paper_says={"not shared (BERT)": 1},
  direction=results.JUMP,
  tasks=False,
  layers=True,
)

_THROUGHOUT = "12 throughout"
_SCHEDULES = (
  "3:0.25,12:0.75",
  "3:0.5,12:0.5",
  "3:0.75,12:0.25",
  "3:0.5,6:0.25,12:0.25",
)
_RATES = {"a third": 1 / 3, "a tenth": 1 / 10}
_NOT_THE_PAPERS = (
  "not in the paper, whose table 11 starts deeper models from shallower"
)


def _scheduled(schedule: str, rate: float = 1.0, told: str = "") -> Row:
  """12 layers in the end, with a share of the rate that the label tells."""
  return Row(
    (schedule or _THROUGHOUT) + told,
    {"num_hidden_layers": 12},
    training={"depth_schedule": schedule} if schedule else {},
    rate=rate,
  )


def _all_schedules(rate: float = 1.0) -> tuple[Row, ...]:
  return (
    *(_scheduled(schedule, rate) for schedule in ("", *_SCHEDULES)),
    # As many operations as the last schedule, and no schedule.
    Row(
      f"{_THROUGHOUT}, half the steps",
      {"num_hidden_layers": 12},
      share=0.5,
      rate=rate,
    ),
    # What depth is worth at all at this scale.
    Row("3 throughout", {"num_hidden_layers": 3}, rate=rate),
  )


DEPTH_SCHEDULE = Table(
  name="depth_schedule",
  title="Depth as a dial: shallow first",
  source=_NOT_THE_PAPERS,
  question=(
    "How much sooner does a model of 12 layers reach the held-out masked-LM "
    "loss that constant depth ends at, when the same weights are applied fewer "
    "times at first? The schedules have the same steps and learning rates, and "
    "only losses at full depth count."
  ),
  rows=(
    *_all_schedules(),
    # A deep model may want a lower rate, where shallow beginnings bring less.
    *(
      _scheduled(schedule, rate, f", {told} of the rate")
      for told, rate in _RATES.items()
      for schedule in ("", _SCHEDULES[-1])
    ),
  ),
  compare={
    **{row.label: _THROUGHOUT for row in _all_schedules()[1:]},
    **{f"{_THROUGHOUT}, {told} of the rate": _THROUGHOUT for told in _RATES},
    **{
      f"{_SCHEDULES[-1]}, {told} of the rate": (
        f"{_THROUGHOUT}, {told} of the rate"
      )
      for told in _RATES
    },
  },
  direction="MLM",
  tasks=False,
  curves=True,
  time_to_loss=True,
)

# depth_schedule found that at tiny's rate, and a third of it, 12 layers learn
# next to nothing without a shallow beginning.
LOW_RATE = Table(
  name="depth_schedule_low_rate",
  title="Depth as a dial, at a tenth of the learning rate",
  source=_NOT_THE_PAPERS,
  question=(
    "Where depth 12 trains from the start too: which schedule reaches soonest "
    "the held-out masked-LM loss that depth 12 throughout ends at, and which "
    "ends lowest? The schedules have the same steps and learning rates, and "
    "only losses at full depth count."
  ),
  rows=_all_schedules(_RATES["a tenth"]),
  compare={row.label: _THROUGHOUT for row in _all_schedules()[1:]},
  direction="MLM",
  tasks=False,
  curves=True,
  time_to_loss=True,
)

TABLES = (FIGURE_1, FIGURE_2, DEPTH_SCHEDULE, LOW_RATE)
