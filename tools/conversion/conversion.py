"""Checkpoint conversion: read, change, write to a temporary folder, verify.

Also temporary copies of other formats, for programs that read our folders, and
checkpoints of any size with random weights, for measurements.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import sys
import tempfile
from typing import Any, Callable, Optional

import numpy as np

from official_albert import checkpoints, files, modeling
from tools import finetuning
from tools.conversion import proof

REPORT_FILE = "conversion.json"


def convert(
  source: str,
  target: str,
  input_path: str,
  output: str,
  *,
  head: str = "",
  include_optimizer: bool = False,
  config_file: str = "",
  tokenizer: Optional[checkpoints.TokenizerFile] = None,
  hf_python: str = "",
  dry_run: bool = False,
  which: str = "",
  task: str = "",
  num_hidden_groups: int = 0,
  max_position_embeddings: int = 0,
  position_method: str = "tile",
  new_tokenizer: Optional[checkpoints.TokenizerFile] = None,
) -> dict[str, Any]:
  """Converts a checkpoint; `output` exists only if it was verified.

  The arguments are the flags of tools.convert_checkpoint. `which` is its
  --checkpoint: with `include_optimizer`, "" is the latest one of a run, as the
  best one holds only weights.

  Returns:
    The content of conversion.json: `source` and `target` (format and path),
    `head`, `matched` (number of variables that were read), the names that are
    `missing` in the source, `unexpected` in it or `not_carried` (with reasons)
    and `added` in the target, `notes`, and `proofs` (the largest absolute
    difference and the largest allowed one, by what was compared).

  Raises:
    ValueError, OSError: the checkpoint cannot be read, converted or written,
      or a difference is too large; nothing is left behind.
  """
  if os.path.isdir(output or ".") and os.path.samefile(output or ".", "."):
    # Even an empty one cannot be replaced: the caller would be in a deleted
    # folder.
    raise FileExistsError(
      f"--output {output} is the current folder: choose a new one."
    )
  files.check_new_folder(output, "--output")
  with checkpoints.unpacked_archive(input_path) as path:
    source, weights = checkpoints.choose(path, which, source)
    if include_optimizer and not which and checkpoints.is_best(weights):
      weights = checkpoints.find_prefix(path, checkpoints.LATEST)
    checkpoint = checkpoints.READERS[source](
      weights, head, include_optimizer, config_file
    )

    def shown(file: str) -> str:
      # A path in the temporary folder of an archive would not help the user.
      if path == input_path:
        return file
      return f"{os.path.relpath(file, path)} of {input_path}"

    notes = checkpoint.notes
    if source == "official_albert":
      best = ", the run's best" if checkpoints.is_best(weights) else ""
      notes.append(
        f"the weights are {shown(weights)}, step {checkpoint.step:,}{best}."
      )
    if source in ("tf1", "tf_hub") and checkpoint.tokenizer and not tokenizer:
      notes.append(
        "text is assumed to be lower-cased, as a TF1 folder does not say; if "
        "it is not, give the tokenizer and --nodo_lower_case."
      )
    checkpoint.tokenizer = tokenizer or checkpoint.tokenizer
    if checkpoint.tokenizer:
      file = checkpoint.tokenizer.path
      notes.append(f"the tokenizer is {file if tokenizer else shown(file)}.")
    _check_tokenizer(checkpoint)
    if task:
      finetuning.registry.name_task(checkpoint, task)
    is_changed = bool(
      num_hidden_groups or max_position_embeddings or new_tokenizer
    )
    if num_hidden_groups:
      checkpoints.expand_groups(checkpoint, num_hidden_groups)
    if max_position_embeddings:
      checkpoints.resize_positions(
        checkpoint, max_position_embeddings, position_method
      )
    if new_tokenizer:
      checkpoints.change_vocabulary(checkpoint, new_tokenizer)
    lost = _fit_to(checkpoint, target)
    with (
      tempfile.TemporaryDirectory(prefix="convert-")
      if dry_run
      else files.new_folder(output)
    ) as folder:
      again = checkpoints.WRITERS[target](checkpoint, folder)
      again = folder if target == "hf" else again
      written = checkpoints.READERS[target](
        again, checkpoint.head, bool(checkpoint.slots) and target != "hf"
      )
      silently = set(checkpoint.tensors) - set(written.tensors) - set(lost)
      if silently or written.config != checkpoint.config:
        raise ValueError(
          f"the conversion is wrong: {sorted(silently) or 'the configuration'} "
          "differs in the output; nothing was written."
        )
      proofs = proof.compare(
        proof.Side(source, checkpoint, weights),
        proof.Side(target, written, again),
        hf_python,
        is_changed,
        notes,
      )
      report = {
        "source": (source, input_path),
        "target": (target, output),
        "head": checkpoint.head,
        "matched": len(checkpoint.tensors),
        "missing": checkpoint.missing,
        "unexpected": checkpoint.unexpected,
        "not_carried": lost,
        "added": sorted(set(written.tensors) - set(checkpoint.tensors)),
        "notes": notes,
        "proofs": proofs,
      }
      files.write_json(os.path.join(folder, REPORT_FILE), report)
  return report


def _check_tokenizer(checkpoint: checkpoints.PortableCheckpoint) -> None:
  """Compares the sizes of vocabulary and model.

  Raises:
    ValueError: the tokenizer is damaged, or has more pieces than the model.
  """
  if not checkpoint.tokenizer:
    checkpoint.notes.append(
      "no tokenizer was found: give --spm_model_file or --vocab_file."
    )
    return
  vocab_size = checkpoint.config.vocab_size
  pieces = checkpoint.tokenizer.open().vocab_size
  if pieces > vocab_size:
    raise ValueError(
      f"the tokenizer {checkpoint.tokenizer.path} has {pieces} pieces, but the "
      f"model has vocab_size {vocab_size}: give the tokenizer that the model "
      "was pretrained with."
    )
  if pieces < vocab_size:  # Some tables are padded to a round number.
    checkpoint.notes.append(
      f"the tokenizer has {pieces} pieces, fewer than the model's vocab_size "
      f"{vocab_size}: check that they belong together."
    )


def _fit_to(
  checkpoint: checkpoints.PortableCheckpoint, target: str
) -> dict[str, str]:
  """Removes the head if a format lacks it, and notes other losses.

  Returns the names that the format cannot hold, with the reason.
  """
  lost: dict[str, str] = {}
  notes = checkpoint.notes
  if target == "hf":
    if checkpoint.head not in checkpoints.ARCHITECTURES:
      reason = f"Hugging Face has no head for {checkpoint.head}"
      rows = checkpoints.HEADS[checkpoint.head]
      lost = {row.tf1: reason for row in rows}
      checkpoint.head = "none"
    for name in checkpoint.tensors:
      if checkpoints.may_lack(checkpoint.head, name):
        architecture = checkpoints.ARCHITECTURES[checkpoint.head]
        lost[name] = f"{architecture} has no pooler"
      elif checkpoints.is_slot(name):
        lost[name] = "Hugging Face keeps no optimizer state with a model"
    if not checkpoint.config.has_projection:
      notes.append(
        "Hugging Face always has embedding_hidden_mapping_in: it is written as "
        "the identity, which changes no value, as E is H here."
      )
  if target == "tf1":
    if checkpoint.tokenizer and not checkpoint.tokenizer.lower_case:
      notes.append(
        "a TF1 folder cannot say that text is not lower-cased: give its "
        "programs --do_lower_case=false."
      )
    if checkpoint.labels:
      notes.append(
        "a TF1 checkpoint cannot hold the labels; in order, they are: "
        + ", ".join(checkpoint.labels)
      )
  return lost


def report_text(report: dict[str, Any]) -> str:
  """Returns the report of a conversion as lines to print."""
  state = checkpoints.OPTIMIZER_STATE
  unexpected = {n: r for n, r in report["unexpected"].items() if r != state}
  ignored = len(report["unexpected"]) - len(unexpected)
  lost = report["not_carried"]
  return "\n".join(
    [
      f"{' '.join(report['source'])} -> {' '.join(report['target'])}, head: "
      f"{report['head']}",
      f"source: {report['matched']} variables matched, "
      f"{len(report['missing'])} missing, {len(unexpected)} unexpected, "
      f"{ignored} optimizer variables ignored",
      *(f"  missing: {name}" for name in report["missing"]),
      *(f"  unexpected: {name} ({why})" for name, why in unexpected.items()),
      f"target: {report['matched'] - len(lost)} variables carried, "
      f"{len(lost)} not carried, {len(report['added'])} added",
      *(f"  not carried: {name} ({why})" for name, why in lost.items()),
      *(f"  added: {name}" for name in report["added"]),
      *(f"note: {note}" for note in report["notes"]),
      *(
        f"proof, {what}: largest absolute difference {difference:.3g} "
        f"(allowed {allowed:.3g})"
        for what, (difference, allowed) in report["proofs"].items()
      ),
    ]
  )


def is_foreign(path: str) -> bool:
  """Returns whether a path is an archive, a HF folder or a SavedModel."""
  return checkpoints.is_archive(path) or any(
    os.path.exists(os.path.join(path, name))
    for name in (checkpoints.HF_CONFIG_FILE, "saved_model.pb")
  )


@functools.cache
def own_copy(
  path: str,
  checkpoint: str = "",
  prepare: Optional[Callable[[checkpoints.PortableCheckpoint], None]] = None,
) -> str:
  """Returns a folder of this package with the checkpoint at a path.

  That is `path` itself if it needs no conversion, being ours or a TF1
  checkpoint; else a temporary folder, which is removed when the process ends.
  A conversion runs TensorFlow, so set up devices first.

  Args:
    path: as in `AlbertModel.from_checkpoint`.
    checkpoint: which checkpoint of a run, as in `find_prefix`.
    prepare: changes the checkpoint before it is written, for example to name
      the task of a classifier.

  Raises:
    ValueError, OSError: the checkpoint cannot be read; or from `prepare`.
  """
  if not prepare and not is_foreign(path):
    return path
  folder = tempfile.mkdtemp(prefix="albert-")
  atexit.register(shutil.rmtree, folder, ignore_errors=True)
  with checkpoints.unpacked_archive(path) as source:
    kind, weights = checkpoints.choose(source, checkpoint)
    read = checkpoints.READERS[kind](weights)
    if prepare:
      prepare(read)
    name = {"hf": "Hugging Face", "official_albert": "this package"}.get(
      kind, "google-research"
    )
    notes = [f"a checkpoint of {name}, converted to {folder}", *read.notes]
    if kind == "hf" and read.tokenizer:
      notes.append(
        f"texts are tokenized with {os.path.basename(read.tokenizer.path)} by "
        "the rules of this package; transformers may give other ids, see "
        "docs/checkpoints.md"
      )
    for note in notes:
      # Predictions may be written to standard output.
      print(f"{path}: {note}", file=sys.stderr, flush=True)
    checkpoints.WRITERS["official_albert"](read, folder)
  return folder


def write_random(config: modeling.AlbertConfig, folder: str) -> int:
  """Writes a TF1 checkpoint with random weights, and its configuration.

  Biases are random too: TensorFlow's graph optimizer removes zeros, which new
  models have as biases.

  Args:
    config: the encoder; the pretraining heads are added.
    folder: is created.

  Returns:
    The number of parameters.
  """
  rng = np.random.default_rng(1)
  tensors = {}
  for row in checkpoints.rows(config, "pretraining"):
    value = rng.standard_normal(row.shape_in(config), np.float32)
    value *= np.float32(config.initializer_range)
    tensors[row.tf1] = value + np.float32(row.tf1.endswith("/gamma"))
  os.makedirs(folder)
  checkpoints.write_bundle(
    os.path.join(folder, checkpoints.CHECKPOINT_NAME), tensors
  )
  config.to_json_file(os.path.join(folder, checkpoints.CONFIG_FILE))
  return sum(value.size for value in tensors.values())
