"""Tests of model cards, and of the upload to a server on this machine."""

from __future__ import annotations

import base64
import http.server
import json
import os
import shutil
import sys
import threading

import pytest
import yaml

from official_albert import checkpoints
from official_albert.testing import toy_models
from official_albert.tools.conversion import conversion, model_card
from official_albert.tools.testing import toy_runs

_TF1 = str(toy_models.GOLDEN / "one_group" / "model.ckpt")


class _Hub(http.server.BaseHTTPRequestHandler):
  """Answers like the Hugging Face Hub, and keeps what it was sent."""

  # The paths of requests, the uploaded files, and the path that fails.
  asked: list[str] = []
  uploaded: dict[str, bytes] = {}
  fails = "no path"

  def _answer(self) -> None:
    content = self.rfile.read(int(self.headers.get("content-length") or 0))
    path, answer = self.path, {}
    address = f"http://{self.headers['host']}/team/toy"
    self.asked.append(path)
    if path == "/api/whoami-v2":
      assert self.headers["authorization"] == "Bearer hf_secret"
      answer = {"name": "team", "type": "user"}
    elif path == "/api/repos/create":
      asked = json.loads(content)
      assert (asked["organization"], asked["name"]) == ("team", "toy")
      assert asked.get("visibility") == "private" or asked["private"]
      answer = {"url": address}
    elif "/preupload/" in path:
      mode = {"uploadMode": "regular", "shouldIgnore": False}
      found = json.loads(content)["files"]
      answer = {"files": [{"path": x["path"], **mode} for x in found]}
    elif "/commit/" in path:
      commit = "f" * 40
      answer = {"commitUrl": f"{address}/commit/{commit}", "commitOid": commit}
      for line in map(json.loads, content.splitlines()):
        if line["key"] == "file":
          value = line["value"]
          self.uploaded[value["path"]] = base64.b64decode(value["content"])
    reply = json.dumps(answer).encode()
    self.send_response(403 if self.fails in path else 200)
    self.send_header("content-type", "application/json")
    self.send_header("content-length", str(len(reply)))
    self.end_headers()
    self.wfile.write(reply)

  do_GET = do_POST = do_HEAD = _answer

  def log_message(self, *arguments) -> None:
    pass


@pytest.fixture
def hub(monkeypatch):
  constants = pytest.importorskip("huggingface_hub.constants")
  server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
  threading.Thread(target=server.serve_forever, daemon=True).start()
  address = f"http://127.0.0.1:{server.server_port}"
  monkeypatch.setattr(constants, "ENDPOINT", address)
  for name in ("huggingface_hub.hf_api", "huggingface_hub.utils._hf_uris"):
    if hasattr(sys.modules.get(name), "ENDPOINT"):
      monkeypatch.setattr(sys.modules[name], "ENDPOINT", address)
  monkeypatch.setenv("HF_TOKEN", "hf_secret")
  for name, value in (("asked", []), ("uploaded", {}), ("fails", "no path")):
    monkeypatch.setattr(_Hub, name, value)
  yield address
  server.shutdown()


def _convert(path, output, **options):
  return conversion.convert("hf", str(path), str(output), **options)


def _metadata(folder):
  _, head, text = (folder / "README.md").read_text().split("---\n", 2)
  return yaml.safe_load(head), text


def test_the_card_of_a_fine_tuned_model(tmp_path):
  run = tmp_path / "run"
  toy_runs.write_finetuned(str(run), "text_multi_label", ("x", "y", "z"))
  scores = {"micro_f1": 0.7345454, "x threshold": 0.69, "nothing": float("nan")}
  (run / "eval_results.json").write_text(json.dumps({"dev": scores}))
  card = model_card.Card(
    "apache-2.0", "en, de", "team/base", "go_emotions,mine"
  )
  _convert(run, tmp_path / "hf", card=card)
  values, text = _metadata(tmp_path / "hf")
  assert values == {
    "library_name": "transformers",
    "pipeline_tag": "text-classification",
    "tags": ["albert"],
    "license": "apache-2.0",
    "language": ["en", "de"],
    "base_model": "team/base",
    "datasets": ["go_emotions", "mine"],
    "model-index": [
      {
        "name": "hf",
        "results": [
          {
            "task": {"type": "text-classification"},
            "dataset": {
              "name": "text_multi_label",
              "type": "go_emotions",
              "split": "dev",
            },
            "metrics": [{"type": "micro_f1", "value": 0.7345454}],
          }
        ],
      }
    ],
  }
  assert "import AutoTokenizer, AlbertForSequenceClassification" in text
  assert "go_emotions, mine" in text and "{" not in text
  # The scores are not those of another checkpoint, or of the encoder.
  for path in run.glob("model.ckpt-1.*"):
    shutil.copy(path, str(path).replace("ckpt-1", "ckpt-0"))
  cases = (run / "model.ckpt-0", {}), (run, {"head": "none"})
  for i, (path, options) in enumerate(cases):
    folder = tmp_path / str(i)
    _convert(path, folder, **options)
    assert "model-index" not in _metadata(folder)[0]
  kind = _metadata(tmp_path / "1")[0]["pipeline_tag"]
  assert kind == "feature-extraction"


def test_a_card_is_read_by_the_library_of_the_hub(tmp_path):
  library = pytest.importorskip("huggingface_hub")
  # YAML of its own would be another value.
  card = model_card.Card(license="mit: [no", language="no,1")
  _convert(_TF1, tmp_path / "hf", card=card)
  data = library.ModelCard.load(tmp_path / "hf" / "README.md").data
  assert data.license == "mit: [no" and data.language == ["no", "1"]
  assert data.pipeline_tag == "fill-mask" and data.eval_results is None
  assert "model-index" not in _metadata(tmp_path / "hf")[0]


@pytest.mark.parametrize("head", sorted(checkpoints.ARCHITECTURES))
def test_each_head_has_a_pipeline(head):
  name = checkpoints.ARCHITECTURES[head]
  is_classifier = name == "AlbertForSequenceClassification"
  assert (head in model_card._PIPELINES) != is_classifier


def test_a_folder_is_pushed(hub, tmp_path):
  output = tmp_path / "out"
  report = _convert(_TF1, output, push_to="team/toy")
  assert report["pushed_to"] == f"{hub}/team/toy"
  files = {x: (output / x).read_bytes() for x in os.listdir(output)}
  assert str(tmp_path).encode() in files.pop("conversion.json")
  assert _Hub.uploaded == files and "model.safetensors" in files
  assert b"# team/toy\n" in files["README.md"]
  assert not any(str(tmp_path).encode() in x for x in files.values())


def test_a_push_that_fails_is_one_sentence(hub, tmp_path, monkeypatch):
  _Hub.fails = "/commit/"
  output = tmp_path / "out"
  with pytest.raises(OSError, match="is written, but .* team/toy .*`hf upload"):
    _convert(_TF1, output, push_to="team/toy")
  assert (output / "model.safetensors").exists()
  # The rest is refused before any work.
  _Hub.fails = "whoami"

  def refused(push_to, message, error=ValueError):
    with pytest.raises(error, match=message):
      _convert(_TF1, tmp_path / "new", push_to=push_to)
    assert not (tmp_path / "new").exists()

  monkeypatch.setattr(checkpoints, "open", pytest.fail)
  refused("team/toy", "no login to .*403.*hf auth login", OSError)
  for name in ("toy", "a/b/c", "a/b c"):
    refused(name, f"--push_to={name} is not USER/NAME")
  monkeypatch.delenv("HF_TOKEN")
  constants = sys.modules["huggingface_hub.constants"]
  monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
  refused("team/toy", "no login to .*`hf auth login`, set HF_T", OSError)
  monkeypatch.setitem(sys.modules, "huggingface_hub", None)
  refused("team/toy", "--push_to needs .*pip install huggingface_hub")
  for options in ({"push_to": "a/b"}, {"card": model_card.Card("mit")}):
    with pytest.raises(ValueError, match="need --to=hf"):
      conversion.convert("tf1", _TF1, str(tmp_path / "new"), **options)
