"""Measures what a few lines of Python cost: seconds, memory, lines.

The same model, with random weights, is asked from new processes: by this
package, as an export, by Hugging Face's `pipeline` and by KerasHub. A process
is measured from its start to its end, so imports, loading and the first answer
are in it.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile

from official_albert.tools.benchmarks import comparison, data, serving
from official_albert.tools.cli import printing

# The virtual environment of each system; None: that of this process.
_SYSTEMS = {
  "official_albert": None,
  "export": None,
  "export in C++": None,
  "huggingface": "huggingface",
  "keras_hub": "keras_hub",
}
# What each system is asked, in the lines that its documentation shows. {model}
# is a folder in Hugging Face's format, which all of them read, and {export} a
# SavedModel with --signatures=text. C++ is the loader of TF Serving.
SNIPPETS = {
  "fill_mask": {
    "official_albert": """
import official_albert as albert
model = albert.load({model!r})
print(model.fill_mask("The default [MASK] is None.", top_k=3))
""",
    "export": """
import tensorflow as tf
import tensorflow_text
model = tf.saved_model.load({export!r}).signatures["fill_mask"]
print(model(text=tf.constant(["The default [MASK] is None."])))
""",
    "export in C++": """
import runpy, sys
sys.argv = ["loader", "--saved_model_dir", {export!r}, "--signature=fill_mask",
  '--inputs={{"text": ["The default [MASK] is None."]}}']
program = "official_albert.tools.benchmarks.c_api_loader"
runpy.run_module(program, run_name="__main__")
""",
    "huggingface": """
from transformers import pipeline
model = pipeline("fill-mask", model={model!r})
print(model("The default [MASK] is None.", top_k=3))
""",
  },
  "embed": {
    "official_albert": """
import official_albert as albert
model = albert.load({model!r})
print(model.embed(["It rains.", "It is wet."]).shape)
""",
    "huggingface": """
from transformers import pipeline
model = pipeline("feature-extraction", model={model!r})
print(len(model(["It rains.", "It is wet."])))
""",
    "keras_hub": """
import keras_hub
model = keras_hub.models.AlbertBackbone.from_preset({model!r})
tokenizer = keras_hub.models.AlbertTokenizer.from_preset({model!r})
packer = keras_hub.layers.MultiSegmentPacker(
  16, start_value=tokenizer.cls_token_id, end_value=tokenizer.sep_token_id)
ids, segments = packer(tokenizer(["It rains.", "It is wet."]))
print(model.predict(dict(token_ids=ids, segment_ids=segments,
  padding_mask=ids != tokenizer.pad_token_id))["pooled_output"].shape)
""",
  },
  "fit": {
    "official_albert": """
import official_albert as albert
model = albert.TextClassifier.from_checkpoint({model!r}, labels=["neg", "pos"],
  max_seq_length=32)
model.compile(optimizer=albert.AdamW(3e-4))
model.fit({texts!r}, {labels!r}, batch_size=8)
print(model.predict(["Lovely."]))
""",
    "keras_hub": """
import keras_hub
preprocessor = keras_hub.models.AlbertTextClassifierPreprocessor.from_preset(
  {model!r}, sequence_length=32)
model = keras_hub.models.AlbertTextClassifier.from_preset(
  {model!r}, num_classes=2, preprocessor=preprocessor)
model.fit({texts!r}, {labels!r}, batch_size=8)
print(model.predict(["Lovely."]))
""",
  },
}
_TEXTS = ["Lovely, every minute of it.", "I want my evening back."] * 40
_LABELS = [1, 0] * 40
_HEAD = ("task", "system", "lines", "seconds", "lowest to highest", "memory")


def run(preset: str, spm_model_file: str, repeats: int, peers_dir: str) -> None:
  """Measures all systems in turns, and prints Markdown; see the flags."""
  pythons = {
    system: comparison.make_environment(name, peers_dir)
    if name
    else sys.executable
    for system, name in _SYSTEMS.items()
  }
  with tempfile.TemporaryDirectory() as folder:
    source, model = serving.make_random_model(preset, spm_model_file, folder)
    export = os.path.join(folder, "export")
    data.run_program(
      *("export_saved_model", "--signatures=text", f"--model_dir={source}"),
      f"--export_dir={export}",
    )
    # tf.keras is Keras 3 for KerasHub, whatever it is for this package.
    environment = {
      k: v for k, v in os.environ.items() if k != "TF_USE_LEGACY_KERAS"
    }
    ran: dict[tuple[str, str], list[data.ProgramRun]] = {}
    for _ in range(repeats):
      for task, snippets in SNIPPETS.items():
        for system, snippet in snippets.items():
          code = snippet.format(
            model=model, export=export, texts=_TEXTS, labels=_LABELS
          )
          found = data.run_command(
            f"{system}'s {task}", [pythons[system], "-c", code], env=environment
          )
          ran.setdefault((task, system), []).append(found)
  rows = []
  for (task, system), processes in ran.items():
    seconds = sorted(process.seconds for process in processes)
    peak = statistics.median(process.peak_bytes for process in processes)
    rows.append(
      (
        task,
        system,
        SNIPPETS[task][system].strip().count("\n") + 1,
        f"{statistics.median(seconds):.1f}",
        f"{seconds[0]:.1f} to {seconds[-1]:.1f}",
        f"{peak / 2**30:.2f} GiB",
      )
    )
  print(f"{preset}:\n\n{printing.table(_HEAD, rows)}")
