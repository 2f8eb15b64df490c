"""Draws the tables and pictures of the documents from docs/results/data.

    python docs/draw.py           writes what has changed
    python docs/draw.py --check   names what would change; exit code 1 if any

The line `<!-- table: NAME -->` in a page is followed by the table of that name.
It comes from a function below that is marked by @_table, or from an entry of
`tables` in a JSON file of docs/results/data:

    {"name": NAME, "columns": ["", "ms"], "rows": [["SavedModel", [9.1, 8.7]]],
     "form": ".1f"}

Cells are text, or numbers of rounds: their median (lowest to highest). The
entry also says `what`, `date`, `machine` and `command`. A picture is a function
marked by @_picture; its file holds a hash of what was drawn.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import pathlib
import re
import statistics
import sys
from typing import Any, Callable, Mapping, Sequence

from matplotlib import figure

from official_albert.tasks.pretraining import recipes
from official_albert.tools.cli import printing

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_DATA = _ROOT / "docs/results/data"
_PLACE = re.compile(r"^<!-- table: (\w+) -->\n((?:\|.*\n)*)", re.MULTILINE)
_RECORD_TOKENS = 13_872_040  # Of the corpus of records.json.
_Table = tuple[Sequence[str], Sequence[Sequence[Any]]]  # Columns, then rows.
_TABLES: dict[str, Callable[[], _Table]] = {}
_PICTURES: dict[str, Callable[[], Sequence[_Panel]]] = {}


@dataclasses.dataclass
class _Line:
  """Points, joined or not; `style` is that of matplotlib, such as "o-"."""

  label: str
  x: Sequence[float]
  y: Sequence[float]
  style: str
  color: str


@dataclasses.dataclass
class _Panel:
  """One of the diagrams of a picture, side by side."""

  title: str
  x_label: str
  lines: Sequence[_Line]


def _table(function: Callable[[], _Table]) -> Callable[[], _Table]:
  _TABLES[function.__name__.strip("_")] = function
  return function


def _picture(path: str) -> Callable:
  """Marks what draws the picture `path`, which is relative to docs."""

  def mark(function):
    _PICTURES[path] = function
    return function

  return mark


@functools.cache
def _read(name: str) -> Any:
  return json.loads((_DATA / name).read_text("utf-8"))


@_table
def _records_from_text() -> _Table:
  groups: dict[Any, list[Any]] = {}
  for x in _read("records.json")["beside_8c8de5ae"]["rounds"]:
    if x["commit"] == "94817ce3":  # Not the one before, which took turns.
      groups.setdefault((x["masking"], str(x["workers"])), []).append(x)
  rows = []
  for setting, group in groups.items():
    seconds = [x["seconds"] for x in group]
    peak = statistics.median(x["largest_process_kib"] / 1024 for x in group)
    speed = f"{_RECORD_TOKENS / statistics.median(seconds) / 1e6:.2f}"
    rows.append([*setting, seconds, speed, f"{peak:.0f} MiB"])
  columns = "masking|workers|seconds|million tokens/s|largest process"
  return columns.split("|"), rows


@_table
def _recipes() -> _Table:
  rows = []
  for recipe in recipes.RECIPES.values():
    # The page describes those for eight GPUs; that of the quickstart is on the
    # page of its results.
    if recipe.tpu or recipe.name.endswith(("_gpu_8", "quickstart")):
      continue
    flags = recipe.flags
    length = (*recipe.lengths, recipe.data["max_seq_length"])[0]
    rate = flags.get("learning_rate", 0.00176 * (recipe.batch / 4096) ** 0.5)
    rows.append(
      [
        *(recipe.name, f"{flags.get('optimizer', 'lamb')} {rate:.3g}"),
        f"{recipe.batch:,} x {length}",
        str(flags.get("gradient_accumulation_steps", 1)),
        f"{flags['num_train_steps']:,}",
        recipe.hardware,
        recipe.expected_time.partition(" at ")[0],
      ]
    )
  columns = "recipe|optimizer, peak rate|batch|micro-batches|steps|hardware"
  return [*columns.split("|"), "time"], rows


@_table
def _fine_tuning() -> _Table:
  scores = _read("multi_label.json")["scores"]
  tags = _read("token_classification.json")

  def precision(system: str) -> str:
    seeds = [x for name, x in scores.items() if name.startswith(system)]
    return percent([x["half"]["mean_average_precision"] for x in seeds])

  def percent(numbers: Sequence[float]) -> str:
    return ", ".join(f"{100 * x:.1f}" for x in numbers) or "not run"

  systems = "official_albert_test", "transformers_test"
  systems += ("transformers_projection_frozen_test",)
  larger = map(precision, (f"larger_head_{x}" for x in systems))
  runs = tags["official_albert"].values()
  peer = tags["transformers_4.57.6_torch_2.13.0"]
  f1 = (percent([x["test"]["f1"] for x in seeds]) for seeds in (runs, peer))
  rows = [
    ["GoEmotions, 28 labels", "mean average precision", *larger],
    ["the same, other heads", "", *map(precision, systems)],
    ["WNUT 2017, tags", "F1 of entities", *f1, "not run"],
  ]
  columns = "task|metric on test|here|transformers|its projection frozen"
  return columns.split("|"), rows


@_table
def _training_step() -> _Table:
  beside = _read("training_step.json")["beside_hugging_face"]
  rows = []
  for name, systems in beside.items():
    kind, _, rounds = name.rpartition(", ")
    if rounds == "five rounds of one step":
      ours, peer = (systems[x]["ms"] for x in ("ours", "hf"))
      ratios = printing.spread([b / a for a, b in zip(ours, peer)], ".2f")
      rows.append([kind, *(_cell(x, ",.0f") for x in (ours, peer)), ratios])
  return ["", "official_albert", "Hugging Face", "times as fast"], rows


@_picture("quickstart_curves.png")
def _quickstart_curves() -> Sequence[_Panel]:
  tables = _read("quality.json")["tables"]
  run = [x for x in tables if x["what"].startswith("make quickstart")][-1]
  steps, loss, accuracy, _, order = (
    [float(x.strip("%").replace(",", "")) for x in column]
    for column in zip(*run["rows"])
  )
  ends, panels = [0, steps[-1]], []
  for title, values, known, level in (
    ("masked LM loss (nats)", loss, "token frequencies alone", 6.260),
    ("masked LM accuracy in percent", accuracy, "", 0),
    ("sentence-order accuracy in percent", order, "chance", 50),
  ):
    lines = [_Line("held-out", steps, values, "o-", "C1")]
    if known:
      lines.append(_Line(known, ends, [level, level], "-", "gray"))
    panels.append(_Panel(title, "step", lines))
  return panels


@_picture("results/depth_at_test_time.png")
def _depth_at_test_time() -> Sequence[_Panel]:
  depth, panels = "mean number of layers", []
  found = _read("depth_at_test_time.json")
  models = {name: x for name, x in found.items() if isinstance(x, list)}
  for title in ("accuracy in percent", "milliseconds a text, batches of 32"):
    lines = []
    for color, (name, points) in enumerate(models.items()):
      for kind, style in (("exit_layer", "o-"), ("exit_threshold", "x--")):
        x, y = (
          [statistics.mean(point[what]) for point in points if kind in point]
          for what in (depth, title)
        )
        lines.append(_Line(f"{name}: {kind}", x, y, style, f"C{color}"))
    panels.append(_Panel(title, depth, lines))
  return panels


# What the page calls the systems of tools.benchmark serving.
_SERVED = {
  "saved_model": "SavedModel, `tf.saved_model.load`",
  "c_api": "the same by the C library",
  "onnxruntime": "`--format=onnx`, ONNX Runtime",
  "onnxruntime_optimized": "Hugging Face, ONNX Runtime, its optimizer",
  "openvino_onnx": "`--format=onnx`, OpenVINO",
  "openvino": "Hugging Face, OpenVINO",
  "hf_eager": "Hugging Face, PyTorch, eager",
  "hf_sdpa": "Hugging Face, PyTorch, sdpa",
  "hf_compiled": "Hugging Face, `torch.compile`",
  "saved_model_bfloat16": "SavedModel, bfloat16",
  "c_api_bfloat16": "the same by the C library, bfloat16",
  "c_api_bfloat16_packed": "the same, packed (see below)",
  "openvino_onnx_bfloat16": "`--format=onnx`, OpenVINO, bfloat16",
  "openvino_bfloat16": "Hugging Face, OpenVINO, bfloat16",
  "hf_sdpa_bfloat16": "Hugging Face, PyTorch, bfloat16",
  "onnxruntime_int8": "`--format=onnx`, ONNX Runtime, int8",
  "onnxruntime_optimized_int8": "Hugging Face, ONNX Runtime, int8",
  "openvino_int8": "Hugging Face, OpenVINO, int8",
}


def _milliseconds(system: str) -> dict[str, float]:
  """Returns medians by the size of requests, such as "8 x 128"."""
  found = {}
  for case in _read("serving.json")["systems"][system]["cases"]:
    name = "{batch_size} x {max_seq_length}".format(**case)
    name += ", padded" * case["padded"]
    found[name] = statistics.median(case["milliseconds"])
  return found


@_table
def _serving() -> _Table:
  sizes = ["1 x 32", "32 x 32", "32 x 32, padded"]
  sizes += ["1 x 128", "8 x 128", "8 x 128, padded"]
  rows = []
  for system, name in _SERVED.items():
    found = _read("serving.json")["systems"].get(system)
    if not found:
      continue
    times, gib = _milliseconds(system), 2**30
    difference = max(case["difference"] for case in found["cases"])
    rows.append(
      [
        name,
        f"{statistics.median(found['first_seconds']):.1f}",
        f"{statistics.median(found['first_bytes']) / gib:.2f}",
        *(f"{times[x]:,.0f}" if x in times else "" for x in sizes),
        f"{difference:.1g}",
      ]
    )
  columns = ["", "first answer, s", "GiB", *sizes, "difference"]
  return columns, rows


@_picture("results/serving.png")
def _serving_picture() -> Sequence[_Panel]:
  systems = _read("serving.json")["systems"]
  rounded = {x: "8" in x or "16" in x for x in _SERVED if x in systems}
  panels = []
  for title, low in (("float32", False), ("bfloat16 and int8", True)):
    lines = []
    names = [x for x, is_low in rounded.items() if is_low == low]
    for color, system in enumerate(names):
      times, sizes = _milliseconds(system), (1, 8, 32)
      y = [times[f"{size} x 32"] / size for size in sizes]
      label = _SERVED[system].replace("`", "")
      style = "o--" if "Hugging" in label else "o-"
      lines.append(_Line(label, sizes, y, style, f"C{color}"))
    title = f"milliseconds a sequence of 32 tokens, {title}"
    panels.append(_Panel(title, "sequences in a request", lines))
  return panels


def _entries() -> Mapping[str, Callable[[], _Table]]:
  """Returns the tables of the JSON files, by name."""
  found = {}
  for path in sorted(_DATA.glob("*.json")):
    for entry in _read(path.name).get("tables", []):
      if "name" in entry:
        if entry["name"] in {*_TABLES, *found}:
          raise ValueError(f"{path}: there is another table {entry['name']}.")
        cells = [
          [_cell(x, entry.get("form", ",.1f")) for x in row]
          for row in entry["rows"]
        ]
        found[entry["name"]] = lambda x=entry["columns"], y=cells: (x, y)
  return found


def _cell(value: Any, form: str = ",.1f") -> str:
  return value if isinstance(value, str) else printing.spread(value, form)


def _page(text: str, tables: Mapping[str, Callable[[], _Table]]) -> str:
  """Returns a page with the tables that its marks name."""

  def written(place) -> str:
    if place[1] not in tables:
      raise ValueError(f"there is no table {place[1]}: see docs/draw.py.")
    columns, rows = tables[place[1]]()
    lines = [columns, ["---"] * len(columns), *rows]
    cells = [[_cell(x) for x in line] for line in lines]
    if any(len(x) != len(columns) for x in cells):
      raise ValueError(f"the rows of {place[1]} need {len(columns)} cells.")
    text = "".join(f"| {' | '.join(x)} |\n" for x in cells)
    return f"<!-- table: {place[1]} -->\n{text.replace(' --- ', '---')}"

  return _PLACE.sub(written, text)


def _draw(path: pathlib.Path, panels: Sequence[_Panel], digest: str) -> None:
  size = 5.5 * len(panels), 4
  drawn = figure.Figure(figsize=size, layout="constrained")
  axes = drawn.subplots(1, len(panels), squeeze=False)[0]
  for axis, panel in zip(axes, panels):
    for line in panel.lines:
      axis.plot(line.x, line.y, line.style, color=line.color, label=line.label)
    axis.set_title(panel.title)
    axis.set_xlabel(panel.x_label)
    axis.legend(fontsize=8)
  drawn.savefig(path, dpi=110, metadata={"Source": digest})


def main(arguments: Sequence[str]) -> int:
  """Writes or checks everything; returns the exit code."""
  check, changed = arguments == ["--check"], []
  if arguments and not check:
    raise SystemExit(__doc__)
  tables = {**_entries(), **_TABLES}
  for path in [*_ROOT.glob("*.md"), *sorted(_ROOT.glob("docs/**/*.md"))]:
    text = path.read_text("utf-8")
    drawn = _page(text, tables)
    if drawn != text:
      changed.append(path)
      if not check:
        path.write_text(drawn, "utf-8")
  for name, function in _PICTURES.items():
    path, panels = _ROOT / "docs" / name, function()
    digest = hashlib.sha256(repr(panels).encode()).hexdigest()
    if not path.exists() or digest.encode() not in path.read_bytes():
      changed.append(path)
      if not check:
        _draw(path, panels, digest)
  for path in changed:
    print(f"{'differs' if check else 'wrote'}: {path.relative_to(_ROOT)}")
  return int(check and bool(changed))


if __name__ == "__main__":
  sys.exit(main(sys.argv[1:]))
