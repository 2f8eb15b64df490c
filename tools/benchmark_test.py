"""Tests of the benchmarks by their command lines; see also turns_test.py."""

from __future__ import annotations

import dataclasses
import json

import pytest

from official_albert.testing import toy_models, toy_vocabulary
from official_albert.tools.benchmarks import (
  embeddings,
  finetuning,
  pretraining,
  serving,
  turns,
)
from official_albert.tools.testing import many_commands, toy_data, toy_runs

_SERVING = ["serving", f"--spm_model_file={__file__}"]
# What is refused, what is named, the exit code; from the twelfth case on, the
# machine is described first.
_CASES = (
  (["weather"], "name one benchmark of embeddings"),
  ([], "name one benchmark of embeddings"),
  (["embeddings", "--input_files=x"], "--input_files: 'x' does not exist"),
  (["serving"], "needs --spm_model_file"),
  (["pretraining", "--portion_dir=x"], "--portion_dir: 'x' does not exist"),
  (["finetuning", "--systems=litert"], "litert is not for finetuning"),
  (["peers", "--systems=c_api"], "c_api is not for peers"),
  (["memory", "twice"], "unexpected argument 'twice'", 2),
  (["memory", "--precision=mixed_float16"], "value should be one of", 2),
  (["peers", "--repeats=0"], "repeats is 0, but must be from 1 to", 2),
  (["peers", "--systems=weather"], "choose of official_albert, ", 2),
  (["memory", "--output_dir=/proc/x"], "/proc/x: "),
  (["peers", "--preset=nope"], "preset is 'nope', but must be one of"),
  (_SERVING, "is not a SentencePiece model"),
  *(
    ([*_SERVING, flag], flag.split("=")[0])
    for flag in (
      *("--precision=mixed_bfloat16", "--batch_sizes=1,,2", "--batch_sizes=0"),
      *("--lengths=8,513", "--lengths=eight"),
    )
  ),
  (["memory", "--max_seq_length=513"], "at most 512 tokens, not 513"),
  (["finetuning"], "--finetuning_flags needs --init_checkpoint"),
  (
    ["finetuning", "--finetuning_flags=--task=squad_v2 --init_checkpoint=x"],
    "one --task, but not glue, nor squad_v2",
  ),
  (
    ["finetuning", "--finetuning_flags=--task=cola --data_dir x"],
    "has 'x', which is no --NAME or --NAME=VALUE",
  ),
  (
    [
      *("finetuning", "--systems=hf_frozen"),
      "--finetuning_flags=--task=text_embedding --init_checkpoint=x",
    ],
    "hf_frozen is not for --task=text_embedding",
  ),
)


def test_wrong_flags_are_refused_before_a_measurement():
  results = many_commands.check_refusals("benchmark", _CASES)
  described = [result.out.count("\n") for result in results]
  assert described == [0] * 12 + [1] * 12


@pytest.mark.heavy
def test_texts_are_embedded(tmp_path, peer_python):
  peer_python("sentence_transformers")
  toy_runs.write_tokenizer(str(tmp_path))
  (tmp_path / "texts.txt").write_text("a day at sea\nIt was cold.\n" * 20)
  options = turns.Options(
    *("albert_tiny", 16, 11, "float32", 2, 1),
    input_files=f"{tmp_path}/texts.txt",
    spm_model_file=f"{tmp_path}/tokenizer.model",
    output_dir=str(tmp_path),
  )
  embeddings.run("embeddings", options)
  path = tmp_path / "embeddings-albert_tiny-s11-b16-float32.json"
  results = json.loads(path.read_text())["results"]
  names = ["embed", "embed_export", "sentence_transformers"]
  assert [x["system"] for x in results] == names
  means = [x["results"][0] for x in results]
  assert means[0] == pytest.approx(means[2], abs=1e-6) and means[0] > 0.01
  assert "texts/s" in path.with_suffix(".md").read_text()


def _serve(folder, systems, repeats, **changes):
  """Returns the results, the largest difference of each, and the options."""
  toy_runs.write_tokenizer(str(folder))
  options = turns.Options(
    *("albert_tiny", 99, 11, "float32", repeats, 2),
    **{"systems": systems, "batch_sizes": "1,3", "padded": True},
    spm_model_file=f"{folder}/tokenizer.model",
    output_dir=str(folder),
    **changes,
  )
  serving.run("serving", options)
  (path,) = folder.glob("serving-albert_tiny*.json")
  results = json.loads(path.read_text())["results"]
  assert [x["system"] for x in results] == ["saved_model", *systems]
  cases = (found["cases"] for found in results)
  return results, [max(x["difference"] for x in y) for y in cases], options


@pytest.mark.heavy
def test_models_are_served(tmp_path):
  systems = ["c_api", "saved_model_bfloat16", "litert", "onnxruntime_int8"]
  results, differences, _ = _serve(tmp_path, systems, 2)
  for found in results:
    assert len(found["first_seconds"]) == len(found["first_bytes"]) == 2
    assert min(found["first_seconds"]) > 0.01
    assert 2**24 < min(found["first_bytes"]) <= found["peak_bytes"] < 2**32
    sizes = [(x["batch_size"], x["padded"]) for x in found["cases"]]
    assert sizes == [(1, False), (3, False), (3, True)]
    for case in found["cases"]:
      assert case["max_seq_length"] == 11
      assert len(case["milliseconds"]) in range(2, 5)
      assert min(case["milliseconds"]) > 0
  ours, library, low, lite, rounded = differences
  assert ours == 0
  assert library < 1e-6 and lite < 1e-5
  assert 1e-4 < low < 0.05 and 1e-4 < rounded < 0.2
  text = (tmp_path / "serving-albert_tiny.md").read_text()
  assert "1 x 11" in text and "3 x 11, padded" in text


@pytest.mark.heavy
def test_classifiers_are_served_as_on_a_gpu(tmp_path, peer_python):
  peer_python("huggingface")
  low = ["saved_model_bfloat16", "hf_graphs_float16"]
  systems = ["hf_graphs_float32", *low]
  _, differences, options = _serve(tmp_path, systems, 1, classify=True)
  ours, other, *rounded = differences
  assert ours == 0 and other < 1e-6
  assert min(rounded) > 1e-5 and max(rounded) < 0.02
  options = dataclasses.replace(options, systems=["onnxruntime"])
  with pytest.raises(ValueError, match="--classify: onnxruntime"):
    serving.run("serving", options)


def _row(task, is_sea):
  """Returns a row of a table, whose label says whether the sea is in it."""
  words = ["a", "day", "at", "sea" if is_sea else "home", "was", "warm"]
  if task == "token_classification":
    tags = ["B-X" if word == "sea" else "O" for word in words]
    return {"tokens": words, "tags": tags}
  label = {
    "text_classification": ("dry", "wet")[is_sea],
    "text_multi_label": ["all", "wet"][: 1 + is_sea],
    "text_regression": 50 + 7 * is_sea,
    "text_embedding": int(is_sea),
  }
  if task == "text_embedding":
    texts = {"text": "the sea", "text_b": " ".join(words)}
    return {**texts, "label": label[task]}
  return {"text": " ".join(words), "label": label[task]}


def _write_data(task, folder):
  """Writes a task's data; returns the flags for it."""
  splits = [("train", 48), ("dev", 12), ("test", 9)]
  if task == "squad_v1":
    for split, count in splits[:2]:
      text = json.dumps(toy_data.squad(count))
      (folder / f"{split}-v1.1.json").write_text(text)
    return [f"--data_dir={folder}", "--doc_stride=5"]
  if task == "race":
    for split, count in splits:
      for level in ("high", "middle"):
        path = folder / split / level
        path.mkdir(parents=True)
        options = ["the old house", "the day", "a tree", "the sea"]
        for i in range(count // 2):
          exam = {
            **{"id": f"{level}{i}", "article": "a day at sea was warm"},
            **{"questions": ["it was at _"], "answers": ["DABC"[i % 4]]},
            "options": [options[-(i % 4) :] + options[: -(i % 4)]],
          }
          (path / f"{i}.txt").write_text(json.dumps(exam))
    return [f"--data_dir={folder}", "--max_qa_length=12"]
  for split, count in splits:
    lines = [json.dumps(_row(task, i % 3 == 1)) for i in range(count)]
    (folder / f"{split}.jsonl").write_text("\n".join([*lines, "{}\n"]))
  files = [f"--{x}_file={folder}/{x}.jsonl" for x, _ in splits]
  return [*files, "--skip_invalid"]


@pytest.mark.heavy
@pytest.mark.parametrize(
  "task, metric",
  [
    ("race", "accuracy"),
    ("squad_v1", "f1"),
    ("text_classification", "accuracy"),
    ("text_multi_label", "macro_f1"),
    ("text_regression", "pearson"),
    ("token_classification", "f1"),
    ("text_embedding", "pearson"),
  ],
)
def test_two_systems_are_fine_tuned(
  task, metric, tmp_path, monkeypatch, peer_python
):
  systems = ["hf_finetuned_compiled", "hf_frozen"]
  if task == "text_embedding":
    systems = ["st_finetuned"]
  peer_python(turns.SYSTEMS[systems[-1]].variant.split()[0])
  run = toy_runs.write_pretrained(str(tmp_path / "run"))
  flags = _write_data(task, tmp_path)
  flags += [f"--task={task}", f"--init_checkpoint={run}", "--eval_steps=30"]
  flags += ["--num_train_steps=60", "--learning_rate=5e-3"]
  flags.append("--train_batch_size=32")
  options = turns.Options(
    repeats=1,
    systems=systems,
    finetuning_flags=" ".join([*flags, "--max_seq_length=16"]),
    output_dir=str(tmp_path),
  )
  finetuning.run("finetuning", options)
  path = tmp_path / f"finetuning-{task}-s16-b32-float32.json"
  results = json.loads(path.read_text())["results"]
  assert [x["system"] for x in results] == ["official_albert", *systems]
  for found in results:
    assert found["step"] in (30, 60) and found["seed"] == 1
    unit = 100 if task == "squad_v1" else 1  # It has no test data.
    tested = [found[x][metric] for x in ("dev", "test") if x in found]
    assert min(tested) > 0.95 * unit
    # The whole program is slower than the updates alone.
    assert found["sequences_per_second"] > 60 * 32 / found["seconds"] > 0


@pytest.mark.heavy
def test_a_portion_is_pretrained_by_another_system(tmp_path, peer_python):
  peer_python("huggingface")
  toy_data.write_corpus(str(tmp_path / "corpus.txt"), 600)
  lines = (tmp_path / "corpus.txt").read_text().splitlines()
  pieces = toy_vocabulary.train(lines, 45)
  (tmp_path / "tokenizer.model").write_bytes(pieces)
  config = toy_models.config(45, 128, num_hidden_layers=3)
  config.to_json_file(str(tmp_path / "config.json"))
  done = many_commands.start(
    *("-m", "tools.run_portion", f"--output_dir={tmp_path}/out"),
    f"--input_files={tmp_path}/corpus.txt",
    f"--spm_model_file={tmp_path}/tokenizer.model",
    f"--pretraining_flags=--albert_config_file={tmp_path}/config.json "
    "--phase_steps=4,3,2 --num_warmup_steps=3 --phase_layers=1,2,3 "
    "--train_batch_size=8,8,4 --eval_batch_size=8 --precision=float32 "
    "--noinit_word_vectors",
  )
  assert done.code == 0, done.err
  options = turns.Options(
    portion_dir=f"{tmp_path}/out",
    minutes=0.2,
    peer_flags="optimizer=muon learning_rate=0.01",
  )
  pretraining.run("pretraining", options)
  log = (tmp_path / "out" / "log.jsonl").read_text().splitlines()
  ours, other = map(json.loads, log)
  steps = other["phase_steps"]
  assert len(steps) == 3 and min(steps) > 3
  assert other["tokens"] == sum(
    x * y for x, y in zip(steps, (8 * 64, 8 * 64, 4 * 128))
  )
  assert other["settings"]["learning_rate"] == 0.01
  assert other["minutes"] == pytest.approx(0.2, rel=0.3)
  for split in ("tuning", "report"):
    assert other[split].keys() < ours[split].keys()
    # It has learned the frequencies, of which our few steps know little.
    assert other[split]["masked_lm_loss"] < ours[split]["masked_lm_loss"] - 0.2
  options = dataclasses.replace(options, peer_flags="momentum=0.9")
  with pytest.raises(ValueError, match="momentum"):
    pretraining.run("pretraining", options)
