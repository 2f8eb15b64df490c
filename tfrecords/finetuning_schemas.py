"""What the records of fine-tuning tasks hold.

Names are those of google-research/albert where it has one (classifier_utils.py,
squad_utils.py, race_utils.py). `example_id` is new: the place of the example in
its split, by which a prediction finds its question again.
"""

from __future__ import annotations

from tfrecords.schemas import Feature


def _inputs(*shape: int) -> tuple[Feature, ...]:
  return (
    Feature("input_ids", "int64", shape),
    Feature("input_mask", "int64", shape),
    Feature("segment_ids", "int64", shape),
    Feature("example_id", "int64", ()),
  )


def classification_schema(max_seq_length: int) -> tuple[Feature, ...]:
  """A sequence or a pair and the number of its class."""
  return (*_inputs(max_seq_length), Feature("label_ids", "int64", ()))


def regression_schema(max_seq_length: int) -> tuple[Feature, ...]:
  """A sequence or a pair and a number."""
  return (*_inputs(max_seq_length), Feature("label_ids", "float32", ()))


def span_schema(max_seq_length: int) -> tuple[Feature, ...]:
  """A question with a window of its context.

  `p_mask` is 1 where no answer may begin or end. Of a window without the
  answer `is_impossible` is 1 and both positions are 0, that of [CLS].
  """
  return (
    *_inputs(max_seq_length),
    Feature("p_mask", "float32", (max_seq_length,)),
    Feature("start_positions", "int64", ()),
    Feature("end_positions", "int64", ()),
    Feature("is_impossible", "int64", ()),
  )


def multiple_choice_schema(
  max_seq_length: int, options: int
) -> tuple[Feature, ...]:
  """A sequence for each option, and which option is right."""
  return (
    *_inputs(options, max_seq_length),
    Feature("label_ids", "int64", ()),
  )
