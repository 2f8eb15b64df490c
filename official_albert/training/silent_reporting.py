"""The reporter of workers that are not the chief: says and writes nothing."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator, Union

import tensorflow as tf

from official_albert import distribution
from official_albert.training import reporting


class SilentReporter:
  """Has every method of `reporting.Reporter`, to no effect."""

  def __enter__(self) -> SilentReporter:
    return self

  def __exit__(self, *unused) -> None:
    pass

  @contextlib.contextmanager
  def pause(self) -> Iterator[None]:
    yield

  def __getattr__(self, name: str) -> Callable[..., Any]:
    getattr(reporting.Reporter, name)  # Raises if it has none of that name.
    return lambda *args, **kwargs: None


def make_reporter(
  strategy: tf.distribute.Strategy, model_dir: str
) -> Union[reporting.Reporter, SilentReporter]:
  """A reporter on the chief, a silent one on the others."""
  if distribution.is_chief(strategy):
    return reporting.Reporter(model_dir)
  return SilentReporter()
