"""The flags of programs, with values that are odd, of other kinds, or missing.

The programs run, in an empty folder: their data does not exist.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from typing import Sequence

from absl import flags
from hypothesis import strategies as st

from official_albert.tools.testing import fuzz

# Required flags, by program. Programs that would do much without data, such as
# tools.benchmark, or that install something, are left out. No message has the
# word "nowhere" by chance.
_PROGRAMS = {
  "adopt_tfrecords": "--input_files=nowhere --heldout_files=nowhere",
  "convert_checkpoint": "--to=hf --input=nowhere --output=out",
  "create_pretraining_data": "--input_files=nowhere --output_dir=out "
  "--spm_model_file=nowhere",
  "ensemble": "--members=nowhere --output_dir=out",
  "export_saved_model": "--model_dir=nowhere --export_dir=out",
  "inspect_tfrecords": "--input_dir=nowhere",
  "plot_curves": "--model_dir=nowhere --output_file=out.png",
  "predict": "--model_dir=nowhere --text=sun",
  "publish_hub_module": "--input=nowhere --output_dir=out --handle=a/b/c/d "
  "--license=mit",
  "run_finetuning": "--task=sst2 --output_dir=out --data_dir=nowhere "
  "--init_checkpoint=nowhere",
  "run_pretraining": "--model_dir=out --input_dir=nowhere --preset=albert_tiny",
  "train_vocabulary": "--input_files=nowhere --output_dir=out",
}
# In an empty folder, none of them is a file. A command line has no "\0".
_VALUES = (
  *("", " ", "0", "-1", "1", "2", "0.5", "1e999", "nan", "-inf", "2147483648"),
  *("9" * 5000, "1,2", "1,,", ",", "a,b", "true", "x", "x=y", "../x", "*", "["),
  *("a b", "é", "\u2028", "a\nb", "\udc80", "x" * 5000, "s3://b/x", "3:1e999"),
)
_OTHERS = "-- --= - --nothing --flagfile=nowhere x --verbosity=x".split()


def _names(program: str) -> list[str]:
  return sorted(
    flag.name
    for module, defined in flags.FLAGS.flags_by_module_dict().items()
    if re.fullmatch(rf"official_albert\.tools\.({program}|cli\.\w+)", module)
    for flag in defined
  )


def _is_named(message: str, arguments: Sequence[str]) -> bool:
  """Returns whether a message has a flag, or a word that was given."""
  if re.search(r"--[a-z]\w+", message):
    return True
  # A setting is named as its flag.
  if any("_" in word and word in flags.FLAGS for word in message.split()):
    return True
  # A file may have a blank name, which is not seen.
  if any(re.fullmatch(r"--\w+=\s*", argument) for argument in arguments):
    return True
  words = set()
  for argument in arguments:
    name, _, value = argument.partition("=")
    words |= {argument, name.lstrip("-"), *value.split(","), *value.split()}
    words.add(value)
  for word in words - {""}:
    for shown in (word[:20], repr(word[:20])[1:-1]):
      # A long word is shown in part.
      end = "" if len(word) > 20 else r"(?!\w)"
      if re.search(rf"(?<!\w){re.escape(shown)}{end}", message):
        return True
  return False


def _target(program: str, base: str) -> fuzz.Target:
  def prepare(folder: str) -> Sequence[list[str]]:
    os.chdir(folder)
    return [["--help"]]

  def damage(valid: list[str]) -> st.SearchStrategy[list[str]]:
    importlib.import_module(f"official_albert.tools.{program}")
    names = st.sampled_from(_names(program))
    given = st.builds("--{}={}".format, names, st.sampled_from(_VALUES))
    bare = st.builds("{}{}".format, st.sampled_from(["--", "--no"]), names)
    others = st.sampled_from(_OTHERS)
    return st.lists(st.one_of(given, given, given, bare, others), max_size=3)

  def call(folder: str, content: list[str]) -> None:
    stdin, sys.stdin = sys.stdin, open(os.devnull, encoding="utf-8")
    try:
      fuzz.run_program(program, *base.split(), *content)
    except ValueError as error:
      assert _is_named(str(error), [*base.split(), *content]), error
      raise
    finally:
      sys.stdin = stdin

  return fuzz.Target(program, prepare, damage, call, weight=0.3)


TARGETS = tuple(_target(name, base) for name, base in _PROGRAMS.items())
