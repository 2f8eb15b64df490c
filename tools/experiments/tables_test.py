"""Tests of tables and scales: the numbers agree."""

from __future__ import annotations

import statistics

import pytest

from official_albert.tools.experiments import tables

# The paper's "Avg" of each table in the order of its rows, as printed.
_AVERAGES = {
  "2": "82.3 85.2 76.6 80.1 82.4 85.5 88.7",
  "3": "81.3 81.7 81.8 82.3 79.0 80.1 79.6 79.8",
  "4": "79.8 81.6 79.5 82.3 80.1 81.7 80.2 81.6",
  "5": "79.0 79.2 80.1",
  "7": "80.1 80.8",
  "8": "90.4 90.7",
  "11": "52.9 71.2 77.2 81.5 82.1 81.8",
  "12": "71.2 74.6 76.3 74.0",
  "13": "88.7 88.7",
}


def test_a_table_is_read():
  table = tables.TABLES["4"]
  assert (table.title, len(table.rows)) == ("Sharing strategies", 10)
  assert table.columns == ["MLM loss", "MLM", "scores"]
  row = table.rows["E 128, shared-FFN"]
  assert row.flags == {"E": 128, "sharing": "ffn"}
  assert row.paper["SQuAD1.1"] == (88.9 + 81.6) / 2
  assert row.paper["RACE"] == 64.4
  assert row.paper_parameters == "38M"
  assert not table.rows["E 128, 3 groups"].paper
  assert tables.TABLES["2"].rows["BERT-xlarge"].paper.keys() == {*tables.TASKS}


@pytest.mark.parametrize("name", _AVERAGES)
def test_numbers_have_the_papers_average(name):
  """Both are rounded to one decimal."""
  rows = tables.TABLES[name].rows.values()
  papers = [[x.paper[task] for task in tables.TASKS] for x in rows if x.paper]
  averages = list(map(statistics.mean, papers))
  expected = [float(x) for x in _AVERAGES[name].split()]
  assert averages == pytest.approx(expected, abs=0.06)


def test_models_have_the_sizes_of_their_flags():
  for table in tables.TABLES.values():
    counts = {
      label: tables.config(row).parameter_count()
      for label, row in table.rows.items()
    }
    # Labels are as in the paper.
    for label, count in counts.items():
      shared = label.replace("not-shared", "all-shared")
      assert count > counts.get(shared, 0) or shared == label
  large = tables.TABLES["2"].rows["BERT-xlarge"]
  config = tables.config(large)
  assert (config.embedding_size, config.hidden_size) == (192, 192)
  assert (config.num_hidden_layers, config.num_attention_heads) == (8, 12)
  assert config.intermediate_size == 768 and config.sharing == "none"
  depths = [tables.config(x) for x in tables.TABLES["11"].rows.values()]
  assert [x.num_hidden_layers for x in depths] == [1, 3, 6, 12, 24, 48]
  dropouts = [tables.config(x) for x in tables.TABLES["8"].rows.values()]
  assert [x.hidden_dropout_prob for x in dropouts] == [0.1, 0.0]


def test_flags_are_read_with_their_types():
  text = (
    "--tpu=pod beta_2=0.98 steps=7 bias_correction shares=3:0.5,12:0.5 a=False"
  )
  assert tables.parse_flags(text) == {
    **{
      "tpu": "pod",
      "beta_2": 0.98,
      "steps": 7,
      "bias_correction": True,
      "a": False,
    },
    "shares": "3:0.5,12:0.5",
  }
