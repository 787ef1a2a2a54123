"""The pods that the test looks at: the daemon's, and those of workloads."""

import json
import pathlib
import re
import subprocess
import urllib.request

import yaml

import images
from gpuperf_system import SOURCE, run_ctl

DEPLOY = SOURCE / "deploy"
OWN, TEAM = "gpuperf", "team-a"  # namespaces: the daemon's, the workloads'
SIGNALS = pathlib.Path("/run/signals")  # files that workloads wait for
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class DaemonPod:
    """The DaemonSet's pod, once it is Ready, and its process."""

    def __init__(self, node):
        self.pod = node.wait_for("the DaemonSet's pod is Ready", lambda: self.find(node.api), 300)
        self.status = self.pod["status"]["containerStatuses"][0]
        self.container = self.status["containerID"].removeprefix("containerd://")
        (self.pid,) = [int(path.parent.name) for path in pathlib.Path("/proc").glob("[0-9]*/cgroup")
                       if self.owns(path)]

    @staticmethod
    def find(api):
        pods = [pod for pod in api.list("Pod", OWN) if "deletionTimestamp" not in pod["metadata"]]
        return pods[0] if len(pods) == 1 and api.is_condition("Ready", pods[0]) else None

    def owns(self, cgroup):
        try:
            return self.container in cgroup.read_text() and \
                (cgroup.parent / "comm").read_text().strip() == "gpuperfd"
        except OSError:  # gone
            return False

    def fetch(self, path):
        address = f"http://{self.pod['status']['podIP']}:9465{path}"
        with urllib.request.urlopen(address, timeout=30) as answer:
            return answer.status, answer.read().decode()

    def series(self, metric, pod):
        """[(labels, value)] of a metric in the pod of the workloads' namespace."""
        rows = [(dict(LABEL.findall(line)), float(line.rsplit(" ", 1)[1]))
                for line in self.fetch("/metrics")[1].splitlines() if line.startswith(metric + "{")]
        return [row for row in rows if (row[0]["namespace"], row[0]["pod"]) == (TEAM, pod)]

    def query(self, *arguments):
        return json.loads(run_ctl("--address", "unix:/run/gpuperf/api.sock", *arguments, "-o", "json").stdout)

    def bpf_ids(self):
        """Maps, programs and links that this process holds, as (kind, id)."""
        texts = [path.read_text() for path in pathlib.Path(f"/proc/{self.pid}/fdinfo").iterdir()]
        return {(kind, int(number)) for text in texts
                for kind, number in re.findall(r"^(map|prog|link)_id:\s+(\d+)", text, re.M)}


def list_bpf():
    """All that is in the kernel, as (kind, id)."""
    return {(kind, row["id"]) for kind in ("map", "prog", "link")
            for row in json.loads(subprocess.run(["bpftool", "--json", kind, "show"], capture_output=True,
                                                 check=True).stdout)}


class Workload:
    """A pod of one container, as nobody in particular; it begins when told."""

    def __init__(self, node, name, command, pod=None):
        self.node = node
        self.name = name
        found = pod or {"apiVersion": "v1", "kind": "Pod", "spec": {"restartPolicy": "Never", "containers": [{}]}}
        found["metadata"] = {"name": name, "namespace": TEAM}
        spec = found["spec"]
        spec |= {"automountServiceAccountToken": False, "terminationGracePeriodSeconds": 1}
        spec["volumes"] = spec.get("volumes", []) + [{"name": "signals", "hostPath": {"path": str(SIGNALS)}}]
        container = spec["containers"][0]
        container |= {"name": "train", "image": images.WORKLOADS, "imagePullPolicy": "Never", "command": command,
                      "securityContext": {"runAsUser": 1000, "allowPrivilegeEscalation": False}}
        limits = container.get("resources", {}).get("limits", {})
        limits.pop("nvidia.com/gpu", None)  # there is none
        # What `kubectl create` sends may be a number; server-side apply of Kubernetes 1.20 refuses one.
        limits.update({name: str(quantity) for name, quantity in limits.items()})
        container["volumeMounts"] = container.get("volumeMounts", []) + [
            {"name": "signals", "mountPath": str(SIGNALS)}]
        node.api.apply(found)

    def begin(self):
        (SIGNALS / self.name).touch()

    def status(self):
        return self.node.api.find("Pod", self.name, TEAM)["status"]

    def phase(self):
        return self.status().get("phase")

    def container_id(self):
        """Once the API server has it: the kubelet tells a moment after the container has begun."""
        (found,) = self.node.wait_for(f"{self.name} has a container", lambda: [
            row["containerID"] for row in self.status().get("containerStatuses", []) if "containerID" in row])
        return found.removeprefix("containerd://")

    def finish(self):
        """The lines of JSON that it printed; it must succeed."""
        self.node.wait_for(f"{self.name} ends", lambda: self.phase() in ("Succeeded", "Failed"), 120)
        (log,) = pathlib.Path("/var/log/pods").glob(f"{TEAM}_{self.name}_*/train/0.log")
        lines = [line.split(" ", 3)[3] for line in log.read_text().splitlines()]
        if self.phase() != "Succeeded":
            raise AssertionError(f"{self.name}: {lines}")
        return [json.loads(line) for line in lines if line.startswith("{")]


def start_injected(node, name, example):
    """A pod as in an example of ours, with a program of the fake driver and CUPTI that launches 80 kernels."""
    script = ("{ echo init; until [ -e $FILE ]; do sleep 0.1; done; echo launch 40 2; echo truth; "
              "until [ -e $FILE.end ]; do sleep 0.1; done; echo quit exit; } | /app/workloads/injected")
    pod = yaml.safe_load((DEPLOY / "examples" / example).read_text())
    container = pod["spec"]["containers"][0]
    container["env"] = container.get("env", []) + [
        {"name": "FILE", "value": str(SIGNALS / name)},
        {"name": "LD_LIBRARY_PATH", "value": "/app/fakes/cupti:/app/fakes/cupti/cupti_13"},
        {"name": "GPUPERF_INIT_WAIT_MS", "value": "5000"}]  # a busy machine answers late
    return Workload(node, name, ["sh", "-c", script], pod)
