"""Checkpoint conversion: read, change, write to a temporary folder, verify."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from typing import Callable, Optional

from official_albert import checkpoints, files
from tools import finetuning
from tools.conversion import proof as checkpoint_proof

REPORT_FILE = "conversion.json"


@dataclasses.dataclass(frozen=True)
class Changes:
  """Changes of the model during a conversion; the defaults change nothing.

  Attributes:
    num_hidden_groups: see `checkpoints.expand_groups`; 0 keeps the number.
    max_position_embeddings: see `checkpoints.resize_positions`; 0 keeps it.
    position_method: one of `checkpoints.POSITION_METHODS`.
    tokenizer: the new vocabulary, see `checkpoints.change_vocabulary`; None
      keeps the old one.
  """

  num_hidden_groups: int = 0
  max_position_embeddings: int = 0
  position_method: str = "tile"
  tokenizer: Optional[checkpoints.TokenizerFile] = None

  def __bool__(self) -> bool:
    return bool(
      self.num_hidden_groups or self.max_position_embeddings or self.tokenizer
    )

  def apply(self, checkpoint: checkpoints.PortableCheckpoint) -> None:
    """Changes configuration, values and tokenizer, and adds notes.

    Raises:
      ValueError: the model does not allow a change, or the old vocabulary is
        not known.
    """
    config, tensors = checkpoint.config, checkpoint.tensors
    notes = checkpoint.notes
    if self.num_hidden_groups:
      before = config.num_hidden_groups
      config, tensors = checkpoints.expand_groups(
        config, tensors, self.num_hidden_groups
      )
      notes.append(
        f"{config.num_hidden_groups} groups instead of {before}, with the same "
        "weights in each layer."
      )
    if self.max_position_embeddings:
      before = config.max_position_embeddings
      config, tensors = checkpoints.resize_positions(
        config, tensors, self.max_position_embeddings, self.position_method
      )
      how = {"tile": "the old table is repeated", "interpolate": "interpolated"}
      how = how[self.position_method]
      if config.max_position_embeddings <= before:
        how = "the first ones"
      notes.append(
        f"{config.max_position_embeddings} positions instead of {before}: "
        f"{how}."
      )
    if self.tokenizer:
      if not checkpoint.tokenizer:
        raise ValueError(
          "the vocabulary can only be changed if the old one is known: give "
          "it with --spm_model_file or --vocab_file."
        )
      old, new = checkpoint.tokenizer.open(), self.tokenizer.open()
      config, tensors, report = checkpoints.change_vocabulary(
        config,
        tensors,
        checkpoints.pieces_of(old),
        checkpoints.pieces_of(new),
        checkpoints.cutter(old),
      )
      checkpoint.tokenizer = self.tokenizer
      notes.append(f"another vocabulary: {report}.")
    checkpoint.config, checkpoint.tensors = config, tensors


@dataclasses.dataclass
class Report:
  """The result of a conversion, with the names of variables on both sides.

  Attributes:
    source: format and path.
    target: format and path.
    head: the head that was carried.
    matched: number of variables that were read, with optimizer state.
    missing: TF1 names of the model that the source lacks.
    unexpected: names in the source that were not read, with the reason.
    not_carried: TF1 names that were read and that the target has no place for.
    added: TF1 names that only the target has.
    notes: what was assumed or translated, one sentence each.
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
    state = checkpoints.OPTIMIZER_STATE
    unexpected = {n: why for n, why in self.unexpected.items() if why != state}
    return "\n".join(
      [
        f"{' '.join(self.source)} -> {' '.join(self.target)}, head: "
        f"{self.head}",
        f"source: {self.matched} variables matched, {len(self.missing)} "
        f"missing, {len(unexpected)} unexpected, "
        f"{len(self.unexpected) - len(unexpected)} optimizer variables ignored",
        *(f"  missing: {name}" for name in self.missing),
        *(f"  unexpected: {name} ({why})" for name, why in unexpected.items()),
        f"target: {self.matched - len(self.not_carried)} variables carried, "
        f"{len(self.not_carried)} not carried, {len(self.added)} added",
        *(f"  not carried: {n} ({why})" for n, why in self.not_carried.items()),
        *(f"  added: {name}" for name in self.added),
        *(f"note: {note}" for note in self.notes),
        *(
          f"proof, {what}: largest absolute difference {difference:.3g} "
          f"(allowed {allowed:.3g})"
          for what, (difference, allowed) in self.proofs.items()
        ),
      ]
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
  changes: Optional[Changes] = None,
  which: str = "",
  task: str = "",
) -> Report:
  """Converts a checkpoint; `output` exists only if it was verified.

  Args:
    source: a key of `checkpoints.READERS`; "" detects the format.
    target: a key of `checkpoints.WRITERS`.
    input_path: the path to read, or a .tar.gz of it. If it holds several seeds
      of a run, the best one is taken.
    output: a new folder.
    head: a key of `checkpoints.HEADS`; "" detects it.
    include_optimizer: whether to carry optimizer state.
    config_file: albert_config.json, if there is none beside the weights.
    tokenizer: replaces the source's own.
    hf_python: see `proof.find_hf_python`.
    dry_run: does everything except keeping the output.
    changes: of the model.
    which: which checkpoint of a run, as in `find_prefix`; with
      `include_optimizer`, "" is the latest, as the best one holds only weights.
    task: what a classifier was fine-tuned on, see `text_jobs.name_task`; ""
      keeps what the source says.

  Raises:
    ValueError, OSError: the checkpoint cannot be read, converted or written,
      or a difference is too large; nothing is left behind.
  """
  folder = os.path.abspath(output)
  if os.path.isdir(folder) and os.path.samefile(folder, os.curdir):
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

    if source == "official_albert":
      best = ", the run's best" if checkpoints.is_best(weights) else ""
      checkpoint.notes.append(
        f"the weights are {shown(weights)}, step {checkpoint.step:,}{best}."
      )
    _choose_tokenizer(checkpoint, source, tokenizer, shown)
    if task:
      finetuning.text_jobs.name_task(checkpoint, task)
    if changes:
      changes.apply(checkpoint)
    lost = _fit_to(checkpoint, target)
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
    new_folder = (
      tempfile.TemporaryDirectory(prefix="convert-")
      if dry_run
      else files.new_folder(output)
    )
    with new_folder as temporary:
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
          "differs in the output; nothing was written."
        )
      _prove(
        report,
        (source, checkpoint, weights),
        (target, written, again),
        hf_python,
        by_batch=not changes,
      )
      files.write_json(
        os.path.join(temporary, REPORT_FILE),
        dataclasses.asdict(report),
        default=str,
      )
  return report


def _choose_tokenizer(
  checkpoint: checkpoints.PortableCheckpoint,
  source: str,
  tokenizer: Optional[checkpoints.TokenizerFile],
  shown: Callable[[str], str],
) -> None:
  """Sets the tokenizer, checks the size of its vocabulary, and adds notes.

  Raises:
    ValueError: it is damaged, or has more pieces than the model has rows.
  """
  notes = checkpoint.notes
  if tokenizer:
    checkpoint.tokenizer = tokenizer
  elif not checkpoint.tokenizer:
    notes.append(
      "no tokenizer was found: give --spm_model_file or --vocab_file."
    )
    return
  elif source in ("tf1", "tf_hub"):
    notes.append(
      "text is assumed to be lower-cased, as a TF1 folder does not say; if it "
      "is not, give the tokenizer and --nodo_lower_case."
    )
  path, vocab_size = checkpoint.tokenizer.path, checkpoint.config.vocab_size
  notes.append(f"the tokenizer is {path if tokenizer else shown(path)}.")
  pieces = checkpoint.tokenizer.open().vocab_size
  if pieces > vocab_size:
    raise ValueError(
      f"the tokenizer {path} has {pieces} pieces, but the model has vocab_size "
      f"{vocab_size}: give the tokenizer that the model was pretrained with."
    )
  if pieces < vocab_size:  # Some tables are padded to a round number.
    notes.append(
      f"the tokenizer has {pieces} pieces, fewer than the model's vocab_size "
      f"{vocab_size}: check that they belong together."
    )


def _fit_to(
  checkpoint: checkpoints.PortableCheckpoint, target: str
) -> dict[str, str]:
  """Removes the head if a format lacks it, and notes what else is lost.

  Args:
    checkpoint: is changed.
    target: a key of `checkpoints.WRITERS`.

  Returns:
    The names that the format cannot hold, with the reason.
  """
  lost: dict[str, str] = {}
  notes = checkpoint.notes
  if target == "hf":
    if checkpoint.head not in checkpoints.ARCHITECTURES:
      lost = dict.fromkeys(
        (row.tf1 for row in checkpoints.HEADS[checkpoint.head]),
        f"Hugging Face has no head for {checkpoint.head}",
      )
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


def _prove(
  report: Report,
  source: tuple[str, checkpoints.PortableCheckpoint, str],
  written: tuple[str, checkpoints.PortableCheckpoint, str],
  hf_python: str,
  by_batch: bool,
) -> None:
  """Compares both checkpoints and adds the results to the report.

  Args:
    report: of the conversion.
    source: format, content and path.
    written: format, content and path.
    hf_python: see `proof.find_hf_python`.
    by_batch: whether both models compute the same, so that their outputs can
      be compared.

  Raises:
    ValueError: a difference exceeds the tolerance.
  """
  report.proofs["values read again by name"] = (
    checkpoint_proof.by_name(source[1], written[1]),
    checkpoint_proof.TOLERANCE,
  )
  formats = (source[0], written[0])
  hf, other = (written, source) if written[0] == "hf" else (source, written)
  python = ""
  if "hf" in formats:
    python = checkpoint_proof.find_hf_python(hf_python)
    if python and hf[1].tokenizer:
      tokenizer = hf[1].tokenizer.open()
      report.notes.append(checkpoint_proof.by_texts(python, hf[2], tokenizer))
  if not by_batch:
    report.notes.append(
      "no batch went through both models, because the model was changed."
    )
  elif "hf" in formats and formats != ("hf", "hf"):
    if python:
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
    if not difference <= allowed:  # NaN must fail too.
      raise ValueError(
        f"the conversion is wrong: {what} differ by {difference:.3g}, more "
        f"than {allowed:.3g}; nothing was written."
      )
