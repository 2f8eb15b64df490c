"""run.json, and which settings a resumed run may change."""

from __future__ import annotations

import dataclasses
import hashlib

import pytest

from official_albert import AlbertConfig
from official_albert.training import run_record

CONFIG = AlbertConfig.from_preset("albert_tiny")
SETTINGS = {"learning_rate": 0.1, "keep_checkpoint_max": 7}


def started(folder, settings=SETTINGS, data=None):
  """Makes a run with a checkpoint; returns its folder."""
  run_record.write_run(str(folder), CONFIG, settings, data or {})
  (folder / "checkpoint").touch()
  return str(folder)


def check(folder, settings=SETTINGS, data=None, **kwargs):
  return run_record.check(folder, CONFIG, settings, data or {}, **kwargs)


def test_the_record_holds_settings_data_and_versions(tmp_path):
  folder = str(tmp_path / "run")
  assert check(folder, data={"sha": "a"}) == []
  assert not (tmp_path / "run").exists()
  run_record.write_run(folder, CONFIG, SETTINGS, {"sha": "a"})
  record = run_record.read_run(folder)
  assert record["settings"] == SETTINGS and record["data"] == {"sha": "a"}
  assert record["versions"]["tensorflow"].startswith("2.15")
  config = AlbertConfig.from_json_file(f"{folder}/albert_config.json")
  assert config == CONFIG


def test_changes_of_the_result_are_refused_unless_allowed(tmp_path):
  folder = started(tmp_path, data={"sha": "a"})
  before = (tmp_path / "run.json").read_bytes()
  free = {**SETTINGS, "keep_checkpoint_max": 9, "profile_steps": "1,2"}
  free.update(recipe="base_cpu", on_divergence="rollback")
  assert check(folder, free, {"sha": "a"}) == []
  changed = {**free, "learning_rate": 0.2}
  with pytest.raises(ValueError) as error:
    check(folder, changed, {"sha": "b"}, step=7)
  assert str(error.value) == (
    f"{folder} holds a run at step 7 with other settings (data.sha was 'a' at "
    "the last start and is now 'b'; learning_rate was 0.1 at the last start "
    "and is now 0.2): give the old values, another folder, or "
    "--allow_changed_settings to continue with the new ones."
  )
  changes = check(folder, changed, {"sha": "b"}, allow_changed_settings=True)
  assert changes == [
    "data.sha was 'a' at the last start and is now 'b'",
    "learning_rate was 0.1 at the last start and is now 0.2",
  ]
  assert (tmp_path / "run.json").read_bytes() == before


@pytest.mark.parametrize("allowed", [False, True])
def test_a_finished_run_has_the_same_settings_or_is_refused(tmp_path, allowed):
  folder = started(tmp_path)
  more = {"step": 7, "is_finished": True, "allow_changed_settings": allowed}
  assert check(folder, **more) == []
  assert check(folder, {**SETTINGS, "num_replicas": 8}, **more) == []
  with pytest.raises(ValueError) as error:
    check(folder, {**SETTINGS, "learning_rate": 0.2}, **more)
  assert "is finished at step 7, with nothing left to train" in str(error.value)
  assert "learning_rate was 0.1 at the last start" in str(error.value)
  assert "allow_changed_settings" not in str(error.value)


def test_the_machine_may_change_with_a_warning(tmp_path):
  old = {"num_replicas": 8, "precision": "mixed_bfloat16", "num_train_steps": 7}
  new = {"num_replicas": 1, "precision": "float32", "num_train_steps": 7}
  old["phases"] = [{"steps": 3, "gradient_accumulation_steps": 2}, {"steps": 4}]
  new["phases"] = [{"steps": 3}, {"steps": 4, "gradient_accumulation_steps": 5}]
  folder = started(tmp_path, old, {"input_dir": "a"})
  assert check(folder, new, {"input_dir": "b"}) == [
    "data.input_dir was 'a' at the last start and is now 'b'",
    "num_replicas was 8 at the last start and is now 1",
    "phases[0].gradient_accumulation_steps was 2 at the last start and is now "
    "None",
    "phases[1].gradient_accumulation_steps was None at the last start and is "
    "now 5",
    "precision was 'mixed_bfloat16' at the last start and is now 'float32'",
  ]


def test_other_names_of_the_folder_of_initial_weights(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  folder = started(tmp_path, {"init_checkpoint": "encoder/"})
  for same in ("encoder", str(tmp_path / "encoder")):
    assert check(folder, {"init_checkpoint": same}) == []
  for other in ("", "encoder2", "gs://encoder"):
    with pytest.raises(ValueError, match="init_checkpoint was 'encoder/' at"):
      check(folder, {"init_checkpoint": other})


def test_long_messages_are_cut(tmp_path):
  folder = started(tmp_path, {f"s{i}": "x" * 99 for i in range(7)})
  with pytest.raises(ValueError) as error:
    check(folder, {f"s{i}": "y" for i in range(7)})
  assert f"s3 was '{'x' * 59}... at the last start" in str(error.value)
  assert "is now 'y'; and 3 more): give" in str(error.value)
  assert "s4" not in str(error.value)


_PHASES = [{"steps": 4, "train_batch_size": None}, {"steps": 3}]
_NEWER_PHASES = [
  {"same_data": False, "num_layers": None, **phase} for phase in _PHASES
]


@pytest.mark.parametrize(
  "old, old_data, new, new_data",
  [
    # Converted weights have no settings.
    ({}, {"max_seq_length": 512}, SETTINGS, {"max_seq_length": 24}),
    # Earlier versions had neither.
    (
      {},
      {},
      {
        "best_is": "lowest",
        "early_stopping_evaluations": 0,
        "layerwise_lr_decay": 1.0,
      },
      {},
    ),
    ({"num_train_steps": 9}, {}, {"num_train_steps": 9, "phases": ()}, {}),
    (
      {"num_train_steps": 7, "phases": _PHASES},
      {},
      {"num_train_steps": 7, "phases": _NEWER_PHASES},
      {},
    ),
    (
      SETTINGS,
      {"settings": {"doc_stride": 5}},
      SETTINGS,
      {"settings": {"doc_stride": 5, "n_best_size": 20}},
    ),
    (
      SETTINGS,
      {"tokenizer": {"sha256": "a"}},
      SETTINGS,
      {"tokenizer": {"kind": "sentencepiece", "sha256": "a"}},
    ),
  ],
)
def test_records_of_earlier_versions(tmp_path, old, old_data, new, new_data):
  folder = started(tmp_path, old, old_data)
  assert check(folder, new, new_data, step=5) == []


@pytest.mark.parametrize(
  "old, old_data, new, new_data, message",
  [
    (
      {},
      {"eval": {"sha": "b"}},
      {},
      {},
      "data.eval.sha was 'b' at the last start and is now None",
    ),
    (
      {},
      {},
      {"best_is": "highest"},
      {},
      "best_is was 'lowest' at .* 'highest'",
    ),
    ({}, {}, {"layerwise_lr_decay": 0.5}, {}, "lr_decay was 1.0 at .* now 0.5"),
    (
      {"num_train_steps": 7, "phases": _PHASES},
      {},
      {
        "num_train_steps": 7,
        "phases": [{**_NEWER_PHASES[0], "num_layers": 2}, _NEWER_PHASES[1]],
      },
      {},
      r"phases\[0\].num_layers was None .* 2",
    ),
    (
      {},
      {"settings": {"n_best_size": 20}},
      {},
      {"settings": {"n_best_size": 3}},
      "data.settings.n_best_size was 20 at",
    ),
  ],
)
def test_changes(tmp_path, old, old_data, new, new_data, message):
  folder = started(tmp_path, {**SETTINGS, **old}, old_data)
  with pytest.raises(ValueError, match=message):
    check(folder, {**SETTINGS, **new}, new_data)


def test_another_model_is_refused(tmp_path):
  other = dataclasses.replace(CONFIG, num_hidden_layers=5)
  folder = str(tmp_path)
  run_record.write_run(folder, other, SETTINGS, {})
  assert check(folder) == []  # Nothing was trained yet.
  (tmp_path / "checkpoint").touch()
  with pytest.raises(ValueError, match="num_hidden_layers 5, .* ask for 4"):
    check(folder, allow_changed_settings=True)


@pytest.mark.parametrize(
  "other", [{"sha256": "b"}, {"sha256": "a", "kind": "wordpiece"}]
)
def test_another_tokenizer_is_refused(tmp_path, other):
  folder = started(tmp_path, data={"tokenizer": {"sha256": "a"}})
  with pytest.raises(ValueError, match="another tokenizer"):
    check(folder, data={"tokenizer": other}, allow_changed_settings=True)


def _in_phases(*steps):
  phases = tuple({"steps": count} for count in steps)
  return {"num_train_steps": sum(steps), "phases": phases}


@pytest.mark.parametrize(
  "before, step, after, allowed",
  [
    ((10, 5), 12, (10, 7), True),  # The current phase is lengthened,
    ((10, 5), 12, (10, 3, 4), True),  # or cut.
    ((10, 5), 7, (7, 8), True),  # It may end at the current step,
    ((10, 5), 7, (6, 9), False),  # but not earlier.
    ((10, 5), 10, (12, 3), True),  # It continues if the next has not begun.
    ((10, 5), 11, (12, 3), False),
    ((10,), 10, (10, 5), True),
    ((10,), 10, (5, 10), False),
    ((10, 5), 12, (15,), False),
  ],
)
def test_ends_of_finished_phases_stay(tmp_path, before, step, after, allowed):
  folder = started(tmp_path, _in_phases(*before))
  assert check(folder, _in_phases(*before), step=step) == []
  after = _in_phases(*after)
  more = {"step": step, "allow_changed_settings": True}
  if allowed:
    changes = check(folder, after, **more)
    assert any(change.startswith("phases[") for change in changes)
    with pytest.raises(ValueError, match=r"phases\[\d\].steps was"):
      check(folder, after, step=step)
  else:
    with pytest.raises(ValueError, match=f"is at step {step} and has ended"):
      check(folder, after, **more)


def test_longest_sequence_up_to_a_step():
  tokenizer = {"sha256": "a"}
  data = run_record.combined_data(
    [{"tokenizer": tokenizer, "max_seq_length": n} for n in (11, 19, 7)]
  )
  assert data["max_seq_length"] == 19 and data["tokenizer"] == tokenizer
  record = {"settings": _in_phases(4, 3, 2), "data": data}
  lengths = [run_record.max_seq_length(record, step) for step in (0, 4, 5, 9)]
  assert lengths == [11, 11, 19, 19]
  one = run_record.combined_data([{"max_seq_length": 5}])
  assert run_record.max_seq_length({"data": one}, 3) == 5


def test_only_the_tokenizer_of_the_data_is_copied(tmp_path):
  (tmp_path / "run").mkdir()
  (tmp_path / "vocab.txt").write_bytes(b"[PAD]\n")
  source = str(tmp_path / "vocab.txt")
  sha256 = hashlib.sha256(b"[PAD]\n").hexdigest()
  run_record.copy_tokenizer(source, sha256, str(tmp_path / "run"))
  assert (tmp_path / "run" / "vocab.txt").read_bytes() == b"[PAD]\n"
  with pytest.raises(ValueError, match="is not the tokenizer that the records"):
    run_record.copy_tokenizer(source, "ab" * 32, str(tmp_path / "run"))


def test_missing_and_broken_records(tmp_path):
  with pytest.raises(FileNotFoundError, match="not the folder of a run"):
    run_record.read_run(str(tmp_path))
  (tmp_path / "run.json").write_text("{")
  with pytest.raises(ValueError, match="not valid JSON"):
    run_record.read_run(str(tmp_path))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
