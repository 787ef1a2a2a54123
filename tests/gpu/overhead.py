#!/usr/bin/env python3
"""What gpuperfd costs two PyTorch programs: one that does nothing but launch small kernels, the worst case
there is, and one that keeps the GPU busy.

usage: overhead.py BUNDLE RESULTS_FOLDER [ROUNDS]

One process decodes eagerly and trains, over and over; gpuperfd comes and goes beside it, so that every
round has each case in the same process on the same machine. Prints the median of each case and its ratio
to bare, and writes every figure to overhead.json.

  bare           no daemon
  launches       cuLaunchKernel and cuLaunchKernelEx alone, without a budget
  shipped        deploy/config.json, without a budget
  in_budget      deploy/config.json as it is, once the budget (1 %) has had its say
"""

import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

TOKENS = 256
STEPS = 60
FOLDER = pathlib.Path(__file__).resolve().parent


def make_trainer():
    """Steps of training that the GPU takes milliseconds for and the host microseconds."""
    import torch
    layers = [layer for _ in range(6) for layer in (torch.nn.Linear(4096, 4096), torch.nn.GELU())]
    model = torch.nn.Sequential(*layers).to(device="cuda", dtype=torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    data = torch.randn(8192, 4096, device="cuda", dtype=torch.bfloat16)

    def train(steps):
        for _ in range(steps):
            optimizer.zero_grad()
            model(data).square().mean().backward()
            optimizer.step()
        torch.cuda.synchronize()

    return train


def work():
    """The measured process: does what each line read names and prints its rate."""
    sys.path.insert(0, str(FOLDER))
    from torch_kernels import Decoder
    programs = {"decode": (Decoder(TOKENS).decode, TOKENS), "train": (make_trainer(), STEPS)}
    for run, count in programs.values():
        run(count)
    print("ready", flush=True)
    for line in sys.stdin:
        run, count = programs[line.strip()]
        start = time.monotonic()
        run(count)
        print(count / (time.monotonic() - start), flush=True)


class Daemon:
    """The bundle's gpuperfd with `config`, from its start until its probes are in, to its end."""

    def __init__(self, bundle, config):
        self.bundle, self.config = bundle, config

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="gpuperf-overhead-")
        path = pathlib.Path(self.folder.name)
        self.address = f"unix:{path}/api.sock"
        config = {**self.config, "grpc": {"listen": self.address}, "metrics": {"listen": ""},
                  "storage": {"path": str(path / "store")},
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

    def status(self):
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

    def measure(case):
        for program, values in figures[case].items():
            worker.stdin.write(program + "\n")
            worker.stdin.flush()
            values.append(float(worker.stdout.readline()))

    def warm_up(seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            worker.stdin.write("decode\n")
            worker.stdin.flush()
            worker.stdout.readline()

    no_budget = {"overhead": {"budget_percent": 0}}
    cases = {"launches": launches | no_budget, "shipped": shipped | no_budget, "in_budget": shipped}
    figures = {case: {"decode": [], "train": []} for case in ("bare", *cases)}
    status = {}
    for _ in range(rounds):
        measure("bare")
        for name, config in cases.items():
            with Daemon(bundle, config) as daemon:
                if name == "in_budget":
                    warm_up(4)
                measure(name)
                time.sleep(1.2)  # one snapshot
                status[name] = daemon.status()
    worker.stdin.close()
    worker.wait(30)
    report = {"rates": figures, "status": status}
    (results / "overhead.json").write_text(json.dumps(report, indent=1), encoding="utf-8")
    for program, unit in (("decode", "tokens/s"), ("train", "steps/s")):
        bare = statistics.median(figures["bare"][program])
        for case, rates in figures.items():
            values = rates[program]
            median = statistics.median(values)
            print(f"{program:6} {case:9} {median:7.1f} {unit:8} {median / bare:.3f} of bare  "
                  f"(from {min(values):.1f} to {max(values):.1f})")
    for case, answer in status.items():
        out = [row["function"] for row in answer["suspensions"]]
        print(f"{case}: {answer['calls']} calls counted in a round, "
              f"daemon {answer['resident_bytes'] / 2**20:.0f} MiB, out: {', '.join(out) or 'none'}")


if __name__ == "__main__":
    if sys.argv[1:] == ["work"]:
        work()
    else:
        main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve(),
             int(sys.argv[3]) if len(sys.argv) > 3 else 5)
