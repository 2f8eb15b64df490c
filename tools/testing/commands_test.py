"""Runs commands of the documents, on toy data.

A comment `<!-- runs -->` before a block of commands has it run here, in the
order of the page, in a folder with what the page assumes: see `assumed`. All
flags of all commands, these and others, are checked by path_flags_test.py.
"""

from __future__ import annotations

import itertools
import pathlib
import re
import shlex
import shutil
import tarfile

import pytest

from official_albert import checkpoints
from official_albert.tools.testing import many_commands, toy_data, toy_runs

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_MARK = r"<!-- runs -->\n```(?:sh|bash)\n(.*?)^```"
# Settings of the toys, which come after those of the page and so replace them.
_SMALL = {
  "train_vocabulary": ["--vocab_size=45"],
  "create_pretraining_data": ["--dupe_factor=2"],
  "run_pretraining": [
    *("--num_train_steps=4", "--num_warmup_steps=1", "--steps_per_loop=2"),
    *("--train_batch_size=8", "--eval_batch_size=8", "--eval_steps=4"),
  ],
  "run_finetuning": [
    *("--num_train_epochs=1", "--train_batch_size=8", "--max_seq_length=24")
  ],
}
# Their checkpoints have fewer positions.
_REPLACED = {"--max_position_embeddings=1024": "--max_position_embeddings=80"}
# A checkpoint is fine-tuned, predicts and is exported. The other
# pages are heavy.
_LIGHT = "finetune_csv"
_PAGES = [
  path
  for path in sorted(_ROOT.glob("docs/**/*.md"))
  if "\n<!-- runs -->" in path.read_text("utf-8")
]


def _commands(text) -> list[tuple[str, list[str]]]:
  """Returns program and arguments of each command to run."""
  blocks = re.findall(_MARK, text, re.MULTILINE | re.DOTALL)
  assert len(blocks) == text.count("<!-- runs -->")
  found = []
  for line in "".join(blocks).replace("\\\n", " ").splitlines():
    words = shlex.split(line, comments=True)
    if words:
      assert words[:2] == ["python", "-m"], line
      found.append((words[2].removeprefix("tools."), words[3:]))
  return found


@pytest.fixture(scope="module")
def assumed(tmp_path_factory) -> pathlib.Path:
  """Makes what the pages assume, with toy models and texts."""
  tmp_path = tmp_path_factory.mktemp("assumed")
  (tmp_path / "text").mkdir()
  toy_data.write_corpus(str(tmp_path / "text/news.txt"), 60)
  toy_runs.write_pretrained(str(tmp_path / "quickstart/run"))
  sharings = {"RUN": "all", "SHARED": "all", "UNSHARED": "none"}
  for name, sharing in sharings.items():
    changes = {"num_hidden_layers": 2, "sharing": sharing}
    toy_runs.write_pretrained(str(tmp_path / name), **changes)
  toy_runs.write_finetuned(str(tmp_path / "EMB"), "text_embedding")
  (tmp_path / "my").mkdir()
  toy_runs.write_tokenizer(str(tmp_path / "my"), seed=6)
  weights = checkpoints.read_checkpoint(str(tmp_path / "RUN"))
  for kind, name in (("tf1", "toy"), ("hf", "albert-base-v2")):
    (tmp_path / name).mkdir()
    checkpoints.WRITERS[kind](weights, str(tmp_path / name))
  with tarfile.open(tmp_path / "albert_base_v2.tar.gz", "w:gz") as archive:
    archive.add(tmp_path / "toy", "albert_base")
  rows = ["id,review,stars\n"]
  for i in range(30):
    rows.append(f'{i},"day {i} was {"cw"[i % 2]}, a house",{"bg"[i % 2]}\n')
  (tmp_path / "reviews.csv").write_text("".join(rows))
  (tmp_path / "new.csv").write_text("id,review\n7,the sea was dark\n")
  (tmp_path / "new.tsv").write_text("text\nthe sea was dark\n")
  (tmp_path / "sentences.txt").write_text("the sea was dark\na warm day\n")
  return tmp_path


@pytest.mark.parametrize(
  "page",
  [
    pytest.param(
      page, id=page.stem, marks=[pytest.mark.heavy] * (page.stem != _LIGHT)
    )
    for page in _PAGES
  ],
)
def test_commands_run(page, assumed, tmp_path):
  folder = pathlib.Path(shutil.copytree(assumed, tmp_path / "page"))
  if page.stem == "finetuning":  # Another page makes a folder of this name.
    stars, labels = str(folder / "stars"), ("neg", "pos")
    toy_runs.write_finetuned(stars, "text_classification", labels)
    toy_runs.write_finetuned(str(folder / "squad"), "squad_v1", doc_stride=5)
  if page.stem == "embeddings":  # It trains EMB.
    shutil.rmtree(folder / "EMB")
    toy_data.write_glue(str(folder), ["stsb"])
  commands = _commands(page.read_text("utf-8"))
  for program, group in itertools.groupby(commands, lambda pair: pair[0]):
    lines = [
      [*(_REPLACED.get(x, x) for x in line), *_SMALL.get(program, [])]
      for _, line in group
    ]
    many_commands.run(program, lines, cwd=str(folder))
