"""Tokenizer files: in a run, beside a checkpoint, or given by flags."""

from __future__ import annotations

import dataclasses
import os
import shutil
from typing import Mapping, Optional, Sequence

from official_albert import files, tokenization
from official_albert.checkpoints import checkpoint_files


@dataclasses.dataclass(frozen=True)
class TokenizerFile:
  """The file of a model's tokenizer.

  Attributes:
    path: of the file, which may be temporary.
    kind: a key of `tokenization.TOKENIZER_FILES`.
    lower_case: whether text is lower-cased first.
  """

  path: str
  kind: str
  lower_case: bool = True

  def sha256(self) -> str:
    """Returns the SHA-256 of the file in hexadecimal."""
    return files.sha256(self.path)

  def open(self) -> tokenization.Tokenizer:
    """Opens the tokenizer.

    Raises:
      FileNotFoundError: the file does not exist.
      ValueError: the file is damaged or of another kind.
    """
    paths = {self.kind: self.path}
    return tokenization.open_tokenizer(
      paths.get("sentencepiece", ""),
      paths.get("wordpiece", ""),
      self.lower_case,
    )

  def copy_to(self, folder: str) -> None:
    """Copies the file under the name that it has in a run.

    Raises:
      OSError: it cannot be copied.
    """
    name = tokenization.TOKENIZER_FILES[self.kind]
    shutil.copyfile(self.path, os.path.join(folder, name))


def chosen_tokenizer(
  spm_model_file: str, vocab_file: str, lower_case: bool
) -> Optional[TokenizerFile]:
  """Returns the tokenizer of the file that is given; None if neither is.

  Raises:
    ValueError: both are given.
    FileNotFoundError: the file does not exist.
  """
  if spm_model_file and vocab_file:
    raise ValueError(
      f"{spm_model_file} and {vocab_file} are two tokenizers for one model: "
      "give one of them."
    )
  path = spm_model_file or vocab_file
  if not path:
    return None
  if not os.path.isfile(path):
    raise FileNotFoundError(f"the tokenizer {path} does not exist.")
  kind = "wordpiece" if vocab_file else "sentencepiece"
  return TokenizerFile(path, kind, lower_case)


def recorded_tokenizer(
  folder: str, recorded: Mapping[str, object]
) -> TokenizerFile:
  """Returns the tokenizer in a run's folder that its run.json describes."""
  # Early versions had only SentencePiece and recorded no kind.
  kind = str(recorded.get("kind", "sentencepiece"))
  lower_case = bool(recorded.get("lower_case", True))
  path = os.path.join(folder, tokenization.TOKENIZER_FILES[kind])
  return TokenizerFile(path, kind, lower_case)


def find_tokenizer(
  folders: Sequence[str], lower_case: bool = True
) -> Optional[TokenizerFile]:
  """Returns the tokenizer in the first folder that has one; None without."""
  for folder in folders:
    for kind, patterns in {
      "sentencepiece": ("tokenizer.model", "spiece.model", "*.model"),
      "wordpiece": ("vocab.txt", "vocab*.txt"),
    }.items():
      path = checkpoint_files.find_only_file([folder], *patterns)
      if path:
        return TokenizerFile(path, kind, lower_case)
  return None
