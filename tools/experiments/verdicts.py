"""Whether a difference between two rows has the paper's direction."""

from __future__ import annotations

from typing import Iterable, Optional, Sequence

from tools.experiments import declaration, results

AGREES, DISAGREES, SPREAD = "agrees", "disagrees", "within the spread"
# Less is taken for no difference: the paper has the same model's MNLI as 81.6
# and as 82.0, and its averages by one decimal.
_EQUAL = 0.2
ONE_SEED = "one seed"
_WORDS = {1: "higher", 0: "no different", -1: "lower"}


def paper_direction(
  table: declaration.Table, label: str, columns: Sequence[str]
) -> Optional[int]:
  """1 if the paper finds a row better than the one it is compared with.

  Args:
    table: the declaration.
    label: of the row.
    columns: the tasks that the average is over, or one other column.

  Returns:
    1, -1 if it is worse, 0 if hardly different; None if the paper does not say.
  """
  if label in table.paper_says:
    return table.paper_says[label]
  if label not in table.compare:
    return None
  here = declaration.paper_average(table.row(label), list(columns))
  there = declaration.paper_average(
    table.row(table.compare[label]), list(columns)
  )
  if here is None or there is None:
    return None
  if abs(here - there) < _EQUAL:
    return 0
  return 1 if here > there else -1


def our_direction(
  here: Optional[results.Number], there: Optional[results.Number]
) -> Optional[int]:
  """As the paper's: 1 where higher, 0 where the seeds' ranges overlap."""
  if here is None or there is None:
    return None
  if here.lowest <= there.highest and there.lowest <= here.highest:
    return 0
  return 1 if here.mean > there.mean else -1


def verdict(
  paper: Optional[int],
  here: Optional[results.Number],
  there: Optional[results.Number],
) -> str:
  """In words; "" where nothing was run.

  One of `AGREES`, `DISAGREES` and `SPREAD`, with our direction, and the paper's
  where it is another; our direction alone where the paper says none or sees no
  difference; and whether it is of one seed, which has no spread.
  """
  ours = our_direction(here, there)
  if ours is None:
    return ""
  one_seed = f", {ONE_SEED}" if min(here.seeds, there.seeds) == 1 else ""
  if paper is None:
    return _WORDS[ours] + one_seed
  if ours == 0:
    return SPREAD + one_seed
  if ours == paper:
    return f"{AGREES}: {_WORDS[ours]}{one_seed}"
  if paper == 0:  # No direction that one could share.
    return f"{_WORDS[ours]}, paper no different{one_seed}"
  return f"{DISAGREES}: {_WORDS[ours]}, paper {_WORDS[paper]}{one_seed}"


def count(told: Iterable[str]) -> dict[str, int]:
  """How often each kind of verdict was given; of one seed it is none."""
  told = list(told)
  return {
    kind: sum(v.startswith(kind) and ONE_SEED not in v for v in told)
    for kind in (AGREES, DISAGREES, SPREAD)
  }


def of_table(
  table: declaration.Table,
  rows: Sequence[results.RowResults],
  tasks: Sequence[str],
) -> dict[str, dict[str, str]]:
  """By label, and by what they go by, the verdicts of each row compared.

  "tasks" compares averages over the tasks that were run with the paper's over
  the same ones; "MLM" our held-out accuracy with the paper's, or where it has
  none, as in most of its tables, with its direction on its own average; "NSP"
  and "SOP" those accuracies, where a table has them. A table with another
  `direction` has one verdict, by that column.
  """
  told = {}
  for label in table.compare:
    paper = table.row(label).paper
    every = [task for task in declaration.TASKS if task in paper]
    if table.direction == declaration.AVERAGE:
      held_out = [results.ACCURACY] if results.ACCURACY in paper else every
      told[label] = {
        "tasks": _of_row(table, rows, label, tasks, declaration.AVERAGE),
        "MLM": _of_row(table, rows, label, held_out, results.ACCURACY),
      }
      for column in (pair.upper() for pair in table.pairs):
        told[label][column] = _of_row(table, rows, label, [column], column)
    else:
      verdict_ = _of_row(table, rows, label, every, table.direction)
      told[label] = {table.direction: verdict_}
  return told


def _of_row(
  table: declaration.Table,
  rows: Sequence[results.RowResults],
  label: str,
  columns: Sequence[str],
  shown: str,
) -> str:
  """The paper's direction by `columns`, ours by the column `shown`."""
  numbers = {result.row.label: result.number(shown) for result in rows}
  return verdict(
    paper_direction(table, label, columns),
    numbers[label],
    numbers[table.compare[label]],
  )
