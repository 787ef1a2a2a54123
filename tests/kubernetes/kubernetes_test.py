#!/usr/bin/env python3
"""gpuperf as a DaemonSet on a node of its own, by deploy/manifests as they are: what it may do there, and that
what happens in other pods is told under their names.

Needs root and GPUPERF_LONG_TESTS=1. With GPUPERF_KUBERNETES=FOLDER, which build.sh filled, a real Kubernetes runs
the pods; without, they are made on the container runtime as a kubelet would make them. See README.md."""

import json
import os
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
from gpuperf_system import BUILD, LONG

try:
    from api import read_kustomization
    from images import make_images
    from node import Node, enter_namespaces
    from pods import DEPLOY, OWN, SIGNALS, TEAM, DaemonPod, Workload, list_bpf, start_injected
    IMPORT_ERROR = None
except ImportError as error:
    IMPORT_ERROR = error

PROGRAMS = os.environ.get("GPUPERF_KUBERNETES", "")
CAPABILITIES = {"DAC_READ_SEARCH": 2, "SYS_PTRACE": 19, "PERFMON": 38, "BPF": 39}  # linux/capability.h
NODE_PROGRAMS = ("containerd", "ctr", "runc", "ip", "bpftool", "protoc", "openssl")
INSTALL = "deploy/install_packages.sh kubernetes"
PLUGINS = pathlib.Path("/var/lib/kubelet/device-plugins")
node = None


def find_obstacle():
    """Why this cannot run here; nothing where it can."""
    if not LONG:
        return "a long test: run tests/run.sh --long, or set GPUPERF_LONG_TESTS=1"
    if os.geteuid() != 0:
        return "needs root: a node is made of namespaces, mounts and control groups"
    if IMPORT_ERROR:
        return f"{IMPORT_ERROR}: {INSTALL}"
    if missing := [name for name in NODE_PROGRAMS if not shutil.which(name)]:
        return f"{', '.join(missing)} not installed: {INSTALL}"
    if PROGRAMS and not (pathlib.Path(PROGRAMS) / "bin/kube-scheduler").exists():  # built last
        return f"{PROGRAMS}/bin is not complete: tests/kubernetes/build.sh {PROGRAMS}"
    if not (BUILD / "tests/workloads/injected").exists():
        return "the fake CUPTI is not built: it needs the headers of CUPTI 13"
    return None


def setUpModule():
    global node
    node = Node(PROGRAMS)
    unittest.addModuleCleanup(node.stop)
    node.start()
    with tempfile.TemporaryDirectory(prefix="gpuperf-images-") as folder:
        for archive in make_images(pathlib.Path(folder)):
            node.import_image(archive)
    SIGNALS.mkdir()
    for found in read_kustomization(DEPLOY / "manifests"):
        node.api.apply(found)
    node.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
    node.wait_for("the workloads' service account", lambda: node.api.find("ServiceAccount", "default", TEAM))


class KubernetesTest(unittest.TestCase):
    maxDiff = None

    @staticmethod
    def wait_for_session(daemon, workload):
        (session,) = node.wait_for(f"the session of {workload.name} collects", lambda: [
            row for row in daemon.query("sessions", "list")
            if row["pod"] == workload.name and row["state"] == "collecting"], 60)
        return session

    def check_injected(self, daemon, workload):
        """Its session is open under its pod's name, and its kernels are counted under it."""
        session = self.wait_for_session(daemon, workload)
        self.assertEqual((session["namespace"], session["container"], session["uid"]),
                         (TEAM, workload.container_id()[:12], 1000))
        workload.begin()
        metric = "gpuperf_kernel_duration_seconds_count"
        rows = node.wait_for("80 kernels", lambda: sum(value for _, value in daemon.series(metric, workload.name))
                             == 80 and daemon.series(metric, workload.name), 60)
        self.assertEqual({labels["container"] for labels, _ in rows}, {workload.container_id()[:12]})
        (SIGNALS / f"{workload.name}.end").touch()
        self.assertEqual(len(workload.finish()[-1]["works"]), 80)


class DaemonSetTest(KubernetesTest):
    @classmethod
    def setUpClass(cls):
        cls.daemon = DaemonPod(node)

    def test_it_has_exactly_the_capabilities_of_the_manifest(self):
        (container,) = self.daemon.pod["spec"]["containers"]
        context = container["securityContext"]
        self.assertEqual((context["capabilities"]["drop"], sorted(context["capabilities"]["add"])),
                         (["ALL"], sorted(CAPABILITIES)))
        mask = sum(1 << number for number in CAPABILITIES.values())
        status = dict(re.findall(r"(\w+):\s+(.*)", pathlib.Path(f"/proc/{self.daemon.pid}/status").read_text()))
        self.assertEqual({name: int(status[name], 16) for name in ("CapEff", "CapPrm", "CapBnd")},
                         {"CapEff": mask, "CapPrm": mask, "CapBnd": mask})
        self.assertEqual(status["NoNewPrivs"], "1")
        (root,) = [line.split() for line in pathlib.Path(f"/proc/{self.daemon.pid}/mountinfo").read_text().splitlines()
                   if line.split()[4] == "/"]
        self.assertIn("ro", root[5].split(","))

    def test_it_is_healthy_and_was_not_restarted(self):
        for path in ("/healthz", "/readyz"):
            self.assertEqual(self.daemon.fetch(path)[0], 200, path)
        status = DaemonPod(node).status
        self.assertEqual((status["ready"], status["started"], status["restartCount"]), (True, True, 0))

    def test_calls_of_another_pod_are_counted_under_its_name(self):
        workload = Workload(node, "calls", ["/app/workloads/cuda_calls_standin", "--rounds", "30", "--seconds", "1",
                                      "--wait-for-file", str(SIGNALS / "calls")])
        node.wait_for("its libraries are probed", lambda: {"cudaMalloc", "cublasSgemm"} <= {
            row["function"] for row in self.daemon.query("probes")
            if row["state"] == "attached" and row["library"].startswith("/app/workloads/standin/")}, 120)
        workload.begin()
        (truth,) = workload.finish()

        config = json.loads((DEPLOY / "config.json").read_text())
        probed = config["cuda_func_sym"] | config["cublas_func_sym"]
        expected = {name: truth["calls"][symbol]["calls"] for name, symbol in probed.items()
                    if isinstance(symbol, str) and truth["calls"].get(symbol, {}).get("calls")}
        self.assertGreater(len(expected), 5)
        seen = {}

        def match():
            seen.clear()
            seen.update({(labels["function"], labels["container"]): value for labels, value
                         in self.daemon.series("gpuperf_function_calls_total", "calls") if value})
            return len(seen) >= len(expected) and sum(seen.values()) >= sum(expected.values())
        try:
            node.wait_for("its calls", match, 30)
        except AssertionError:
            pass  # compared below, which shows both sides
        container = workload.container_id()[:12]
        self.assertEqual(seen, {(name, container): calls for name, calls in expected.items()})

    def test_the_library_injected_by_hand_opens_a_session_under_the_pods_name(self):
        self.check_injected(self.daemon, start_injected(node, "by-hand", "pod-inject-env.yaml"))


@unittest.skipUnless(PROGRAMS, "needs a kubelet: GPUPERF_KUBERNETES names none; tests/kubernetes/build.sh builds it")
class DevicePluginTest(KubernetesTest):
    """With injection.devicePlugin.enabled, as the chart changes the objects by it, rolled out over the daemon that
    runs: the pods `before` and `asking` are older than it."""

    @classmethod
    def setUpClass(cls):
        first = DaemonPod(node)
        cls.before = start_injected(node, "before", "pod-inject-env.yaml")
        cls.wait_for_session(first, cls.before)
        cls.asking = start_injected(node, "asking", "pod-inject-device-plugin.yaml")
        node.wait_for("no node is found for it", lambda: any(
            row["type"] == "PodScheduled" and "Insufficient gpuperf.dev/inject" in row["message"]
            for row in cls.asking.status().get("conditions", [])))
        objects = {found["kind"]: found for found in read_kustomization(DEPLOY / "manifests")}
        config = json.loads(objects["ConfigMap"]["data"]["config.json"])
        config["ingest"] |= {"device_plugin": True, "injector_path": "/var/lib/gpuperf-injector/libgpuperf_injector.so"}
        objects["ConfigMap"]["data"]["config.json"] = json.dumps(config)
        spec = objects["DaemonSet"]["spec"]["template"]["spec"]
        spec["containers"][0]["volumeMounts"].append({"name": "device-plugins", "mountPath": str(PLUGINS)})
        spec["volumes"].append({"name": "device-plugins", "hostPath": {"path": str(PLUGINS), "type": "Directory"}})
        for found in (objects["ConfigMap"], objects["DaemonSet"]):
            node.api.apply(found)
        node.wait_for("the new pod", lambda: (DaemonPod.find(node.api) or first.pod)["metadata"]["uid"]
                      != first.pod["metadata"]["uid"])
        cls.daemon = DaemonPod(node)

    def test_a_pod_that_asks_for_the_resource_waits_for_it_and_is_injected(self):
        self.check_injected(self.daemon, self.asking)

    def test_a_pod_that_ran_while_the_daemon_was_replaced_is_known_to_the_next(self):
        self.check_injected(self.daemon, self.before)

    def test_pods_are_injected_before_and_after_a_restart_of_the_kubelet(self):
        older = start_injected(node, "older", "pod-inject-device-plugin.yaml")
        self.wait_for_session(self.daemon, older)
        checkpoint = PLUGINS / "kubelet_internal_checkpoint"  # written when a plugin has told of its devices
        written_ns = checkpoint.stat().st_mtime_ns

        node.restart("kubelet")
        node.wait_for("the resource is registered again", lambda: checkpoint.stat().st_mtime_ns != written_ns, 60)

        self.check_injected(self.daemon, start_injected(node, "newer", "pod-inject-device-plugin.yaml"))
        self.check_injected(self.daemon, older)


class RemovalTest(KubernetesTest):
    def test_nothing_of_it_is_left_on_the_node_when_it_is_deleted(self):
        daemon = DaemonPod(node)
        held = daemon.bpf_ids()
        self.assertEqual({kind for kind, _ in held}, {"map", "prog", "link"})

        node.api.delete("DaemonSet", "gpuperf", OWN)
        node.wait_for("its pod is gone", lambda: not node.api.list("Pod", OWN), 120)

        self.assertFalse(pathlib.Path(f"/proc/{daemon.pid}").exists())
        node.wait_for("the kernel has freed what it held", lambda: not held & list_bpf(), 60)
        # No lock, socket or token: only the folder that containers may have mounted.
        self.assertEqual([path.name for path in pathlib.Path("/run/gpuperf").rglob("*")], ["ingest"])
        self.assertEqual(list(PLUGINS.glob("gpuperf*")), [])
        node.wait_for("the node offers nothing of it", lambda: not int(
            node.api.find("Node", "node").get("status", {}).get("allocatable", {}).get("gpuperf.dev/inject", "0")))


if __name__ == "__main__":
    if obstacle := find_obstacle():
        print(f"skipped: {obstacle}")
        sys.exit(77)
    enter_namespaces()
    unittest.main(verbosity=2)
