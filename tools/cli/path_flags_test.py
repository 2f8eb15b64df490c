"""Tests of the flags of all programs: help, names, paths, gs:// addresses."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import re
import runpy
import sys

import pytest
from absl import flags

from official_albert.tools.cli import path_flags
from official_albert.tools.testing import many_commands

_WIDTH = 75  # Of the terminal.
_WORKERS = (
  "machine run_logs runs tasks.pretraining.data.build_worker tasks.squad "
  "tfrecords"
)
# Names of flags for paths.
_PATHS = re.compile(
  r"(^|_)(dirs?|files?|dump|checkpoint|module|input|output)$|^(model|members)$"
)


def _programs() -> list[str]:
  """Returns the modules that users start."""
  root = many_commands.ROOT
  return [
    f"official_albert/{path.relative_to(root)}"[:-3].replace("/", ".")
    for path in sorted((root / "tools").rglob("*.py"))
    if not path.name.endswith("_test.py")
    and "\n  command_line.run(main" in path.read_text("utf-8")
  ]


def _help_of(program: str) -> str:
  """Returns what --help prints."""
  sys.argv[1:], out = ["--help"], io.StringIO()
  with contextlib.redirect_stdout(out), pytest.raises(SystemExit) as ended:
    runpy.run_module(program, run_name="__main__", alter_sys=True)
  assert not ended.value.code
  return out.getvalue()


def walk() -> None:
  """Prints the help, all names, and the flags of all programs as JSON.

  Each program is run by a process of its own, as several define the same flags.
  """
  # Workers that make data load no TensorFlow either.
  for name in _WORKERS.split():
    importlib.import_module(f"official_albert.{name}")
  found = {}
  for program in _programs():
    reader, writer = os.pipe()
    if not os.fork():
      with open(writer, "w") as file:
        shown = _help_of(program)
        # Those with text as values that are not defined as paths.
        texts = [
          flag.name
          for module, defined in flags.FLAGS.flags_by_module_dict().items()
          for flag in defined
          if "tools" in re.split(r"\W", module)
          and type(flag.parser) in (flags.ArgumentParser, flags.ListParser)
        ]
        json.dump([shown, [*flags.FLAGS], texts], file)
        # It takes seconds to load, so flags are parsed before.
        assert "tensorflow" not in sys.modules, program
      os._exit(0)
    os.close(writer)
    with open(reader) as file:
      found[program] = json.load(file)
    assert os.wait()[1] == 0
  print(json.dumps(found))


@pytest.fixture(scope="module")
def walked():
  done = many_commands.start(
    "-c",
    "from official_albert.tools.cli import path_flags_test as t; t.walk()",
    env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "COLUMNS": str(_WIDTH)},
  )
  assert done.code == 0, done.err
  return json.loads(done.out)


def test_help_lists_each_flag_once(walked):
  for program, (shown, names, _) in walked.items():
    assert max(map(len, shown.splitlines())) <= 80, program
    listed = re.findall(r"^  --(?:\[no])?(\w+):", shown, re.MULTILINE)
    assert len(listed) == len({*listed}) and {*listed} <= {*names}, program
    assert "alsologtostderr" not in listed
    headings = re.findall(r"\n\n(\S.*)\n  --", shown)
    assert len(headings) == len({*headings}), program
  shown, *_ = walked["official_albert.tools.run_finetuning"]
  assert "--optimizer: <lamb|adamw|muon>: " in shown


# The flags of google-research/albert, by the program that has them here.
_ORIGINAL = {
  "convert_checkpoint": "albert_directory checkpoint_name do_lower_case "
  "export_path",
  "create_pretraining_data": "input_file output_file vocab_file "
  "spm_model_file input_file_mode do_lower_case do_whole_word_mask "
  "do_permutation favor_shorter_ngram random_next_sentence max_seq_length "
  "ngram max_predictions_per_seq random_seed dupe_factor masked_lm_prob "
  "short_seq_prob meta_data_file_path num_outputs",
  "publish_hub_module": "albert_directory checkpoint_name do_lower_case "
  "use_einsum export_path",
  "run_finetuning": "data_dir albert_config_file task_name vocab_file "
  "spm_model_file output_dir cached_dir init_checkpoint "
  "albert_hub_module_handle do_lower_case max_seq_length do_train do_eval "
  "do_predict train_batch_size eval_batch_size predict_batch_size "
  "learning_rate train_step warmup_step save_checkpoints_steps "
  "keep_checkpoint_max iterations_per_loop use_tpu optimizer tpu_name tpu_zone "
  "gcp_project master num_tpu_cores export_dir threshold_to_export train_file "
  "predict_file train_feature_file predict_feature_file "
  "predict_feature_left_file doc_stride max_query_length num_train_epochs "
  "warmup_proportion n_best_size max_answer_length use_einsum start_n_top "
  "end_n_top dropout_prob null_score_diff_threshold eval_file max_qa_length "
  "num_keep_checkpoint high_only middle_only",
  "run_pretraining": "albert_config_file input_file output_dir "
  "init_checkpoint max_seq_length max_predictions_per_seq do_train do_eval "
  "train_batch_size eval_batch_size optimizer learning_rate poly_power "
  "num_train_steps num_warmup_steps start_warmup_step save_checkpoints_steps "
  "keep_checkpoint_max iterations_per_loop max_eval_steps use_tpu "
  "init_from_group0 tpu_name tpu_zone gcp_project master num_tpu_cores "
  "masked_lm_budget",
}


def test_flags_of_the_original_are_accepted_or_documented(walked):
  table = (
    (many_commands.ROOT / "docs/migration.md")
    .read_text()
    .partition("| its flag")[2]
  )
  rows = [row.split("|") for row in table.splitlines() if row[:4] == "| `-"]
  for short, original in _ORIGINAL.items():
    program = f"official_albert.tools.{short}"
    shown, names, _ = walked[program]
    own_rows = [row for row in rows if f"`{short}`" in row[2]]
    others = {x for row in own_rows for x in re.findall(r"--(\w+)", row[1])}
    refused = {
      x
      for row in own_rows
      if "(refused)" in row[3]
      for x in re.findall(r"--(\w+)", row[1])
    }
    assert {*original.split()} - {*names} == refused, program
    for name in original.split():
      is_same = re.search(rf"^  --(\[no])?{name}:", shown, re.MULTILINE)
      assert bool(is_same) != (name in others), f"{program} --{name}"
    assert others <= {*original.split()}, program


def _written_commands(text: str) -> list[tuple[str, list[str]]]:
  """Returns program and names of flags of each command in a text."""
  # A value in quotes may hold flags of another program, on several lines.
  text = re.sub(r"='[^']*'", "=", text.replace("\\\n", " "))
  # Code within a sentence may continue on its next line.
  code = re.compile(r"(?<!`)`([^`]+)`(?!`)")
  text = code.sub(lambda x: f"\n{' '.join(x[1].splitlines())}\n", text)
  found = re.findall(r"(?:-m tools\.|\balbert )([a-z][\w.]*)(.*)", text)
  quoted = re.compile(r"'[^']*'|\"[^\"]*\"")
  return [
    (
      f"official_albert.tools.{name}",
      re.findall(r" --([a-z]\w*)", quoted.sub("", rest)),
    )
    for name, rest in found
  ]


def test_commands_in_documents_have_programs_and_flags(walked):
  documents = [
    *many_commands.ROOT.glob("*.md"),
    *many_commands.ROOT.glob("docs/**/*.md"),
  ]
  texts = {path.name: path.read_text(encoding="utf-8") for path in documents}
  texts |= {program: shown for program, (shown, *_) in walked.items()}
  count = 0
  for source, text in texts.items():
    for program, names in _written_commands(text):
      assert program in walked or not names, (source, program)
      known = {*walked[program][1]} if program in walked else set()
      for name in names:
        count += 1
        assert {name, name.removeprefix("no")} & known, (source, program, name)
  assert count > 200


def test_flags_of_this_project_in_the_migration_exist(walked):
  known = {name for _, names, _ in walked.values() for name in names}
  page = (many_commands.ROOT / "docs/migration.md").read_text(encoding="utf-8")
  ours = " ".join(re.findall(r"\| ([^|]*) \|$", page, re.MULTILINE))
  names = re.findall(r"--(?:no)?(\w+)", ours)
  assert len(names) > 60 and {*names} <= {*known, "flagfile"}


def test_every_flag_that_names_a_path_is_defined_as_one(walked):
  texts = {name for *_, names in walked.values() for name in names}
  wrong = [name for name in texts if _PATHS.search(name)]
  assert not wrong, "define paths with tools/cli/path_flags.py"


def test_flags_take_addresses_of_hubs():
  parser = path_flags.PathParser()
  for address in ("hf://a/b", "kaggle://a/b/keras/c"):
    assert parser.parse(address) == address
  with pytest.raises(ValueError, match="neither a local path"):
    parser.parse("s3://a/b")
