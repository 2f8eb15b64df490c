"""The fields of an answer, as Python and JSON values.

Loads no TensorFlow.
"""

from __future__ import annotations

from typing import Any, Mapping, Sequence

import numpy as np

from official_albert.tasks import race, tagging

# The only output of an answer to a row that the model refuses: the reason.
ERROR = "error"

_Answer = Mapping[str, Any]


def fields_of(
  answer: _Answer, labels: Sequence[str] = (), text: str = ""
) -> dict[str, Any]:
  """Returns the fields of a JSON line after the id.

  Args:
    answer: the outputs of a model for one row.
    labels: the classes, in the order of their probabilities.
    text: the text of the row, of which tags make spans.
  """
  if ERROR in answer:
    return {"prediction": None, ERROR: answer[ERROR]}
  if {"choice", "label", "labels"} & {*answer}:
    prediction = answer.get("label")
    if "labels" in answer:  # "" stands for those that the text does not have.
      prediction = [name for name in answer["labels"] if name]
    if "choice" in answer:
      labels, prediction = race.LETTERS, race.LETTERS[answer["choice"]]
    probabilities = _numbers(answer["probabilities"])
    return {
      "prediction": prediction,
      "probabilities": dict(zip(labels, probabilities)),
      **{x: int(answer[x]) for x in ("exit_layer",) if x in answer},
    }
  if "tag_probabilities" in answer:
    spans = _spans(answer, labels, text)
    return {"prediction": [span["text"] for span in spans], "spans": spans}
  if "answer" in answer:
    return _answer_fields(answer)
  if "mask_positions" in answer:
    if np.ndim(answer["mask_positions"]) == 1:
      return _mask_fields(answer)
    layers = range(len(answer["mask_positions"]))  # A row for each.
    each = [_mask_fields({k: x[i] for k, x in answer.items()}) for i in layers]
    return {"prediction": each[-1]["prediction"], "layers": each}
  for output in ("score", "swapped_probability"):
    if output in answer:
      return {"prediction": _numbers(answer[output])}
  vector = answer.get("embedding", answer.get("pooled_output"))
  return {"embedding": _numbers(vector)}


def _answer_fields(answer: _Answer) -> dict[str, Any]:
  names = ("probability", "start", "end", "null_score_diff")
  columns = ("answers", "probabilities", "starts", "ends")
  n_best = zip(*(answer[f"n_best_{column}"] for column in columns))
  return {
    "prediction": answer["answer"],
    **{name: _numbers(answer[name]) for name in names if name in answer},
    "n_best": [
      {
        "text": text,
        "probability": _numbers(probability),
        "start": int(start),
        "end": int(end),
      }
      for rank, (text, probability, start, end) in enumerate(n_best)
      if text or not rank  # Rows of a batch are padded with empty answers.
    ],
  }


def _spans(
  answer: _Answer, labels: Sequence[str], text: str
) -> list[dict[str, Any]]:
  # Rows of a batch are padded with "".
  count = sum(1 for tag in answer["tags"] if tag)
  words = tagging.split_words(text)
  starts, ends, tags, probabilities = (
    answer[x][:count] for x in ("starts", "ends", "tags", "tag_probabilities")
  )
  pieces = tagging.first_pieces(starts, ends, words)
  found = tagging.of_words(pieces, tags, probabilities)
  has_entities = tagging.make_entities(labels)
  return [
    {**span, "probability": _numbers(span["probability"])}
    for span in tagging.find_spans(text, words, *found, has_entities)
  ]


def _mask_fields(answer: _Answer) -> dict[str, Any]:
  masks = [
    {
      "position": int(position),
      "tokens": list(answer["tokens"][i]),
      "token_ids": _numbers(answer["token_ids"][i]),
      "probabilities": _numbers(answer["probabilities"][i]),
    }
    for i, position in enumerate(answer["mask_positions"])
    if position >= 0  # Rows of a batch are padded with position -1.
  ]
  return {"prediction": [mask["tokens"][0] for mask in masks], "masks": masks}


def _numbers(value: Any) -> Any:
  """Returns Python numbers with nine digits, in lists for arrays."""
  array = np.asarray(value)
  if array.dtype.kind in "iu":
    return array.tolist()
  if array.ndim:
    return [_numbers(x) for x in array]
  return float(f"{float(array):.9g}")
