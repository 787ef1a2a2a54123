#!/usr/bin/env python3
"""What gpuperfd costs a PyTorch program that does nothing but launch kernels: the worst case there is.

usage: overhead.py BUNDLE RESULTS_FOLDER [ROUNDS]

One process decodes eagerly, over and over; gpuperfd comes and goes beside it, so that every round has
each case in the same process on the same machine. Prints the median of each case and its ratio to bare,
and writes every figure to overhead.json.

  bare           no daemon
  launches       cuLaunchKernel and cuLaunchKernelEx alone
  shipped        deploy/config.json as it is
"""

import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

TOKENS = 256
FOLDER = pathlib.Path(__file__).resolve().parent


def work():
    """The measured process: decodes once per line read and prints how long it took."""
    sys.path.insert(0, str(FOLDER))
    from torch_kernels import Decoder
    decoder = Decoder(TOKENS)
    decoder.decode(TOKENS)
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.monotonic()
        decoder.decode(TOKENS)
        print(TOKENS / (time.monotonic() - start), flush=True)


class Daemon:
    """The bundle's gpuperfd with `config`, from its start until its probes are in, to its end."""

    def __init__(self, bundle, config):
        self.bundle, self.config = bundle, config

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="gpuperf-overhead-")
        path = pathlib.Path(self.folder.name)
        self.address = f"unix:{path}/api.sock"
        config = {**self.config, "grpc": {"listen": self.address}, "metrics": {"listen": ""},
                  "log": {"level": "error"}}
        (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
        self.process = subprocess.Popen([self.bundle / "bin/gpuperfd", "--config",
                                         path / "config.json", "--runtime-dir", path])
        seen = []
        while seen[-3:] != seen[-1:] * 3 or not seen or seen[-1] == 0:
            time.sleep(0.5)
            answer = subprocess.run([self.bundle / "bin/gpuperfctl", "--address", self.address,
                                     "status", "-o", "json"], capture_output=True, text=True,
                                    check=False)
            seen.append(json.loads(answer.stdout)["probes"]["attached"]
                        if answer.returncode == 0 else 0)
            if len(seen) > 60:
                sys.exit(f"no probes within 30 s: {answer.stderr}")
        return self

    def calls(self):
        answer = subprocess.run([self.bundle / "bin/gpuperfctl", "--address", self.address,
                                 "status", "-o", "json"], capture_output=True, text=True, check=True)
        return json.loads(answer.stdout)

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(30)
        self.folder.cleanup()


def main(bundle, results, rounds):
    with open(bundle / "config.json", encoding="utf-8") as file:
        shipped = json.load(file)
    launches = {"cuda_func_sym": {n: n for n in ("cuLaunchKernel", "cuLaunchKernelEx")}}
    worker = subprocess.Popen([sys.executable, __file__, "work"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)
    assert worker.stdout.readline() == "ready\n"

    def measure():
        worker.stdin.write("\n")
        worker.stdin.flush()
        return float(worker.stdout.readline())

    figures = {"bare": [], "launches": [], "shipped": []}
    status = {}
    for _ in range(rounds):
        figures["bare"].append(measure())
        for name, config in (("launches", launches), ("shipped", shipped)):
            with Daemon(bundle, config) as daemon:
                figures[name].append(measure())
                time.sleep(1.2)  # one snapshot
                status[name] = daemon.calls()
    worker.stdin.close()
    worker.wait(30)
    bare = statistics.median(figures["bare"])
    report = {"tokens_per_second": figures, "status": status,
              "ratio": {name: statistics.median(f) / bare for name, f in figures.items()}}
    (results / "overhead.json").write_text(json.dumps(report, indent=1), encoding="utf-8")
    for name, values in figures.items():
        calls = status.get(name, {}).get("calls", 0) / TOKENS
        memory = status.get(name, {}).get("resident_bytes", 0) / 2**20
        print(f"{name:9} {statistics.median(values):7.1f} tokens/s  {report['ratio'][name]:.3f} of "
              f"bare  (from {min(values):.1f} to {max(values):.1f}; {calls:.0f} probed calls a token;"
              f" daemon {memory:.0f} MiB)")


if __name__ == "__main__":
    if sys.argv[1:] == ["work"]:
        work()
    else:
        main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve(),
             int(sys.argv[3]) if len(sys.argv) > 3 else 5)
