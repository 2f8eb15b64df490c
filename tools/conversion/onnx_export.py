"""Exports a model as an ONNX file for ids of any number and length.

The graph is built from the weights, not from TensorFlow's graph: layers refer
to shared weights, and most steps are one operation of ONNX's own domain.

"none" keeps weights as float32, "float16" rounds matrices, and "int8" is ONNX
Runtime's dynamic quantization of matrix products. Results are float32.

Letters: B batch, S sequence, P masked positions, Q computed positions, N heads,
D head size, H hidden, K best starts, M best ends of each.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any, Callable, Optional, Sequence

import numpy as np
import onnx
import onnxruntime
from onnxruntime import quantization as quantizer

from official_albert import files, machine, modeling, serving
from official_albert.tasks.squad import model as squad_model
from official_albert.tools.conversion import export_check

MODEL_FILE = "model.onnx"
_OPSET = 20  # The first with Gelu.
# The batch and the length of what is compared.
_BATCH, _LENGTH = 3, 37
_FLOAT, _INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
_ACTIVATIONS: dict[str, tuple[str, dict[str, str]]] = {
  "gelu": ("Gelu", {"approximate": "tanh"}),
  "gelu_erf": ("Gelu", {}),
  "relu": ("Relu", {}),
  "tanh": ("Tanh", {}),
  "linear": ("Identity", {}),
}
# What a file of protocol buffers holds, less room for the operations.
_MAX_BYTES = (1 << 31) - (1 << 24)


def write_folder(
  source: serving.Source, export_dir: str, quantization: str = "none"
) -> None:
  """Writes model.onnx, configuration, tokenizer, labels and export.json.

  Args:
    source: a float32 model that is not frozen.
    export_dir: a folder that does not exist or is empty.
    quantization: one of `settings.QUANTIZATIONS`.

  Raises:
    ValueError: there is no graph for the model, its weights exceed the 2 GB of
      a file, or the file computes something else; then nothing is written.
  """
  module, config = source.module, source.module.config
  content = _make_file(module, quantization)
  session = onnxruntime.InferenceSession(content)
  names = [output.name for output in session.get_outputs()]

  def run(**inputs):
    wide = {name: x.astype(np.int64) for name, x in inputs.items()}
    return dict(zip(names, session.run(names, wide)))

  length = min(_LENGTH, config.max_position_embeddings)
  concrete = export_check.concrete_function(module, _BATCH, length)
  export_check.compare(run, concrete, config, quantization)
  with files.new_folder(export_dir) as folder:
    files.write_bytes(os.path.join(folder, MODEL_FILE), content)
    record = {
      "format": "onnx",
      "precision": quantization,
      "signatures": ["ids"],
      serving.DEFAULT_SIGNATURE: "ids",
    }
    serving.write_assets(folder, source, record)


def _make_file(module: serving.ServedModule, quantization: str) -> bytes:
  """Returns the content of the file."""
  make = onnx.helper
  graph = _Graph("float16" if quantization == "float16" else "float32")
  outputs = graph.add_outputs(module)
  if (size := sum(x.ByteSize() for x in graph.weights)) > _MAX_BYTES:
    raise ValueError(
      f"the weights have {size:,} bytes, but a file of ONNX holds only "
      f"{_MAX_BYTES:,}: share more weights, or give --quantization=float16."
    )
  for name, value in outputs.items():
    graph.nodes.append(make.make_node("Identity", [value], [name]))
  inputs = {
    name: [int(axis) if axis.isdigit() else axis for axis in axes.split()]
    for name, axes in module.plain_inputs.items()
  }
  proto = make.make_graph(
    graph.nodes,
    module.kind,
    [
      make.make_tensor_value_info(x, _INT64, axes) for x, axes in inputs.items()
    ],
    [make.make_empty_tensor_value_info(name) for name in outputs],
    graph.weights,
  )
  opset = make.make_opsetid("", _OPSET)
  proto = make.make_model_gen_version(proto, opset_imports=[opset])
  # Strict, and with shapes that are computed, to have those of the outputs.
  proto = onnx.shape_inference.infer_shapes(proto, True, True, True)
  del proto.graph.value_info[:]
  if quantization != "int8":
    return proto.SerializeToString()
  with tempfile.TemporaryDirectory() as folder, machine.hold_stderr():
    path = os.path.join(folder, MODEL_FILE)
    signed = quantizer.QuantType.QInt8
    # Weights of seven bits: CPUs without VNNI add products in 16 bits, which
    # overflow with eight.
    quantizer.quantize_dynamic(
      proto, path, per_channel=True, reduce_range=True, weight_type=signed
    )
    return files.read_bytes(path)


class _Graph:
  """A graph under construction: a call adds an operation.

  Methods map the names of outputs to those of further outputs.

  Attributes:
    nodes: the operations in the order of their calls.
    weights: variables and constants, once each.
  """

  def __init__(self, matrix_dtype: str):
    """Stores matrices in `matrix_dtype`; computations are float32."""
    self.nodes: list[onnx.NodeProto] = []
    self.weights: list[onnx.TensorProto] = []
    self._matrix_dtype = matrix_dtype
    self._names: dict[Any, str] = {}

  def __call__(self, operation: str, *inputs: Any, **attributes: Any) -> str:
    """Returns the name of the operation's first output.

    Inputs are names of outputs, variables, or the values of constants.
    """
    names = [x if isinstance(x, str) else self._stored(x) for x in inputs]
    name = f"{operation}_{len(self.nodes)}"
    # Of all used operations, only TopK has a second output.
    outputs = [name, f"{name}_index"] if operation == "TopK" else [name]
    self.nodes.append(
      onnx.helper.make_node(operation, names, outputs, name, **attributes)
    )
    return name

  def _stored(self, value: Any) -> str:
    """Returns the name of a variable or a constant."""
    array = np.asarray(value)
    if hasattr(value, "ref"):
      key, stem = value.ref(), value.name.split(":")[0]
    else:
      array = array.astype(np.float32) if array.dtype == np.float64 else array
      key, stem = (array.dtype, array.shape, array.tobytes()), "constant"
    if key not in self._names:
      name = self._names[key] = f"{stem}_{len(self._names)}"
      if array.ndim == 2 and self._matrix_dtype != "float32":
        array = array.astype(self._matrix_dtype)
        self._names[key] = self("Cast", name, to=_FLOAT)
      self.weights.append(onnx.numpy_helper.from_array(array, name))
    return self._names[key]

  def add_outputs(self, module: serving.ServedModule) -> dict[str, str]:
    """Adds what `plain_outputs` computes, and returns names by output."""
    model, kind, options = module.model, module.kind, module.options
    encoder = getattr(model, "albert", model)
    if kind == "pretraining":
      head = model.masked_lm
      x = self._encode(encoder, lambda x: self._rows(x, "masked_lm_positions"))
      x = self._activation(module.config, self._dense(head.transform, x))
      table = self("Transpose", encoder.embedding.word_embeddings, perm=[1, 0])
      x = self("MatMul", self._norm(head.layer_norm, x), table)
      return {"masked_lm_logits": self("Add", x, head.output_bias)}
    if kind in ("classification", "multi_label", "regression") or options:
      x = self._encode(encoder, self._only_cls, options)
      head = model.classifier
      x = self._classes(head, self._pool(encoder, x))  # [B, C]
      if head.target_scale is not None:
        x = self("Mul", x, head.target_std.numpy())
        x = self("Add", x, head.target_scale.numpy()[0])
      return {"logits": self("Reshape", x, [-1, options]) if options else x}
    if kind == "embedding":
      return {"embedding": self._embedding(encoder, module.pooling)}
    x = self._encode(encoder)
    if kind == "token_classification":
      return {"logits": self._classes(model.classifier, x)}
    if kind == "squad1":
      y, names = self._classes(model, x), enumerate(model.scores)
      return {name: self("Gather", y, i, axis=2) for i, name in names}
    if kind == "squad2":
      return self._spans_or_none(model, x)
    if kind != "encoder":
      raise ValueError(f"ONNX has no graph of {kind}: give --head=encoder.")
    pooled = {"pooled_output": self._pool(encoder, x)}
    return {"sequence_output": x, **(pooled if module.has_pooler else {})}

  def _only_cls(self, x: str) -> str:
    """Returns [CLS] of [B, S, H], for a last block that computes no more."""
    return self("Gather", x, [0], axis=1)

  def _embedding(
    self, model: modeling.AlbertModel, wanted: modeling.Pooling
  ) -> str:
    """Returns the vector of each text <float>[B, H], as `modeling.pool`."""
    if wanted.pooling in ("cls", "pooler"):
      x = self._encode(model, self._only_cls)
      is_cls = wanted.pooling == "cls"
      y = self("Squeeze", x, [1]) if is_cls else self._pool(model, x)
    else:
      mask = self("Unsqueeze", serving.IDS[1], [2])  # [B, S, 1]
      is_token = self("Cast", mask, to=onnx.TensorProto.BOOL)
      is_max = wanted.pooling == "max"
      padding = np.finfo(np.float32).min if is_max else 0.0
      x = self("Where", is_token, self._encode(model), padding)
      y = self("ReduceMax" if is_max else "ReduceSum", x, [1], keepdims=0)
      if not is_max:
        count = self("ReduceSum", mask, [1], keepdims=0)  # [B, 1]
        y = self("Div", y, self("Cast", count, to=_FLOAT))
    return self("LpNormalization", y, axis=-1, p=2) if wanted.normalize else y

  def _encode(
    self,
    model: modeling.AlbertModel,
    select: Optional[Callable[[str], str]] = None,
    options: int = 0,
  ) -> str:
    """Returns the last block's output <float>[B, S, H].

    The last block computes only the positions that `select` takes of its input;
    None takes all. With `options`, the inputs are <int64>[B, options, S].

    Deviation: padding at the end of a sequence is not computed, and its output
    is 0; see `serving.frozen_encoder`. What `select` takes at such a position
    has no meaning.
    """
    ids, mask, segments = serving.IDS
    if options:
      shape = self("Concat", [-1], self("Shape", ids, start=2), axis=0)
      ids, mask, segments = (self("Reshape", x, shape) for x in serving.IDS)
    table, length = model.embedding, self("Shape", ids, start=1)
    words = self("Gather", table.word_embeddings, ids)
    types = self("Gather", table.token_type_embeddings, segments)
    positions = self("Slice", table.position_embeddings, [0], length, [0])
    x = self._norm(table.layer_norm, self("Add", words, types), positions)
    if table.projection:
      x = self._dense(table.projection, x)
    padding = self("Cast", self("Sub", 1, mask), to=_FLOAT)
    padding = self("Mul", padding, modeling.MASKED_SCORE)
    padding = self("Unsqueeze", padding, [1, 2])  # [B, 1, 1, S]
    blocks = list(model.encoder.blocks())
    own = model.encoder.adapters_of_blocks()
    is_computed, rows, rows_of = self._computed_rows(mask)
    x = self._take(x, rows)  # [C, H]
    packing: Any = (rows, rows_of)
    for i, ((attention, ffn), pairs) in enumerate(zip(blocks, own), start=1):
      of_attention, of_ffn = ([x.numpy() for x in pair] for pair in pairs)
      queries = x
      if select and i == len(blocks):
        x, packing = self("Gather", x, rows_of), ()  # [B, S, H]
        queries = select(x)
      x = self._attend(attention, x, queries, padding, of_attention, packing)
      y = self._dense(ffn.intermediate, x, of_ffn[:2])
      y = self._activation(model.config, y)
      y = self._dense(ffn.output_dense, y, of_ffn[2:])
      x = self._norm(ffn.layer_norm, y, x)
    if select:
      return x
    return self("Where", is_computed, self("Gather", x, rows_of), 0.0)

  def _computed_rows(self, mask: str) -> tuple[str, str, str]:
    """Returns which positions are computed, and where each one is.

    <bool>[B, S, 1], the same as the numbers <int64>[C] of the B * S positions,
    and for each position the row that is computed for it, <int64>[B, S]. All
    positions before the last token are computed, or all positions of a sequence
    without any token.
    """
    computed = self("Greater", self("CumSum", mask, 1, reverse=1), 0)
    none = self("Equal", self("ReduceMax", mask, [1]), 0)  # [B, 1]
    computed = self("Or", computed, none)
    flat = self("Reshape", computed, [-1])
    numbers = self("CumSum", self("Cast", flat, to=_INT64), 0)
    rows_of = self("Reshape", self("Sub", numbers, 1), self("Shape", mask))
    rows = self("Reshape", self("NonZero", flat), [-1])
    return self("Unsqueeze", computed, [2]), rows, rows_of

  def _take(self, x: str, rows: str) -> str:
    """Takes rows <int64>[C] of [B, S, H]."""
    flat = self(
      "Reshape", x, self("Concat", [-1], self("Shape", x, start=2), axis=0)
    )
    return self("Gather", flat, rows)

  def _attend(
    self,
    layer: Any,
    x: str,
    queries: str,
    padding: str,
    own: Sequence[Any],
    packing: Sequence[str],
  ) -> str:
    """Applies a `SelfAttention` with adapters to [B, S, H] at [B, Q, H].

    With `packing`, of `_computed_rows`, all are [C, H].
    """
    parts: Any = [()] * 3  # Of query, key and value.
    if own:
      parts = [(own[0], b) for b in np.split(own[1], 3, axis=1)]
    width, heads = layer.config.hidden_size, layer.config.num_attention_heads

    def split(y, *perm):
      y = self("Gather", y, packing[1]) if packing else y
      y = self("Reshape", y, [0, 0, heads, width // heads])
      return self("Transpose", y, perm=perm)

    q = split(self._dense(layer.query, queries, parts[0]), 0, 2, 1, 3)
    k = split(self._dense(layer.key, x, parts[1]), 0, 2, 3, 1)  # [B, N, D, S]
    v = split(self._dense(layer.value, x, parts[2]), 0, 2, 1, 3)
    scores = self("Mul", self("MatMul", q, k), (width // heads) ** -0.5)
    probs = self("Softmax", self("Add", scores, padding), axis=-1)
    y = self("Transpose", self("MatMul", probs, v), perm=[0, 2, 1, 3])
    y = self("Reshape", y, [0, 0, width])
    y = self._take(y, packing[0]) if packing else y
    y = self._dense(layer.output_dense, y, own[2:])
    return self._norm(layer.layer_norm, y, queries)

  def _dense(self, layer: Any, x: str, adapter: Sequence[Any] = ()) -> str:
    y = self("MatMul", x, layer.kernel)
    if adapter:
      a, b = adapter
      y = self("Add", y, self("MatMul", self("MatMul", x, a), b))
    return self("Add", y, layer.bias) if layer.use_bias else y

  def _norm(self, layer: modeling.LayerNorm, *terms: str) -> str:
    """Applies a `LayerNorm` to one <float>[..., H], or to the sum of two."""
    x = self("Add", *terms) if len(terms) > 1 else terms[0]
    scale = layer.gamma, layer.beta
    return self("LayerNormalization", x, *scale, epsilon=layer.epsilon)

  def _activation(self, config: modeling.AlbertConfig, x: str) -> str:
    operation, options = _ACTIVATIONS[config.hidden_act]
    return self(operation, x, **options)

  def _pool(self, model: modeling.AlbertModel, x: str) -> str:
    first = self("Gather", x, 0, axis=1)  # [B, H]
    return self("Tanh", self._dense(model.pooler, first))

  def _rows(self, x: str, positions: str) -> str:
    """Gathers positions <int64>[B, P] of [B, S, H]."""
    return self("GatherND", x, self("Unsqueeze", positions, [2]), batch_dims=1)

  def _classes(self, head: Any, x: str) -> str:
    """Maps [..., H] to [..., C] by `output_weights` [C, H]."""
    kernel = self("Transpose", head.output_weights, perm=[1, 0])
    return self("Add", self("MatMul", x, kernel), head.output_bias)

  def _spans_or_none(
    self, model: squad_model.AlbertForSpansOrNone, x: str
  ) -> dict[str, str]:
    """Returns the outputs of SQuAD 2.0 for [B, S, H]."""
    _, mask, segments = serving.IDS
    length = self("Shape", mask, start=1)
    # 0 at [CLS], and at tokens of the context, each of which is followed by
    # another one or by [SEP]; else 1.
    followed = self("Pad", self("Slice", mask, [1], length, [1]), [0, 0, 0, 1])
    context = self("Mul", self("Mul", mask, followed), segments)
    outside = self("Slice", self("Sub", 1, context), [1], length, [1])
    outside = self("Cast", self("Pad", outside, [0, 1, 0, 0]), to=_FLOAT)

    def best(scores, outside, most):
      scores = self("Mul", scores, self("Sub", 1.0, outside))
      never = self("Mul", outside, squad_model.NEVER)
      scores = self("LogSoftmax", self("Add", scores, never), axis=-1)
      return scores, self("TopK", scores, self("Min", length, [most]))

    scores = self("Squeeze", self._dense(model.start_dense, x), [2])  # [B, S]
    log_probs, top = best(scores, outside, model.start_n_top)  # [B, K]
    # [x, start] W = x W_x + start W_s, as in the model.
    w_x, w_s = np.split(model.end_hidden.kernel.numpy(), 2)
    starts = self("MatMul", self._rows(x, f"{top}_index"), w_s)  # [B, K, H]
    y = self("Unsqueeze", self("MatMul", x, w_x), [1])
    y = self("Add", y, self("Unsqueeze", starts, [2]))  # [B, K, S, H]
    y = self("Tanh", self("Add", y, model.end_hidden.bias))
    y = self._dense(model.end_dense, self._norm(model.end_norm, y))
    scores, outside = self("Squeeze", y, [3]), self("Unsqueeze", outside, [1])
    _, end_top = best(scores, outside, model.end_n_top)  # [B, K, M]
    expected = self("Unsqueeze", self("Exp", log_probs), [1])
    summary = self("Squeeze", self("MatMul", expected, x), [1])  # [B, H]
    y = self("Concat", summary, self("Gather", x, 0, axis=1), axis=1)
    y = self("Tanh", self._dense(model.answer_hidden, y))
    return {
      "start_top_log_probs": top,
      "start_top_index": f"{top}_index",
      "end_top_log_probs": self("Reshape", end_top, [0, -1]),
      "end_top_index": self("Reshape", f"{end_top}_index", [0, -1]),
      "cls_logits": self("Squeeze", self._dense(model.answer_dense, y), [1]),
    }
