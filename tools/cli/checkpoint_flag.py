"""--checkpoint: which checkpoint of a run a program takes."""

from __future__ import annotations

from tools.cli import path_flags

CHECKPOINT = path_flags.define(
  "checkpoint",
  "",
  "Of a run: latest, best, or a checkpoint's prefix; by default the best if "
  "the run keeps one, else the latest.",
)
