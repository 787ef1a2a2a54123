"""Where the GPU's time went, as profiles over OTLP say it, by twenty planted call paths whose kernels know themselves what they
took; over several periods, with nobody asking for a capture."""

import collections
import json
import subprocess
import threading
import time

from trace_compare import compare_paths, sum_profiles
from trace_paths import PATH, TOLERANCE
from trace_rig import Planted, learn, save, start_tracer

PERIOD_SECONDS = 5
ROUNDS = 8  # each of some 1.2 s of GPU time
REPEATS = 50


class Receiver:
    """The bundle's otlp_receiver; a context manager."""

    def __init__(self, rig):
        self.process = subprocess.Popen([rig.bundle / "bin/otlp_receiver", "0"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.port = json.loads(self.process.stdout.readline())["port"]
        self.requests = []
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.requests.append(json.loads(line)["request"])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(timeout=30)
        self.reader.join()


def check_profiles(report, rig):
    with Receiver(rig) as receiver, start_tracer(rig, more={
            "export": {"otlp": {"endpoint": f"http://127.0.0.1:{receiver.port}", "metrics": False, "slow_calls": False,
                                "profiles": True, "profile_interval_seconds": PERIOD_SECONDS}},
            "trace": {"stacks_per_second": 1_000_000}}) as tracer, \
            Planted(rig, [rig.programs / "trace_paths", "serve"], tracer.socket, truth=False) as program:
        program.wait_ready()
        tracer.wait_collecting(program.pid)
        tracer.wait_for_probes()
        learn(tracer, program, "paths 5 1")
        time.sleep(2 * PERIOD_SECONDS)  # what was learned by is in profiles of its own
        before = sum_profiles(receiver.requests, "gpu_time", program.pid, PATH)
        begun = len(receiver.requests)
        truth_ns = collections.Counter()
        for _ in range(ROUNDS):
            program.ask(f"paths {REPEATS} 7")
            truth_ns.update({path: total_ns for path, (_, total_ns) in program.ask("times")["paths"].items()})
            time.sleep(0.5)
        time.sleep(2 * PERIOD_SECONDS)
        sums = sum_profiles(receiver.requests, "gpu_time", program.pid, PATH)
        drops = tracer.query("status").get("drops", [])
    found_us = {path: (sums[path] - before[path]) / 1000 for path in truth_ns}
    worst, wrong = compare_paths(truth_ns, found_us, TOLERANCE)
    report.check(f"profiles: GPU time of 20 planted paths within {100 * TOLERANCE:.0f} %", len(truth_ns) == 20 and not wrong,
                 f"worst {100 * worst:.3f} % off; {'; '.join(wrong) or 'all within'}; "
                 f"{sum(found_us.values()) / 1000:.1f} ms in {len(receiver.requests) - begun} requests")
    # The answers' copies are of no path.
    others_us = (sums["none"] - before["none"]) / 1000
    report.check("profiles: kernels without their path are none", others_us < 0.001 * sum(found_us.values()),
                 f"{others_us:.1f} us of work without a path, {2 * ROUNDS} copies and sets among it")
    report.say(f"dropped: {drops}")
    save(rig, "trace_profiles", {"truth_ns": truth_ns, "found_us": found_us, "worst_ratio": worst})
