"""ONNX Runtime and OpenVINO with Hugging Face's model, prepared by their tools.

The first process of a variant writes its file. OpenVINO also takes our ONNX
file. Runs in a separate virtual environment; see `protocol`.
"""

from __future__ import annotations

import pathlib
from typing import Any, Callable

from official_albert.tools.benchmarks.peers import protocol

# OpenVINO's own default for int8: bfloat16 if the processor has it.
_PRECISIONS = {"float32": "f32", "bfloat16": "bf16"}
_CALIBRATION_REQUESTS = 20


def load(workload: protocol.Workload) -> tuple[protocol.Answer, protocol.Facts]:
  """Loads the model in the runtime; the variant is "RUNTIME NUMBERS"."""
  runtime, numbers = workload.variant.split()
  folder = pathlib.Path(workload.models_dir) / "runtimes"
  folder.mkdir(exist_ok=True)
  if runtime == "onnxruntime":
    run, about = _onnxruntime(folder, numbers, workload)
  else:
    run, about = _openvino(folder, runtime, numbers, workload)

  def answer(features: protocol.Features):
    if runtime == "openvino_onnx":
      return run({k: value.astype("int64") for k, value in features.items()})
    return run(protocol.as_huggingface(features))

  return answer, lambda: {"about": about}


def _onnxruntime(
  folder: pathlib.Path, numbers: str, workload: protocol.Workload
) -> tuple[Callable[..., Any], str]:
  import onnxruntime

  path = folder / f"optimized_{numbers}.onnx"
  if not path.exists():
    from onnxruntime import quantization
    from onnxruntime.transformers import optimizer

    optimized = optimizer.optimize_model(
      str(_exported(folder, workload)),
      model_type="bert",
      num_heads=workload.config["num_attention_heads"],
      hidden_size=workload.config["hidden_size"],
    )
    print("fused:", optimized.get_fused_operator_statistics())
    if numbers == "int8":
      quantization.quantize_dynamic(
        *(optimized.model, path),
        # Of what comes from the optimizer's own operations: FLOAT.
        extra_options={"DefaultTensorType": 1},
      )
    else:
      optimized.save_model_to_file(str(path))
  options = onnxruntime.SessionOptions()
  options.intra_op_num_threads = workload.threads
  session = onnxruntime.InferenceSession(path, options)

  def run(inputs):
    return session.run(["pooled_output"], inputs)[0]

  version = f"onnxruntime {onnxruntime.__version__}"
  return run, f"torch.onnx, its optimizer for BERT, {numbers}; {version}"


def _openvino(
  folder: pathlib.Path, runtime: str, numbers: str, workload: protocol.Workload
) -> tuple[Callable[..., Any], str]:
  """Returns Hugging Face's model in OpenVINO, or our ONNX file."""
  import openvino

  kind = "int8" if numbers == "int8" else "float32"
  is_ours = runtime == "openvino_onnx"
  path = folder / f"{runtime}_{kind}.xml"
  if not path.exists():
    source = folder.parent / "onnx_none/model.onnx"
    model = openvino.convert_model(
      source if is_ours else _exported(folder, workload)
    )
    if kind == "int8":
      import nncf

      requests = [
        protocol.as_huggingface(protocol.request(workload, seed))
        for seed in range(_CALIBRATION_REQUESTS)
      ]
      model = nncf.quantize(
        *(model, nncf.Dataset(requests)),
        model_type=nncf.ModelType.TRANSFORMER,
        subset_size=len(requests),
      )
    # In bfloat16, an ONNX file itself would take 0.3 GiB more.
    openvino.save_model(model, path, compress_to_fp16=False)
  settings: dict[str, Any] = {
    "INFERENCE_NUM_THREADS": workload.threads,
    "PERFORMANCE_HINT": "LATENCY",
  }
  if numbers in _PRECISIONS:
    settings["INFERENCE_PRECISION_HINT"] = _PRECISIONS[numbers]
  model = openvino.compile_model(path, "CPU", settings)

  def run(inputs):
    return model(inputs)["pooled_output"]

  version = openvino.__version__.split("-")[0]
  rest = model.get_property("INFERENCE_PRECISION_HINT").get_type_name()
  made = "ONNX" if is_ours else f"torch.onnx, {kind}"
  return run, f"{made}, {rest}; openvino {version}"


def _exported(
  folder: pathlib.Path, workload: protocol.Workload
) -> pathlib.Path:
  """Returns the ONNX file of Hugging Face's model, which torch writes once."""
  path = folder / "model.onnx"
  if not path.exists():
    import torch
    import transformers

    model = transformers.AlbertModel.from_pretrained(
      folder.parent / "huggingface", attn_implementation="sdpa"
    )
    example = protocol.as_huggingface(protocol.request(workload))
    inputs = {name: torch.from_numpy(x) for name, x in example.items()}
    torch.onnx.export(
      *(model.eval(), (), path),
      kwargs=inputs,
      input_names=list(inputs),
      output_names=["sequence_output", "pooled_output"],
      dynamic_axes={name: {0: "batch", 1: "length"} for name in inputs},
      # The optimizer knows the operations of this exporter.
      dynamo=False,
    )
  return path


if __name__ == "__main__":
  protocol.serve_model(load)
