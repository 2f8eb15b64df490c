"""Which peak learning rate a run gets, and what the user is told of it."""

from __future__ import annotations

from typing import Optional

from official_albert.training import optimization

# Beyond this factor a rate given by hand is worth a second look.
_FAR = 4.0
# The smallest model of the paper is `albert_base`. Of smaller ones two sizes
# were measured on SST-2 (docs/finetuning.md): hidden_size 128 wants 3e-4, at
# which 256 no longer learns. So the rate falls as 1 / hidden_size, to 5e-5 at
# 768, which is the largest of the paper.
_PAPERS_HIDDEN_SIZE = 768
_MEASURED_HIDDEN_SIZE, _MEASURED_RATE = 128, 3e-4


def for_finetuning(papers: float, hidden_size: int) -> tuple[float, str]:
  """The default peak rate of a fine-tuning, and why.

  Args:
    papers: the rate of the paper for this task.
    hidden_size: the model's.

  Returns:
    `papers` for models of the paper's sizes, a larger rate for smaller models;
    and the reason, for the end of a line of the log.
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
  """The peak rate and the lines to print.

  Args:
    given: what the user asked for; None asks for the square-root rule.
    batch: examples in one update, over all micro-batches and devices.
    optimizer: one of `OPTIMIZERS`.

  Returns:
    `given`, or the rule's rate; and a line that says rate, batch and rule. A
    second line follows when a rate given for LAMB is over four times, or
    under a quarter of, the rule's.
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
  # A rate that is not positive is refused with the other settings.
  if given > 0 and not 1 / _FAR <= given / ruled <= _FAR:
    more, times = "over", given / ruled
    if times < 1:
      more, times = "under", 1 / times
    lines.append(
      f"note: that is {times:.3g} times {more} the rule's; where a loss jumps "
      f"or stays, try --learning_rate={ruled:.4g}, or leave the flag out."
    )
  return given, lines
