"""Which module may import which, and what every module comes with.

    level 2   tools/                         may import everything
    level 1   tasks/                         tasks/a never imports tasks/b, but
                                             what stands in tasks/ itself
    level 0   official_albert/  tfrecords/   never each other

`tools/layering_test.py` holds this repository to it.
"""

from __future__ import annotations

import fnmatch
import pathlib
import re
import sys
import sysconfig
from typing import Mapping, Union

from tools import import_graph

_MAX_LINES = 600

_ROOM_MAY_IMPORT = {
  "official_albert": ("official_albert",),
  "tfrecords": ("tfrecords",),
  "tasks": ("official_albert", "tfrecords", "tasks"),
  "tools": import_graph.ROOMS,
}
# What a module may import of this repository; its test may import more.
_MAY_IMPORT = {
  "official_albert/config.py": (),
  "official_albert/text_offsets.py": (),
  "official_albert/wordpiece.py": ("official_albert/text_offsets.py",),
  "official_albert/tokenization.py": (
    "official_albert/text_offsets.py",
    "official_albert/wordpiece.py",
  ),
  "official_albert/plain_operations.py": (),
  "official_albert/fused_ops.py": ("official_albert/plain_operations.py",),
  "official_albert/layers/*": (
    "official_albert/config.py",
    "official_albert/fused_ops.py",
    "official_albert/layers/*",
  ),
  "official_albert/heads.py": (
    "official_albert/config.py",
    "official_albert/layers/*",
  ),
  "official_albert/model.py": (
    "official_albert/config.py",
    "official_albert/layers/*",
    "official_albert/heads.py",
    # `AlbertModel.from_checkpoint` is where people look for it. The readers
    # know names and files, and no model.
    "official_albert/pretrained.py",
    "official_albert/safe_archives.py",
  ),
  "official_albert/checkpoint_names.py": ("official_albert/config.py",),
  "official_albert/portable_checkpoint.py": (
    "official_albert/config.py",
    "official_albert/checkpoint_names.py",
  ),
  "official_albert/safe_archives.py": (),
  "official_albert/safetensors_files.py": (),
  "tfrecords/schemas.py": (),
}
# `training` knows only the Task protocol of `objective`.
_MODEL_SIDE = (
  "official_albert/model.py",
  "official_albert/pretrained.py",
  "official_albert/heads.py",
  "official_albert/layers/*",
  "official_albert/text_offsets.py",
  "official_albert/tokenization.py",
  "official_albert/wordpiece.py",
  "official_albert/text_layers.py",
  "official_albert/wordpiece_text_layer.py",
  "official_albert/offset_text_layer.py",
)
_NEVER_IMPORTS = {
  "official_albert/training.py": _MODEL_SIDE,
  "tfrecords/writer.py": ("tfrecords/reader.py",),
  "tfrecords/reader.py": ("tfrecords/writer.py",),
  **{
    f"official_albert/{name}.py": (*_MODEL_SIDE, "official_albert/training.py")
    for name in (
      "optimization",
      "checkpoints",
      "distribution",
      "train_config",
    )
  },
}
# Inside a task, from what is known first to what is known last.
_TASK_ORDER = (
  ("documents", "masking"),
  ("examples",),
  ("metrics",),
  ("model",),
  ("task", "serving"),
  ("recipes",),
)

# Other people's packages that have a home, and the homes.
_HOMES = {
  "absl.flags": ("tools/*",),
  # An extra, in requirements-beam.txt.
  "apache_beam": ("tasks/*/beam_*.py",),
  "absl.app": ("tools/*",),
  # In an environment of their own, see requirements-tpu-compile.txt.
  "jax": ("tools/tpu_compiler.py",),
  "jaxlib": ("tools/tpu_compiler.py",),
  "matplotlib": ("tools/*",),
  # The peers' own virtual environments.
  "keras_hub": ("tools/peer_*.py",),
  "official": ("tools/peer_*.py",),
  "torch": ("tools/peer_*.py",),
  "transformers": ("tools/peer_*.py",),
  "safetensors": ("official_albert/safetensors_files.py",),
  "sentencepiece": (
    "official_albert/hf_tokenizer.py",
    "official_albert/tokenization.py",
    "official_albert/toy_vocabulary.py",
    "tools/train_vocabulary.py",
  ),
  "tensorflow_addons": (
    "official_albert/optimization.py",
    "tasks/text_metrics.py",
  ),
  "tensorflow_text": (
    "official_albert/text_layers.py",
    "official_albert/wordpiece_text_layer.py",
    # They measure exports, whose operations these are.
    "tools/peer_serving_official_albert.py",
    "tools/serving_load.py",
  ),
  "google_crc32c": ("tfrecords/writer.py",),
  "sentencex": ("tasks/pretraining/sentence_splitting.py",),
  "zstandard": ("tasks/pretraining/input_files.py",),
}
_WITHOUT_TENSORFLOW = (
  "official_albert/__init__.py",
  "official_albert/checkpoint_names.py",
  "official_albert/checkpoint_surgery.py",
  "official_albert/config.py",
  "official_albert/hf_config.py",
  "official_albert/hf_tokenizer.py",
  "official_albert/piece_cutting.py",
  "official_albert/portable_checkpoint.py",
  "official_albert/safe_archives.py",
  "official_albert/safetensors_files.py",
  "official_albert/text_offsets.py",
  "official_albert/tokenization.py",
  "official_albert/wordpiece.py",
  "tfrecords/schemas.py",
  "tasks/squad/decoding.py",
  "tasks/squad/ensemble.py",
  "tasks/squad/metrics.py",
  "tasks/squad/recipes.py",
  "tasks/*/examples.py",
  "tasks/text_examples.py",
  "tasks/text_metrics.py",
  "tasks/squad/windows.py",
  "tasks/*/documents.py",
  "tasks/*/build_worker.py",
  "tasks/*/masking.py",
  "tasks/pretraining/flops.py",
  "tools/inspect_model.py",
)
_TENSORFLOW = ("tensorflow", "tensorflow_text", "tensorflow_addons", "keras")
# Where the name to install is not the name to import.
_IMPORT_NAMES = {
  "absl-py": "absl",
  "grpcio": "grpc",
  "protobuf": "google",
  "scikit-learn": "sklearn",
  "tensorflow-serving-api": "tensorflow_serving",
  "tf-models-official": "official",
}


def _matches(path: str, patterns: tuple[str, ...]) -> bool:
  return any(fnmatch.fnmatch(path, pattern) for pattern in patterns)


def check_levels(modules: Mapping[str, import_graph.Module]) -> list[str]:
  """Between the rooms, tests included; and relative imports."""
  problems = []
  for module in modules.values():
    room, *rest = module.path.split("/")
    for imported in module.imports:
      if imported.relative:
        problems.append(
          f"{module.path} imports {imported.name} by a relative name: write "
          "it from the root."
        )
      if imported.path is None or imported.path == module.path:
        continue
      other, *other_rest = imported.path.split("/")
      if other not in _ROOM_MAY_IMPORT[room]:
        problems.append(
          f"{module.path} imports {imported.path}: {room} may import "
          f"{', '.join(_ROOM_MAY_IMPORT[room])} only."
        )
      if room != "tasks" or other != "tasks":
        continue
      # `tasks/__init__.py` alone knows all tasks; the other modules of tasks/
      # itself are what several tasks need.
      shared = len(other_rest) == 1 and other_rest[0] != "__init__.py"
      if len(rest) > 1 and not shared and other_rest[0] != rest[0]:
        problems.append(
          f"{module.path} imports {imported.path}: a task never imports "
          "another; what both need belongs to tasks/ or official_albert."
        )
      free = module.is_test or module.is_package
      if len(rest) == 1 and len(other_rest) > 1 and not free:
        problems.append(
          f"{module.path} imports {imported.path}: what several tasks need "
          "knows none of them."
        )
  return problems


def _task_rank(path: str) -> Union[int, None]:
  name = pathlib.PurePosixPath(path).stem
  for rank, names in enumerate(_TASK_ORDER):
    if name in names:
      return rank
  return None


def check_order_in_rooms(
  modules: Mapping[str, import_graph.Module],
) -> list[str]:
  """Inside official_albert, tfrecords and each task; tests are free."""
  problems = []
  for module in modules.values():
    if module.is_test:
      continue
    for path in module.imported_paths:
      for pattern, allowed in _MAY_IMPORT.items():
        if _matches(module.path, (pattern,)) and not _matches(path, allowed):
          names = ", ".join(allowed) or "nothing of this repository"
          problems.append(
            f"{module.path} imports {path}: it may import {names}."
          )
      if _matches(path, _NEVER_IMPORTS.get(module.path, ())):
        problems.append(f"{module.path} imports {path}, which it may not know.")
      own, other = _task_rank(module.path), _task_rank(path)
      same_task = module.path.startswith("tasks/") and (
        module.path.rsplit("/", 1)[0] == path.rsplit("/", 1)[0]
      )
      if same_task and None not in (own, other) and 0 < own <= other:
        problems.append(f"{module.path} imports {path}, which stands above it.")
  return problems


def check_no_cycles(modules: Mapping[str, import_graph.Module]) -> list[str]:
  """No module imports itself by way of others; imports in functions count."""
  problems = []
  done: set[str] = set()

  def visit(path: str, way: tuple[str, ...]) -> None:
    if path in way:
      cycle = (*way[way.index(path) :], path)
      problems.append(f"Modules import each other: {' -> '.join(cycle)}.")
    elif path not in done:
      for next_path in modules[path].imported_paths:
        visit(next_path, (*way, path))
      done.add(path)

  for path in modules:
    visit(path, ())
  return problems


def check_third_parties(
  modules: Mapping[str, import_graph.Module], requirements: str
) -> list[str]:
  """Homes, modules without TensorFlow, and nothing that is not required.

  Args:
    modules: the tree.
    requirements: the text of the requirements files.
  """
  required = {
    _IMPORT_NAMES.get(name, name.replace("-", "_"))
    for name in re.findall(
      r"^([\w-]+)(?:\[\w+\])?==", requirements, re.MULTILINE
    )
  }
  known = (
    required | _standard_library() | set(import_graph.ROOMS) | {"__future__"}
  )
  problems = []
  for module in modules.values():
    for imported in module.imports:
      if imported.path is not None or imported.relative:
        continue
      if imported.name.split(".")[0] not in known:
        problems.append(
          f"{module.path} imports {imported.name}, which is in no "
          "requirements file."
        )
      for package, homes in _HOMES.items():
        inside = f"{imported.name}.".startswith(f"{package}.")
        if inside and not module.is_test and not _matches(module.path, homes):
          problems.append(
            f"{module.path} imports {imported.name}, which belongs to "
            f"{', '.join(homes)}."
          )
    if _matches(module.path, _WITHOUT_TENSORFLOW):
      for path in sorted(_loaded_with(module.path, modules)):
        for imported in modules[path].imports:
          if imported.at_start and imported.name.split(".")[0] in _TENSORFLOW:
            problems.append(
              f"{module.path} has to work without TensorFlow, but {path} "
              f"imports {imported.name}."
            )
  return problems


def _loaded_with(
  start: str, modules: Mapping[str, import_graph.Module]
) -> set[str]:
  """The files of the repository that importing `start` runs."""
  found: set[str] = set()
  pending = [start]
  while pending:
    path = pending.pop()
    if path in found or path not in modules:
      continue
    found.add(path)
    parents = [str(p) for p in pathlib.PurePosixPath(path).parents][:-1]
    pending += [f"{parent}/__init__.py" for parent in parents]
    pending += [i.path for i in modules[path].imports if i.path and i.at_start]
  return found


def _standard_library() -> frozenset[str]:
  """Names of its top-level modules, on Python 3.9 too."""
  names = getattr(sys, "stdlib_module_names", None)
  if names is None:
    folder = pathlib.Path(sysconfig.get_path("stdlib"))
    files = [*folder.iterdir(), *(folder / "lib-dynload").glob("*")]
    names = {path.name.split(".")[0] for path in files}
    names |= set(sys.builtin_module_names)
  return frozenset(names)


def check_files(modules: Mapping[str, import_graph.Module]) -> list[str]:
  """Test files run themselves; no long files, no utils."""
  problems = []
  for module in modules.values():
    path = module.path
    lines = module.text.count("\n")
    if lines > _MAX_LINES:
      problems.append(
        f"{path} has {lines} lines, over {_MAX_LINES}: it tells more than one "
        "story."
      )
    if path.endswith("/utils.py"):
      problems.append(f"{path}: a file is named after the story it tells.")
    if (
      path.endswith("_test.py") and "pytest.main([__file__]" not in module.text
    ):
      problems.append(
        f"{path} does not end with pytest.main([__file__]): Bazel would run "
        "none of its tests."
      )
  return problems


def check_all(root: pathlib.Path) -> list[str]:
  """Every problem of the repository at `root`, one sentence each."""
  modules = import_graph.read_tree(root)
  requirements = "".join(
    (root / name).read_text(encoding="utf-8")
    for name in (
      "requirements.txt",
      "requirements-dev.txt",
      "requirements-beam.txt",
      "requirements-tpu-compile.txt",
      *sorted(
        path.relative_to(root) for path in root.glob("tools/peers/*.txt")
      ),
    )
  )
  return [
    *check_levels(modules),
    *check_order_in_rooms(modules),
    *check_no_cycles(modules),
    *check_third_parties(modules, requirements),
    *check_files(modules),
  ]
