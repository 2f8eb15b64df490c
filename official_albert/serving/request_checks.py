"""Checks the requests of a served model inside the graph.

A C++ session does not compare a request with the shapes of its signature, and
TensorFlow's operations would accept some invalid requests, such as a mask of
2s. So the graph asserts everything that the model relies on, and the client
gets InvalidArgument with the reason.

The data of assertions are only strings and int32, because other dtypes would
put each assertion into its own branch (tensorflow's control_flow_assert.py).
"""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence

import tensorflow as tf

from official_albert.config import AlbertConfig
from official_albert.modeling import INPUTS as IDS

Features = dict[str, tf.Tensor]
_INT32_MAX = 2**31 - 1
# Of a text's token, more than texts have: 8 characters of 3 bytes.
TOKEN_BYTES = 24


def refuse_unless(
  condition: tf.Tensor, sentence: str, *data: Any
) -> Optional[tf.Operation]:
  """Fails the request unless `condition` <bool>[] holds.

  The message is the sentence followed by the data, <int32> or <string>. Returns
  the operation for `after_checks`, or None in eager execution.
  """
  return tf.raw_ops.Assert(
    condition=condition, data=[sentence, *data], summarize=8
  )


def after_checks(checks: Sequence[Any], tensors: Any) -> Any:
  """Returns a tensor, or a dict of tensors, with a dependency on the checks.

  Without it, the model might fail first with a less clear message.
  """
  with tf.control_dependencies([x for x in checks if x is not None]):
    return tf.nest.map_structure(tf.identity, tensors)


def limit_bytes(texts: tf.Tensor, most: int, what: str) -> tf.Tensor:
  """Returns texts <string>[B], which have at most `most` bytes in total.

  `what` names them in the message, as "texts".
  """
  size = tf.reduce_sum(tf.cast(tf.strings.length(texts), tf.int64))
  check = refuse_unless(
    size <= most,
    f"the {what} of a request may have at most {most} bytes in total: send "
    f"fewer or shorter {what}",
  )
  return after_checks([check], texts)


def limit_windows(counts: tf.Tensor, most: int, what: str) -> tf.Tensor:
  """Returns the windows of each text <int64>[B], at most `most` in total."""
  total = tf.reduce_sum(counts)
  check = refuse_unless(
    total <= most,
    f"the {what} of a request may have at most {most} windows in total: send "
    f"fewer or shorter {what}; the number of windows is",
    tf.cast(tf.minimum(total, tf.int32.max), tf.int32),
  )
  return after_checks([check], counts)


def shape_of(tensor: tf.Tensor) -> tf.Tensor:
  """Returns the shape of a request's tensor, <int32>[rank].

  TensorFlow does not compare a request with its signature, but its optimizer
  replaces sizes that the signature knows by constants. This operation hides
  them from it.
  """
  hidden = tf.raw_ops.PlaceholderWithDefault(
    input=tensor, shape=tf.TensorShape(None)
  )
  return tf.raw_ops.Shape(input=hidden)


def check_rank(name: str, tensor: tf.Tensor, letters: str) -> tf.Tensor:
  """Returns a tensor, checked to have one axis for each letter of "B S"."""
  rank = tf.size(shape_of(tensor))
  axes = letters.split()
  check = refuse_unless(
    tf.equal(rank, len(axes)),
    f"{name} must have the shape [{', '.join(axes)}], but its number of "
    "axes is",
    rank,
  )
  return after_checks([check], tensor)


def check_texts(texts: Mapping[str, tf.Tensor]) -> Features:
  """Returns texts by name, checked to be <string>[B] with the same B."""
  texts = {name: check_rank(name, x, "B") for name, x in texts.items()}
  (first, rows), *others = ((name, tf.size(x)) for name, x in texts.items())
  checks = [
    refuse_unless(
      tf.equal(rows, count),
      f"{first} and {name} must hold equally many texts, but hold",
      rows,
      count,
    )
    for name, count in others
  ]
  return after_checks(checks, texts)


def check_range(
  name: str, tensor: tf.Tensor, limit: Any, end: str = ""
) -> Optional[tf.Operation]:
  """Refuses <int32> values outside of [0, limit); see `refuse_unless`.

  If the limit is a tensor, `end` describes the largest value in the message.
  """
  # Without values, the minimum is the largest int32, the maximum the smallest.
  lowest, highest = tf.reduce_min(tensor), tf.reduce_max(tensor)
  return refuse_unless(
    (lowest >= 0) & (highest < limit),
    f"{name} must be from 0 to {end or limit - 1}, but the lowest and the "
    "highest are",
    lowest,
    highest,
  )


def check_ids(
  features: Mapping[str, tf.Tensor],
  letters: str,
  config: AlbertConfig,
  names: Sequence[str] = IDS,
) -> Features:
  """Returns ids, mask and segments after checking their shapes and values.

  Args:
    features: ids, mask and segments, <int32>[B, S] or [B, 4, S].
    letters: the names of the axes; a number is the size of its axis.
    config: the limits of the values, and of S.
    names: the names of the three features, in this order.
  """
  features = {name: check_rank(name, features[name], letters) for name in names}
  first, axes = names[0], letters.split()
  shape = shape_of(features[first])
  # Without this check, too many options would count as further examples.
  sizes = [int(x) if x.isdigit() else shape[i] for i, x in enumerate(axes)]
  checks = []
  for name in names:
    other = shape_of(features[name])
    wanted = f"[{', '.join(axes)}]" if name == first else f"of {first}"
    checks.append(
      refuse_unless(
        tf.reduce_all(tf.equal(other, sizes)),
        f"{name} must have the shape {wanted}, but its shape is",
        other,
      )
    )
  checks.append(
    refuse_unless(
      (shape[-1] >= 1) & (shape[-1] <= config.max_position_embeddings),
      "a sequence must have at least 1 token and at most "
      f"{config.max_position_embeddings}, but it has",
      shape[-1],
    )
  )
  limits = config.vocab_size, 2, config.type_vocab_size
  checks += [
    check_range(name, features[name], limit)
    for name, limit in zip(names, limits)
  ]
  return after_checks(checks, features)


def without_server_padding(
  features: Mapping[str, tf.Tensor], cls_id: Optional[int]
) -> Features:
  """Masks the padding that a batching server appends to shorter requests.

  With pad_variable_length_inputs, TF Serving pads each tensor with its first
  element (batching_util.cc), so ids with [CLS] and masks with 1. No sequence
  ends in [CLS], so trailing [CLS] ids get mask 0. Without a `cls_id`, nothing
  changes.
  """
  if cls_id is None:
    return dict(features)
  ids, mask = features["input_ids"], features["input_mask"]
  is_cls = tf.cast(tf.equal(ids[..., 1:], cls_id), tf.int32)
  appended = tf.math.cumprod(is_cls, axis=-1, reverse=True)
  kept = tf.concat([mask[..., :1], mask[..., 1:] * (1 - appended)], axis=-1)
  return {**features, "input_mask": kept}


def parse_examples(
  examples: tf.Tensor, options: int, extra: Sequence[str], longest: int
) -> Features:
  """Parses serialized tf.Examples and pads them to the longest.

  Args:
    examples: <string>[B], with int64 lists: `input_ids`, and optionally, with
      the same length, `input_mask` (default 1) and `segment_ids` (default 0).
    options: 0, or the number of sequences of equal length that each list
      concatenates.
    extra: the names of further lists, each padded with 0.
    longest: the most values of a sequence, and of a further list.

  Returns:
    `IDS` <int32>[B, S] or [B, options, S], and `extra` <int32>[B, P].
  """
  examples = check_rank("examples", examples, "B")
  spec = {name: tf.io.RaggedFeature(tf.int64) for name in (*IDS, *extra)}
  lists = tf.io.parse_example(examples, spec)
  lengths = lists["input_ids"].row_lengths()
  parts = max(options, 1)
  checks = [
    refuse_unless(
      tf.reduce_all((lengths > 0) & tf.equal(lengths % parts, 0)),
      "every example needs an int64 list input_ids"
      + (f" of {options} sequences of one length" if options else ""),
    )
  ]
  # Padded to one long list, many short ones would take all memory.
  for name in ("input_ids", *extra):
    most = longest * (1 if name in extra else parts)
    length = tf.reduce_max(lists[name].row_lengths())
    checks.append(
      refuse_unless(
        length <= most,
        f"{name} of an example may have at most {most} values, but has",
        tf.cast(tf.minimum(length, _INT32_MAX), tf.int32),
      )
    )
  for name in IDS[1:]:
    theirs = lists[name].row_lengths()
    checks.append(
      refuse_unless(
        tf.reduce_all(tf.equal(theirs, 0) | tf.equal(theirs, lengths)),
        f"{name} of an example must be as long as its input_ids, or left out",
      )
    )
  lists = after_checks(checks, lists)
  lengths = lists["input_ids"].row_lengths() // parts
  length = tf.maximum(tf.reduce_max(lengths), 1)
  mask = tf.sequence_mask(tf.repeat(lengths, parts), length, tf.int32)
  result = {"input_ids": _sequences(lists["input_ids"], parts, length)}
  for name, default in zip(IDS[1:], (mask, tf.zeros_like(mask))):
    left_out = tf.equal(lists[name].row_lengths(), 0)
    result[name] = tf.where(
      tf.repeat(left_out, parts)[:, None],
      default,
      _sequences(lists[name], parts, length),
    )
  if options:
    shape = [-1, options, tf.cast(length, tf.int32)]
    result = {name: tf.reshape(x, shape) for name, x in result.items()}
  for name in extra:
    length = tf.maximum(tf.reduce_max(lists[name].row_lengths()), 0)
    result[name] = _sequences(lists[name], 1, length)
  return result


def _sequences(
  lists: tf.RaggedTensor, parts: int, length: tf.Tensor
) -> tf.Tensor:
  """Maps <int64>[B, (parts * S)] to 0-padded <int32>[B * parts, length]."""
  rows = tf.repeat(lists.row_lengths() // parts, parts)
  rows = tf.RaggedTensor.from_row_lengths(lists.values, rows, validate=False)
  dense = rows.to_tensor(shape=tf.stack([-1, length]))
  # The cast must not turn a large id into another valid one.
  return tf.cast(tf.clip_by_value(dense, -1, _INT32_MAX), tf.int32)
