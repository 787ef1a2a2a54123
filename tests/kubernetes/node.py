"""A node: its container runtime, and Kubernetes with its control plane where that was built. Real programs, in
namespaces of mounts and network of their own.

There /run is empty, and so are /var/lib and /var/log, which are folders of the test's: every program may
have the paths that it has on a node, none of them is the machine's, and the network leads nowhere. Pids
are the machine's: BPF programs know no others. What the node starts are this process's descendants."""

import ctypes
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import images
from api import TOKEN, Api
from runtime_api import RuntimeApi

ADDRESS = "10.99.0.1"  # of the node, on the bridge that pods are connected to
OWN = pathlib.Path("/run/node")  # what is configured and logged here
RUNTIME_SOCKET = "/run/containerd/containerd.sock"
CGROUPS = pathlib.Path("/sys/fs/cgroup")
# The kubelet sets these for the machine; it gets files of its own in their place.
SYSCTLS = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
           "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes")
CONTAINERD = f"""
version = 2
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.btrfs",
                    "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper"]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/library/{images.PAUSE}"
  restrict_oom_score_adj = true  # where CAP_SYS_RESOURCE is missing
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{OWN}/cni"
"""
NETWORK = {"cniVersion": "0.4.0", "name": "pods", "type": "bridge", "bridge": "pods", "isGateway": True,
           "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.99.0.0/24", "rangeStart": "10.99.0.10"}]]}}
KUBELET = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
           "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
           "authorization": {"mode": "AlwaysAllow"}, "cgroupDriver": "cgroupfs",
           "enforceNodeAllocatable": [], "failSwapOn": False, "makeIPTablesUtilChains": False,
           "evictionHard": {"memory.available": "0%", "nodefs.available": "0%"}, "oomScoreAdj": 0,
           "imageGCHighThresholdPercent": 100, "nodeStatusUpdateFrequency": "5s",
           "volumePluginDir": "/run/node/volume-plugins"}
CONTROLLERS = "daemonset,garbagecollector,namespace,nodelifecycle,serviceaccount"
KUBECONFIG = {"apiVersion": "v1", "kind": "Config", "current-context": "node",
              "clusters": [{"name": "node", "cluster": {"server": Api.SERVER, "insecure-skip-tls-verify": True}}],
              "users": [{"name": "test", "user": {"token": TOKEN}}],
              "contexts": [{"name": "node", "context": {"cluster": "node", "user": "test"}}]}


def enter_namespaces():
    """This program again, from its beginning, in the node's namespaces."""
    if "GPUPERF_NODE_ENTERED" not in os.environ:
        os.environ["GPUPERF_NODE_ENTERED"] = "yes"
        os.execvp("unshare", ["unshare", "--mount", "--net", "--propagation", "private", sys.executable, *sys.argv])


def run(*command):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: exit {result.returncode}: {result.stderr.strip()}")
    return result.stdout


class Node:
    """One at a time and in a process, which must be in enter_namespaces(). `programs`: the folder that
    build.sh filled; without it there is only the container runtime, and `api` speaks to that."""

    def __init__(self, programs=None):
        self.programs = programs and pathlib.Path(programs) / "bin"
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gpuperf-node-"))
        self.started = {}  # process by name, in order of starts
        self.api = None

    def start(self):
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: containers stay ours
        self.mount()
        self.connect()
        self.configure()
        self.spawn("containerd", f"--config={OWN}/containerd.toml")
        runtime = RuntimeApi(RUNTIME_SOCKET)
        self.wait_for("the container runtime and its network", runtime.runtime.is_ready)
        self.api = runtime
        if self.programs:
            self.api = Api()
            self.start_kubernetes()

    def start_kubernetes(self):
        etcd = "http://127.0.0.1:2379"
        self.spawn("etcd", "--data-dir=/run/etcd", f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}")
        self.spawn(self.programs / "kube-apiserver", f"--etcd-servers={etcd}", f"--token-auth-file={OWN}/tokens.csv",
                   f"--cert-dir={OWN}", "--bind-address=127.0.0.1", f"--advertise-address={ADDRESS}",
                   "--service-cluster-ip-range=10.98.0.0/24", "--authorization-mode=AlwaysAllow",
                   "--service-account-issuer=https://node", f"--service-account-key-file={OWN}/key.pem",
                   f"--service-account-signing-key-file={OWN}/key.pem")
        self.wait_for("the API server", self.api.is_ready)
        kubeconfig = f"--kubeconfig={OWN}/kubeconfig.json"
        self.spawn(self.programs / "kube-controller-manager", kubeconfig, "--leader-elect=false",
                   f"--cert-dir={OWN}", f"--controllers={CONTROLLERS}")
        self.spawn(self.programs / "kube-scheduler", kubeconfig, "--leader-elect=false", f"--cert-dir={OWN}")
        self.spawn(self.programs / "kubelet", kubeconfig, f"--config={OWN}/kubelet.json", "--hostname-override=node",
                   f"--node-ip={ADDRESS}", "--container-runtime=remote",
                   f"--container-runtime-endpoint=unix://{RUNTIME_SOCKET}")
        self.wait_for("a Ready node", lambda: self.api.is_condition("Ready", self.api.find("Node", "node")))

    def mount(self):
        run("mount", "--make-rshared", "/")  # the kubelet passes mounts on to containers
        run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
        for name in ("lib", "log"):
            (self.folder / name).mkdir()
            run("mount", "--bind", self.folder / name, f"/var/{name}")
            # Else mounts below it would appear in the folder as well.
            run("mount", "--make-private", f"/var/{name}")
            run("mount", "--make-shared", f"/var/{name}")
        for name in SYSCTLS:
            copy = OWN / "sysctl" / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(pathlib.Path("/proc/sys", name).read_text())
            run("mount", "--bind", copy, f"/proc/sys/{name}")

    @staticmethod
    def connect():
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "pods", "type", "bridge")
        run("ip", "address", "add", f"{ADDRESS}/24", "dev", "pods")
        run("ip", "link", "set", "pods", "up")

    @staticmethod
    def configure():
        (OWN / "cni").mkdir()  # watched: a folder of its own
        for name, text in {"containerd.toml": CONTAINERD, "cni/pods.conf": json.dumps(NETWORK),
                           "kubelet.json": json.dumps(KUBELET), "kubeconfig.json": json.dumps(KUBECONFIG),
                           "tokens.csv": f"{TOKEN},test,test,system:masters\n"}.items():
            (OWN / name).write_text(text)
        run("openssl", "genrsa", "-out", OWN / "key.pem", "2048")

    def spawn(self, program, *arguments):
        name = pathlib.Path(program).name
        with open(OWN / f"{name}.log", "ab") as log:
            self.started[name] = subprocess.Popen([program, *arguments], stdout=log, stderr=log,
                                                  stdin=subprocess.DEVNULL)

    def restart(self, name):
        process = self.started.pop(name)
        process.terminate()
        process.wait(30)
        self.spawn(*process.args)

    def wait_for(self, what, condition, seconds=300):
        """The first true answer; fails when a program of the node has ended, or after `seconds`."""
        deadline = time.monotonic() + seconds
        while True:
            answer = condition()
            if answer:
                return answer
            for name, process in self.started.items():
                if process.poll() is not None:
                    raise AssertionError(f"waiting for {what}: {name} ended with {process.returncode}:\n"
                                         f"{self.log(name)}")
            if time.monotonic() > deadline:
                logs = "\n".join(f"{name}: {self.log(name)}" for name in self.started)
                raise AssertionError(f"not within {seconds} s: {what}\n{logs}")
            time.sleep(0.2)

    @staticmethod
    def log(name, lines=15):
        text = (OWN / f"{name}.log").read_text(errors="replace")
        return "\n".join(line[:400] for line in text.splitlines()[-lines:])

    @staticmethod
    def import_image(archive):
        run("ctr", "--namespace", "k8s.io", "images", "import", archive)

    def stop(self):
        """Ends everything that was started, and removes what it left: control groups, mounts, files."""
        for process in reversed(self.started.values()):  # the API server waits for an etcd that has gone
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                pass  # killed below
        while pids := find_descendants():
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            reap()
            time.sleep(0.1)
        for cgroup in sorted(CGROUPS.glob("*/kubepods/**/"), key=lambda path: -len(path.parts)):
            cgroup.rmdir()
        for path in reversed(list_mounts()):
            if path.startswith(("/run/", "/var/lib/", "/var/log/")):
                run("umount", "--lazy", path)
        if left := [path for path in list_mounts() if path.startswith(str(self.folder))]:
            raise AssertionError(f"{self.folder} stays: {left} are mounted in it")
        shutil.rmtree(self.folder)


def list_mounts():
    return [line.split()[4] for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()]


def find_descendants():
    """Pids of this process's children, their children and so on."""
    parents = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            pass  # gone
    found, layer = [], [os.getpid()]
    while layer:
        layer = [pid for pid, parent in parents.items() if parent in layer]
        found += layer
    return found


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
