"""Tests of workloads and refusals, and of a run with toys as peers."""

from __future__ import annotations

import types

import pytest

from tools.benchmarks import peers_command as benchmark_peers
from tools.benchmarks.peers import protocol as peer_protocol
from tools.benchmarks.peers import results as peer_results
from tools.benchmarks.peers import rounds_test as peer_rounds_test


def test_workload():
  workload = benchmark_peers.workload_of(
    "albert_base_v1", 3, 17, "mixed_bfloat16"
  )
  assert (workload.hidden_size, workload.vocab_size) == (768, 30000)
  assert workload.hidden_dropout_prob == 0 and workload.threads >= 1
  with_dropout = benchmark_peers.workload_of(
    "albert_base_v1", 3, 17, "float32", dropout=True
  )
  assert with_dropout.hidden_dropout_prob == 0.1


def test_flops():
  """A token of albert_base is 6 times its 12 layers' 7.1 million weights.

  Attention and the heads add to that, and the last layer's rows that no head
  looks at are not computed.
  """
  workload = peer_protocol.Workload()
  layers = 6 * 12 * (4 * 768**2 + 2 * 768 * 3072)
  flops = benchmark_peers.flops_per_token(workload)
  assert 0.95 * layers < flops < layers


@pytest.mark.parametrize(
  "changes, message",
  [
    (
      dict(systems=["hf_tuned", "weather"]),
      "unknown systems weather; there ar",
    ),
    (dict(preset="albert_bass"), "unknown preset"),
    (dict(precision="float16"), "unknown precision 'float16'"),
    (dict(max_seq_length=513), "at most 512 tokens, not 513"),
    (dict(preset="bert_base"), "does not share one block"),
  ],
)
def test_refusals(changes, message, monkeypatch):
  def make(name, folder):
    raise AssertionError(f"{name} would be installed")

  monkeypatch.setattr(benchmark_peers.peer_venvs, "make", make)
  with pytest.raises(ValueError, match=message):
    benchmark_peers.run(benchmark_peers.Settings(**changes))


def test_run_saves_everything(tmp_path, monkeypatch, capsys):
  """Toys behind a command's own `run`."""
  journal = []
  toys = peer_rounds_test.make_toys(
    journal, hf_tuned=dict(seconds=1.0, flops=7e9)
  )
  programs = {"tools.benchmarks.peers.official_albert_step": "official_albert"}

  def start(python, program, workload, environment):
    assert environment.keys() >= (
      {"MALLOC_TRIM_THRESHOLD_"} if workload.variant == "tuned" else set()
    )
    return toys[programs.get(program, "hf_tuned")]

  monkeypatch.setattr(
    benchmark_peers, "peer_process", types.SimpleNamespace(PeerProcess=start)
  )
  monkeypatch.setattr(
    benchmark_peers.peer_venvs, "make", lambda name, folder: f"{folder}/{name}"
  )
  settings = benchmark_peers.Settings(
    batch_size=3,
    max_seq_length=31,
    systems=["hf_tuned", "official_albert"],
    output_dir=str(tmp_path),
    machine="here",
  )
  comparison = benchmark_peers.run(settings)
  names = [result.system for result in comparison.results]
  assert names == ["official_albert", "hf_tuned"]
  assert sorted(path.name for path in tmp_path.iterdir()) == [
    "benchmark_peers.png",
    "peers-albert_base_v2-s31-b3-mixed_bfloat16.json",
    "peers.md",
  ]
  assert peer_results.load_all(str(tmp_path)) == [comparison]
  assert (tmp_path / "peers.md").read_text() in capsys.readouterr().out


def test_our_own_step_may_have_layers_of_their_own():
  workload = benchmark_peers.workload_of(
    "bert_base", 4, 128, "mixed_bfloat16", ours_alone=True
  )
  assert (workload.sharing, workload.embedding_size) == ("none", 768)


def test_our_own_step_may_have_any_precision():
  for precision in ("auto", "float32", "mixed_bfloat16", "mixed_float16"):
    benchmark_peers.check_own("albert_base_v2", 3, 512, precision)
  for changed, message in (
    (("nope", 3, 5, "auto"), "unknown preset 'nope'"),
    (("albert_base_v2", 0, 5, "auto"), "batch_size must be at least 1, got 0"),
    (("albert_base_v2", 3, 513, "auto"), "at most 512 tokens, not 513"),
    (("albert_base_v2", 3, 5, "bf16"), "of auto, float32, mixed_bfloat16, m"),
  ):
    with pytest.raises(ValueError, match=message):
      benchmark_peers.check_own(*changed)


if __name__ == "__main__":
  raise SystemExit(pytest.main([__file__]))
