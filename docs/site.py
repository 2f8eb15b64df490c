"""What mkdocs calls while it builds the site (mkdocs.yml).

Adds README.md and the other documents of the root, with links that fit the
site, and a page of all flags, which is the `--help` of each program. Examples
in docstrings become blocks of code.
"""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

import griffe
from mkdocs.structure.files import File, Files

_ROOT = pathlib.Path(__file__).resolve().parents[1]
# Documents outside of this folder, by their names in the site.
_PAGES = {
  "README.md": "index.md",
  "ARCHITECTURE.md": "ARCHITECTURE.md",
  "CHANGELOG.md": "CHANGELOG.md",
  "CONTRIBUTING.md": "CONTRIBUTING.md",
  "LICENSE": "LICENSE",
}
_FLAGS_PAGE = "reference/flags.md"


def on_files(files, config) -> Files:
  """Adds the pages that are not in docs."""
  for source, page in _PAGES.items():
    text = re.sub(r"\]\(docs/", "](", (_ROOT / source).read_text("utf-8"))
    files.append(File.generated(config, page, content=_to_site(text)))
  return files


def on_page_markdown(markdown, page, **unused) -> str:
  """Makes links to the root's documents links in the site; adds the flags."""
  if page.file.src_uri == _FLAGS_PAGE:
    return markdown + _flags()
  names = "|".join(map(re.escape, _PAGES))
  pattern = rf"\]\(\.\./((?:\.\./)*)({names})(?=[)#])"
  return re.sub(pattern, lambda x: f"]({x[1]}{_PAGES[x[2]]}", markdown)


def _to_site(text):
  return re.sub(r"\]\(README\.md", "](index.md", text)


def _flags():
  programs = sorted(
    (
      path.relative_to(_ROOT).with_suffix("").as_posix().replace("/", ".")
      for path in (_ROOT / "tools").rglob("*.py")
      if "\n  command_line.run(main" in path.read_text("utf-8")
      and not path.name.endswith("_test.py")
    ),
    key=lambda name: (name.count("."), name),
  )
  with concurrent.futures.ThreadPoolExecutor() as pool:
    return "".join(pool.map(_section, programs))


def _section(program):
  """Returns the flags of a program as tables."""
  # One line for each flag.
  environment = {**os.environ, "COLUMNS": "1000000"}
  command = [sys.executable, "-m", program, "--help"]
  shown = subprocess.run(
    command, cwd=_ROOT, env=environment, check=True, capture_output=True
  ).stdout.decode()
  about, *groups = re.split(r"\n\n(?=\S.*\n\n  --)", shown)
  examples = about.replace("\n\n    ", "\n\n```sh\n", 1)
  if examples != about:
    head, _, rest = examples.partition("```sh\n")
    code, _, rest = rest.partition("\n\n")
    code = re.sub(r"^    ", "", code, flags=re.MULTILINE)
    about = f"{head}```sh\n{code}\n```\n\n{rest}"
  lines = [f"\n## {program}\n\n{about}\n"]
  for group in groups:
    heading, _, entries = group.partition("\n\n")
    lines.append(f"\n**{heading.rstrip(':')}**\n\n| flag | |\n|---|---|")
    for name, text in re.findall(r"^  --(\S+): (.*)$", entries, re.MULTILINE):
      text = re.sub(r"([|<*_\\])", r"\\\1", text)
      lines.append(f"| `--{name}` | {text} |")
  return "\n".join(lines) + "\n"


class Examples(griffe.Extension):
  """Makes `>>>` examples in docstrings blocks of code."""

  def on_instance(self, *, obj, **unused) -> None:
    if obj.docstring:
      obj.docstring.value = re.sub(
        r"(?m)^>>> (?:.+\n?)+",
        lambda x: f"```pycon\n{x[0].rstrip()}\n```\n",
        obj.docstring.value,
      )
