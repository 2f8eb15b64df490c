"""Tests of run.json and of what a resumed run is told."""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib

import pytest

from official_albert import AlbertConfig
from official_albert.training import run_record

CONFIG = AlbertConfig.from_preset("albert_tiny")
SETTINGS = {"learning_rate": 0.1, "keep_checkpoint_max": 7}


def test_record_holds_settings_data_and_versions(tmp_path):
  folder = str(tmp_path / "run")
  assert run_record.check(folder, CONFIG, SETTINGS, {"sha": "a"}) == []
  assert not (tmp_path / "run").exists()
  run_record.write_run(folder, CONFIG, SETTINGS, {"sha": "a"})
  record = run_record.read_run(folder)
  assert record["settings"] == SETTINGS
  assert record["data"] == {"sha": "a"}
  assert record["versions"]["tensorflow"].startswith("2.15")
  config = AlbertConfig.from_json_file(f"{folder}/albert_config.json")
  assert config == CONFIG


def started(folder, settings=SETTINGS, data=None):
  """A run with a checkpoint; returns its folder."""
  run_record.write_run(str(folder), CONFIG, settings, data or {})
  (folder / "checkpoint").touch()
  return str(folder)


def check(folder, settings=SETTINGS, data=None, **kwargs):
  return run_record.check(folder, CONFIG, settings, data or {}, **kwargs)


def test_what_shapes_the_result_is_refused_unless_allowed(tmp_path):
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
    "--allow_changed_settings to go on with the new ones."
  )
  changes = check(folder, changed, {"sha": "b"}, allow_changed_settings=True)
  assert changes == [
    "data.sha was 'a' at the last start and is now 'b'",
    "learning_rate was 0.1 at the last start and is now 0.2",
  ]
  assert (tmp_path / "run.json").read_bytes() == before


@pytest.mark.parametrize("allowed", [False, True])
def test_a_finished_run_is_the_same_or_refused(tmp_path, allowed):
  folder = started(tmp_path)
  more = {"step": 7, "is_finished": True, "allow_changed_settings": allowed}
  assert check(folder, **more) == []
  # On another machine there is nothing left to be computed otherwise.
  assert check(folder, {**SETTINGS, "num_replicas": 8}, **more) == []
  with pytest.raises(ValueError) as error:
    check(folder, {**SETTINGS, "learning_rate": 0.2}, **more)
  assert "is finished at step 7, with nothing left to train" in str(error.value)
  assert "learning_rate was 0.1 at the last start" in str(error.value)
  assert "allow_changed_settings" not in str(error.value)


def test_the_machine_may_change_with_a_warning(tmp_path):
  old = {"num_replicas": 8, "precision": "mixed_bfloat16", "xla": True}
  phases = [{"steps": 3, "gradient_accumulation_steps": 2}, {"steps": 4}]
  folder = started(
    tmp_path,
    {**old, "num_train_steps": 7, "phases": phases},
    {"input_dir": "a"},
  )
  phases = [{"steps": 3}, {"steps": 4, "gradient_accumulation_steps": 5}]
  new = {"num_replicas": 1, "precision": "float32", "xla": False}
  new.update(num_train_steps=7, phases=phases)
  assert check(folder, new, {"input_dir": "b"}) == [
    "data.input_dir was 'a' at the last start and is now 'b'",
    "num_replicas was 8 at the last start and is now 1",
    "phases[0].gradient_accumulation_steps was 2 at the last start and is now "
    "None",
    "phases[1].gradient_accumulation_steps was None at the last start and is "
    "now 5",
    "precision was 'mixed_bfloat16' at the last start and is now 'float32'",
    "xla was True at the last start and is now False",
  ]


def test_initial_weights_by_another_name_of_their_folder(tmp_path, monkeypatch):
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


def test_converted_weights_bind_to_no_settings(tmp_path):
  folder = started(tmp_path, {}, {"head": "none", "max_seq_length": 512})
  assert check(folder, SETTINGS, {"max_seq_length": 24, "shards": [1]}) == []


def test_data_that_is_left_out_is_a_change(tmp_path):
  folder = started(tmp_path, data={"sha": "a", "eval": {"sha": "b"}})
  with pytest.raises(ValueError, match="data.eval.sha was 'b' .* now None"):
    check(folder, data={"sha": "a"})


def test_what_an_earlier_version_did_not_know_was_off(tmp_path):
  folder = started(tmp_path)
  new = {
    "best_is": "lowest",
    "early_stopping_evaluations": 0,
    "layerwise_lr_decay": 1.0,
  }
  assert check(folder, {**SETTINGS, **new}) == []
  new = {"best_is": "highest", "layerwise_lr_decay": 0.5}
  best, decay = check(folder, {**SETTINGS, **new}, allow_changed_settings=True)
  assert "best_is was 'lowest' at the last start and is now 'highest'" in best
  assert "layerwise_lr_decay was 1.0 at the last start and is now 0.5" in decay


def test_phases_of_an_earlier_version_had_the_models_depth(tmp_path):
  phases = [{"steps": 4, "train_batch_size": None}, {"steps": 3}]
  settings = {**SETTINGS, "num_train_steps": 7}
  folder = started(tmp_path, {**settings, "phases": phases})
  same = [{"same_data": False, "num_layers": None, **p} for p in phases]
  assert check(folder, {**settings, "phases": same}) == []
  other = [{**same[0], "num_layers": 2}, same[1]]
  with pytest.raises(ValueError, match=r"phases\[0\].num_layers was None .* 2"):
    check(folder, {**settings, "phases": other})


def test_what_an_earlier_version_did_not_say_of_its_data(tmp_path):
  old, new = {"doc_stride": 5}, {"doc_stride": 5, "n_best_size": 20}
  folder = started(tmp_path, data={"settings": old})
  assert check(folder, data={"settings": new}) == []
  folder = started(tmp_path, data={"settings": new})
  with pytest.raises(ValueError, match="data.settings.n_best_size was 20 at"):
    check(folder, data={"settings": {**new, "n_best_size": 3}})


def test_another_model_is_refused(tmp_path):
  run_record.write_run(str(tmp_path), CONFIG, SETTINGS, {})
  other = dataclasses.replace(CONFIG, num_hidden_layers=5)
  # Nothing was trained yet, so nothing binds.
  folder = str(tmp_path)
  assert run_record.check(folder, other, SETTINGS, {}) == []
  run_record.write_run(folder, other, SETTINGS, {})
  pathlib.Path(tmp_path, "checkpoint").touch()
  with pytest.raises(ValueError, match="num_hidden_layers 5, .* ask for 4"):
    check(folder, allow_changed_settings=True)


def test_records_from_before_there_were_kinds_of_tokenizers(tmp_path):
  info = {"sha256": "a"}
  folder = started(tmp_path, data={"tokenizer": info})
  same = {"tokenizer": {"kind": "sentencepiece", **info}}
  assert check(folder, data=same) == []
  other = {"tokenizer": {"kind": "wordpiece", **info}}
  with pytest.raises(ValueError, match="another tokenizer"):
    check(folder, data=other)


def test_another_tokenizer_is_refused(tmp_path):
  folder = started(tmp_path, data={"tokenizer": {"sha256": "a"}})
  with pytest.raises(ValueError, match="another tokenizer"):
    check(
      folder,
      data={"tokenizer": {"sha256": "b"}},
      allow_changed_settings=True,
    )


def _in_phases(*steps):
  phases = tuple({"steps": count} for count in steps)
  return {"num_train_steps": sum(steps), "phases": phases}


@pytest.mark.parametrize(
  "before, step, after, allowed",
  [
    ((10, 5), 12, (10, 7), True),  # The phase under way is lengthened,
    ((10, 5), 12, (10, 3, 4), True),  # or cut.
    ((10, 5), 7, (7, 8), True),  # It may end here and now,
    ((10, 5), 7, (6, 9), False),  # but not earlier.
    ((10, 5), 10, (12, 3), True),  # It goes on if the next has not begun.
    ((10, 5), 11, (12, 3), False),
    ((10,), 10, (10, 5), True),
    ((10,), 10, (5, 10), False),
    ((10, 5), 12, (15,), False),
  ],
)
def test_borders_that_were_passed_stay(tmp_path, before, step, after, allowed):
  folder = started(tmp_path, _in_phases(*before))
  assert run_record.phase_ends(run_record.read_run(folder)["settings"]) == [
    sum(before[: i + 1]) for i in range(len(before))
  ]
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


def test_the_same_phases_again_are_no_change(tmp_path):
  settings = _in_phases(3, 4)
  assert check(started(tmp_path, settings), settings, step=5) == []


def test_records_from_before_there_were_phases(tmp_path):
  folder = started(tmp_path, {"num_train_steps": 9})
  now = {"num_train_steps": 9, "phases": ()}
  assert check(folder, now, step=5) == []


def test_lengths_that_a_step_has_seen():
  tokenizer = {"sha256": "a"}
  data = run_record.combined_data(
    [{"tokenizer": tokenizer, "max_seq_length": n} for n in (11, 19, 7)]
  )
  assert data["max_seq_length"] == 19 and data["tokenizer"] == tokenizer
  record = {"settings": _in_phases(4, 3, 2), "data": data}
  lengths = [run_record.max_seq_length(record, step) for step in (0, 4, 5, 9)]
  assert lengths == [11, 11, 19, 19]
  one = run_record.combined_data(
    [{"max_seq_length": 5, "tokenizer": tokenizer}]
  )
  assert run_record.max_seq_length({"data": one}, 3) == 5


def test_only_the_datas_tokenizer_is_copied(tmp_path):
  (tmp_path / "run").mkdir()
  (tmp_path / "vocab.txt").write_bytes(b"[PAD]\n")
  source = str(tmp_path / "vocab.txt")
  sha256 = hashlib.sha256(b"[PAD]\n").hexdigest()
  run_record.copy_tokenizer(source, sha256, str(tmp_path / "run"))
  assert (tmp_path / "run" / "vocab.txt").read_bytes() == b"[PAD]\n"
  with pytest.raises(ValueError, match="is not the tokenizer that the records"):
    run_record.copy_tokenizer(source, "ab" * 32, str(tmp_path / "run"))


def test_no_record_and_broken_record(tmp_path):
  with pytest.raises(FileNotFoundError, match="not the folder of a run"):
    run_record.read_run(str(tmp_path))
  (tmp_path / "run.json").write_text("{")
  with pytest.raises(ValueError, match="not valid JSON"):
    run_record.read_run(str(tmp_path))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
