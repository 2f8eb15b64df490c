"""What mkdocs calls while it builds the site (mkdocs.yml).

Adds README.md and the other documents of the root, with links that fit the
site, and the flags of all programs, which are their `--help`. Examples in
docstrings become blocks of code.
"""

from __future__ import annotations

import concurrent.futures
import pathlib
import re
import subprocess
import sys

import griffe
from mkdocs.structure.files import File, Files

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_NAMES = "README.md|ARCHITECTURE.md|CHANGELOG.md|CONTRIBUTING.md|LICENSE"


def on_files(files, config) -> Files:
  """Adds the documents that are not in docs."""
  for name in _NAMES.split("|"):
    text = (_ROOT / name).read_text("utf-8")
    text = text.replace("](docs/", "](").replace("](README.md", "](index.md")
    page = name.replace("README", "index")
    files.append(File.generated(config, page, content=text))
  return files


def on_page_markdown(markdown, page, **unused) -> str:
  """Makes links to those documents links in the site; adds the reference."""
  if page.file.src_uri == "reference/flags.md":
    programs = re.findall(r"^\| `(.+?)`", markdown, re.MULTILINE)
    with concurrent.futures.ThreadPoolExecutor() as pool:
      flags = "".join(pool.map(_section, programs))
    return f"{markdown}\n{flags}"
  if page.file.src_uri == "reference/python.md":
    # The site has the docstrings where the table links to the source.
    name = re.compile(r"^\| \[`(.+?)`\]\(.+?\)", re.MULTILINE)
    docstrings = "".join(f"\n::: {x}\n" for x in name.findall(markdown))
    markdown = name.sub(r"| [`\1`](#\1)", markdown)
    return f"{markdown}\n{docstrings}"
  # GitHub needs no empty line before a table.
  markdown = re.sub(r"(?m)^([^|\n].*\n)(?=\|.*\n\|-)", r"\1\n", markdown)
  link = re.compile(rf"\]\(\.\./((?:\.\./)*(?:{_NAMES}))(?=[)#])")
  return link.sub(lambda x: f"]({x[1].replace('README', 'index')}", markdown)


def on_page_content(html, **unused) -> str:
  """Marks short code, which site.css keeps on one line."""
  return re.sub(r"<code>(?=[^<\s]{1,28}</code>)", '<code class="short">', html)


def _section(program) -> str:
  """Returns the help of a program, as it is printed."""
  command = [sys.executable, "-m", program, "--help"]
  shown = subprocess.check_output(command, cwd=_ROOT, text=True)
  return f"\n## {program}\n\n```text\n{shown}```\n"


class Examples(griffe.Extension):
  """Makes `>>>` examples in docstrings blocks of code."""

  def on_instance(self, *, obj, **unused) -> None:
    if obj.docstring:
      obj.docstring.value = re.sub(
        r"(?m)^>>> (?:.+\n?)+",
        lambda x: f"```pycon\n{x[0].rstrip()}\n```\n",
        obj.docstring.value,
      )
