#!/usr/bin/env python3
"""The service under systemd: the unit as it is shipped, in a machine of its own."""

import json
import os
import pathlib
import re
import signal
import subprocess
import unittest

from gpuperf_system import BUILD, SOURCE, wait_until
from injector_workload import FAKES, require_fakes
from systemd_bed import WORKLOADS, SystemdBed, require_bed

UNITS = SOURCE / "deploy/systemd"
SERVICE = "gpuperfd.service"
SLOW_CALL_RETURNED = "eda5299cbeca4ecbb2eaf6bd3b827770"
READY = "eef2e8cdbbf1473bb4a7a3eeb81d1491"
NOT_RELOADED = "2777bf7d3d8e4ed78e43810d4e1717c8"
CONFIG = {"custom_sym": {"count_fast": "count_fast",
                         "cause_sleep": {"symbol": "cause_sleep", "slow_threshold_ms": 5,
                                         "library": str(WORKLOADS / "known_causes")}},
          "libraries": {"custom_sym": [str(WORKLOADS / "libcount_target.so")]},
          "stats": {"interval_ms": 200}, "slow": {"adaptive_factor": 0}, "overhead": {"budget_percent": 0}}
CAPABILITIES = {"CAP_DAC_READ_SEARCH": 2, "CAP_SYS_PTRACE": 19, "CAP_PERFMON": 38, "CAP_BPF": 39}


def analyze(*arguments):
    return subprocess.run(["systemd-analyze", "--no-pager", *map(str, arguments)], capture_output=True, text=True,
                          timeout=60, check=False)


def bpf_objects_of(pid):
    """(kind, id) of the programs, maps and links that a process has open."""
    found = set()
    for path in pathlib.Path(f"/proc/{pid}/fdinfo").iterdir():
        found |= set(re.findall(r"^(prog|map|link)_id:\s*(\d+)", path.read_text(encoding="ascii"), re.M))
    return found


def list_bpf_objects():
    """(kind, id) of all there are in the kernel, whoever has them."""
    found = set()
    for kind in ("prog", "map", "link"):
        text = subprocess.run(["bpftool", kind, "show"], capture_output=True, text=True, check=True).stdout
        found |= {(kind, number) for number in re.findall(r"^(\d+):", text, re.M)}
    return found


class UnitTest(unittest.TestCase):
    def setUp(self):
        require_bed()

    def test_its_exposure_is_at_most_2_5(self):
        result = analyze("security", "--offline=true", "--threshold=25", UNITS / SERVICE)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("Overall exposure level", result.stdout)


class ServiceTest(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        require_bed()
        cls.bed = SystemdBed(cls.install)
        cls.enterClassContext(cls.bed)
        cls.bed.run("systemd-sysusers", "gpuperf.conf")
        cls.bed.run("systemd-tmpfiles", "--create", "gpuperf.conf")

    @staticmethod
    def install(root):
        for component in ("gpuperfd", "gpuperfctl", "libgpuperf-injector"):
            subprocess.run(["cmake", "--install", BUILD, "--prefix", "/usr", "--strip", "--component", component],
                           env={**os.environ, "DESTDIR": str(root)}, check=True, stdout=subprocess.DEVNULL)
        (root / "etc/gpuperf/config.json").write_text(json.dumps(CONFIG), encoding="utf-8")

    def setUp(self):
        # Loading its programs takes seconds of CPU: it runs on from test to test.
        self.bed.run("systemctl", "start", SERVICE)

    def status(self):
        return self.bed.show(SERVICE, "StatusText")

    def query(self, *arguments):
        return json.loads(self.bed.run("gpuperfctl", *arguments, "-o", "json").stdout)

    def wait_attached(self):
        """Both functions, each in its file: libraries that the configuration names are there from the start."""
        return wait_until(f"2 probes attached: {self.status()}", lambda: self.status() == "2 probes in 2 files", 60)

    def count_fast(self):
        rows = [row for row in self.query("functions") if row["function"] == "count_fast"]
        return rows[0]["calls"] if rows else 0

    def run_workload(self, *command):
        return json.loads(self.bed.run(WORKLOADS / command[0], *command[1:]).stdout.splitlines()[-1])

    def check_counts(self):
        """A workload's calls are counted, each, and none of those before is lost; returns how many there are."""
        before = self.count_fast()
        made = self.run_workload("count_calls", "--calls", 1000, "--threads", 2)["calls"]["count_fast"]["calls"]
        wait_until("every call is counted", lambda: self.count_fast() == before + made, 60)
        return before + made

    def edit_config(self, text):
        path = f"/proc/{self.bed.pid}/root/etc/gpuperf/config.json"
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        self.addCleanup(self.bring_config_back)

    def bring_config_back(self):
        with open(f"/proc/{self.bed.pid}/root/etc/gpuperf/config.json", "w", encoding="utf-8") as file:
            json.dump(CONFIG, file)
        self.bed.run("systemctl", "reload", SERVICE, check=False)  # some tests end with it stopped

    def entries(self, *matches):
        text = self.bed.run("journalctl", "--no-pager", "-o", "json", "-u", SERVICE, *matches, check=False).stdout
        return [json.loads(line) for line in text.splitlines()]

    def test_the_unit_has_no_fault_that_systemd_sees(self):
        result = self.bed.run("systemd-analyze", "verify", "--man=no", f"/usr/lib/systemd/system/{SERVICE}", check=False)
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_it_is_active_once_it_serves_and_says_what_it_probes(self):
        state = self.bed.show(SERVICE, "ActiveState", "SubState", "Type", "MainPID")
        self.assertEqual((state["ActiveState"], state["SubState"], state["Type"]), ("active", "running", "notify"))
        # Active means that it answers.
        self.assertEqual(self.query("status")["problems"], [])
        self.wait_attached()

    def test_calls_are_counted_with_the_units_user_and_capabilities_alone(self):
        self.wait_attached()
        self.check_counts()
        pid = self.bed.show(SERVICE, "MainPID")
        facts = dict(line.split(":", 1) for line in self.bed.run("cat", f"/proc/{pid}/status").stdout.splitlines())
        mask = sum(1 << number for number in CAPABILITIES.values())
        self.assertEqual({name: int(facts[name], 16) for name in ("CapEff", "CapPrm", "CapBnd")},
                         {"CapEff": mask, "CapPrm": mask, "CapBnd": mask})
        self.assertEqual(self.bed.run("stat", "-c", "%U", f"/proc/{pid}").stdout.strip(), "gpuperfd")

    def test_libraries_that_the_service_does_not_see_itself_are_probed(self):
        self.bed.run("mount", "-t", "tmpfs", "tmpfs", "/home")
        self.addCleanup(self.bed.run, "umount", "--lazy", "/home")
        for folder in ("/home/ada", "/tmp/ada"):
            self.bed.run("install", "-d", "-m", "700", folder)
            self.bed.run("cp", WORKLOADS / "count_calls", WORKLOADS / "libcount_target.so", folder)
            self.edit_config(json.dumps({**CONFIG, "custom_sym": {"count_fast": "count_fast"},
                                         "libraries": {"custom_sym": [f"{folder}/libcount_target.so"]}}))
            self.bed.run("systemctl", "reload", SERVICE)
            wait_until("nothing is probed yet", lambda: "no process has loaded" in self.status())
            before = self.count_fast()
            command = self.bed.command(f"{folder}/count_calls", "--calls", 1000, "--wait-for-file", f"{folder}/go")
            with subprocess.Popen(command, stdout=subprocess.DEVNULL):
                try:
                    wait_until(f"{folder} is probed", lambda: self.status() == "1 probe in 1 file", 30)
                finally:
                    self.bed.run("touch", f"{folder}/go")
            wait_until("every call is counted", lambda: self.count_fast() == before + 2000, 30)

    def test_its_files_are_open_to_those_whom_they_are_for(self):
        self.wait_attached()
        modes = self.bed.run("stat", "-c", "%a %U:%G", "/run/gpuperf", "/run/gpuperf/api.sock",
                             "/run/gpuperf/ingest.sock", "/var/lib/gpuperf").stdout.splitlines()
        self.assertEqual(modes, ["755 gpuperfd:gpuperf", "660 gpuperfd:gpuperf", "666 gpuperfd:gpuperf",
                                 "750 gpuperfd:gpuperf"])

    def test_a_reload_puts_the_file_in_force_and_keeps_counting(self):
        self.wait_attached()
        counted = self.check_counts()
        pid = self.bed.show(SERVICE, "MainPID")
        self.edit_config(json.dumps({**CONFIG, "custom_sym": {"count_fast": "count_fast"}}))

        self.bed.run("systemctl", "reload", SERVICE)

        wait_until("one probe is left", lambda: self.status() == "1 probe in 1 file")
        self.assertEqual(self.bed.show(SERVICE, "ActiveState"), "active")
        self.assertEqual(self.bed.show(SERVICE, "MainPID"), pid)
        self.assertGreaterEqual(self.count_fast(), counted)
        self.check_counts()

    def test_a_reload_of_a_file_with_errors_fails_and_changes_nothing(self):
        self.wait_attached()
        self.edit_config('{"slow": {"no_such_key": 1}}')

        result = self.bed.run("systemctl", "reload", SERVICE, check=False)

        self.assertNotEqual(result.returncode, 0)
        self.assertIn("no_such_key", self.bed.journal("-u", SERVICE))
        self.assertEqual(self.bed.show(SERVICE, "ActiveState"), "active")
        self.check_counts()

    def test_a_daemon_that_hangs_is_killed_and_started_anew(self):
        self.bed.run("mkdir", "-p", f"/run/systemd/system/{SERVICE}.d")
        self.bed.run("sh", "-c", f"printf '[Service]\\nWatchdogSec=2\\n' >/run/systemd/system/{SERVICE}.d/watchdog.conf")
        self.addCleanup(self.bed.run, "sh", "-c", f"rm -r /run/systemd/system/{SERVICE}.d; systemctl daemon-reload;"
                        f" systemctl stop {SERVICE}")
        self.bed.run("systemctl", "daemon-reload")
        self.bed.run("systemctl", "restart", SERVICE)
        self.wait_attached()
        pid = self.bed.show(SERVICE, "MainPID")

        self.bed.run("kill", f"-{signal.SIGSTOP.name[3:]}", pid)

        wait_until("another daemon is active", lambda: self.bed.show(SERVICE, "MainPID") not in ("0", pid)
                   and self.bed.show(SERVICE, "ActiveState") == "active", 180)
        self.assertIn("watchdog", self.bed.journal("-u", SERVICE).lower())
        self.assertEqual(self.bed.show(SERVICE, "NRestarts"), "1")
        self.wait_attached()
        self.check_counts()

    def test_a_configuration_with_errors_is_no_reason_to_start_again_and_again(self):
        self.bed.run("systemctl", "stop", SERVICE)
        self.edit_config("{")
        self.addCleanup(self.bed.run, "systemctl", "reset-failed", SERVICE)

        self.assertNotEqual(self.bed.run("systemctl", "start", SERVICE, check=False).returncode, 0)

        state = self.bed.show(SERVICE, "ActiveState", "ExecMainStatus", "NRestarts")
        self.assertEqual((state["ActiveState"], state["ExecMainStatus"], state["NRestarts"]), ("failed", "2", "0"))

    def test_what_cannot_be_probed_is_the_status(self):
        self.bed.run("mkdir", "-p", f"/run/systemd/system/{SERVICE}.d")
        self.bed.run("sh", "-c", "printf '[Service]\\nCapabilityBoundingSet=\\nCapabilityBoundingSet=CAP_PERFMON\\n"
                     "AmbientCapabilities=\\nAmbientCapabilities=CAP_PERFMON\\n'"
                     f" >/run/systemd/system/{SERVICE}.d/no_bpf.conf")
        self.addCleanup(self.bed.run, "sh", "-c", f"rm -r /run/systemd/system/{SERVICE}.d; systemctl daemon-reload;"
                        f" systemctl stop {SERVICE}")
        self.bed.run("systemctl", "daemon-reload")
        self.bed.run("systemctl", "restart", SERVICE)

        self.assertEqual(self.bed.show(SERVICE, "ActiveState"), "active")
        self.assertRegex(self.status(), "^degraded: .*CAP_BPF.*nothing is probed")

    def test_the_journal_has_a_field_for_every_key_of_an_event(self):
        self.wait_attached()
        self.run_workload("known_causes", "--cause", "sleep", "--ms", 20)

        (entry, *_) = wait_until("the slow call is in the journal",
                                 lambda: self.entries(f"MESSAGE_ID={SLOW_CALL_RETURNED}"))
        self.assertEqual((entry["GPUPERF_FUNCTION"], entry["GPUPERF_CATEGORY"], entry["PRIORITY"],
                          entry["SYSLOG_IDENTIFIER"]), ("cause_sleep", "custom", "6", "gpuperfd"))
        self.assertGreaterEqual(int(entry["GPUPERF_DURATION_NS"]), 20_000_000)
        self.assertTrue(entry["MESSAGE"].startswith("slow_call id="), entry["MESSAGE"])
        self.assertTrue(self.entries(f"MESSAGE_ID={READY}"))

    def test_a_refused_configuration_is_an_error_in_the_journal(self):
        self.edit_config('{"slow": {"no_such_key": 1}}')

        self.bed.run("systemctl", "kill", "--kill-who=main", "--signal=HUP", SERVICE)

        (entry, *_) = wait_until("the refusal is in the journal", lambda: self.entries(f"MESSAGE_ID={NOT_RELOADED}"))
        self.assertEqual(entry["PRIORITY"], "3")
        self.assertIn("no_such_key", entry["GPUPERF_ERROR"])

    def start_launching(self, unit, *properties):
        """A program without the library that launches kernels, in a unit with these properties; its pid in the bed."""
        fifo = f"/run/{unit}.fifo"
        self.bed.run("mkfifo", "--mode=666", fifo)
        self.addCleanup(self.bed.run, "systemctl", "stop", unit, check=False)
        self.bed.run("systemd-run", f"--unit={unit}", f"--setenv=LD_LIBRARY_PATH={FAKES}:{FAKES}/cupti_13",
                     *(f"--property={text}" for text in properties),
                     "sh", "-c", f"exec {WORKLOADS}/injected <>{fifo}")
        self.tell(unit, "init", "steady 2")
        pid = int(self.bed.show(unit, "MainPID"))
        self.assertNotEqual(pid, 0, self.bed.journal("-u", unit))
        wait_until("it has loaded CUDA", lambda: "libcuda" in self.bed.run("cat", f"/proc/{pid}/maps").stdout)
        return pid

    def tell(self, unit, *lines):
        # Opened once the program has; what is written before that would be lost.
        self.bed.run("timeout", 60, "sh", "-c", f'printf "%s\\n" "$@" >/run/{unit}.fifo', "sh", *lines)

    def change(self, verb, pid, *flags):
        result = self.bed.run("gpuperfctl", verb, "--pid", pid, *flags, "-o", "json", check=False)
        self.assertNotEqual(result.stdout, "", result.stderr)
        return json.loads(result.stdout)[0]

    def check_attaching(self, unit, *properties, flags=()):
        pid = self.start_launching(unit, *properties)
        if flags:
            self.assertEqual(self.change("attach", pid)["reason"], "seccomp")
        row = self.change("attach", pid, *flags)
        self.assertEqual((row["state"], row["detail"]), ("attached", ""), row)
        wait_until("its kernels are seen", lambda: self.query("kernels", "--pid", pid))
        self.assertEqual(self.change("detach", pid)["state"], "can")
        self.tell(unit, "halt", "quit exit")
        wait_until("it ends", lambda: self.bed.run("systemctl", "is-active", unit, check=False).stdout != "active\n")
        self.assertEqual(self.bed.run("systemctl", "is-failed", unit, check=False).stdout, "inactive\n")

    def test_it_attaches_to_a_program_of_another_unit(self):
        require_fakes()
        self.check_attaching("plain")

    def test_it_attaches_to_a_program_of_a_hardened_unit(self):
        require_fakes()
        self.check_attaching("hardened", "User=nobody", "NoNewPrivileges=yes", "ProtectSystem=strict", "PrivateTmp=yes",
                             "ProtectProc=invisible", "MemoryDenyWriteExecute=yes", "RestrictNamespaces=yes",
                             "CapabilityBoundingSet=", "SystemCallFilter=@system-service", "SystemCallErrorNumber=EPERM",
                             flags=("--accept-seccomp",))

    def test_a_stop_leaves_nothing_but_the_store(self):
        self.wait_attached()
        ours = bpf_objects_of(self.bed.find_outer_pid(self.bed.show(SERVICE, "MainPID")))
        self.assertEqual({kind for kind, _ in ours}, {"prog", "map", "link"})

        self.bed.run("systemctl", "stop", SERVICE)

        state = self.bed.show(SERVICE, "ActiveState", "Result")
        self.assertEqual((state["ActiveState"], state["Result"]), ("inactive", "success"))
        wait_until("nothing of it in the kernel", lambda: not ours & list_bpf_objects(), 20)
        # Folders stay for containers that mount them.
        self.assertEqual(self.bed.run("find", "/run/gpuperf").stdout.split(), ["/run/gpuperf", "/run/gpuperf/ingest"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
