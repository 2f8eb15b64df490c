"""Tests of docs/serving: valid by their schemas, and naming what exists."""

from __future__ import annotations

import http.server
import importlib
import json
import pathlib
import re
import subprocess
import threading

import pydantic
import pytest
from google.protobuf import text_format

yaml = pytest.importorskip("yaml")

_FILES = pathlib.Path(__file__).parents[2] / "docs" / "serving"
_READY = "/v1/models/stars/labels/stable/metadata"


def _read(name):
  return list(yaml.safe_load_all((_FILES / name).read_text()))


def _serving(device):
  return _read(f"{device}/docker-compose.yml")[0]["services"]["serving"]


def _patch():
  (overlay,) = _read("gpu/kustomization.yaml")
  return yaml.safe_load(overlay["patches"][0]["patch"])


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_compose_files_are_valid(device):
  schemas = pytest.importorskip("check_jsonschema.builtin_schemas")
  jsonschema = pytest.importorskip("jsonschema")
  validator = jsonschema.Draft7Validator(
    schemas.get_builtin_schema("vendor.compose-spec")
  )
  validator.validate(_read(f"{device}/docker-compose.yml")[0])


def test_kubernetes_manifests_are_valid():
  """By the types of lightkube, which are generated from Kubernetes'."""
  pytest.importorskip("lightkube.models")
  strictly = pydantic.ConfigDict(extra="forbid", strict=True)
  patch = _patch()
  patch["spec"]["selector"] = {}  # It is merged into the deployment.
  for content in (*_read("cpu/kubernetes.yaml"), patch):
    module = content["apiVersion"].replace("/", "_")
    module = module if "_" in module else f"core_{module}"
    module = importlib.import_module(f"lightkube.models.{module}")
    kind = getattr(module, content["kind"])
    # Only types that are not dataclasses take a configuration.
    adapter = pydantic.TypeAdapter(list[kind], config=strictly)
    adapter.validate_json(json.dumps([content]))


def test_the_files_agree():
  deployment, _ = _read("cpu/kubernetes.yaml")
  pod = deployment["spec"]["template"]
  (container,) = pod["spec"]["containers"]
  serving = _serving("cpu")
  assert serving["image"] == container["image"]
  (changes,) = _patch()["spec"]["template"]["spec"]["containers"]
  gpu_image = _serving("gpu")["image"]
  assert f"{serving['image']}-gpu" == changes["image"] == gpu_image
  assert serving["command"] == container["args"]
  (config_map,) = _read("cpu/kustomization.yaml")[0]["configMapGenerator"]
  given = (re.match("--.+=/config/(.+)", x) for x in serving["command"])
  files = {match[1] for match in given if match}
  assert files and files <= {*config_map["files"]}
  assert all((_FILES / "cpu" / name).is_file() for name in files)
  for probe in ("startupProbe", "readinessProbe"):
    assert container[probe]["httpGet"]["path"] == _READY
  (jobs,) = _read("cpu/prometheus.yml")
  path = jobs["scrape_configs"][0]["metrics_path"]
  assert pod["metadata"]["annotations"]["prometheus.io/path"] == path
  # tensorflow-serving-api lacks the class of MonitoringConfig.
  assert (_FILES / "cpu" / "monitoring.config").read_text() == (
    f'prometheus_config {{ enable: true path: "{path}" }}\n'
  )


def test_configs_are_those_of_tf_serving():
  server = pytest.importorskip(
    "tensorflow_serving.config.model_server_config_pb2"
  )
  models = text_format.Parse(
    (_FILES / "cpu" / "models.config").read_text(), server.ModelServerConfig()
  )
  (model,) = models.model_config_list.config
  assert model.name in _READY
  assert dict(model.version_labels) == {"stable": 1, "canary": 2}
  assert [*model.model_version_policy.specific.versions] == [1, 2]


@pytest.mark.parametrize("is_ready", [True, False])
def test_the_health_check_tells_whether_a_model_is_loaded(is_ready):
  class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
      self.send_response(200 if is_ready and self.path == _READY else 404)
      self.end_headers()
      self.wfile.write(b"{}")

    def log_message(self, *unused):
      pass

  with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    _, *command = _serving("cpu")["healthcheck"]["test"]
    command[-1] = command[-1].replace("8501", str(server.server_address[1]))
    done = subprocess.run(command, capture_output=True, timeout=20)
    server.shutdown()
  assert (done.returncode == 0) == is_ready, done
