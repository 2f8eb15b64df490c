"""Settings, run.json, and which settings a resumed run may change."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import re
import unittest.mock

import pytest
import tensorflow as tf

from official_albert import AlbertConfig, runs, train_config, training
from official_albert.train_config import Phase

CONFIG = AlbertConfig.from_preset("albert_tiny")
SETTINGS = {"learning_rate": 0.1, "keep_checkpoint_max": 7}


def started(folder, settings=SETTINGS, data=None):
  """Makes a run with a checkpoint; returns its folder."""
  runs.write_run(str(folder), CONFIG, settings, data or {})
  write_index(folder, "model.ckpt-7")
  return str(folder)


def check(folder, settings=SETTINGS, data=None, **kwargs):
  """Checks a start with these settings and data."""
  start = runs.Start(CONFIG, settings, data or {}, "", "", **kwargs)
  return start.check(folder)


def write_index(folder, name="x.ckpt"):
  folder.mkdir(parents=True, exist_ok=True)
  (folder / f"{name}.index").touch()
  return str(folder / name)


def test_the_record_holds_settings_data_and_versions(tmp_path):
  folder = str(tmp_path / "run")
  assert check(folder, data={"sha": "a"}) == []
  assert not (tmp_path / "run").exists()
  runs.write_run(folder, CONFIG, SETTINGS, {"sha": "a"})
  record = runs.read_run(folder)
  assert record["settings"] == SETTINGS and record["data"] == {"sha": "a"}
  assert record["versions"]["tensorflow"] == tf.__version__
  config = AlbertConfig.from_json_file(f"{folder}/albert_config.json")
  assert config == CONFIG
  with pytest.raises(FileNotFoundError, match="not the folder of a run"):
    runs.read_run(str(tmp_path))


@pytest.mark.parametrize(
  ("change", "name"),
  [
    ({"settings": []}, "'settings' is"),
    ({"data": {"tokenizer": {"lower_case": 1}}}, "'data.tokenizer.lower_case'"),
    (
      {"data": {"settings": {"labels": "ab"}}},
      "'data.settings.labels' is 'ab'",
    ),
    ({"versions": None}, "'versions' is None"),
    ({"started": "\ud800"}, " is not valid JSON .*hex escape"),
  ],
)
def test_a_wrong_record_is_refused(tmp_path, change, name):
  runs.write_run(str(tmp_path), CONFIG, SETTINGS, {"sha": "a"})
  path = tmp_path / "run.json"
  path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
  with pytest.raises(ValueError, match=f"run.json.*{name}.*: restore the"):
    runs.read_run(str(tmp_path))


def test_changes_of_the_result_are_refused_unless_allowed(tmp_path):
  folder = started(tmp_path, data={"sha": "a"})
  before = (tmp_path / "run.json").read_bytes()
  free = {**SETTINGS, "keep_checkpoint_max": 9, "profiler_port": 9}
  free.update(recipe="base_cpu")
  assert check(folder, free, {"sha": "a"}) == []
  changed = {**free, "learning_rate": 0.2}
  match = "step 7 with .*sha was 'a' .*; learning_rate was 0.1"
  with pytest.raises(ValueError, match=match):
    check(folder, changed, {"sha": "b"})
  changes = check(folder, changed, {"sha": "b"}, allow_changed_settings=True)
  names = [change.split(" was ")[0] for change in changes]
  assert names == ["data.sha", "learning_rate"]
  assert (tmp_path / "run.json").read_bytes() == before


def test_the_machine_may_change_with_a_warning(tmp_path):
  old = {"num_replicas": 8, "precision": "mixed_bfloat16", "num_train_steps": 7}
  new = {"num_replicas": 1, "precision": "float32", "num_train_steps": 7}
  old["phases"] = [{"steps": 3, "gradient_accumulation_steps": 2}, {"steps": 4}]
  new["phases"] = [{"steps": 3}, {"steps": 4, "gradient_accumulation_steps": 5}]
  with unittest.mock.patch.object(tf, "__version__", "2.14.1"):
    folder = started(tmp_path, old, {"input_dir": "a"})
  changes = check(folder, new, {"input_dir": "b"})
  assert changes[0] == "data.input_dir was 'a' at the last start and is now 'b'"
  assert [change.split(" was ")[0] for change in changes[1:]] == [
    *("num_replicas", "phases[0].gradient_accumulation_steps"),
    *("phases[1].gradient_accumulation_steps", "precision", "tensorflow"),
  ]


def test_converted_weights_have_no_settings(tmp_path):
  folder = started(tmp_path, {}, {"max_seq_length": 512})
  assert check(folder, data={"max_seq_length": 24}) == []


def test_settings_and_data_may_be_missing_on_either_side(tmp_path):
  folder = started(tmp_path, data={"eval": {"sha": "b"}})
  new = {**SETTINGS, "best_is": "highest"}
  for change in ("data.eval.sha was 'b' .* now None", "best_is was None .* 'h"):
    with pytest.raises(ValueError, match=change):
      check(folder, new)


def test_a_new_setting_was_off_or_at_its_default(tmp_path):
  """A run of an earlier version is resumed after an upgrade."""
  folder = started(tmp_path)
  new = {**SETTINGS, "freeze_encoder": False, "phases": []}
  new |= {"attention": "plain", "best_is": "lowest"}
  assert not check(folder, new, {"settings": {"trained_on": "pairs"}})
  with pytest.raises(ValueError, match="freeze_encoder was None .* now True"):
    check(folder, {**new, "freeze_encoder": True})
  (change,) = check(folder, {**new, "attention": "compiled"})
  assert change.startswith("attention was None at the last start and is now 'c")


def test_other_names_of_the_folder_of_initial_weights(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  folder = started(tmp_path, {"init_checkpoint": "encoder/"})
  for same in ("encoder", str(tmp_path / "encoder")):
    assert check(folder, {"init_checkpoint": same}) == []
  for other in ("", "encoder2", "gs://encoder"):
    with pytest.raises(ValueError, match="init_checkpoint was 'encoder/' at"):
      check(folder, {"init_checkpoint": other})


def test_another_model_or_tokenizer_is_refused(tmp_path):
  other = dataclasses.replace(CONFIG, num_hidden_layers=5)
  folder = str(tmp_path)
  runs.write_run(folder, other, SETTINGS, {})
  assert check(folder) == []  # Nothing was trained yet.
  write_index(tmp_path, "model.ckpt-1")
  with pytest.raises(ValueError, match="num_hidden_layers 5, .* ask for 4"):
    check(folder, allow_changed_settings=True)
  started(tmp_path, data={"tokenizer": {"sha256": "a"}})
  for other in ({"sha256": "b"}, {"sha256": "a", "kind": "wordpiece"}):
    data = {"tokenizer": other, "input_dir": "records"}
    with pytest.raises(ValueError, match="another tokenizer than that of rec"):
      check(folder, data=data, allow_changed_settings=True)


def test_data_of_several_phases():
  tokenizer = {"sha256": "a"}
  data = runs.combined_data(
    [{"tokenizer": tokenizer, "max_seq_length": n} for n in (11, 19, 7)]
  )
  assert data["max_seq_length"] == 19 and data["tokenizer"] == tokenizer


def test_only_the_tokenizer_of_the_data_is_copied(tmp_path):
  source, run = tmp_path / "vocab.txt", tmp_path / "run"
  source.write_bytes(b"[PAD]\n")
  sha256 = hashlib.sha256(b"[PAD]\n").hexdigest()
  runs.Start(CONFIG, SETTINGS, {}, str(source), sha256).write(str(run))
  assert (run / "vocab.txt").read_bytes() == b"[PAD]\n"
  wrong = runs.Start(CONFIG, SETTINGS, {}, str(source), "ab" * 32)
  with pytest.raises(ValueError, match="is not the tokenizer that the records"):
    wrong.write(str(run))


# The checkpoints of a folder, which are found by their names.


def write_checkpoints(folder, latest, best=None):
  """Writes the files of two checkpoints and optionally of a best one."""
  for step in (latest - 1, latest):
    write_index(folder, f"model.ckpt-{step}")
  if best is not None:
    write_index(folder / "best", f"model.ckpt-{best}")
    record = dict(step=best, phase=1, metric="loss", values={"loss": 1.5})
    record.update(best_is="lowest", checkpoint=f"model.ckpt-{best}")
    (folder / "best" / "best.json").write_text(json.dumps(record))


def test_the_prefix_of_a_path(tmp_path):
  prefix = write_index(tmp_path / "one")
  assert runs.find_prefix(prefix) == prefix
  assert runs.find_prefix(str(tmp_path / "one")) == prefix
  hub = write_index(tmp_path / "hub" / "variables", "variables")
  assert runs.find_prefix(str(tmp_path / "hub")) == hub
  with pytest.raises(FileNotFoundError, match="holds no checkpoint"):
    runs.find_prefix(str(tmp_path))
  with pytest.raises(ValueError, match="file of Keras, .*Classifier.export"):
    runs.find_prefix("stars.keras")
  write_index(tmp_path / "one", "y.ckpt")
  with pytest.raises(ValueError, match="holds 2 checkpoints"):
    runs.find_prefix(str(tmp_path / "one"))


def test_the_chosen_checkpoint_of_a_run(tmp_path):
  path = tmp_path / "run [1]"  # Not a glob.
  folder = str(path)
  write_checkpoints(path, 10)
  latest = os.path.join(folder, "model.ckpt-10")
  assert runs.find_prefix(folder) == latest
  with pytest.raises(FileNotFoundError, match="keeps no best checkpoint"):
    runs.find_prefix(folder, "best")
  (path / "damaged-model.ckpt-11.index").write_bytes(b"")
  assert runs.find_prefix(folder, "latest") == latest
  write_checkpoints(path, 10, best=7)
  best = os.path.join(folder, "best", "model.ckpt-7")
  for wanted in ("", "best"):
    assert runs.find_prefix(folder, wanted) == best
  for wanted in ("latest", latest):
    assert runs.find_prefix(folder, wanted) == latest
  with pytest.raises(FileNotFoundError, match="no checkpoint at newest"):
    runs.find_prefix(folder, "newest")
  with pytest.raises(ValueError, match="is one checkpoint, and --checkpoint="):
    runs.find_prefix(latest, "best")


def test_the_checkpoint_that_other_programs_take(tmp_path):
  """google-research/albert's best one, and what the file `checkpoint` names."""
  folder = str(tmp_path / "tf1")
  write_checkpoints(tmp_path / "tf1", 10)
  state = tmp_path / "tf1" / "checkpoint"
  state.write_text(
    'model_checkpoint_path: "/old/model.ckpt-9"\n'
    'all_model_checkpoint_paths: "/old/model.ckpt-10"\n'
  )
  write_index(tmp_path / "tf1", "other.ckpt")
  chosen = os.path.join(folder, "model.ckpt-9")
  assert runs.find_prefix(folder) == chosen
  with pytest.raises(FileNotFoundError, match="keeps no best checkpoint"):
    runs.find_prefix(folder, "best")
  best = write_index(tmp_path / "tf1", "model.ckpt-best")
  assert runs.find_prefix(folder) == runs.find_prefix(folder, "best") == best
  assert runs.find_prefix(folder, "latest") == chosen
  state.write_text('model_checkpoint_path: "model.ckpt-8"\n')  # It is gone.
  latest = os.path.join(folder, "model.ckpt-10")
  assert runs.find_prefix(folder, "latest") == latest
  (tmp_path / "tf1" / "run.json").write_text("{}")
  assert runs.find_prefix(folder) == latest


def test_a_folder_of_models_of_hugging_face(tmp_path):
  (tmp_path / "checkpoint-500").mkdir()
  (tmp_path / "checkpoint-500" / "config.json").write_text("{}")
  with pytest.raises(FileNotFoundError, match="such as .*/checkpoint-500.$"):
    runs.find_prefix(str(tmp_path))


def test_the_best_of_several_runs(tmp_path):
  write_checkpoints(tmp_path / "seed_5", 10, best=7)
  write_checkpoints(tmp_path / "seed_6", 20, best=17)
  summary = tmp_path / "summary.json"
  with pytest.raises(FileNotFoundError, match="holds no checkpoint.$"):
    runs.find_prefix(str(tmp_path))
  (tmp_path / "seed_5" / "run.json").write_text("{}")
  advice = f"no checkpoint, but those of runs: .* {tmp_path}/seed_5.$"
  with pytest.raises(FileNotFoundError, match=advice):  # It was killed.
    runs.find_prefix(str(tmp_path))
  summary.write_text('{"best_folder": "seed_6"}')
  found = runs.find_prefix(str(tmp_path))
  assert found == str(tmp_path / "seed_6" / "best" / "model.ckpt-17")
  found = runs.find_prefix(str(tmp_path), "latest")
  assert found == str(tmp_path / "seed_6" / "model.ckpt-20")
  summary.write_text('{"best_folder": ""}')
  assert runs.run_folder(str(tmp_path)) == str(tmp_path)
  summary.write_text('{"best_folder": 6}')
  with pytest.raises(
    ValueError, match="'best_folder' is 6, but .*: give the f"
  ):
    runs.run_folder(str(tmp_path))


# What settings refuse, and how phases and depths are read.


def config(**changes):
  values = dict(
    model_dir="run",
    num_train_steps=6,
    num_warmup_steps=2,
    learning_rate=0.01,
    train_batch_size=12,
  )
  return train_config.TrainConfig(**{**values, **changes})


@pytest.mark.parametrize("corrected", [False, True])
def test_the_optimizer_has_the_schedule_and_the_settings(corrected):
  optimizer = training.optimizer_of(
    config(optimizer="adamw", bias_correction=corrected)
  )
  assert not optimizer.layer_adaptation
  assert optimizer.bias_correction is corrected
  assert float(optimizer.learning_rate(1)) == pytest.approx(0.005)


@pytest.mark.parametrize(
  "name, values",
  [
    ("learning_rate", [0.0, math.nan, 1e39, "0.1"]),
    ("weight_decay", [-1.0, math.inf]),
    ("beta_1", [1.0]),
    ("beta_2", [2, -1.0]),
    ("clip_norm", [math.nan, math.inf, 0.0]),
    ("num_warmup_steps", [-1]),
    ("num_train_steps", [6.0, 2**31]),
    ("eval_steps", [True]),
    ("seed", [-1]),
    ("train_batch_size", [2**21]),
    ("best_is", ["best"]),
    ("optimizer", ["lamp"]),
    ("learning_rate_decay", ["cosine"]),
  ],
)
def test_values_out_of_range_are_refused(name, values):
  for value in values:
    shown = re.escape(repr(value)).replace("e\\+", r"e\+?")
    with pytest.raises(ValueError, match=rf"\b{name} is {shown}, but must be"):
      config(**{name: value})


PATIENCE = "early_stopping_evaluations"


@pytest.mark.parametrize(
  "changes, message",
  [
    (dict(gradient_accumulation_steps=5), "cannot be cut into 5 equal"),
    (dict(model_dir="gs://bucket/run[1]"), r"without \*, "),
    (dict(attention="fused", compile_chains=False), "--nocompile_chains avo"),
    (dict(best_is="long " * 99), "best_is is '(long ){7}long, but"),
    ({PATIENCE: 2, "eval_steps": 0}, "2 needs evaluations during"),
    ({PATIENCE: 2, "phases": (Phase(4), Phase(2))}, "cannot be used with ph"),
    (dict(num_warmup_steps=7), "num_warmup_steps 7 must be between 0 and"),
    (dict(phases=(Phase(4), Phase(3))), "have 7 steps together, but .* is 6"),
    (dict(phases=(Phase(3), Phase(3, 11, 2))), "11 cannot be cut into 2"),
  ],
)
def test_settings_that_do_not_fit_are_refused(changes, message):
  with pytest.raises(ValueError, match=message):
    config(**changes)


def test_small_models_are_fine_tuned_at_a_higher_rate():
  for size, rate in ((128, 5e-4), (256, 2.5e-4), (767, 8.3e-5)):
    values, _ = train_config.for_finetuning(2e-5, size)
    assert values == {"learning_rate": rate, "bias_correction": True}
  # The settings of the paper stay.
  values, reason = train_config.for_finetuning(2e-5, 768)
  assert values == {"learning_rate": 2e-5}
  assert reason == "the default for hidden_size 768 and more"
  # A higher rate of the paper stays.
  values, reason = train_config.for_finetuning(6e-3, 767)
  assert values["learning_rate"] == 6e-3 and "0.006 is for 768" in reason
