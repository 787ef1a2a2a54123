#!/usr/bin/env python3
"""The chart in deploy/chart, its manifests and examples: what Kubernetes, Prometheus and the daemon take of them."""

import filecmp
import json
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile
import unittest

import yaml

from fleet_chart import (CHART, EXAMPLES, FACTORS, HELM, MANIFESTS, all_pairs, check_config, check_objects, find,
                         get_config, make_arguments, render, require_helm, require_models, run_helm)
from gpuperf_system import SOURCE

CAPABILITIES = ["BPF", "PERFMON", "SYS_PTRACE", "DAC_READ_SEARCH"]
ALL_INJECTION = ["--set", "injection.devicePlugin.enabled=true", "--set", "injection.cdi.enabled=true"]
# Objects of these kinds have no model; their fields are compared whole.
WITHOUT_MODEL = ("SecurityContextConstraints",)


def setUpModule():
    require_helm()


def get_pod(objects):
    return find(objects, "DaemonSet")["spec"]["template"]["spec"]


def get_rows():
    return [(make_arguments(row), row) for row in all_pairs(FACTORS)]


class RenderTest(unittest.TestCase):
    def test_helm_lint_has_nothing_to_say(self):
        result = run_helm("lint", "--strict")

        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_every_pair_of_switches_gives_objects_that_kubernetes_takes(self):
        require_models()
        objects = [(" ".join(arguments), item) for arguments, _ in get_rows() for item in render(*arguments)
                   if item["kind"] not in WITHOUT_MODEL]

        self.assertGreater(len(objects), 100)
        self.assertEqual(check_objects(objects), "")

    def test_the_check_of_objects_finds_wrong_values_and_unknown_fields(self):
        require_models()
        good = find(render(), "DaemonSet")
        wrong_value = json.loads(json.dumps(good))
        wrong_value["spec"]["template"]["spec"]["containers"][0]["ports"][0]["containerPort"] = "many"
        unknown_field = json.loads(json.dumps(good))
        unknown_field["spec"]["template"]["spec"]["hostPid"] = True

        found = check_objects([("value", wrong_value), ("field", unknown_field)])

        self.assertRegex(found, r"value: DaemonSet gpuperf: .*containerPort")
        self.assertRegex(found, r"field: DaemonSet gpuperf: .*'?hostPid'? does not exist|field: .*hostPid")

    def test_every_pair_of_switches_gives_a_configuration_that_the_daemon_takes(self):
        for arguments, row in get_rows():
            if any(row["injection"][1:]):
                continue  # keys of their own: the next test
            with self.subTest(arguments=arguments):
                self.assertEqual(check_config(get_config(render(*arguments))), "")

    def test_the_daemon_takes_the_configuration_of_device_plugin_and_cdi(self):
        schema = json.loads((SOURCE / "docs/config.schema.json").read_text(encoding="utf-8"))
        if "cdi_spec" not in schema["properties"]["ingest"]["properties"]:
            self.skipTest("this gpuperfd has no setting ingest.cdi_spec")

        self.assertEqual(check_config(get_config(render(*ALL_INJECTION))), "")

    def test_settings_of_the_user_win_over_the_shipped_file(self):
        config = json.loads(get_config(render("--set", "config.cuda_func_sym.cudaMalloc.probe=false", "--set",
                                              "config.metrics.max_series=150000")))
        shipped = json.loads((SOURCE / "deploy/config.json").read_text(encoding="utf-8"))

        self.assertEqual(config["cuda_func_sym"]["cudaMalloc"], {"symbol": "cudaMalloc", "probe": False})
        self.assertEqual(config["cuda_func_sym"]["cudaFree"], shipped["cuda_func_sym"]["cudaFree"])
        self.assertEqual(config["metrics"], {"listen": "0.0.0.0:9465", "max_series": 150000})


class RulesTest(unittest.TestCase):
    def test_runbooks_are_linked_below_the_base(self):
        rules = json.dumps(render("--set", "monitoring.rules=true,monitoring.runbookBase=https://wiki.example.com/gpuperf/"))

        self.assertIn("https://wiki.example.com/gpuperf/GpuperfSlowCalls.md", rules)
        self.assertNotIn("gpuperf.dev/docs", rules)


class RefusalTest(unittest.TestCase):
    def test_wrong_values_are_refused_by_name(self):
        for arguments, message in (
                (["--set", "image.pullPolicy=Sometimes"], "image.pullPolicy must be one of"),
                (["--set", "metrics.port=99"], "metrics.port: Must be greater than or equal to 1024"),
                (["--set", "persistStore=3"], "persistStore: Invalid type. Expected: boolean, given: integer"),
                (["--set", "tolerration=x"], "Additional property tolerration is not allowed"),
                (["--set", "monitoring.interval=soon"], "monitoring.interval: Does not match pattern"),
                (["--set", "hostPaths.store=/"], "hostPaths.store: Does not match pattern"),
                (["--set", "updateStrategy.rollingUpdate.maxSurge=1"], "updateStrategy.rollingUpdate.maxSurge"),
                (["--set", "config.slow.recnet=7"], "config.slow: Additional property recnet is not allowed"),
                (["--set", "config.log.level=loud"], "config.log.level must be one of"),
                (["--set", "config.metrics.listen=a:1"], "config.metrics.listen is set by the chart: use the value "
                                                        "metrics.port"),
                # Pods mount the folder beside the socket: it is where they expect it, or nowhere.
                (["--set", "config.ingest.socket=/srv/a.sock"], "config.ingest.socket is set by the chart: use the value "
                                                                "hostPaths.runtime"),
                (["--set", "shippedFunctions=false"], "no function to probe: add a section to config"),
                (["--set", "injection.enabled=false", "--set", "injection.cdi.enabled=true"],
                 "need injection.enabled: true")):
            with self.subTest(arguments=arguments):
                result = run_helm("template", *arguments)

                self.assertNotEqual(result.returncode, 0)
                self.assertIn(message, result.stderr)


class SecurityTest(unittest.TestCase):
    def test_no_container_has_more_rights_than_the_preset_says(self):
        nothing = {"privileged": False, "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                   "runAsUser": 0}
        restricted = {**nothing, "capabilities": {"drop": ["ALL"], "add": CAPABILITIES}}
        privileged = {"privileged": True, "readOnlyRootFilesystem": True, "runAsUser": 0}
        for arguments, row in get_rows():
            with self.subTest(arguments=arguments):
                pod = get_pod(render(*arguments))
                rights = {container["name"]: {key: value for key, value in container["securityContext"].items()
                                              if key not in ("seLinuxOptions", "appArmorProfile")}
                          for container in pod["containers"] + pod.get("initContainers", [])}

                expected = {"gpuperfd": privileged if row["security.preset"] == "privileged" else restricted}
                if row["injection"][0]:
                    expected["place-injector"] = {**nothing, "capabilities": {"drop": ["ALL"]}}
                self.assertEqual(rights, expected)
                self.assertEqual((pod["hostPID"], pod["automountServiceAccountToken"], pod.get("hostNetwork"),
                                  pod.get("hostIPC")), (True, False, None, None))

    def test_pod_and_unit_have_every_right_that_attaching_needs(self):
        page = (SOURCE / "docs/attach.md").read_text(encoding="utf-8").partition("## Rights")[2].partition("\n## ")[0]
        first_cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| ")]
        needed = [cell for cell in first_cells if "CAP_" in cell and "only for" not in cell]
        capabilities = re.findall(r"`CAP_(\w+)`", " ".join(needed))
        calls = re.findall(r"`([a-z_]+)`", " ".join(cell for cell in first_cells if cell.startswith(" system calls")))
        self.assertEqual((capabilities, len(calls)), (["SYS_PTRACE"], 3))
        unit = (SOURCE / "deploy/systemd/gpuperfd.service").read_text(encoding="utf-8")
        allowed = [word for line in re.findall(r"^SystemCallFilter=([^~].*)$", unit, re.M) for word in line.split()]
        for arguments, row in get_rows():
            with self.subTest(arguments=arguments):
                pod = get_pod(render(*arguments))
                self.assertTrue(pod["hostPID"])
                if row["security.preset"] == "restricted":
                    rights = pod["containers"][0]["securityContext"]
                    self.assertLessEqual(set(capabilities), set(rights["capabilities"]["add"]))
        for name in ("CapabilityBoundingSet", "AmbientCapabilities"):
            (held,) = re.findall(rf"^{name}=(.*)$", unit, re.M)
            self.assertLessEqual({f"CAP_{capability}" for capability in capabilities}, set(held.split()))
        self.assertLessEqual(set(calls), set(allowed))

    def test_only_these_folders_of_the_host_are_mounted(self):
        pod = get_pod(render(*ALL_INJECTION))
        hosts = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
        mounts = {mount["mountPath"]: (hosts.get(mount["name"]), mount.get("readOnly", False))
                  for mount in pod["containers"][0]["volumeMounts"]}

        self.assertEqual(mounts, {
            "/etc/gpuperf": (None, True),
            "/run/gpuperf": ("/run/gpuperf", False),
            "/var/lib/gpuperf": ("/var/lib/gpuperf", False),
            "/var/lib/gpuperf-injector": ("/var/lib/gpuperf-injector", True),
            "/var/lib/kubelet/device-plugins": ("/var/lib/kubelet/device-plugins", False),
            "/var/run/cdi": ("/var/run/cdi", False),
            "/run/containerd": ("/run/containerd", True),
            "/run/k3s/containerd": ("/run/k3s/containerd", True),
            "/run/crio": ("/run/crio", True)})

    def test_the_runtime_folders_hold_the_sockets_that_the_daemon_asks(self):
        source = (SOURCE / "daemon/owner/cri.cpp").read_text(encoding="utf-8")
        sockets = re.findall(r'"(/[^"]+\.sock)"', source)
        values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))

        self.assertGreater(len(sockets), 3)
        self.assertLessEqual(set(values["hostPaths"]["runtimeSockets"]),
                             {str(pathlib.Path(socket).parent) for socket in sockets})

    def test_workloads_get_no_folder_that_holds_the_socket_of_the_api(self):
        values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
        ingest = values["hostPaths"]["runtime"] + "/ingest"  # made by the daemon, beside the API's socket

        for example in EXAMPLES.glob("pod-*.yaml"):
            volumes = yaml.safe_load(example.read_text(encoding="utf-8"))["spec"].get("volumes", [])
            paths = {volume["hostPath"]["path"] for volume in volumes if "hostPath" in volume}
            self.assertLessEqual(paths, {ingest, values["hostPaths"]["injector"]}, example.name)

    def test_further_capabilities_are_added_to_the_four(self):
        objects = render("--set", "security.extraCapabilities={SYSLOG}", "--set", "security.openShift=true")

        added = get_pod(objects)["containers"][0]["securityContext"]["capabilities"]
        self.assertEqual(added, {"drop": ["ALL"], "add": [*CAPABILITIES, "SYSLOG"]})
        self.assertEqual(find(objects, "SecurityContextConstraints")["allowedCapabilities"], added["add"])

    def test_open_shift_allows_what_the_pod_needs_and_no_more(self):
        constraints = find(render("--values", str(EXAMPLES / "values-openshift.yaml")), "SecurityContextConstraints")

        self.assertEqual(constraints["users"], ["system:serviceaccount:gpuperf:gpuperf"])
        self.assertEqual(constraints["allowedCapabilities"], CAPABILITIES)
        self.assertEqual([key for key, value in constraints.items() if value is True],
                         ["allowHostPID", "allowHostDirVolumePlugin", "readOnlyRootFilesystem"])


class MonitoringTest(unittest.TestCase):
    def test_rules_and_dashboards_come_through_letter_for_letter_but_for_line_ends(self):
        rules = {"groups": [{"name": "one", "rules": [
            {"alert": "Slow", "expr": "up == 0", "annotations": {"summary": "{{ $labels.pod }} is {{ $value }}"}}]}]}
        dashboard = '{\n  "title": "{{pod}}",\n  "tags": [\n    "a  b"\n  ]\n}\n'
        with tempfile.TemporaryDirectory(prefix="gpuperf-chart-") as folder:
            chart = pathlib.Path(folder) / "gpuperf"
            shutil.copytree(CHART, chart)
            for name, text in (("rules", json.dumps(rules)), ("dashboards", dashboard)):
                shutil.rmtree(chart / "files" / name, ignore_errors=True)
                (chart / "files" / name).mkdir()
                suffix = {"rules": "gpuperf-alerts.yaml", "dashboards": "gpuperf-overview.json"}[name]
                (chart / "files" / name / suffix).write_text(text, encoding="utf-8")

            objects = render("--set", "monitoring.rules=true", "--set", "monitoring.dashboards=true", chart=chart)

        self.assertEqual(find(objects, "PrometheusRule")["spec"], rules)
        found = next(item for item in objects if item["metadata"]["name"] == "gpuperf-overview")
        self.assertEqual(found["metadata"]["labels"]["grafana_dashboard"], "1")
        self.assertEqual(found["data"], {"gpuperf-overview.json": '{"title": "{{pod}}","tags": ["a  b"]}\n'})

    def test_a_chart_without_rules_and_dashboards_renders(self):
        with tempfile.TemporaryDirectory(prefix="gpuperf-chart-") as folder:
            chart = pathlib.Path(folder) / "gpuperf"
            shutil.copytree(CHART, chart, ignore=shutil.ignore_patterns("rules", "dashboards"))

            objects = render("--set", "monitoring.rules=true", "--set", "monitoring.dashboards=true", chart=chart)

        self.assertEqual(sorted(item["kind"] for item in objects), ["ConfigMap", "DaemonSet", "ServiceAccount"])

    def test_pods_are_restarted_by_a_changed_configuration_only_where_wanted(self):
        def get_annotations(*arguments):
            return find(render(*arguments), "DaemonSet")["spec"]["template"]["metadata"]["annotations"]

        changed = ["--set", "config.log.level=warn"]
        self.assertNotEqual(get_annotations(), get_annotations(*changed))
        off = ["--set", "rollOnConfigChange=false"]
        self.assertEqual(get_annotations(*off), get_annotations(*off, *changed))


class GeneratedTest(unittest.TestCase):
    def test_the_chart_holds_what_the_tree_holds(self):
        result = subprocess.run([CHART / "sync.py", "--check"], capture_output=True, text=True, check=False)

        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_a_packed_chart_holds_the_files_that_its_links_lead_to(self):
        links = [path for path in (CHART / "files").rglob("*") if path.is_symlink()]
        with tempfile.TemporaryDirectory(prefix="gpuperf-chart-") as folder:
            result = subprocess.run([HELM, "package", CHART, "--destination", folder], capture_output=True, text=True, check=False)
            self.assertEqual(result.returncode, 0, result.stderr)
            with tarfile.open(next(pathlib.Path(folder).glob("*.tgz"))) as packed:
                texts = {path: packed.extractfile(f"gpuperf/{path.relative_to(CHART)}").read() for path in links}

        self.assertGreater(len(links), 9)
        self.assertEqual(texts, {path: path.read_bytes() for path in links})

    def test_the_manifests_are_those_of_the_chart(self):
        with tempfile.TemporaryDirectory(prefix="gpuperf-chart-") as folder:
            copy = pathlib.Path(folder) / "deploy"
            shutil.copytree(SOURCE / "deploy", copy, symlinks=True)
            (copy.parent / "docs").mkdir()
            shutil.copy(SOURCE / "docs/config.schema.json", copy.parent / "docs")
            result = subprocess.run([copy / "chart/render.sh", copy.parent / "made"], capture_output=True,
                                    text=True, check=False, env={"PATH": "/usr/bin:/bin", "HELM": str(HELM)})
            self.assertEqual(result.returncode, 0, result.stderr)
            made = sorted(path.relative_to(copy.parent / "made")
                          for path in (copy.parent / "made").rglob("*.yaml"))
            _, different, absent = filecmp.cmpfiles(copy.parent / "made", MANIFESTS, made, shallow=False)

        kept = sorted(path.relative_to(MANIFESTS) for path in MANIFESTS.rglob("*.yaml")
                      if str(path.relative_to(MANIFESTS)) not in ("namespace.yaml", "kustomization.yaml"))
        self.assertEqual((made, different, absent), (kept, [], []), "run deploy/chart/render.sh")

    def test_kustomize_takes_manifests_and_example(self):
        if shutil.which("kubectl") is None:
            self.skipTest("kubectl is not installed")
        require_models()
        objects = []
        for folder in (MANIFESTS, EXAMPLES / "kustomize"):
            result = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=False)
            self.assertEqual(result.returncode, 0, result.stderr)
            objects += [(folder.name, item) for item in yaml.safe_load_all(result.stdout)]

        self.assertEqual({item["metadata"].get("namespace", "gpuperf") for _, item in objects}, {"gpuperf"})
        self.assertEqual(check_objects(objects), "")


class ExamplesTest(unittest.TestCase):
    def test_kubernetes_takes_the_pods(self):
        require_models()
        pods = [(path.name, yaml.safe_load(path.read_text(encoding="utf-8")))
                for path in sorted(EXAMPLES.glob("pod-*.yaml"))]

        self.assertEqual(len(pods), 4)
        self.assertEqual(check_objects(pods), "")

    def test_the_chart_takes_the_values(self):
        for path in sorted(EXAMPLES.glob("values-*.yaml")):
            with self.subTest(path=path.name):
                self.assertEqual(check_config(get_config(render("--values", str(path)))), "")


if __name__ == "__main__":
    unittest.main(verbosity=2)
