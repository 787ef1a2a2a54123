"""What the test asks of the API server, over HTTP: no kubectl."""

import json
import pathlib
import ssl
import urllib.error
import urllib.request

import yaml

TOKEN = "test"
# Path of a kind's objects; {0}: the namespace.
PATHS = {"Namespace": "/api/v1/namespaces", "Node": "/api/v1/nodes",
         "ConfigMap": "/api/v1/namespaces/{0}/configmaps", "Pod": "/api/v1/namespaces/{0}/pods",
         "ServiceAccount": "/api/v1/namespaces/{0}/serviceaccounts",
         "DaemonSet": "/apis/apps/v1/namespaces/{0}/daemonsets"}


def read_kustomization(folder):
    """The objects that `kubectl apply -k FOLDER` would create, where it only names files and a namespace."""
    folder = pathlib.Path(folder)
    order = yaml.safe_load((folder / "kustomization.yaml").read_text())
    unknown = set(order) - {"apiVersion", "kind", "resources", "namespace"}
    if unknown:
        raise AssertionError(f"{folder}/kustomization.yaml: this test does not know what {unknown} would do")
    return [found for name in order["resources"]
            for found in yaml.safe_load_all((folder / name).read_text()) if found]


class Api:
    SERVER = "https://127.0.0.1:6443"

    def __init__(self):
        self.context = ssl._create_unverified_context()  # the server's certificate is made at its start

    def ask(self, method, path, body=None, content_type="application/json"):
        request = urllib.request.Request(
            self.SERVER + path, method=method, data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": content_type})
        try:
            with urllib.request.urlopen(request, timeout=180, context=self.context) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise AssertionError(f"{method} {path}: {error.code}: {error.read().decode()[:2000]}") from error

    def is_ready(self):
        request = urllib.request.Request(self.SERVER + "/readyz", headers={"Authorization": f"Bearer {TOKEN}"})
        try:
            with urllib.request.urlopen(request, timeout=10, context=self.context) as answer:
                return answer.status == 200
        except OSError:
            return False

    @staticmethod
    def path(kind, name, namespace):
        return f"{PATHS[kind].format(namespace)}/{name}"

    def apply(self, found):
        """Server-side apply: creates or changes; refuses a field that the server does not know."""
        metadata = found["metadata"]
        path = self.path(found["kind"], metadata["name"], metadata.get("namespace"))
        return self.ask("PATCH", path + "?fieldManager=test&force=true", found, "application/apply-patch+yaml")

    def find(self, kind, name, namespace=None):
        return self.ask("GET", self.path(kind, name, namespace))

    def list(self, kind, namespace):
        return self.ask("GET", PATHS[kind].format(namespace))["items"]

    def delete(self, kind, name, namespace=None):
        self.ask("DELETE", self.path(kind, name, namespace))

    @staticmethod
    def is_condition(name, found):
        """Whether the object has that condition and it is true."""
        conditions = (found or {}).get("status", {}).get("conditions", [])
        return any(row["type"] == name and row["status"] == "True" for row in conditions)
