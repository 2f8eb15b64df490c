"""What a pretraining run says of texts, as its export's signatures would.

fill_mask         the best pieces for each [MASK]
encode            the pooled output, for one text
encode_pair       the same for two
sentence_order    the probability that the second text comes first
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Mapping, Sequence

import tensorflow as tf

from official_albert import training
from official_albert.tokenization import in_graph
from tasks import common, pretraining
from tools.prediction import ids as prediction_ids
from tools.prediction import output as prediction_output
from tools.prediction import program as prediction_program
from tools.prediction import run as prediction_run
from tools.prediction.stream import Part

FILL_MASK = "fill_mask"
_PAIRS = ("encode_pair", "sentence_order")
SIGNATURES = (FILL_MASK, "encode", *_PAIRS)
_MASK = "[MASK]"


class PretrainedBackend:
  """Implements `prediction_stream.Backend`; see `TextBackend`."""

  columns: Mapping[str, str] = {}

  def __init__(
    self,
    model_dir: str,
    signature: str,
    encoder: prediction_run.Encoder,
    settings: prediction_run.Settings,
  ):
    """Reads the weights.

    Args:
      model_dir: the run's folder.
      signature: one of `SIGNATURES`; "" is the first.
      encoder: its configuration and tokenizer.
      settings: how it predicts.

    Raises:
      OSError, ValueError: there is no such signature, or the run has no
        checkpoint, or one of another model.
    """
    signature = signature or FILL_MASK
    if signature not in SIGNATURES:
      raise ValueError(
        f"{model_dir} is a pretraining run, which has no signature "
        f"{signature!r}: choose one of {', '.join(SIGNATURES)}, or name a run "
        "of tools.run_finetuning."
      )
    self.about = f"{model_dir} is a pretraining run (--signature={signature})"
    self._signature = signature
    self.roles = ("text_a", "text_b") if signature in _PAIRS else ("text",)
    tokenizer = encoder.tokenizer
    strategy = settings.devices.strategy
    with strategy.scope():
      model = pretraining.AlbertForPretraining(encoder.config, name="model")
    self.source = prediction_run.load_weights(
      model, model_dir, settings.checkpoint
    )
    length = settings.max_seq_length or self._trained_length(
      model_dir, encoder.config
    )
    common.check_fits(encoder.config, tokenizer.vocab_size, length)
    self._ids = prediction_ids.Ids(tokenizer, length, self.roles)
    self._fill_mask = None
    if signature == FILL_MASK:
      if not 1 <= settings.top_k <= tokenizer.vocab_size:
        raise ValueError(
          f"top_k is {settings.top_k}, but has to be between 1 and the "
          f"{tokenizer.vocab_size} pieces."
        )
      layer = in_graph.FillMaskTextLayer(
        in_graph.make_text_layer(
          tokenizer.kind, os.fspath(tokenizer.model_file), tokenizer.lower_case
        ),
        length,
      )
      self._fill_mask = _make_fill_mask(model, layer, settings.top_k)
      names = ["mask_positions"]
    else:
      predict = _order if signature == "sentence_order" else _pooled
      self._program = prediction_program.Program(
        model, predict, strategy, settings.batch_size
      )
      self._ids = dataclasses.replace(
        self._ids, fixed_length=self._program.fixed_length
      )
      names = [
        "swapped_probability"
        if signature == "sentence_order"
        else "pooled_output"
      ]
    self.layout = prediction_output.layout_of(names)

  def _trained_length(self, model_dir: str, config) -> int:
    record = training.read_run(model_dir)
    if "max_seq_length" not in record["data"]:  # A converted checkpoint.
      return config.max_position_embeddings
    return pretraining.trained_length(record, self.source)

  def parts(self, cells: Mapping[str, Any]) -> list[Part]:
    """The row's sequence, or its text if there are masks to fill.

    Raises:
      ValueError: there are none.
    """
    if self._fill_mask is None:
      return [self._ids.part(cells)]
    text = cells["text"]
    if _MASK not in text:
      raise ValueError(
        f"the text has no {_MASK}, and {self.about}: put it where a piece is "
        "wanted, or name another signature or a run of tools.run_finetuning."
      )
    return [Part(len(text), text)]

  def run(self, inputs: Sequence[Any]) -> list[dict[str, Any]]:
    """What the model says of each sequence."""
    if self._fill_mask is None:
      said = self._program(self._ids.batch(inputs))
    else:
      outputs = self._fill_mask(tf.constant(list(inputs)))
      said = {
        name: prediction_program.to_numpy(x) for name, x in outputs.items()
      }
    return [dict(zip(said, row)) for row in zip(*said.values())]

  def answer(
    self,
    cells: Mapping[str, Any],
    parts: Sequence[Part],
    outputs: Sequence[Mapping[str, Any]],
  ) -> Mapping[str, Any]:
    """The outputs."""
    return outputs[0]


def _make_fill_mask(model, text_layer, top_k: int):
  """<string>[B] to what `pretraining.fill_masks` returns."""

  def logits_of(features, positions):
    features = {**features, "masked_lm_positions": positions}
    outputs = model(features, training=False, logits_only=True)
    return outputs["masked_lm_logits"]

  @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
  def fill_mask(texts):
    return pretraining.fill_masks(
      text_layer(texts), text_layer, top_k, logits_of
    )

  return fill_mask


def _pooled(model, batch) -> dict[str, tf.Tensor]:
  none = tf.zeros_like(batch["input_ids"][:, :0])
  outputs = model.albert(batch, training=False, output_positions=none)
  return {"pooled_output": tf.cast(outputs["pooled_output"], tf.float32)}


def _order(model, batch) -> dict[str, tf.Tensor]:
  none = tf.zeros_like(batch["input_ids"][:, :0])
  features = {**batch, "masked_lm_positions": none}
  outputs = model(features, training=False, logits_only=True)
  swapped = tf.nn.softmax(outputs["sentence_order_logits"])[:, 1]
  return {"swapped_probability": swapped}
