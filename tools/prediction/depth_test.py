"""Fewer layers in `load`: the answers of such models, exports, and mistakes."""

from __future__ import annotations

import json

import numpy as np
import pytest

import official_albert as albert
from official_albert.tools.testing import many_commands, toy_data, toy_runs

_LABELS, _DEPTH = ("bad", "good", "so so"), 4
_RNG = np.random.default_rng(8)
_TEXTS = [
  " ".join(toy_data.sentence(_RNG, toy_data.GOOD) for _ in range(1 + i % 3))
  for i in range(37)  # More than a batch, whose rows are sorted by length.
]
_PAIRS = _TEXTS[1:] + _TEXTS[:1]
_MASKS = ["the [MASK] tree", "a [MASK] day was [MASK]"]
_TASKS = {
  "classes": ("text_classification", _LABELS),
  "pairs": ("text_pair_classification", _LABELS),
  "several": ("text_multi_label", _LABELS),
  "squad": ("squad_v2", None),
  "vectors": ("text_embedding", None),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """Returns a folder with runs, and exports with the depth and without."""
  path = tmp_path_factory.mktemp("depths")
  toy_runs.write_pretrained(str(path / "pretrained"), num_hidden_layers=_DEPTH)
  for name, (task, labels) in _TASKS.items():
    toy_runs.write_finetuned(str(path / name), task, labels, 19)
  lines = [
    [
      *(f"--model_dir={path}/{run}", f"--export_dir={path}/{name}"),
      *(f"--num_hidden_layers={_DEPTH}", *more.split()),
    ]
    for run, name, more in (
      ("classes", "classes.export", "--depth_signatures"),
      ("classes", "plain.export", "--signatures=text"),
      ("several", "several.export", "--depth_signatures --signatures=text"),
      ("pretrained", "pretrained.export", "--depth_signatures"),
      ("pretrained", "masks.export", "--signatures=text"),
    )
  ]
  for result in many_commands.run("export_saved_model", lines):
    assert result.err == ""
  return path


@pytest.fixture(scope="module")
def load(folder):

  def load_at(name, num_hidden_layers=_DEPTH):
    is_export = name.endswith(".export")
    depth = {} if is_export else {"num_hidden_layers": num_hidden_layers}
    return albert.load(folder / name, **depth)

  return load_at


def _probabilities(answers):
  return np.array([[*x.probabilities.values()] for x in answers])


def _check(found, wanted):
  np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


def test_classes_and_labels(load):
  texts = {"classes": [_TEXTS], "pairs": [_TEXTS, _PAIRS], "several": [_TEXTS]}
  for name in (*texts, "classes.export", "several.export"):
    run = name.removesuffix(".export")
    found = load(name).classify(*texts[run], exit_layer=2)
    wanted = load(run, num_hidden_layers=2).classify(*texts[run])
    _check(_probabilities(found), _probabilities(wanted))
    assert [x.label for x in found] == [x.label for x in wanted]
    assert {x.exit_layer for x in found} == {2}


@pytest.mark.parametrize("name", ["classes", "classes.export"])
def test_a_threshold(load, name):
  """Which rows leave after which layer, early_exit_test.py compares."""
  model = load(name)
  assert model.classify(_TEXTS[0]).exit_layer is None
  wanted = _probabilities(model.classify(_TEXTS, exit_layer=1))
  highest = wanted.max(-1)
  # Between two of the values, so that a last digit does not decide.
  threshold = float(np.sort(highest)[18:20].mean())
  answers = model.classify(_TEXTS, exit_threshold=threshold)
  left = np.array([x.exit_layer for x in answers])
  np.testing.assert_array_equal(left == 1, highest >= threshold)
  _check(_probabilities(answers)[left == 1], wanted[left == 1])
  one = model.classify(_TEXTS[5], exit_layer=2, exit_threshold=threshold)
  assert one.exit_layer == min(2, left[5])


def test_vectors_and_masks(load):
  lesser = [
    load("pretrained", num_hidden_layers=1 + depth) for depth in range(_DEPTH)
  ]
  for name in ("pretrained", "pretrained.export"):
    model = load(name)
    for depth, less in enumerate(lesser, 1):
      for pooling in ("pooler", "mean"):
        _check(
          model.embed(_TEXTS, _PAIRS, pooling, exit_layer=depth),
          less.embed(_TEXTS, _PAIRS, pooling),
        )
    by_layer = model.fill_mask(_MASKS, 3, by_layer=True)
    one = model.fill_mask(_MASKS[0], 3, by_layer=True)
    assert [x[0][0].token for x in one] == [x[0][0].token for x in by_layer[0]]
    for text, layers in zip(_MASKS, by_layer, strict=True):
      for masks, less in zip(layers, lesser, strict=True):
        found, wanted = (sum(x, []) for x in (masks, less.fill_mask(text, 3)))
        assert len(found) == 3 * text.count("[MASK]")
        assert [x.token for x in found] == [x.token for x in wanted]
        _check(*([x.probability for x in y] for y in (found, wanted)))
  for name in ("squad", "vectors"):
    _check(
      load(name).embed(_TEXTS[:3], exit_layer=2),
      load(name, num_hidden_layers=2).embed(_TEXTS[:3]),
    )


def test_other_exports_have_no_such_signatures(folder):
  names = {}
  for name in ("classes", "plain", "several", "pretrained"):
    path = folder / f"{name}.export/assets/export.json"
    record = json.loads(path.read_text())
    names[name] = [x for x in record["signatures"] if x.endswith("_at_depth")]
    assert not record["serving_default"].endswith("_at_depth")
  assert names == {
    "classes": ["classify_at_depth", "ids_at_depth"],
    "plain": [],
    "several": ["classify_at_depth"],
    "pretrained": [
      *("fill_mask_at_depth", "sentence_order_at_depth", "encode_at_depth"),
      *("encode_pair_at_depth", "ids_at_depth"),
    ],
  }


@pytest.mark.parametrize(
  "name, method, options, message",
  [
    ("classes", "classify", {"exit_layer": 5}, "exit_layer is 5, but must be"),
    ("classes", "classify", {"exit_layer": -1}, "must be from 0 to 4"),
    ("classes", "classify", {"exit_layer": 1.5}, "must be an integer from 0"),
    ("classes", "classify", {"exit_layer": True}, "must be an integer from 0"),
    ("classes", "classify", {"exit_threshold": 1.1}, "must be from 0 to 1"),
    ("classes", "classify", {"exit_threshold": float("nan")}, "finite number"),
    ("classes", "classify", {"exit_threshold": None}, "a finite number from 0"),
    ("several", "classify", {"exit_threshold": 0.5}, "exit_threshold is for"),
    ("classes", "embed", {"exit_layer": 9}, "exit_layer is 9, but must be"),
    ("plain.export", "classify", {"exit_layer": 2}, "--depth_signatures"),
    ("classes", "fill_mask", {"by_layer": True}, "which cannot fill_mask"),
    ("masks.export", "fill_mask", {"by_layer": True}, "'fill_mask_by_layer'"),
  ],
)
def test_wrong_arguments(load, name, method, options, message):
  with pytest.raises(ValueError, match=message):
    getattr(load(name), method)("a tree", **options)


def test_tasks_of_several_sequences_have_no_such_signatures(folder, tmp_path):
  line = [f"--model_dir={folder}/squad", f"--export_dir={tmp_path}/new"]
  cases = {
    "--depth_signatures": "--depth_signatures is for models with one sequence",
    "--depth_signatures --format=onnx": "--depth_signatures has no effect with",
  }
  many_commands.check_refusals(
    "export_saved_model",
    [([*line, *more.split()], named) for more, named in cases.items()],
  )
  assert not (tmp_path / "new").exists()
