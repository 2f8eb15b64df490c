"""One conversion: read, check, write aside, prove, and only then be there."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tempfile
from typing import Optional

from official_albert import checkpoints
from tools import finetuning
from tools.conversion import changes as checkpoint_changes
from tools.conversion import proof as checkpoint_proof

REPORT_FILE = "conversion.json"
_NO_CHANGES = checkpoint_changes.Changes()


@dataclasses.dataclass
class Report:
  """What happened to every name, on both sides.

  Attributes:
    source: format and path.
    target: format and path.
    head: what was carried besides the encoder.
    matched: variables that were carried, optimizer state among them.
    missing: TF1 names that the source should have and has not.
    unexpected: names of the source that were not read, and why.
    not_carried: TF1 names that were read and have no place in the target.
    added: TF1 names that only the target has.
    notes: what was assumed or translated.
    proofs: the largest absolute difference and the largest allowed one, by
      what was compared.
  """

  source: tuple[str, str]
  target: tuple[str, str]
  head: str
  matched: int = 0
  missing: tuple[str, ...] = ()
  unexpected: dict[str, str] = dataclasses.field(default_factory=dict)
  not_carried: dict[str, str] = dataclasses.field(default_factory=dict)
  added: tuple[str, ...] = ()
  notes: list[str] = dataclasses.field(default_factory=list)
  proofs: dict[str, tuple[float, float]] = dataclasses.field(
    default_factory=dict
  )

  def __str__(self) -> str:
    state = [
      name
      for name, why in self.unexpected.items()
      if why == checkpoints.OPTIMIZER_STATE
    ]
    lines = [
      f"{self.source[0]} {self.source[1]} -> {self.target[0]} "
      f"{self.target[1]}, head: {self.head}",
      f"source: {self.matched} variables matched, {len(self.missing)} missing, "
      f"{len(self.unexpected) - len(state)} unexpected, {len(state)} optimizer "
      "variables ignored",
      *(f"  missing: {name}" for name in self.missing),
      *(
        f"  unexpected: {n} ({why})"
        for n, why in self.unexpected.items()
        if n not in state
      ),
      f"target: {self.matched - len(self.not_carried)} variables carried, "
      f"{len(self.not_carried)} not carried, {len(self.added)} added",
      *(f"  not carried: {n} ({why})" for n, why in self.not_carried.items()),
      *(f"  added: {name}" for name in self.added),
      *(f"note: {note}" for note in self.notes),
      *(
        f"proof, {what}: largest absolute difference {difference:.3g} (allowed "
        f"{allowed:.3g})"
        for what, (difference, allowed) in self.proofs.items()
      ),
    ]
    return "\n".join(lines)

  def write(self, folder: str) -> None:
    """Writes the report as JSON."""
    with open(os.path.join(folder, REPORT_FILE), "w") as file:
      json.dump(dataclasses.asdict(self), file, indent=1, default=str)
      file.write("\n")


def check_output(path: str) -> None:
  """Refuses a folder that holds anything, and the current one.

  Raises:
    FileExistsError: it is such a folder.
  """
  folder = os.path.abspath(path)
  if os.path.isdir(folder) and os.path.samefile(folder, os.curdir):
    # Even an empty one: the caller would stand in a folder that is gone.
    raise FileExistsError(
      f"--output {path} is the current folder: choose a new one."
    )
  if os.path.exists(path) and not (
    os.path.isdir(path) and not os.listdir(path)
  ):
    raise FileExistsError(
      f"--output {path} is there and not empty: choose a new folder."
    )


def check_tokenizer(
  checkpoint: checkpoints.PortableCheckpoint,
) -> None:
  """Opens the tokenizer, and refuses one of another vocabulary.

  A model may have more rows than its tokenizer has pieces, as some tables are
  padded to a round number; that is noted.

  Raises:
    ValueError: it is damaged, or has ids that the model does not know.
  """
  path, vocab_size = checkpoint.tokenizer.path, checkpoint.config.vocab_size
  pieces = checkpoint.tokenizer.open().vocab_size
  if pieces > vocab_size:
    raise ValueError(
      f"the tokenizer {path} has {pieces} pieces, but the model has vocab_size "
      f"{vocab_size}: give the tokenizer that the model was pretrained with."
    )
  if pieces < vocab_size:
    checkpoint.notes.append(
      f"the tokenizer has {pieces} pieces, fewer than the model's vocab_size "
      f"{vocab_size}: see that they belong together."
    )


def fit_to(
  checkpoint: checkpoints.PortableCheckpoint, target: str
) -> dict[str, str]:
  """Takes away what a format has no place for.

  Args:
    checkpoint: is changed.
    target: a key of `pretrained.WRITERS`.

  Returns:
    What was taken away, and why.
  """
  lost: dict[str, str] = {}
  if target == "hf":
    if checkpoint.head not in checkpoints.ARCHITECTURES:
      lost = dict.fromkeys(
        (row.tf1 for row in checkpoints.HEADS[checkpoint.head]),
        f"Hugging Face has no head for {checkpoint.head}",
      )
      checkpoint.head = "none"
    for name in checkpoint.tensors:
      if not checkpoints.carries(checkpoint.head, name):
        lost[name] = (
          f"{checkpoints.ARCHITECTURES[checkpoint.head]} has no pooler"
        )
      elif checkpoints.is_slot(name):
        lost[name] = "Hugging Face keeps no optimizer state with a model"
    if not checkpoint.config.has_projection:
      checkpoint.notes.append(
        "Hugging Face always has embedding_hidden_mapping_in: it is written as "
        "the identity, which changes no value, as E is H here."
      )
  cased = checkpoint.tokenizer and not checkpoint.tokenizer.lower_case
  if target == "tf1" and cased:
    checkpoint.notes.append(
      "that text is not lower-cased has no place in a TF1 folder: give its "
      "programs --do_lower_case=false."
    )
  if target == "tf1" and checkpoint.labels:
    checkpoint.notes.append(
      "the labels have no place in a TF1 checkpoint; in their order: "
      + ", ".join(checkpoint.labels)
    )
  return lost


def _compare_ids(
  report: Report,
  hf: tuple[str, checkpoints.PortableCheckpoint, str],
  python: str,
) -> None:
  """Notes whether Hugging Face's tokenizer gives the ids of ours."""
  file = hf[1].tokenizer
  if python and file:
    report.notes.append(checkpoint_proof.by_texts(python, hf[2], file.open()))


def prove(
  report: Report,
  source: tuple[str, checkpoints.PortableCheckpoint, str],
  written: tuple[str, checkpoints.PortableCheckpoint, str],
  hf_python: str,
  by_batch: bool = True,
) -> None:
  """Adds the proofs to the report.

  Args:
    report: of the conversion.
    source: format, content and path.
    written: format, content and path.
    hf_python: see `checkpoint_proof.find_hf_python`.
    by_batch: whether both are the same model, so that a batch can tell.

  Raises:
    ValueError: a difference is over the tolerance.
  """
  report.proofs["values read again by name"] = (
    checkpoint_proof.by_name(source[1], written[1]),
    checkpoint_proof.TOLERANCE,
  )
  formats = (source[0], written[0])
  python = ""
  if "hf" in formats:
    python = checkpoint_proof.find_hf_python(hf_python)
    _compare_ids(report, source if formats[1] != "hf" else written, python)
  if not by_batch:
    report.notes.append(
      "no batch went through both models, as one was changed on the way."
    )
  elif "hf" in formats and formats != ("hf", "hf"):
    if python:
      hf, other = (source, written) if source[0] == "hf" else (written, source)
      head = hf[1].head
      batch = checkpoint_proof.make_batch(hf[1].config, head)
      theirs = checkpoint_proof.hf_outputs(python, hf[2], batch)
      ours = checkpoint_proof.own_outputs(
        other[2],
        hf[1].config,
        head,
        checkpoint_proof.classes_of(hf[1]),
        batch,
      )
      where, *numbers = checkpoint_proof.by_batch(ours, theirs)
      report.proofs[f"a batch through both models ({where})"] = tuple(numbers)
    else:
      report.notes.append(
        "no batch went through Hugging Face's model: install torch and "
        "transformers, or give --hf_python."
      )
  for what, (difference, allowed) in report.proofs.items():
    if not difference <= allowed:
      raise ValueError(
        f"the conversion is wrong: {what} differ by {difference:.3g}, more "
        f"than {allowed:.3g}; nothing was written."
      )


def convert(
  source: str,
  target: str,
  input_path: str,
  output: str,
  head: str = "",
  include_optimizer: bool = False,
  config_file: str = "",
  tokenizer: Optional[checkpoints.TokenizerFile] = None,
  hf_python: str = "",
  dry_run: bool = False,
  changes: checkpoint_changes.Changes = _NO_CHANGES,
  which: str = "",
  task: str = "",
) -> Report:
  """Converts a checkpoint; `output` is whole and proven, or not there.

  Args:
    source: a key of `pretrained.READERS`; "" to look.
    target: a key of `pretrained.WRITERS`.
    input_path: what the reader takes, or a .tar.gz of it; or the folder of
      several seeds of a run, the best of which is taken.
    output: a new folder.
    head: a key of `checkpoint_names.HEADS`; "" for the one that is there.
    include_optimizer: whether to carry its state.
    config_file: albert_config.json, where none lies beside the weights.
    tokenizer: instead of the source's own.
    hf_python: see `checkpoint_proof.find_hf_python`.
    dry_run: everything but the renaming to `output`.
    changes: of the model, on the way.
    which: of a run's checkpoints, see `checkpoint_files.find_prefix`; with
      `include_optimizer`, "" is the latest, as the best holds weights only.
    task: what a classifier is to be used for, see `text_jobs.name_task`; ""
      for what the source says of it.

  Raises:
    ValueError, OSError: one sentence; nothing is left behind.
  """
  check_output(output)
  parent = os.path.dirname(os.path.abspath(output))
  with checkpoints.unpacked_archive(input_path) as path:
    source, weights = checkpoints.choose(path, which, source)
    if include_optimizer and not which and checkpoints.is_best(weights):
      weights = checkpoints.find_prefix(path, checkpoints.LATEST)
    checkpoint = checkpoints.READERS[source](
      weights, head, include_optimizer, config_file
    )

    def shown(file: str) -> str:
      # Of an archive, what it was unpacked to will be gone.
      if path == input_path:
        return file
      return f"{os.path.relpath(file, path)} of {input_path}"

    if source == "official_albert":
      best = ", the run's best" if checkpoints.is_best(weights) else ""
      checkpoint.notes.append(
        f"the weights are {shown(weights)}, step {checkpoint.step:,}{best}."
      )
    if tokenizer:
      checkpoint.tokenizer = tokenizer
    elif checkpoint.tokenizer and source in ("tf1", "tf_hub"):
      checkpoint.notes.append(
        "text is taken to be lower-cased, as a TF1 folder does not say; name "
        "the tokenizer and --nodo_lower_case if it is not."
      )
    if checkpoint.tokenizer:
      file = checkpoint.tokenizer.path
      file = file if tokenizer else shown(file)
      checkpoint.notes.append(f"the tokenizer is {file}.")
    else:
      checkpoint.notes.append(
        "no tokenizer was found: give --spm_model_file or --vocab_file."
      )
    if checkpoint.tokenizer:
      check_tokenizer(checkpoint)
    if task:
      finetuning.text_jobs.name_task(checkpoint, task)
    if changes:
      checkpoint_changes.apply(checkpoint, changes)
    lost = fit_to(checkpoint, target)
    report = Report(
      (source, input_path),
      (target, output),
      checkpoint.head,
      matched=len(checkpoint.tensors),
      missing=checkpoint.missing,
      unexpected=checkpoint.unexpected,
      not_carried=lost,
      notes=checkpoint.notes,
    )
    if not dry_run:
      os.makedirs(parent, exist_ok=True)
    temporary = tempfile.mkdtemp(
      prefix=".convert-", dir=None if dry_run else parent
    )
    try:
      written_path = checkpoints.WRITERS[target](checkpoint, temporary)
      again = temporary if target == "hf" else written_path
      written = checkpoints.READERS[target](
        again, checkpoint.head, bool(checkpoint.slots) and target != "hf"
      )
      report.added = tuple(
        sorted(set(written.tensors) - set(checkpoint.tensors))
      )
      silently = set(checkpoint.tensors) - set(written.tensors) - set(lost)
      if silently or written.config != checkpoint.config:
        raise ValueError(
          f"the conversion is wrong: {sorted(silently) or 'the configuration'} "
          "came out differently; nothing was written."
        )
      prove(
        report,
        (source, checkpoint, weights),
        (target, written, again),
        hf_python,
        by_batch=not changes,
      )
      report.write(temporary)
      if not dry_run:
        os.chmod(temporary, 0o755)
        os.replace(temporary, output)  # Over an empty folder, too.
    finally:
      shutil.rmtree(temporary, ignore_errors=True)
  return report
