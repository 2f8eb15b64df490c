"""Tests of docs/serving: deployments against their schemas and each other.

They are valid by the specifications of Compose and Kubernetes, name only files,
flags and labels that exist, and the health check works.
"""

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
_DEVICES = ("cpu", "gpu")
_COMPOSE = "docker-compose.yml"
# Of tensorflow_serving/model_servers/main.cc in tensorflow/serving, tag 2.15.1.
_FLAGS = {
  "allow_version_labels_for_unavailable_models",
  "batching_parameters_file",
  "enable_batching",
  "model_config_file",
  "model_config_file_poll_wait_seconds",
  "monitoring_config_file",
}


def _read(name):
  return list(yaml.safe_load_all((_FILES / name).read_text()))


def _deployment_and_service():
  return _read("cpu/kubernetes.yaml")


def _container():
  deployment, _ = _deployment_and_service()
  (container,) = deployment["spec"]["template"]["spec"]["containers"]
  return container


@pytest.mark.parametrize("device", _DEVICES)
def test_compose_files_are_valid(device):
  schemas = pytest.importorskip("check_jsonschema.builtin_schemas")
  jsonschema = pytest.importorskip("jsonschema")
  schema = schemas.get_builtin_schema("vendor.compose-spec")
  jsonschema.Draft7Validator(schema).validate(_read(f"{device}/{_COMPOSE}")[0])


def test_kubernetes_manifests_are_valid():
  """By the types of lightkube, which are generated from Kubernetes'."""
  pytest.importorskip("lightkube.models")
  strictly = pydantic.ConfigDict(extra="forbid", strict=True)
  (overlay,) = _read("gpu/kustomization.yaml")
  (patch,) = overlay["patches"]
  patch = yaml.safe_load(patch["patch"])
  patch["spec"]["selector"] = {}  # It is merged into the deployment.
  for content in (*_deployment_and_service(), patch):
    module = content["apiVersion"].replace("/", "_")
    module = module if "_" in module else f"core_{module}"
    module = importlib.import_module(f"lightkube.models.{module}")
    kind = getattr(module, content["kind"])
    # Only types that are not dataclasses take a configuration.
    adapter = pydantic.TypeAdapter(list[kind], config=strictly)
    adapter.validate_json(json.dumps([content]))
  content["spec"]["replica"] = 2
  with pytest.raises(ValueError, match=r"spec\.replica\n *Unexpected keyword"):
    adapter.validate_json(json.dumps([content]))


def test_the_gpu_differs_by_its_image():
  _, (overlay,) = (_read(f"{x}/kustomization.yaml") for x in _DEVICES)
  patch = yaml.safe_load(overlay["patches"][0]["patch"])
  (changes,) = patch["spec"]["template"]["spec"]["containers"]
  (compose,), (extended,) = (_read(f"{x}/{_COMPOSE}") for x in _DEVICES)
  assert set(extended["services"]) == set(compose["services"])
  image = compose["services"]["serving"]["image"]
  assert image == _container()["image"]
  gpu_image = extended["services"]["serving"]["image"]
  assert f"{image}-gpu" == changes["image"] == gpu_image


def test_flags_name_files_of_exports_and_of_the_folder():
  (compose,) = _read(f"cpu/{_COMPOSE}")
  arguments = compose["services"]["serving"]["command"]
  assert arguments == _container()["args"]
  given = dict(re.match("--(.+?)=(.+)", x).groups() for x in arguments)
  assert set(given) == _FLAGS
  (files,) = _read("cpu/kustomization.yaml")[0]["configMapGenerator"]
  for name in ("model", "monitoring"):
    path = pathlib.PurePosixPath(given[f"{name}_config_file"])
    assert str(path.parent) == "/config" and path.name in files["files"]
  # Not that of a version, which would have to stay.
  name = "batching_parameters.txt"
  assert given["batching_parameters_file"] == f"/config/{name}"
  assert name in files["files"]


def test_configs_are_those_of_tf_serving():
  server = pytest.importorskip(
    "tensorflow_serving.config.model_server_config_pb2"
  )
  models = text_format.Parse(
    (_FILES / "cpu" / "models.config").read_text(), server.ModelServerConfig()
  )
  (model,) = models.model_config_list.config
  versions = model.model_version_policy.specific.versions
  labels = dict(model.version_labels)
  assert labels == {"stable": 1, "canary": 2} and list(versions) == [1, 2]
  ready = f"/v1/models/{model.name}/labels/stable/metadata"
  for probe in ("startupProbe", "readinessProbe"):
    assert _container()[probe]["httpGet"]["path"] == ready
  assert f"GET {ready} " in _health_check()[-1]
  (jobs,) = _read("cpu/prometheus.yml")
  path = jobs["scrape_configs"][0]["metrics_path"]
  # tensorflow-serving-api lacks the class of MonitoringConfig.
  assert (_FILES / "cpu" / "monitoring.config").read_text() == (
    f'prometheus_config {{ enable: true path: "{path}" }}\n'
  )
  deployment, _ = _deployment_and_service()
  notes = deployment["spec"]["template"]["metadata"]["annotations"]
  assert notes["prometheus.io/path"] == path


def _health_check():
  (compose,) = _read(f"cpu/{_COMPOSE}")
  return compose["services"]["serving"]["healthcheck"]["test"]


@pytest.mark.parametrize("is_ready", [True, False])
def test_the_health_check_tells_whether_a_model_is_loaded(is_ready):
  class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
      assert self.path == "/v1/models/stars/labels/stable/metadata"
      self.send_response(200 if is_ready else 404)
      self.end_headers()
      self.wfile.write(json.dumps({}).encode())

    def log_message(self, *unused):
      pass

  with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    kind, *command = _health_check()
    assert kind == "CMD"
    command[-1] = command[-1].replace("8501", str(server.server_address[1]))
    done = subprocess.run(command, capture_output=True, timeout=20)
    server.shutdown()
    thread.join()
  assert (done.returncode == 0) == is_ready, done
