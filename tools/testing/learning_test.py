"""Trainings of half a minute and of two minutes learn what texts teach."""

from __future__ import annotations

import json
import math
import pathlib
from typing import Sequence

import numpy as np

from official_albert import run_logs
from official_albert.tasks.pretraining import recipes
from official_albert.tools.testing import many_commands

# Each text counts on through them, so the words beside a masked one tell it,
# and the ends of two segments tell their order.
_WORDS = (
  "ant bee cat dog eel fox gnu hen ibis jay kite lark mole newt owl pig quail "
  "ram seal toad"
).split()
_SIZES = {
  "vocab_size": 60,
  "embedding_size": 32,
  "hidden_size": 64,
  "num_hidden_layers": 3,
  "num_attention_heads": 4,
  "intermediate_size": 128,
  "max_position_embeddings": 32,
  "initializer_range": 0.05,
}


def _document(rng: np.random.Generator) -> str:
  word, lines = int(rng.integers(len(_WORDS))), []
  for length in rng.integers(4, 8, size=6):
    words = [_WORDS[(word + i) % len(_WORDS)] for i in range(length)]
    lines.append(" ".join(words))
    word += length
  return "\n".join(lines) + "\n"


_COMMANDS = (
  "train_vocabulary --input_files=corpus.txt --output_dir=. --vocab_size=60",
  "create_pretraining_data --input_files=corpus.txt --output_dir=records "
  "--spm_model_file=tokenizer.model --max_seq_length=32 --masking=dynamic "
  "--heldout_share=0.1 --dupe_factor=2",
  "run_pretraining --input_dir=records --model_dir=run "
  "--albert_config_file=config.json --init_neighbor_attention "
  "--train_batch_size=64 --num_train_steps=600 --num_warmup_steps=200 "
  "--optimizer=adamw --learning_rate=0.0015 --bias_correction --eval_steps=600 "
  "--save_checkpoints_steps=600",
)


def _evaluations(folder: pathlib.Path, commands: Sequence[str]):
  for command in commands:
    program, *flags = command.split()
    many_commands.run(program, [flags], cwd=str(folder))
  return run_logs.read_metrics(str(folder / "run"), "eval")


def test_masked_words_and_the_order_of_sentences_are_learned(tmp_path):
  rng = np.random.default_rng(0)
  text = "\n".join(_document(rng) for _ in range(400))
  (tmp_path / "corpus.txt").write_text(text)
  (tmp_path / "config.json").write_text(json.dumps(_SIZES))
  first, last = _evaluations(tmp_path, _COMMANDS)
  assert first["masked_lm_loss"] > math.log(len(_WORDS))
  # One seed gave 0.33 in all; with half as many steps, four seeds gave 0.44 to
  # 0.92 for masked words and 0.01 to 0.15 for the order.
  assert last["masked_lm_loss"] < 0.5
  assert last["sentence_order_loss"] < 0.25


def test_a_part_of_the_quickstart_learns_real_text(tmp_path):
  recipe = recipes.get_recipe("quickstart")
  records = []
  for length in sorted({*recipe.lengths}):
    # What 400 steps need, with fewer examples to evaluate at each phase.
    data = {**recipe.data, "dupe_factor": 1, "heldout_share": 0.02}
    data |= {"max_seq_length": length, "output_dir": length}
    flags = " ".join(f"--{name}={value}" for name, value in data.items())
    records.append(
      "create_pretraining_data --input_files=corpus.txt "
      f"--spm_model_file=tokenizer.model {flags}"
    )
  last = _evaluations(
    tmp_path,
    (
      "gather_corpus --output_file=corpus.txt",
      "train_vocabulary --input_files=corpus.txt --output_dir=. "
      "--vocab_size=8000",
      *records,
      "run_pretraining --recipe=quickstart --model_dir=run "
      f"--input_dir={','.join(map(str, recipe.lengths))} --eval_input_dir="
      f"{recipe.lengths[-1]} --phase_steps=200,160,40 --num_train_steps=400 "
      "--num_warmup_steps=40 --eval_steps=0",
    ),
  )[-1]
  # Two seeds gave 4.67 and 4.73 nats, 67% and 63%; without
  # --init_neighbor_attention, one gave 5.40 and 58%.
  assert last["masked_lm_loss"] < 5.0
  assert last["sentence_order_accuracy"] > 0.58
