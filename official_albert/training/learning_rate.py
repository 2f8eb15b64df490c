"""Chooses the peak learning rate of a run, and explains it to the user."""

from __future__ import annotations

from typing import Optional

from official_albert.training import optimization

# A given rate that differs from the rule by more than this factor is noted.
_FAR = 4.0
# The smallest model of the paper is `albert_base`. Two smaller ones were
# measured on SST-2 (docs/finetuning.md): 3e-4 is best for hidden_size 128 and
# too high for 256. So the rate is proportional to 1 / hidden_size, down to 5e-5
# at 768, the largest rate of the paper.
_PAPERS_HIDDEN_SIZE = 768
_MEASURED_HIDDEN_SIZE, _MEASURED_RATE = 128, 3e-4


def for_finetuning(papers: float, hidden_size: int) -> tuple[float, str]:
  """Returns the default peak rate of fine-tuning, and a reason for the log.

  Args:
    papers: the rate of the paper for the task, which is returned for models of
      the paper's sizes. Smaller models have a higher rate.
    hidden_size: of the model.
  """
  if hidden_size >= _PAPERS_HIDDEN_SIZE:
    return papers, f"the default for hidden_size {_PAPERS_HIDDEN_SIZE} and more"
  share = min(_MEASURED_HIDDEN_SIZE / hidden_size, 1.0)
  rate = max(float(f"{_MEASURED_RATE * share:.2g}"), papers)
  return rate, (
    f"the default for hidden_size {hidden_size}; {papers:g} is for "
    f"{_PAPERS_HIDDEN_SIZE} and more"
  )


def choose_learning_rate(
  given: Optional[float], batch: int, optimizer: str
) -> tuple[float, list[str]]:
  """Returns the peak learning rate, and lines about it for the log.

  Args:
    given: the user's choice; None applies the square-root rule.
    batch: examples in one update, over all micro-batches and devices.
    optimizer: one of `OPTIMIZERS`.
  """
  ruled = optimization.scaled_learning_rate(batch)
  rule = f"0.00176 * sqrt({batch} / 4096)"
  if given is None:
    line = f"learning rate {ruled:.4g} = {rule}, LAMB's square-root rule"
    if optimizer != "lamb":
      line += f"; the rule is not one for {optimizer}: give --learning_rate"
    return ruled, [line]
  lines = [f"learning rate {given:.4g} as given, batch {batch}"]
  if optimizer != "lamb":
    lines[0] += "; the square-root rule is LAMB's"
    return given, lines
  lines[0] += f"; the square-root rule {rule} is {ruled:.4g}"
  # TrainConfig refuses a rate that is not positive.
  if given > 0 and not 1 / _FAR <= given / ruled <= _FAR:
    more, times = "over", given / ruled
    if times < 1:
      more, times = "under", 1 / times
    lines.append(
      f"note: that is {times:.3g} times {more} the rule's; where a loss jumps "
      f"or stays, try --learning_rate={ruled:.4g}, or leave the flag out."
    )
  return given, lines
