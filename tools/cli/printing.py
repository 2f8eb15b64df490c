"""What programs print and draw: tables, a progress line, figures as PNG."""

from __future__ import annotations

import contextlib
import datetime
import logging
import statistics as statistics_lib
import sys
import time
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence, TextIO

import tabulate

from official_albert import files


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
  """Returns a table with aligned columns; the cells stay as they are."""
  return tabulate.tabulate(rows, columns, "github", disable_numparse=True)


def spread(
  values: Sequence[float],
  form: str,
  average: Callable[[Sequence[float]], float] = statistics_lib.median,
) -> str:
  """Returns the average of numbers, and their range if they differ."""
  if not values:
    return ""
  middle, low, high = (format(x(values), form) for x in (average, min, max))
  return middle if low == high else f"{middle} ({low} to {high})"


def statistics_table(splits: Mapping[str, Mapping[str, Any]]) -> str:
  """Returns a table with a column for each split, a row for each statistic."""
  rows: dict[str, dict[str, str]] = {}
  for split, statistics in splits.items():
    for name, number in statistics.items():
      text = f"{number:,}" if isinstance(number, int) else f"{number:.4f}"
      rows.setdefault(name, {})[split] = text
  return tabulate.tabulate(
    [[name, *map(row.get, splits)] for name, row in rows.items()],
    ["", *splits],
    "plain",
    colalign=["left", *["right"] * len(splits)],
    disable_numparse=True,
  )


@contextlib.contextmanager
def figure(path: str, width: float, height: float) -> Iterator[Any]:
  """Yields an empty figure of matplotlib, which is then written as a PNG."""
  # It logs that it builds its font cache.
  logging.getLogger("matplotlib").setLevel(logging.ERROR)
  from matplotlib.figure import Figure  # Takes a second.

  drawn = Figure(figsize=(width, height), layout="constrained")
  yield drawn
  with files.replacing(path) as temporary:
    drawn.savefig(temporary, format="png", dpi=110)


class ProgressLine:
  """Shows the progress on stderr, a line every ten seconds."""

  def __init__(self, stream: TextIO = sys.stderr):
    self._stream, self._shown = stream, time.monotonic()
    # The phase, and time, fraction and tokens at its start.
    self._phase, self._start = "", (0.0, 0.0, 0)

  def show(
    self, phase: str, fraction: float, tokens: int, details: str
  ) -> None:
    """Shows the progress if it is time to.

    Args:
      phase: the name of the current phase. A new phase restarts the clock; its
        speed excludes the work before its first call, such as before a restart.
      fraction: the share of the phase that is done.
      tokens: the tokens of the phase that are done; 0 if they are not counted.
      details: further text.
    """
    now = time.monotonic()
    if phase != self._phase:
      self._phase, self._start = phase, (now, fraction, tokens)
    if now - self._shown < 10:
      return
    self._shown = now
    begin, first_fraction, first_tokens = self._start
    seconds, share = now - begin, fraction - first_fraction
    line = f"{phase}: {details}"
    if seconds > 0 and tokens:
      line += f", {(tokens - first_tokens) / seconds:,.0f} tokens/s"
    if seconds > 0 and share > 0:
      left = max(0, round((1 - fraction) * seconds / share))
      line += f", {datetime.timedelta(seconds=left)} left"
    print(line, file=self._stream, flush=True)
