#!/usr/bin/env python3
"""The daemon on other kernels: it takes the best mechanism there is, or says in plain words why there is none; every call is
counted once, also by ten thousand programs that start and end; a slow call says where its time went; and the kernel survives,
also one that preempts threads within probes.

usage: kernels_test.py [unittest's arguments]     all kernels with GPUPERF_LONG_TESTS (tests/run.sh --long), of these only those
                                                  boots that GPUPERF_BOOTS, a regular expression, matches
"""

import collections
import concurrent.futures
import json
import os
import re
import shutil
import unittest

import machine
from gpuperf_system import LONG

# What is read in `gpuperfctl status` and `doctor` where no probe can be attached.
TOO_OLD = r"kernel 5\.10\S+ is too old: gpuperfd needs 5\.15 or later: boot a newer kernel"
NO_SESSION = r"kernel \S+ has no mechanism session: it came with kernel 6\.13: start gpuperfd without --mechanism"
NO_MULTI = r"kernel \S+ has no mechanism multi: it came with kernel 6\.6: start gpuperfd without --mechanism"
NEEDS_ADMIN = (r".*: Permission denied: perf events, by which kernels before 6\.6 are probed, need CAP_SYS_ADMIN: add it to "
               r"CapabilityBoundingSet and AmbientCapabilities \(systemctl edit gpuperfd\)")
LOCKED = (r"the kernel is locked down for confidentiality, where no BPF program may read memory: boot with lockdown=integrity or "
          r"without lockdown \(.*\)")
NO_BTF = (r".*the kernel offers no BTF at /sys/kernel/btf/vmlinux: use a kernel built with CONFIG_DEBUG_INFO_BTF, and mount /sys "
          r"into the container")
# And where it can.
MECHANISMS = {
    "session": ("session (uprobe session: entry and return in one link)", "ok", r'probes attach with mechanism "session" on kernel \S+'),
    "multi": ("multi (uprobe_multi: one link per file)", "ok", r'probes attach with mechanism "multi" on kernel \S+'),
    "perf": ("perf (one perf event per probe: slow to attach and detach)", "hint",
             r'probes attach with mechanism "perf" on kernel \S+, one by one: starting, reloading and stopping are slow'),
}
SERIES = ("5.10", "6.1", "6.12", "6.16", "6.18", "7.0", "7")  # "7": the newest


def make_row(oldest, first, second, rest):
    """What is expected on 5.10, 6.1, 6.12, and all with sessions."""
    return dict(zip(SERIES, (oldest, first, second, *[rest] * 4), strict=True))


# Setting: kernel: the mechanism taken, or what is read where there is none. docs/reliability.md, "Kernels", shows it.
EXPECTED = {
    "best": make_row(TOO_OLD, "perf", "multi", "session"),  # as root, with what the kernel's package sets
    "session": make_row(TOO_OLD, NO_SESSION, NO_SESSION, "session"),  # --mechanism session, and so on
    "multi": make_row(TOO_OLD, NO_MULTI, "multi", "multi"),
    "perf": make_row(TOO_OLD, "perf", "perf", "perf"),
    # kernel.perf_event_paranoid, with the rights of the package's service: no CAP_SYS_ADMIN
    "paranoid_3": make_row(TOO_OLD, NEEDS_ADMIN, "multi", "session"),
    "paranoid_4": make_row(TOO_OLD, NEEDS_ADMIN, "multi", "session"),
    "paranoid_4_root": make_row(TOO_OLD, "perf", "multi", "session"),
    "no_btf": make_row(TOO_OLD, NO_BTF, NO_BTF, NO_BTF),
    "confidentiality": make_row(TOO_OLD, LOCKED, LOCKED, LOCKED),  # lockdown=
}
LOOKS = ",".join(name for name in EXPECTED if name not in ("best", "confidentiality"))

# How the kernel preempts by itself, and what it makes of preempt=none and preempt=full.
PREEMPTION = {"5.10": ("fixed", "fixed", "fixed"), "6.1": ("voluntary", "none", "full"), "6.12": ("voluntary", "none", "full"),
              "6.16": ("lazy", "none", "full"), "6.18": ("lazy", "none", "full"), "7.0": ("lazy", "lazy", "full"),
              "7": ("lazy", "lazy", "full")}

# Without tracepoints at the ends of sends and receives; what is said there.
NO_REQUESTS = ("5.10", "6.1")
NO_REQUESTS_MESSAGE = "sock_recv_length"
NO_REQUESTS_HINT = "requests are not seen; use kernel 6.3 or later, or set requests.enabled = false"

Boot = collections.namedtuple("Boot", "series parameters preemption best")


def list_boots():
    """{name: Boot}"""
    if not LONG:  # not the newest: what the archive gets tomorrow is no change of ours
        return {"6.1": Boot("6.1", "preempt=full lockdown=integrity GPUPERF_WORK=1 GPUPERF_CHURN=500 GPUPERF_LOOKS=paranoid_4", 2, "best"),
                "7.0": Boot("7.0", "GPUPERF_WORK=1 GPUPERF_CHURN=500", 0, "best")}
    boots = {}
    for series in SERIES:
        boots |= {series: Boot(series, f"GPUPERF_WORK=1 GPUPERF_CHURN=10000 GPUPERF_LOOKS={LOOKS}", 0, "best"),
                  f"{series}_none": Boot(series, "preempt=none lockdown=integrity GPUPERF_WORK=1", 1, "best"),
                  f"{series}_full": Boot(series, "preempt=full lockdown=integrity GPUPERF_WORK=1", 2, "best"),
                  f"{series}_locked": Boot(series, "lockdown=confidentiality", 0, "confidentiality")}
    chosen = re.compile(os.environ.get("GPUPERF_BOOTS", ""))
    return {name: boot for name, boot in boots.items() if chosen.search(name)}


BOOTS = list_boots()
AT_ONCE = 2  # as many processors as the test takes
SECONDS = 3600 if LONG else 900  # of one boot; with nothing else to do those of the short form take one to three minutes
# Of a kernel that tries its timer while the machine is so busy that the emulator does not run: seen at a load of 300.
NO_TIMER = "IO-APIC + timer doesn't work"
BOOT_TRIES = 3
TROUBLE = re.compile(r"^\[ *\d+\.\d+\] .*(?:BUG:|Oops|WARNING:|Kernel panic|rcu: INFO|segfault).*$", re.M)


class KernelsTest(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        for program, package in (("busybox", "busybox-static"), ("cpio", "cpio"), ("setpriv", "util-linux")):
            if shutil.which(program) is None:
                raise unittest.SkipTest(f"{program} is not installed (Debian package {package})")
        try:
            cls.archive, cls.emulator = machine.prepare()
        except machine.Unobtainable as error:
            raise unittest.SkipTest(f"no virtual machines: {error}") from error
        cls.initramfs = machine.FOLDER / f"initramfs-{os.getpid()}"
        machine.make_initramfs(cls.initramfs)
        cls.addClassCleanup(cls.initramfs.unlink)
        pool = cls.enterClassContext(concurrent.futures.ThreadPoolExecutor(AT_ONCE))
        cls.logs = {name: pool.submit(cls.boot, name) for name in BOOTS}

    @classmethod
    def boot(cls, name):
        """(version, the console's text) of one kernel that was told what to try (guest.py)."""
        boot = BOOTS[name]
        kernel, version = machine.find_kernel(cls.archive, boot.series)
        for _ in range(BOOT_TRIES):
            log = cls.emulator.boot(kernel, cls.initramfs, machine.FOLDER / f"log-{name}", SECONDS, boot.parameters)
            if NO_TIMER not in log:
                break
        return version, log

    def check(self, name):
        boot = BOOTS[name]
        try:
            version, log = self.logs[name].result()
        except machine.Unobtainable as error:
            self.skipTest(str(error))
        self.assertEqual(TROUBLE.findall(log), [], log[-6000:])
        self.assertRegex(log, r"(?m)^DONE", f"{version}:\n{log[-6000:]}")
        results = {name: json.loads(text) for name, text in re.findall(r"RESULT (\w+) (.*)$", log, re.M)}
        counted = sum(results["count"]["counted"].values()) if "count" in results else 0
        print(f"{name}: {version}, {results['preemption']}, {results['best']['mechanism']}, {counted} calls counted, "
              f"{results.get('churn')}, started in {results['start']['seconds']} s", flush=True)
        self.assertEqual(results["preemption"], PREEMPTION[boot.series][boot.preemption])
        self.check_described(results["best"], EXPECTED[boot.best][boot.series], boot.series)
        for look in set(results) & set(EXPECTED) - {"best"}:
            with self.subTest(look=look):
                self.check_described(results[look], EXPECTED[look][boot.series], boot.series)
        if "count" in results:
            self.check_work(results)
        if "churn" in results:
            self.check_churn(results["churn"])
        self.assertEqual(results["stop"], {"code": 0})

    def check_described(self, described, expected, series):
        checks = {check["check"]: check for check in described["doctor"]}
        if expected in MECHANISMS:
            line, state, words = MECHANISMS[expected]
            self.assertEqual((described["mechanism"], described["status"]), (expected, line))
            self.assertEqual([(subject, hint) for subject, _, hint in described["problems"]],
                             [("requests", NO_REQUESTS_HINT)] if series in NO_REQUESTS else [])
            for _, message, _ in described["problems"]:
                self.assertIn(NO_REQUESTS_MESSAGE, message)
            self.assertRegex(checks["mechanism"]["message"], f"^{words}$")
            self.assertEqual(checks["mechanism"]["state"], state)
            return
        self.assertEqual((described["mechanism"], described["status"]), ("none", "none: nothing can be probed"))
        ((subject, message, hint),) = described["problems"]
        self.assertRegex(message, f"^{expected}$")
        self.assertEqual((subject, hint), ("probes", "no probes until you fix this and restart gpuperfd"))
        self.assertEqual([checks["probes"][key] for key in ("state", "message", "hint")], ["problem", message, hint])

    def check_work(self, results):
        self.assertEqual(results["count"]["counted"], results["count"]["expected"])
        self.assertEqual(results["count"]["open"], 0)
        # Kernels that preempt, before 7.0, have no memory for a thread while another on that CPU is being given its own:
        # such calls are counted, not timed, and reported.
        told = sum(drop["count"] for drop in results["drops"] if drop["reason"] == "thread_state")
        self.assertLessEqual(results["count"]["untimed"], told)
        self.assertLess(told, 0.01 * sum(results["count"]["expected"].values()))
        slow = results["slow"]
        self.assertGreater(slow["blocked_ns"], slow["duration_ns"] / 2, slow)
        self.assertLessEqual(slow["blocked_ns"], slow["duration_ns"], slow)
        self.assertTrue(any("run_pipe" in symbol for symbol in slow["stack"]), slow)
        self.assertEqual(results["ends"], {way: [300, 300, 0, 0] for way in ("kill", "execute")})

    def check_churn(self, churn):
        """The probes stayed where they were, and nothing was lost or counted twice."""
        self.assertEqual((churn["counted"], churn["failed"]), (churn["expected"], 0), churn)
        self.assertEqual((churn["states"], churn["attached"]), (["attached"] * 4, 1), churn)


def add_test(name):
    setattr(KernelsTest, f"test_{name.replace('.', '_')}", lambda self: self.check(name))


for boot_name in BOOTS:
    add_test(boot_name)

if __name__ == "__main__":
    unittest.main(verbosity=2)
