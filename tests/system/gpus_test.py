#!/usr/bin/env python3
"""GPU health end to end on hosts without a GPU: the daemon, the CLI and the metrics with a
libnvidia-ml.so.1 that answers what a script says (tests/fakes/nvml)."""

import json
import os
import re
import signal
import time
import unittest
import urllib.request

import gpuperf_system as gs

FAKE = gs.BUILD / "tests/fakes/nvml"
# In the JSON of a GPU whose driver tells nothing of these.
UNTOLD = "-"
# A configuration needs a function to probe; no test here calls it.
PROBE = {"count_call": "gpuperf_count_call"}


class FakeDriver(gs.Daemon):
    """A daemon whose NVML is the fake; `script` is what it answers, changed by set()."""

    def __init__(self, config=None, **script):
        super().__init__({"custom_sym": PROBE, "stats": {"gpu_interval_ms": 100},
                          **(config or {})})
        self.script = dict(script)
        self.script_path = self.path / "nvml"
        self.write_script()
        self.command = ["env", f"LD_LIBRARY_PATH={FAKE}", f"GPUPERF_FAKE_NVML={self.script_path}",
                        *self.command]

    def write_script(self):
        # Replaced as a whole: the fake reads it at any time.
        temporary = self.path / "nvml.new"
        temporary.write_text("".join(f"{key}={value}\n" for key, value in self.script.items()),
                             encoding="utf-8")
        os.replace(temporary, self.script_path)

    def set(self, **changes):
        """Keys with dots are given as a dictionary: set(**{"0.lost": 1}). None removes a line."""
        for key, value in changes.items():
            if value is None:
                self.script.pop(key, None)
            else:
                self.script[key] = value
        self.write_script()

    def gpus(self):
        return self.query("gpus")

    def wait_for_gpu(self, what, condition, index=0, seconds=20):
        def find():
            rows = self.gpus()
            return rows[index] if len(rows) > index and condition(rows[index]) else None
        return gs.wait_until(what, find, seconds)

    def wait_for_first(self, index=0):
        return self.wait_for_gpu("a GPU that was read", lambda gpu: gpu["age_ns"] > 0, index)

    def wait_for_counters(self, index=0, seconds=20):
        return self.wait_for_gpu("hardware counters", lambda gpu: gpu["counters"]["window_ns"] > 0,
                                 index, seconds)

    def metrics(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
            return answer.read().decode()

    def metric(self, metric, **labels):
        """The value of the one series with these labels; None = there is none."""
        for line in self.metrics().splitlines():
            match = re.fullmatch(r"(\w+)\{(.*)\} (\S+)", line)
            if not match or match[1] != metric:
                continue
            found = dict(re.findall(r'(\w+)="([^"]*)"', match[2]))
            if all(found.get(key) == value for key, value in labels.items()):
                return float(match[3])
        return None


class GpusTest(unittest.TestCase):
    def test_shows_what_the_driver_tells(self):
        with FakeDriver(gpus=2, **{"1.sm_mhz": 345, "0.process_pid": 4242}) as daemon:
            first = daemon.wait_for_first()
            second = daemon.gpus()[1]

            self.assertEqual(first["name"], "NVIDIA H200")
            self.assertEqual(first["uuid"], "GPU-0123abcd-0000-1111-2222-000000000000")
            self.assertEqual(first["driver_version"], "580.65.06")
            self.assertEqual((first["utilization_ratio"], first["power_watts"],
                              first["power_limit_watts"]), (0.87, 512, 700))
            self.assertEqual((first["sm_clock_hz"], first["sm_clock_max_hz"]),
                             (1_755_000_000, 1_980_000_000))
            self.assertEqual((first["memory_used_bytes"], first["memory_total_bytes"]),
                             (45 << 30, 140 << 30))
            self.assertEqual(first["temperature_celsius"], 54)
            self.assertEqual(first["ecc"]["corrected_aggregate"], 2)
            self.assertEqual(first["pcie"]["generation"], 5)
            self.assertEqual(first["processes"], [{"pid": 4242, "memory_bytes": 1 << 30}])
            self.assertIsNone(first["mig_enabled"])
            self.assertEqual((first["state"], first["verdict"]), ("ok", "healthy"))
            self.assertEqual(second["index"], 1)
            self.assertEqual(second["sm_clock_hz"], 345_000_000)

            table = daemon.ctl("gpus").stdout
            self.assertIn("45.0 GiB / 140 GiB", table)
            self.assertIn("512 / 700 W", table)
            self.assertTrue(daemon.ctl("gpus", "-o", "csv").stdout.startswith("index,name,uuid,"))
            self.assertEqual(daemon.query("status")["gpus"], 2)
            self.assertIn("GPUs        2\n", daemon.ctl("status").stdout)

            gpu = {"gpu": "0", "uuid": first["uuid"]}
            self.assertEqual(daemon.metric("gpuperf_gpu_power_watts", **gpu), 512)
            self.assertEqual(daemon.metric("gpuperf_gpu_clock_hertz", clock="sm", **gpu), 1.755e9)
            self.assertAlmostEqual(daemon.metric("gpuperf_gpu_energy_joules_total", **gpu),
                                   123456.789)
            self.assertEqual(daemon.metric("gpuperf_gpu_info", name="NVIDIA H200",
                                           driver="580.65.06", pci_bus_id="00000000:19:00.0"), 1)
            self.assertIsNone(daemon.metric("gpuperf_gpu_xid_errors_total"))

    def test_leaves_out_what_the_driver_does_not_tell(self):
        keys = ("temperature", "power_mw", "utilization", "ecc_corrected", "reasons", "sm_max_mhz")
        with FakeDriver(**{f"0.{key}": UNTOLD for key in keys}) as daemon:
            gpu = daemon.wait_for_first()

            for field in ("temperature_celsius", "power_watts", "utilization_ratio",
                          "sm_clock_max_hz"):
                self.assertIsNone(gpu[field], field)
            self.assertIsNone(gpu["ecc"]["corrected_volatile"])
            self.assertEqual(gpu["clock_limits"], [])
            self.assertEqual(gpu["verdict"], "healthy")
            self.assertIsNone(daemon.metric("gpuperf_gpu_temperature_celsius"))
            self.assertEqual(daemon.query("status")["problems"], [])
            self.assertEqual(daemon.ctl("gpus").returncode, 0)

    def test_says_what_slows_a_gpu_down(self):
        with FakeDriver(**{"0.thermal_field": 269}) as daemon:
            daemon.wait_for_first()
            for step in range(1, 8):  # half of the time, by the GPU's own counter
                daemon.set(**{"0.reasons": 0x48, "0.hw_thermal_ns": step * 100_000_000})
                time.sleep(0.2)
            gpu = daemon.wait_for_gpu(
                "a slowed GPU", lambda row: row["state"] == "slowed" and
                any(limit["total_ns"] == 700_000_000 for limit in row["clock_limits"]))

            limit = next(row for row in gpu["clock_limits"] if row["reason"] == "hw_thermal")
            self.assertTrue(limit["active"])
            self.assertGreater(limit["active_ns"], 0)
            self.assertGreater(limit["minute_ratio"], 0.1)
            self.assertLess(limit["minute_ratio"], 0.9)
            self.assertIn("hardware thermal slowdown", gpu["limited_by"])
            self.assertRegex(gpu["verdict"], r"^slowed: hardware .*, \d+ % of the last minute$")
            self.assertEqual(daemon.metric("gpuperf_gpu_throttle_seconds_total",
                                           reason="hw_thermal"), 0.7)
            self.assertEqual(daemon.metric("gpuperf_gpu_throttled", reason="hw_thermal"), 1)
            self.assertEqual(daemon.metric("gpuperf_gpu_throttled", reason="power_cap"), 0)
            self.assertIn("1 in trouble: gpuperfctl gpus", daemon.ctl("status").stdout)
            self.assertRegex(daemon.ctl("doctor", check=False).stdout,
                             r"hint +gpus +GPU 0: slowed: hardware")

    def test_tells_of_errors_at_once(self):
        with FakeDriver(gpus=2) as daemon:
            daemon.wait_for_first(1)
            daemon.set(events="1:8:31,1:8:31,1:8:79,0:2:0")
            gpu = daemon.wait_for_gpu("XID 79", lambda row: row["state"] == "failing", index=1)
            gs.wait_until("the notice of a memory error",
                          lambda: daemon.gpus()[0]["ecc"]["events"] == 1)

            self.assertEqual({row["xid"]: row["count"] for row in gpu["xids"]}, {79: 1, 31: 2})
            self.assertEqual([row["xid"] for row in gpu["recent_xids"]], [31, 31, 79])
            self.assertEqual(gpu["verdict"], "XID 79: GPU has fallen off the bus")
            self.assertEqual(daemon.gpus()[0]["verdict"], "healthy")
            self.assertEqual(daemon.metric("gpuperf_gpu_xid_errors_total", gpu="1", xid="31"), 2)
            self.assertIn("GPU error gpu=1", daemon.log())
            self.assertRegex(daemon.ctl("gpus").stdout, r"79, \S+( \S+)? ago")
            problem = next(row for row in daemon.query("status")["problems"]
                           if row["subject"] == "GPU 1")
            self.assertIn("XID 79", problem["message"])
            doctor = daemon.ctl("doctor", check=False)
            self.assertEqual(doctor.returncode, 1)
            self.assertRegex(doctor.stdout, r"problem +GPU 1 +XID 79: GPU has fallen off the bus")

    def test_says_that_memory_has_errors(self):
        with FakeDriver(**{"0.ecc_uncorrected": 3}) as daemon:
            gpu = daemon.wait_for_gpu("errors", lambda row: row["state"] == "failing")

            self.assertIn("could not be corrected", gpu["verdict"])
            self.assertEqual(daemon.metric("gpuperf_gpu_ecc_errors_total", kind="uncorrected"), 3)

    def test_finds_a_lost_gpu_again(self):
        with FakeDriver(gpus=2) as daemon:
            daemon.wait_for_first(1)
            daemon.set(**{"0.lost": 1})
            lost = daemon.wait_for_gpu("a lost GPU", lambda row: row["state"] == "lost")
            self.assertEqual(lost["name"], "NVIDIA H200")
            self.assertEqual(daemon.gpus()[1]["state"], "ok")
            self.assertEqual(daemon.metric("gpuperf_gpu_up", gpu="0"), 0)
            self.assertEqual(daemon.metric("gpuperf_gpu_up", gpu="1"), 1)
            self.assertIsNone(daemon.metric("gpuperf_gpu_power_watts", gpu="0"))
            daemon.set(**{"0.lost": None})

            daemon.wait_for_gpu("the GPU back", lambda row: row["state"] == "ok")

            self.assertEqual(daemon.query("status")["problems"], [])

    def test_comes_back_with_a_driver_that_was_loaded_anew(self):
        with FakeDriver() as daemon:
            daemon.wait_for_first()
            daemon.set(**{"return.nvmlDeviceGetFieldValues": 1, "return.nvmlInit": 9})
            problem = gs.wait_until("a problem", lambda: daemon.query("status")["problems"])[0]
            self.assertEqual(problem["subject"], "GPU health")
            self.assertIn("modprobe nvidia", problem["hint"])
            said = "GPUs cannot be read: nvmlInit: Driver Not Loaded"
            daemon.wait_for_log(said)
            time.sleep(5)  # it is tried again, and said no more
            self.assertEqual(daemon.log().count(said), 1)
            daemon.set(**{"return.nvmlDeviceGetFieldValues": None, "return.nvmlInit": None})

            daemon.wait_for_gpu("the GPU back", lambda row: row["state"] == "ok")

            self.assertEqual(daemon.query("status")["problems"], [])

    def test_shows_hardware_counters(self):
        with FakeDriver() as daemon:
            gpu = daemon.wait_for_counters()

            counters = gpu["counters"]
            self.assertEqual(
                {name: value for name, value in counters.items() if value is not None
                 and name.endswith(("_ratio", "_per_second"))},
                {"graphics_engine_active_ratio": 0.985, "sm_active_ratio": 0.9725,
                 "sm_occupancy_ratio": 0.1275, "tensor_active_ratio": 0.835,
                 "fp32_active_ratio": 0.005, "fp16_active_ratio": 0, "dram_active_ratio": 0.145,
                 "pcie_transmit_bytes_per_second": 12 << 20,
                 "pcie_receive_bytes_per_second": 2 << 30})
            # Usually a second; more where the machine is busy.
            self.assertGreater(counters["window_ns"], 7e8)
            self.assertEqual((counters["reason"], counters["failed_samples"]), ("", 0))
            whole = {"gpu": "0", "uuid": gpu["uuid"], "gpu_instance": ""}
            for metric, value in {"graphics_engine_active_ratio": 0.985, "sm_active_ratio": 0.9725,
                                  "sm_occupancy_ratio": 0.1275, "dram_active_ratio": 0.145}.items():
                self.assertEqual(daemon.metric("gpuperf_gpu_" + metric, **whole), value)
            self.assertEqual(daemon.metric("gpuperf_gpu_pipe_active_ratio", pipe="tensor", **whole),
                             0.835)
            self.assertIsNone(daemon.metric("gpuperf_gpu_pipe_active_ratio", pipe="fp64"))
            self.assertEqual(daemon.metric("gpuperf_gpu_pcie_bytes_per_second",
                                           direction="receive", **whole), 2 << 30)
            self.assertIsNone(daemon.metric("gpuperf_gpu_nvlink_bytes_per_second"))
            table = daemon.ctl("gpus").stdout
            self.assertRegex(table, r"GPU +ENGINE +SM +OCCUPANCY +TENSOR")
            self.assertRegex(table, r"0 +98\.5 % +97\.2 % +12\.8 % +83\.5 % +- ")

    def test_captures_hold_hardware_counters(self):
        with FakeDriver() as daemon:
            daemon.wait_for_counters()
            time.sleep(2)
            capture = daemon.query("trace", "freeze", "--last", "3s")
            capture = capture[0] if isinstance(capture, list) else capture

            chrome = json.loads(daemon.ctl("trace", "fetch", str(capture["id"]), "--format", "chrome").stdout)

            values = {event["args"]["value"] for event in chrome["traceEvents"]
                      if event["ph"] == "C" and event["name"] == "tensor pipe percent"}
            self.assertIn(84, values)
            names = {event["args"]["name"] for event in chrome["traceEvents"]
                     if event["name"] == "process_name"}
            self.assertIn("GPU 0 GPU-0123abcd-0000-1111-2222-000000000000", names)

    def test_says_that_a_gpu_has_no_hardware_counters(self):
        with FakeDriver(gpus=2, **{"1.gpm_supported": 0}) as daemon:
            daemon.wait_for_counters()
            text = "GPU 1: no hardware counters: this GPU has none"

            counters = daemon.gpus()[1]["counters"]
            self.assertEqual((counters["samples"], counters["failing"]), (0, False))
            self.assertIn(text, daemon.ctl("gpus").stdout)
            self.assertRegex(daemon.ctl("doctor", check=False).stdout, rf"ok +gpus +{text}")
            self.assertIsNone(daemon.metric("gpuperf_gpu_sm_active_ratio", gpu="1"))
            self.assertIsNone(daemon.metric("gpuperf_gpu_gpm_samples_total", gpu="1"))

    def test_does_without_gpm_in_the_driver(self):
        with FakeDriver(**{"return.nvmlGpmQueryDeviceSupport": 13}) as daemon:
            gpu = daemon.wait_for_gpu("a reason", lambda row: row["counters"]["reason"])

            self.assertIn("driver cannot read them", gpu["counters"]["reason"])
            self.assertFalse(gpu["counters"]["failing"])
            self.assertEqual(gpu["verdict"], "healthy")
            self.assertEqual(daemon.query("status")["problems"], [])

    def test_comes_back_when_a_profiler_gives_the_counters_back(self):
        with FakeDriver() as daemon:
            daemon.wait_for_counters()
            daemon.set(**{"return.nvmlGpmSampleGet": 999})
            daemon.wait_for_gpu("a failed sample", lambda row: row["counters"]["failing"])
            self.assertIsNone(daemon.metric("gpuperf_gpu_sm_active_ratio"))
            self.assertRegex(daemon.ctl("doctor", check=False).stdout,
                             r"hint +gpus +GPU 0: no hardware counters: nvmlGpmSampleGet: Unknown")
            # Samples work, their values do not.
            daemon.set(**{"return.nvmlGpmSampleGet": None, **{
                f"0.gpm.{metric}": "nan" for metric in (1, 2, 3, 5, 10, 12, 13, 20, 21)}})
            daemon.wait_for_gpu("values that are none",
                                lambda row: "has no values" in row["counters"]["reason"])
            daemon.set(**{f"0.gpm.{metric}": None for metric in (1, 2, 3, 5, 10, 12, 13, 20, 21)})

            gpu = daemon.wait_for_counters(seconds=40)

            self.assertGreaterEqual(gpu["counters"]["failed_samples"], 2)
            self.assertEqual(daemon.metric("gpuperf_gpu_gpm_failures_total", gpu="0"),
                             daemon.gpus()[0]["counters"]["failed_samples"])
            self.assertEqual(daemon.metric("gpuperf_gpu_sm_active_ratio", gpu="0"), 0.9725)

    def test_reads_hardware_counters_of_gpu_instances(self):
        with FakeDriver(**{"0.mig": 1}) as daemon:
            gpu = daemon.wait_for_gpu("counters of an instance", lambda row: [
                part for part in row["mig_instances"] if part["counters"]
                and part["counters"]["window_ns"] > 0])

            part = gpu["mig_instances"][0]
            self.assertEqual(part["gpu_instance"], 3)
            self.assertEqual(part["counters"]["sm_active_ratio"], 0.5)
            self.assertIn("per GPU instance", gpu["counters"]["reason"])
            self.assertEqual(daemon.metric("gpuperf_gpu_sm_active_ratio", gpu_instance="3"), 0.5)
            self.assertIsNone(daemon.metric("gpuperf_gpu_sm_active_ratio", gpu_instance=""))
            self.assertRegex(daemon.ctl("gpus").stdout, r"GPU +INSTANCE +ENGINE")

    def test_can_leave_hardware_counters_out(self):
        with FakeDriver({"stats": {"gpu_interval_ms": 100, "gpu_counters": False}}) as daemon:
            daemon.wait_for_first()

            self.assertEqual(daemon.gpus()[0]["counters"]["samples"], 0)
            self.assertIn("switched off: stats.gpu_counters", daemon.ctl("gpus").stdout)

    def test_backs_off_from_slow_calls(self):
        with FakeDriver(**{"delay.nvmlDeviceGetClockInfo": 120}) as daemon:
            daemon.wait_for_first()

            gs.wait_until("a hint", lambda: "reading clocks takes" in
                          daemon.ctl("doctor", check=False).stdout, 20)

    def test_stops_although_a_call_hangs(self):
        with FakeDriver() as daemon:
            daemon.wait_for_first()
            daemon.set(**{"hang.nvmlDeviceGetClockInfo": 1, "events": "0:8:79"})
            # Notices come on a thread of their own.
            daemon.wait_for_gpu("XID 79", lambda row: row["state"] == "failing")
            stalled = gs.wait_until("a problem", lambda: [
                row for row in daemon.query("status")["problems"]
                if "has not returned" in row["message"]], 30)[0]
            self.assertIn("nvmlDeviceGetClockInfo", stalled["message"])
            began = time.monotonic()

            code = daemon.stop(signal.SIGTERM)

            self.assertEqual(code, 0)
            self.assertLess(time.monotonic() - began, 10)
            self.assertIn("GPU thread did not stop call=nvmlDeviceGetClockInfo", daemon.log())

    def test_stops_although_waiting_for_events_hangs(self):
        with FakeDriver() as daemon:
            daemon.wait_for_first()
            daemon.set(**{"hang.nvmlEventSetWait": 1})
            time.sleep(1)

            self.assertEqual(daemon.stop(signal.SIGTERM), 0)

    def test_can_be_switched_off(self):
        with FakeDriver({"stats": {"gpu_interval_ms": 0}}) as daemon:
            self.assertEqual(daemon.gpus(), [])
            self.assertIn("stats.gpu_interval_ms", daemon.ctl("gpus").stdout)

    @unittest.skipIf(os.path.exists("/proc/driver/nvidia"), "this host has NVIDIA's driver")
    def test_finds_nothing_wrong_with_a_host_without_gpus(self):
        with gs.Daemon({"custom_sym": PROBE}) as daemon:
            text = "there is no NVIDIA GPU on this host"
            gs.wait_until("the reason", lambda: text in daemon.ctl("gpus").stdout)

            self.assertEqual(daemon.query("gpus"), [])
            self.assertIn(f"GPUs        none: {text}", daemon.ctl("status").stdout)
            self.assertEqual([row for row in daemon.query("status")["problems"]
                              if "GPU" in row["subject"]], [])
            self.assertRegex(daemon.ctl("doctor", check=False).stdout, rf"ok +gpus +{text}")


if __name__ == "__main__":
    gs.require_root()
    unittest.main(verbosity=2)
