"""What the publisher of a module decides: names, licence, addresses.

Source: "Write documentation" of TF Hub's documentation; the tags in tags/*.yaml
and the patterns in tools/validator.py of tensorflow/tfhub.dev.
"""

from __future__ import annotations

import dataclasses
import re

# The values that TF Hub's site knows.
LICENSES = (
  "apache-2.0",
  "bsd-2-clause",
  "bsd-3-clause",
  "cc-by-nc-4.0",
  "cddl-1.0",
  "custom",
  "epl-2.0",
  "gpl-2.0",
  "gpl-3.0",
  "lgpl-2.0",
  "lgpl-2.1",
  "lgpl-3.0",
  "mit",
  "mpl-2.0",
)
_HANDLE = re.compile(r"([a-z\d-]+)/(\w[\w.-]*(?:/\w[\w.-]*)*)/(\d+)")
_LANGUAGE = re.compile(r"[a-z]{2}(-[a-z]{2})?|multilingual")


@dataclasses.dataclass(frozen=True)
class Publication:
  """What the publisher decides.

  Attributes:
    publisher: such as "google".
    name: of the encoder, such as "albert_en_base".
    version: from 1.
    license: one of `LICENSES`.
    language: ISO 639-1, such as "en"; "" leaves it out.
    description: one line; "" for the sizes of the model.
    asset_root: the address under which the output folder will be found; "" if
      it is not known yet.
  """

  publisher: str
  name: str
  version: int
  license: str
  language: str = ""
  description: str = ""
  asset_root: str = ""

  def __post_init__(self):
    if self.license not in LICENSES:
      raise ValueError(
        f"unknown license {self.license!r}; choose one of "
        f"{', '.join(LICENSES)}."
      )
    if self.language and not _LANGUAGE.fullmatch(self.language):
      raise ValueError(
        f"language {self.language!r} is no code of ISO 639-1: write en, de, "
        "zh-cn, multilingual and so on."
      )
    if "\n" in self.description or self.description.startswith(("<", "#")):
      raise ValueError(
        "description must be one line of text: TF Hub shows it under the name."
      )
    if self.asset_root and not re.match(r"(https?|gs)://\S+$", self.asset_root):
      raise ValueError(
        f"asset_root {self.asset_root!r} must be an address such as "
        "https://storage.googleapis.com/BUCKET."
      )

  @property
  def preprocess_name(self) -> str:
    """Of the preprocessor."""
    return f"{self.name}_preprocess"

  def archive(self, name: str) -> str:
    """The address of an archive, or its place in the output folder."""
    path = f"{name}/{self.version}.tar.gz"
    return f"{self.asset_root.rstrip('/')}/{path}" if self.asset_root else path


def parse_handle(handle: str) -> tuple[str, str, int]:
  """PUBLISHER/NAME/VERSION in parts.

  Raises:
    ValueError: it is of another form.
  """
  match = _HANDLE.fullmatch(handle)
  if not match:
    raise ValueError(
      f"handle {handle!r} must be PUBLISHER/NAME/VERSION, such as "
      "my-team/albert_en/1: the publisher in lower case, digits and hyphens, "
      "the version a whole number."
    )
  return match[1], match[2], int(match[3])
