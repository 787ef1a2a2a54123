"""Pods without Kubernetes: objects are taken as the API server takes them (api.py has the same methods), and
the container runtime is asked for what a kubelet would ask. Pods, DaemonSets and ConfigMaps only."""

import pathlib
import subprocess
import time
import urllib.request
import uuid

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

from api import Api

HERE = pathlib.Path(__file__).resolve().parent
CONFIG_MAPS = pathlib.Path("/run/config-maps")
LABELS = {"name": "io.kubernetes.pod.name", "namespace": "io.kubernetes.pod.namespace",
          "uid": "io.kubernetes.pod.uid"}
UNITS = {"Mi": 1 << 20, "Gi": 1 << 30}
PHASES = {"CONTAINER_CREATED": "Pending", "CONTAINER_RUNNING": "Running"}


class Runtime:
    """The runtime's calls, in JSON."""

    def __init__(self, socket):
        self.channel = grpc.insecure_channel(f"unix://{socket}")
        text = subprocess.run(["protoc", f"-I{HERE}", "--descriptor_set_out=/dev/stdout", "runtime.proto"],
                              capture_output=True, check=True).stdout
        self.pool = descriptor_pool.DescriptorPool()
        for file in descriptor_pb2.FileDescriptorSet.FromString(text).file:
            self.pool.Add(file)
        self.messages = message_factory.MessageFactory(self.pool)

    def find_message(self, name):
        return self.messages.GetPrototype(self.pool.FindMessageTypeByName(f"runtime.v1.{name}"))

    def call(self, method, **fields):
        ask = self.channel.unary_unary(f"/runtime.v1.RuntimeService/{method}",
                                       request_serializer=lambda message: message.SerializeToString(),
                                       response_deserializer=self.find_message(f"{method}Response").FromString)
        request = json_format.ParseDict(fields, self.find_message(f"{method}Request")())
        return json_format.MessageToDict(ask(request, timeout=180), preserving_proto_field_name=True,
                                         including_default_value_fields=True)

    def is_ready(self):
        try:
            conditions = self.call("Status")["status"]["conditions"]
        except grpc.RpcError:
            return False
        return all(row["status"] for row in conditions)


class RunningPod:
    """A pod's sandbox and containers; init containers have ended when it is made."""

    def __init__(self, runtime, metadata, spec):
        self.runtime = runtime
        self.metadata = metadata | {"uid": str(uuid.uuid4())}
        self.spec = spec
        self.pid_mode = {"namespace_options": {"pid": "NODE" if spec.get("hostPID") else "CONTAINER"}}
        own = {key: self.metadata[key] for key in LABELS}
        self.labels = {label: own[key] for key, label in LABELS.items()}
        logs = pathlib.Path("/var/log/pods", f"{own['namespace']}_{own['name']}_{own['uid']}")
        self.sandbox = {"metadata": own, "hostname": own["name"], "log_directory": str(logs), "dns_config": {},
                        "labels": self.labels, "linux": {"cgroup_parent": f"/kubepods/burstable/pod{own['uid']}",
                                                         "security_context": self.pid_mode}}
        self.sandbox_id = runtime.call("RunPodSandbox", config=self.sandbox)["pod_sandbox_id"]
        for container in spec.get("initContainers", []):
            self.wait_for_end(self.start(container))
        (container,) = spec["containers"]
        self.container_id = self.start(container)
        status = runtime.call("PodSandboxStatus", pod_sandbox_id=self.sandbox_id)["status"]
        self.address = status["network"]["ip"]

    def start(self, container):
        name, context = container["name"], container["securityContext"]
        capabilities = context.get("capabilities", {})
        memory = container.get("resources", {}).get("limits", {}).get("memory", "0Mi")
        pathlib.Path(self.sandbox["log_directory"], name).mkdir(parents=True)
        security = self.pid_mode | {
            "capabilities": {f"{verb}_capabilities": capabilities.get(verb, []) for verb in ("add", "drop")},
            "run_as_user": {"value": context["runAsUser"]},
            "readonly_rootfs": context.get("readOnlyRootFilesystem", False),
            "no_new_privs": not context["allowPrivilegeEscalation"]}
        config = {
            "metadata": {"name": name}, "image": {"image": f"docker.io/library/{container['image']}"},
            "command": container.get("command", []), "args": container.get("args", []),
            "envs": [{"key": row["name"], "value": row["value"]} for row in container.get("env", [])],
            "mounts": [self.describe_mount(row) for row in container.get("volumeMounts", [])],
            "labels": self.labels | {"io.kubernetes.container.name": name}, "log_path": f"{name}/0.log",
            "linux": {"resources": {"memory_limit_in_bytes": int(memory[:-2]) * UNITS[memory[-2:]]},
                      "security_context": security}}
        container_id = self.runtime.call("CreateContainer", pod_sandbox_id=self.sandbox_id, config=config,
                                         sandbox_config=self.sandbox)["container_id"]
        self.runtime.call("StartContainer", container_id=container_id)
        return container_id

    def describe_mount(self, mount):
        (volume,) = [row for row in self.spec["volumes"] if row["name"] == mount["name"]]
        if "configMap" in volume:
            path = CONFIG_MAPS / self.metadata["namespace"] / volume["configMap"]["name"]
        else:
            path = pathlib.Path(volume["hostPath"]["path"])
            path.mkdir(parents=True, exist_ok=True)
        return {"container_path": mount["mountPath"], "host_path": str(path), "readonly": mount.get("readOnly", False),
                "propagation": "PROPAGATION_HOST_TO_CONTAINER" if "mountPropagation" in mount
                else "PROPAGATION_PRIVATE"}

    def status_of(self, container_id):
        return self.runtime.call("ContainerStatus", container_id=container_id)["status"]

    def wait_for_end(self, container_id):
        while (status := self.status_of(container_id))["state"] != "CONTAINER_EXITED":
            time.sleep(0.1)
        if status["exit_code"] != 0:
            logs = [path.read_text() for path in pathlib.Path(self.sandbox["log_directory"]).glob("*/0.log")]
            raise AssertionError(f"an init container ended with {status['exit_code']}: {logs}")

    def stop(self):
        self.runtime.call("StopContainer", container_id=self.container_id,
                          timeout=self.spec["terminationGracePeriodSeconds"])
        self.runtime.call("StopPodSandbox", pod_sandbox_id=self.sandbox_id)

    def is_answering(self, probe):
        """Whether a probe over HTTP, as a container describes it, succeeds."""
        (container,) = self.spec["containers"]
        ask = container.get(probe, {}).get("httpGet")
        if ask is None:
            return True
        ports = {row["name"]: row["containerPort"] for row in container["ports"]}
        address = f"http://{self.address}:{ports[ask['port']]}{ask['path']}"
        try:
            with urllib.request.urlopen(address, timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def describe(self):
        """As the API server would."""
        status = self.status_of(self.container_id)
        phase = PHASES.get(status["state"]) or ("Failed" if status["exit_code"] else "Succeeded")
        is_ready = phase == "Running" and self.is_answering("readinessProbe")
        return {"kind": "Pod", "metadata": self.metadata, "spec": self.spec, "status": {
            "phase": phase, "podIP": self.address,
            "conditions": [{"type": "Ready", "status": str(is_ready)}],
            "containerStatuses": [{"containerID": f"containerd://{self.container_id}", "ready": is_ready,
                                   "started": self.is_answering("startupProbe"), "restartCount": 0}]}}


class RuntimeApi:
    is_condition = staticmethod(Api.is_condition)

    def __init__(self, socket):
        self.runtime = Runtime(socket)
        self.pods = {}  # by namespace and name

    def apply(self, found):
        metadata = found["metadata"]
        if found["kind"] == "ConfigMap":
            folder = CONFIG_MAPS / metadata["namespace"] / metadata["name"]
            folder.mkdir(parents=True)
            for name, text in found["data"].items():
                (folder / name).write_text(text)
        elif found["kind"] in ("Pod", "DaemonSet"):  # one node: a DaemonSet is a pod
            spec = found["spec"] if found["kind"] == "Pod" else found["spec"]["template"]["spec"]
            self.pods[metadata["namespace"], metadata["name"]] = RunningPod(self.runtime, metadata, spec)

    def find(self, kind, name, namespace=None):
        return self.pods[namespace, name].describe() if kind == "Pod" else {"kind": kind, "metadata": {"name": name}}

    def list(self, _, namespace):
        return [pod.describe() for (where, _), pod in self.pods.items() if where == namespace]

    def delete(self, _, name, namespace):
        self.pods.pop((namespace, name)).stop()
