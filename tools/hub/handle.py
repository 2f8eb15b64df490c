"""The publisher's choices: names, license, addresses.

Source: "Write documentation" of TF Hub's documentation; the tags in tags/*.yaml
and the patterns in tools/validator.py of tensorflow/tfhub.dev.
"""

from __future__ import annotations

import dataclasses
import re

# The values that TF Hub's site accepts.
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


@dataclasses.dataclass(frozen=True)
class Publication:
  """The publisher's choices.

  Attributes:
    handle: of the encoder, PUBLISHER/NAME/VERSION.
    license: one of `LICENSES`.
    language: ISO 639-1, such as "en"; "" omits it.
    description: one line; "" for the sizes of the model.
    asset_root: the address of the output folder; "" if it is unknown.

  Raises:
    ValueError: TF Hub's site would refuse a value.
  """

  handle: str
  license: str
  language: str = ""
  description: str = ""
  asset_root: str = ""

  def __post_init__(self):
    if not re.fullmatch(r"[a-z\d-]+/\w[\w.-]*(/\w[\w.-]*)*/\d+", self.handle):
      raise ValueError(
        f"handle {self.handle!r} must be PUBLISHER/NAME/VERSION, such as "
        "my-team/albert_en/1: the publisher in lower case, digits and hyphens, "
        "the version a whole number."
      )
    language = r"[a-z]{2}(-[a-z]{2})?|multilingual|"
    if not re.fullmatch(language, self.language):
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
  def publisher(self) -> str:
    return self.handle.split("/")[0]

  @property
  def name(self) -> str:
    """The name of the encoder."""
    return self.handle.split("/", 1)[1].rsplit("/", 1)[0]

  @property
  def preprocess_name(self) -> str:
    """The name of the preprocessor."""
    return f"{self.name}_preprocess"

  @property
  def version(self) -> int:
    return int(self.handle.rsplit("/", 1)[1])

  def archive(self, name: str) -> str:
    """Returns the address of an archive, or its path in the output folder."""
    path = f"{name}/{self.version}.tar.gz"
    return f"{self.asset_root.rstrip('/')}/{path}" if self.asset_root else path
