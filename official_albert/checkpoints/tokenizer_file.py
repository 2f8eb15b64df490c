"""The tokenizer that belongs to a checkpoint: found, compared, opened."""

from __future__ import annotations

import dataclasses
import fnmatch
import hashlib
import os
from typing import Any, Callable, Optional, Sequence

from official_albert import files, runs, tokenization
from official_albert.tokenization import in_graph


def find_only_file(folders: Sequence[str], *patterns: str) -> str:
  """Returns the first unique match of a pattern in a folder, or ""."""
  for folder in folders:
    names = runs.visible_names(folder)
    for pattern in patterns:
      found = fnmatch.filter(names, pattern)
      if len(found) == 1:
        return os.path.join(folder, found[0])
  return ""


@dataclasses.dataclass(frozen=True)
class TokenizerFile:
  """The file of a model's tokenizer.

  Attributes:
    path: the path of the file, or what its content is made from.
    kind: a key of `tokenization.TOKENIZER_FILES`.
    rules: how text is changed first.
    problem: the message of the ValueError of each use; "" for none.
    content: the content that is not in a file; None is that of `path`.
  """

  path: str
  kind: str
  rules: tokenization.TextRules = tokenization.TextRules()
  problem: str = ""
  content: Optional[bytes] = None

  def check(self) -> None:
    """Raises ValueError if the tokenizer cannot be used."""
    if self.problem:
      raise ValueError(self.problem)

  def read(self) -> bytes:
    """Returns the content."""
    if self.content is not None:
      return self.content
    return files.read_bytes(self.path)

  def sha256(self) -> str:
    """Returns the SHA-256 of the content in hexadecimal."""
    return hashlib.sha256(self.read()).hexdigest()

  def record(self, vocab_size: int) -> dict[str, Any]:
    """Returns what run.json says of the tokenizer, as JSON values."""
    return {
      "kind": self.kind,
      **self.rules.to_dict(),
      "sha256": self.sha256(),
      "vocab_size": vocab_size,
    }

  def open(self) -> tokenization.Tokenizer:
    """Opens the tokenizer; see `tokenization.open_tokenizer`."""
    return self._make(tokenization.TOKENIZERS[self.kind])

  def make_layer(self) -> in_graph.TextLayer:
    """Returns the same tokenizer in the graph."""
    return self._make(in_graph.TEXT_LAYERS[self.kind])

  def _make(self, function: Callable[..., Any]) -> Any:
    self.check()
    rules = self.rules.to_dict()
    if self.content is None:
      return function(self.path, **rules)
    try:
      return function(self.content, **rules)
    except ValueError as error:
      raise ValueError(f"{self.path}: {error}") from error

  def copy_to(self, folder: str) -> None:
    """Writes the file to a folder, under its standard name."""
    name = tokenization.TOKENIZER_FILES[self.kind]
    files.write_bytes(os.path.join(folder, name), self.read())


@dataclasses.dataclass(frozen=True)
class TokenizerChoice:
  """What a user wants instead of the tokenizer beside the weights.

  Attributes:
    spm_model_file, vocab_file: the path of another file, or "".
    lower_case, keep_accents: other rules; None for those that are recorded.

  Raises:
    ValueError, FileNotFoundError: both files are given, or it does not exist.
  """

  spm_model_file: str = ""
  vocab_file: str = ""
  lower_case: Optional[bool] = None
  keep_accents: Optional[bool] = None

  def __post_init__(self):
    if self.spm_model_file and self.vocab_file:
      raise ValueError(
        f"{self.spm_model_file} and {self.vocab_file} are two tokenizers for "
        "one model: give one of them."
      )
    path = self.spm_model_file or self.vocab_file
    if path and not files.is_file(path):
      raise FileNotFoundError(f"the tokenizer {path} does not exist.")

  def apply(
    self, own: Optional[TokenizerFile], rules: tokenization.TextRules
  ) -> Optional[TokenizerFile]:
    """Returns the wanted tokenizer, or `own`, with the wanted rules."""
    kind = "wordpiece" if self.vocab_file else "sentencepiece"
    path, file = self.spm_model_file or self.vocab_file, own
    if path:
      file = TokenizerFile(path, kind)
    wanted = {"lower_case": self.lower_case, "keep_accents": self.keep_accents}
    wanted = {name: x for name, x in wanted.items() if x is not None}
    rules = dataclasses.replace(own.rules if own else rules, **wanted)
    return file and dataclasses.replace(file, rules=rules)


OWN_TOKENIZER = TokenizerChoice()


def find_tokenizer(
  folders: Sequence[str], rules: Optional[tokenization.TextRules] = None
) -> Optional[TokenizerFile]:
  """Returns the tokenizer in the first folder that has one, or None."""
  models = "tokenizer.model", "spiece.model", "*.model"
  path = find_only_file(folders, *models, "vocab.txt", "vocab*.txt")
  if not path:
    return None
  kind = "sentencepiece" if path.endswith(".model") else "wordpiece"
  return TokenizerFile(path, kind, rules or tokenization.TextRules())
