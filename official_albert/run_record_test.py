"""Tests of run.json and of what a resumed run is told."""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib

import pytest

from official_albert import AlbertConfig, run_record

CONFIG = AlbertConfig.from_preset("albert_tiny")
SETTINGS = {"learning_rate": 0.1, "keep_checkpoint_max": 7}


def test_record_holds_settings_data_and_versions(tmp_path):
  folder = str(tmp_path / "run")
  assert run_record.write(folder, CONFIG, SETTINGS, {"sha": "a"}) == []
  record = run_record.read(folder)
  assert record["settings"] == SETTINGS
  assert record["data"] == {"sha": "a"}
  assert record["versions"]["tensorflow"].startswith("2.15")
  config = AlbertConfig.from_json_file(f"{folder}/albert_config.json")
  assert config == CONFIG


def test_changes_that_matter_are_told(tmp_path):
  folder = str(tmp_path)
  run_record.write(folder, CONFIG, SETTINGS, {"sha": "a"})
  (tmp_path / "checkpoint").touch()
  free = {**SETTINGS, "keep_checkpoint_max": 9, "profile_steps": "1,2"}
  free["recipe"] = "base_cpu"
  assert run_record.write(folder, CONFIG, free, {"sha": "a"}) == []
  changed = {**free, "learning_rate": 0.2}
  changes = run_record.write(folder, CONFIG, changed, {"sha": "b"})
  assert len(changes) == 2
  assert "learning_rate was 0.1 at the last start and is now 0.2" in changes[0]


def test_what_an_earlier_version_did_not_know_was_off(tmp_path):
  folder = str(tmp_path)
  run_record.write(folder, CONFIG, SETTINGS, {})
  (tmp_path / "checkpoint").touch()
  new = {
    "best_is": "lowest",
    "early_stopping_evaluations": 0,
    "layerwise_lr_decay": 1.0,
  }
  assert run_record.write(folder, CONFIG, {**SETTINGS, **new}, {}) == []
  new = {"best_is": "highest", "layerwise_lr_decay": 0.5}
  (change,) = run_record.write(folder, CONFIG, {**SETTINGS, **new}, {})
  assert "layerwise_lr_decay was 1.0 at the last start and is now 0.5" in change


def test_phases_of_an_earlier_version_had_the_models_depth(tmp_path):
  folder = str(tmp_path)
  phases = [{"steps": 4, "train_batch_size": None}, {"steps": 3}]
  settings = {**SETTINGS, "num_train_steps": 7}
  run_record.write(folder, CONFIG, {**settings, "phases": phases}, {})
  (tmp_path / "checkpoint").touch()
  same = [{"same_data": False, "num_layers": None, **p} for p in phases]
  assert run_record.write(folder, CONFIG, {**settings, "phases": same}, {}) == (
    []
  )
  assert run_record.read(folder)["settings"]["phases"] == same
  other = [{**same[0], "num_layers": 2}, same[1]]
  (change,) = run_record.write(
    folder, CONFIG, {**settings, "phases": other}, {}
  )
  assert "now [{'num_layers': 2, 'steps': 4}, {'steps': 3}]" in change


def test_what_an_earlier_version_did_not_say_of_its_data(tmp_path):
  folder = str(tmp_path)
  old, new = {"doc_stride": 5}, {"doc_stride": 5, "n_best_size": 20}
  run_record.write(folder, CONFIG, SETTINGS, {"settings": old})
  (tmp_path / "checkpoint").touch()
  assert run_record.write(folder, CONFIG, SETTINGS, {"settings": new}) == []
  assert run_record.read(folder)["data"]["settings"] == new
  other = {**new, "n_best_size": 3}
  (change,) = run_record.write(folder, CONFIG, SETTINGS, {"settings": other})
  assert "'n_best_size': 20} at the last start" in change.replace("}}", "}")


def test_another_model_is_refused(tmp_path):
  run_record.write(str(tmp_path), CONFIG, SETTINGS, {})
  other = dataclasses.replace(CONFIG, num_hidden_layers=5)
  # Nothing was trained yet, so nothing binds.
  run_record.write(str(tmp_path), other, SETTINGS, {})
  pathlib.Path(tmp_path, "checkpoint").touch()
  with pytest.raises(ValueError, match="num_hidden_layers 5, .* ask for 4"):
    run_record.write(str(tmp_path), CONFIG, SETTINGS, {})


def test_records_from_before_there_were_kinds_of_tokenizers(tmp_path):
  info = {"sha256": "a"}
  run_record.write(str(tmp_path), CONFIG, SETTINGS, {"tokenizer": info})
  (tmp_path / "checkpoint").write_text("")
  same = {"tokenizer": {"kind": "sentencepiece", **info}}
  run_record.write(str(tmp_path), CONFIG, SETTINGS, same)
  other = {"tokenizer": {"kind": "wordpiece", **info}}
  with pytest.raises(ValueError, match="another tokenizer"):
    run_record.write(str(tmp_path), CONFIG, SETTINGS, other)


def test_another_tokenizer_is_refused(tmp_path):
  data = {"tokenizer": {"sha256": "a"}}
  run_record.write(str(tmp_path), CONFIG, SETTINGS, data)
  (tmp_path / "checkpoint").touch()
  with pytest.raises(ValueError, match="another tokenizer"):
    run_record.write(
      str(tmp_path), CONFIG, SETTINGS, {"tokenizer": {"sha256": "b"}}
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
  folder = str(tmp_path)
  run_record.write(folder, CONFIG, _in_phases(*before), {})
  assert run_record.phase_ends(run_record.read(folder)["settings"]) == [
    sum(before[: i + 1]) for i in range(len(before))
  ]
  (tmp_path / "checkpoint").touch()
  if allowed:
    changes = run_record.write(folder, CONFIG, _in_phases(*after), {}, step)
    assert any("phases was [" in change for change in changes)
  else:
    with pytest.raises(ValueError, match=f"is at step {step} and has ended"):
      run_record.write(folder, CONFIG, _in_phases(*after), {}, step)
    kept = run_record.read(folder)["settings"]
    assert kept["num_train_steps"] == sum(before)


def test_the_same_phases_again_are_no_change(tmp_path):
  folder, settings = str(tmp_path), _in_phases(3, 4)
  run_record.write(folder, CONFIG, settings, {})
  (tmp_path / "checkpoint").touch()
  assert run_record.write(folder, CONFIG, settings, {}, 5) == []


def test_records_from_before_there_were_phases(tmp_path):
  run_record.write(str(tmp_path), CONFIG, {"num_train_steps": 9}, {})
  (tmp_path / "checkpoint").touch()
  now = {"num_train_steps": 9, "phases": ()}
  assert run_record.write(str(tmp_path), CONFIG, now, {}, 5) == []


def test_lengths_that_a_step_has_seen():
  tokenizer = {"sha256": "a"}
  data = run_record.data_of(
    [{"tokenizer": tokenizer, "max_seq_length": n} for n in (11, 19, 7)]
  )
  assert data["max_seq_length"] == 19 and data["tokenizer"] == tokenizer
  record = {"settings": _in_phases(4, 3, 2), "data": data}
  lengths = [run_record.max_seq_length(record, step) for step in (0, 4, 5, 9)]
  assert lengths == [11, 11, 19, 19]
  one = run_record.data_of([{"max_seq_length": 5, "tokenizer": tokenizer}])
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
    run_record.read(str(tmp_path))
  (tmp_path / "run.json").write_text("{")
  with pytest.raises(ValueError, match="not valid JSON"):
    run_record.read(str(tmp_path))


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
