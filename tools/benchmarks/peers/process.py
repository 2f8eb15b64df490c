"""A peer that runs: the benchmark's side of `peer_protocol`."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import tempfile
from typing import Any, Mapping, Optional

from tools.benchmarks.peers import protocol as peer_protocol

_ROOT = pathlib.Path(__file__).resolve().parents[3]
_STOP_SECONDS = 20


class PeerProcess:
  """A program that has warmed up and waits, without working, to be asked.

  Attributes:
    ready: what it said after its warm-up.
  """

  def __init__(
    self,
    python: str,
    program: str,
    workload: peer_protocol.Workload,
    environment: Optional[Mapping[str, str]] = None,
  ):
    """Starts the program and waits for its warm-up.

    Args:
      python: the interpreter, one that has the program's packages.
      program: a module of this repository, such as
        "tools.benchmarks.peers.huggingface_step".
      workload: what it computes.
      environment: variables to set besides this process's own.

    Raises:
      ValueError: it failed, with the reason it gave.
    """
    self._stderr = tempfile.TemporaryFile()
    self._name = program
    arguments = json.dumps(dataclasses.asdict(workload))
    self._process = subprocess.Popen(
      [python, "-m", program, arguments],
      cwd=_ROOT,
      env={
        **os.environ,
        "OMP_NUM_THREADS": str(workload.threads),
        **(environment or {}),
      },
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      stderr=self._stderr,
      text=True,
    )
    try:
      self.ready = peer_protocol.Ready(**self._answer())
    except BaseException:
      self.stop()
      raise

  def run(self, steps: int) -> peer_protocol.Timed:
    """Takes steps.

    Raises:
      ValueError: it failed.
    """
    return peer_protocol.Timed(**self._ask(f"run {steps}"))

  def product_flops(self, count: int) -> Optional[float]:
    """FLOP/s of the best of `count` matrix products, if it measures that.

    Raises:
      ValueError: it failed.
    """
    return self._ask(f"product {count}")["flops"]

  def stop(self) -> None:
    """Ends the program."""
    if self._process.stdin:
      with contextlib.suppress(BrokenPipeError):  # It has ended.
        self._process.stdin.close()
    try:
      self._process.wait(_STOP_SECONDS if hasattr(self, "ready") else 0)
    except subprocess.TimeoutExpired:
      self._process.kill()
      self._process.wait()
    self._process.stdout.close()
    self._stderr.close()

  def __enter__(self) -> PeerProcess:
    return self

  def __exit__(self, *unused) -> None:
    self.stop()

  def _ask(self, command: str) -> dict[str, Any]:
    # Of a program that has ended, what there is to read says why.
    with contextlib.suppress(BrokenPipeError):
      self._process.stdin.write(command + "\n")
      self._process.stdin.flush()
    return self._answer()

  def _answer(self) -> dict[str, Any]:
    line = self._process.stdout.readline()
    try:
      answer = json.loads(line)
    except ValueError:
      raise ValueError(f"{self._name} {self._why_ended(line)}") from None
    if "error" in answer:
      raise ValueError(f"{self._name} failed: {answer['error']}")
    return answer

  def _why_ended(self, line: str) -> str:
    if line:
      return f"does not speak the benchmark's protocol: {line.strip()!r}."
    code = self._process.wait()
    self._stderr.seek(0)
    said = self._stderr.read().decode(errors="replace").strip().splitlines()
    reason = said[-1] if said else "it said nothing"
    if code == -9:
      reason = "it was killed, perhaps for want of memory"
    return f"ended with exit code {code}: {reason}"
