"""The experiments: tables 2 to 5, 7, 8 and 11 to 13 of arXiv 1909.11942.

A row is one model, in a line: its label, its flags, the paper's numbers. Flags
are E, H, L (embedding size, hidden size, layers: the paper's, which `config`
maps to its own), `depth` (layers as they are), other fields of `AlbertConfig`,
and these:

sentence_pair  the second objective: sop (by default), nsp or none
more_data      also reads the additional text
continued      has the first weights of the row before

The paper's numbers are those of its last version (v6): dev sets, in percent,
SQuAD as F1/exact match. It pretrained all models for 125,000 steps of 4,096
sequences unless a row says otherwise. BERT-xlarge is of the first version (v1).
"""

from __future__ import annotations

import ast
import statistics
from typing import Any, Mapping, NamedTuple, Sequence

from official_albert.config import AlbertConfig
from official_albert.tasks.pretraining import recipes

# The downstream tasks by the titles of columns: the value of --task, what there
# must be in --task_data_dir, and flags of fine-tuning.
_SQUAD = "max_seq_length=128 doc_stride=64"
TASKS = {
  "SQuAD1.1": ("squad_v1", "squad/train-v1.1.json*", _SQUAD),
  "SQuAD2.0": ("squad_v2", "squad/train-v2.0.json*", _SQUAD),
  "MNLI": ("mnli", "glue/MNLI", ""),
  "SST-2": ("sst2", "glue/SST-2", ""),
  "RACE": ("race", "race/RACE*", "max_seq_length=128 max_qa_length=48"),
}
# Titles of other columns.
SIZE = "million parameters"
LOSS, ACCURACY, NSP, SOP = "MLM loss", "MLM", "NSP", "SOP"  # On held-out text.
_DROPOUT = "hidden_dropout_prob={0} attention_probs_dropout_prob={0}"
# Name and title; rows. The numbers are of `TASKS`, in table 5 of MLM, NSP and
# SOP before them.
_TEXT = f"""
# 2: BERT and ALBERT
BERT-base | E=H sharing=none | 108M 90.4/83.2 80.4/77.6 84.5 92.8 68.2
BERT-large | E=H sharing=none H=1024 L=24 | 334M \
92.2/85.5 85.0/82.2 86.6 93.0 73.9
BERT-xlarge | E=H sharing=none H=2048 L=24 | 1270M \
86.4/78.1 75.5/72.6 81.6 90.7 54.3
ALBERT-base | | 12M 89.3/82.3 80.0/77.1 81.6 90.3 64.0
ALBERT-large | H=1024 L=24 | 18M 90.6/83.9 82.3/79.4 83.5 91.7 68.5
ALBERT-xlarge | H=2048 L=24 | 60M 92.5/86.1 86.1/83.1 86.4 92.4 74.8
ALBERT-xxlarge | H=4096 L=12 | 235M 94.1/88.3 88.1/85.1 88.0 95.2 82.3

# 3: Embedding size
not-shared, E 64 | E=64 sharing=none | 87M 89.9/82.9 80.1/77.8 82.9 91.5 66.7
not-shared, E 128 | E=128 sharing=none | 89M 89.9/82.8 80.3/77.3 83.7 91.5 67.9
not-shared, E 256 | E=256 sharing=none | 93M 90.2/83.2 80.3/77.4 84.1 91.9 67.3
not-shared, E 768 | E=768 sharing=none | 108M 90.4/83.2 80.4/77.6 84.5 92.8 68.2

all-shared, E 64 | E=64 sharing=all | 10M 88.7/81.4 77.5/74.8 80.8 89.4 63.5
all-shared, E 128 | E=128 sharing=all | 12M 89.3/82.3 80.0/77.1 81.6 90.3 64.0
all-shared, E 256 | E=256 sharing=all | 16M 88.8/81.5 79.1/76.3 81.5 90.3 63.4
all-shared, E 768 | E=768 sharing=all | 31M 88.6/81.5 79.2/76.6 82.0 90.6 63.3

# 4: Sharing strategies
E 768, all-shared | E=768 sharing=all | 31M 88.6/81.5 79.2/76.6 82.0 90.6 63.3
E 768, shared-attention | E=768 sharing=attention | 83M \
89.9/82.7 80.0/77.2 84.0 91.4 67.7
E 768, shared-FFN | E=768 sharing=ffn | 57M 89.2/82.1 78.2/75.4 81.5 90.8 62.6
E 768, not-shared | E=768 sharing=none | 108M 90.4/83.2 80.4/77.6 84.5 92.8 68.2

E 128, all-shared | E=128 sharing=all | 12M 89.3/82.3 80.0/77.1 82.0 90.3 64.0
E 128, shared-attention | E=128 sharing=attention | 64M \
89.9/82.8 80.7/77.9 83.4 91.9 67.6
E 128, shared-FFN | E=128 sharing=ffn | 38M 88.9/81.6 78.6/75.6 82.3 91.7 64.4
E 128, not-shared | E=128 sharing=none | 89M 89.9/82.8 80.3/77.3 83.2 91.5 67.9
E 128, 2 groups | E=128 num_hidden_groups=2
E 128, 3 groups | E=128 num_hidden_groups=3

# 5: The loss between sentences: none, NSP, SOP
none | sentence_pair=none | 54.9 52.4 53.3 88.6/81.5 78.1/75.3 81.5 89.9 61.7
NSP | sentence_pair=nsp | 54.5 90.5 52.0 88.4/81.5 77.2/74.6 81.6 91.1 62.3
SOP | | 54.0 78.9 86.5 89.3/82.3 80.0/77.1 82.0 90.3 64.0

# 7: More data
no additional data | | 12M 89.3/82.3 80.0/77.1 81.6 90.3 64.0
with additional data | more_data | 12M 88.8/81.7 79.1/76.3 82.4 92.8 66.0

# 8: Dropout on and off
with dropout | H=4096 L=12 {_DROPOUT.format(0.1)} | \
94.7/89.2 89.6/86.9 90.0 96.3 85.7
without dropout | H=4096 L=12 {_DROPOUT.format(0.0)} | \
94.8/89.5 89.9/87.2 90.4 96.5 86.1

# 11: Depth
1 layer | H=1024 depth=1 | 18M 31.1/22.9 50.1/50.1 66.4 80.8 40.1
3 layers | H=1024 depth=3 continued | 18M 79.8/69.7 64.4/61.7 77.7 86.7 54.0
6 layers | H=1024 depth=6 continued | 18M 86.4/78.4 73.8/71.1 81.2 88.9 60.9
12 layers | H=1024 depth=12 continued | 18M 89.8/83.3 80.7/77.9 83.3 91.7 66.7
24 layers | H=1024 depth=24 continued | 18M 90.3/83.3 81.8/79.0 83.3 91.5 68.7
48 layers | H=1024 depth=48 continued | 18M 90.0/83.1 81.8/78.9 83.4 91.9 66.9

# 12: Width
H 1024 | H=1024 depth=3 | 18M 79.8/69.7 64.4/61.7 77.7 86.7 54.0
H 2048 | H=2048 depth=3 | 60M 83.3/74.1 69.1/66.6 79.7 88.6 58.2
H 4096 | H=4096 depth=3 | 225M 85.0/76.4 71.0/68.1 80.3 90.4 60.4
H 6144 | H=6144 depth=3 | 499M 84.7/75.8 67.8/65.4 78.1 89.1 56.0

# 13: Depth of a wide model
12 layers | H=4096 L=12 | 94.0/88.1 88.3/85.3 87.8 95.4 82.5
24 layers | H=4096 L=24 | 94.1/88.3 88.1/85.1 88.0 95.2 82.3
"""


def parse_flags(text: str) -> dict[str, Any]:
  """Returns the flags of "name=value noname name", with or without dashes."""
  found: dict[str, Any] = {}
  for item in text.split():
    name, equals, value = item.lstrip("-").partition("=")
    if name.startswith("no") and not equals:
      found[name[2:]] = False
      continue
    try:
      found[name] = ast.literal_eval(value) if equals else True
    except (SyntaxError, ValueError):
      found[name] = value
  return found


class Row(NamedTuple):
  """One model, trained once per seed; for the flags see the module."""

  flags: Mapping[str, Any]
  paper: Mapping[str, float]  # The paper's numbers by column.


class Table(NamedTuple):
  """Rows that are compared."""

  name: str
  title: str
  columns: list[str]  # Besides those of the tasks.
  rows: dict[str, Row]  # By label.


def _parse_table(text: str) -> Table:
  heading, *lines = text.strip().splitlines()
  name, title = heading.split(": ", 1)
  columns, printed = [SIZE, LOSS, ACCURACY], [SIZE, *TASKS]
  if name == "5":
    columns += [NSP, SOP]
    printed = [ACCURACY, NSP, SOP, *TASKS]
  rows = {}
  for line in filter(None, lines):
    label, flags, numbers = (x.strip() for x in f"{line} ||".split("|")[:3])
    # SQuAD counts as the mean of F1 and exact match, as in the paper's "Avg".
    values = [
      statistics.mean(map(float, x.rstrip("M").split("/")))
      for x in numbers.split()
    ]
    # From the last one, as some tables have no number of parameters.
    paper = dict(zip(reversed(printed), reversed(values)))
    rows[label] = Row(parse_flags(flags), paper)
  return Table(name, title, columns, rows)


TABLES = {x.name: x for x in map(_parse_table, _TEXT.split("# ")[1:])}


class Scale(NamedTuple):
  """The settings of all models, and the sizes instead of the paper's.

  They are fields of `AlbertConfig`, and flags of the programs that create
  records, pretrain and fine-tune. Rows whose size is missing are left out.
  """

  model: dict[str, Any]
  data: dict[str, Any]
  training: dict[str, Any]
  finetuning: dict[str, Any]
  tasks: Sequence[str]
  steps: int
  step_shares: Mapping[str, float]  # Of `steps`, by table.
  embedding_sizes: Mapping[Any, int]
  hidden_sizes: Mapping[int, int]
  layers: Mapping[int, int]
  head_size: int
  # Each model has the one that is best on the tasks, with its first seed.
  learning_rates: Sequence[float] = ()

  def rows(self, table: Table) -> dict[str, Row]:
    """Returns the rows of a table whose sizes this scale has."""
    return {
      label: row
      for label, row in table.rows.items()
      if row.flags.get("H", 768) in self.hidden_sizes
    }

  def config(self, row: Row) -> AlbertConfig:
    """Returns the configuration of a row's model."""
    flags = row.flags
    hidden = self.hidden_sizes[flags.get("H", 768)]
    names = {*AlbertConfig.__dataclass_fields__}
    sizes = {**self.embedding_sizes, "H": hidden}
    return AlbertConfig(
      **{
        "embedding_size": sizes[flags.get("E", 128)],
        "hidden_size": hidden,
        "num_hidden_layers": flags.get("depth")
        or self.layers[flags.get("L", 12)],
        "num_attention_heads": hidden // self.head_size,
        "intermediate_size": 4 * hidden,
        **self.model,
        **{name: flags[name] for name in names & {*flags}},
      }
    )


_RECIPE = recipes.get_recipe("small_budget")
_TRAINING = {
  name: value
  for name, value in _RECIPE.settings.items()
  if "steps" not in name and name != "init_word_vectors"
}
# With AdamW, some runs of an epoch stay at chance. Measures the last weights; a
# search for the best would double the time.
_FINETUNING = parse_flags(
  "optimizer=muon bias_correction=True beta_2=0.98 precision=auto "
  "learning_rate_decay=continuous train_batch_size=32 eval_steps=0"
)
SCALES = {
  "tiny": Scale(
    model=parse_flags(
      "initializer_range=0.05 max_position_embeddings=128 vocab_size=2000"
    ),
    data={**_RECIPE.data, "dupe_factor": 1, "heldout_share": 0.01},
    training=_TRAINING,
    finetuning=_FINETUNING
    | parse_flags(
      "max_seq_length=64 learning_rate=1e-3 num_train_epochs=1 "
      "max_train_examples=10000 max_eval_examples=2000"
    ),
    # After an epoch of 9,888 rows of MNLI, a third of the models is within
    # three points of its most frequent class; three epochs would cost as much
    # time as all else.
    tasks=["SST-2"],
    steps=1600,
    # For tables with large models.
    step_shares={"11": 0.25, **dict.fromkeys("2 8 12 13".split(), 0.5)},
    embedding_sizes={64: 32, 128: 64, 256: 96, 768: 128},
    hidden_sizes={768: 128, 1024: 128, 2048: 192, 4096: 256, 6144: 384},
    layers={12: 4, 24: 8},
    head_size=16,
  ),
  # Not yet run: the rates and the steps, 0.33 billion tokens, are a guess.
  "gpu": Scale(
    model=parse_flags("max_position_embeddings=128 vocab_size=30000"),
    data={**_RECIPE.data, "max_seq_length": 128, "heldout_share": 0.01},
    training=_TRAINING
    | parse_flags(
      "train_batch_size=256 eval_batch_size=256 precision=mixed_bfloat16"
    ),
    finetuning=_FINETUNING
    | parse_flags("max_seq_length=128 learning_rate=2.5e-4 num_train_epochs=3"),
    tasks=list(TASKS),
    steps=10_000,
    step_shares={},
    embedding_sizes={64: 64, 128: 128, 256: 256, 768: 512},
    hidden_sizes={768: 512, 1024: 768, 4096: 1024},
    layers={12: 12, 24: 24},
    head_size=64,
    learning_rates=(0.0005, 0.001, 0.002),
  ),
}
