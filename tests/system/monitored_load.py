"""Everything that gpuperf's metrics tell of, at once and without a GPU: a daemon with a scripted NVML, programs that
call CUDA stand-ins, wait, fail, hang, cost too much, live in pods and Slurm jobs, injected processes on a fake driver,
and replayed sessions; and a Prometheus that scrapes it."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

from containers_test import find_cgroup_root
from gpuperf_system import SOURCE, WORKLOADS, free_port, start_workload, wait_until
from gpus_test import FakeDriver
from injector_workload import FAKES, INJECTOR, Workload

POD_UID = "11112222-3333-4444-5555-666677778888"
STANDINS = WORKLOADS / "standin"
RECORDINGS = ("streams", "graph", "train")
DEPLOY = json.loads((SOURCE / "deploy/config.json").read_text(encoding="utf-8"))


def make_config(folder):
    """The shipped functions in the stand-ins, and those of the workloads; 5 ms is slow, the budget holds."""
    return {"cuda_func_sym": DEPLOY["cuda_func_sym"], "cublas_func_sym": DEPLOY["cublas_func_sym"],
            "nccl_func_sym": DEPLOY["nccl_func_sym"],
            "custom_sym": {name: name for name in ("slow_sleep", "park_inner", "busy_tight", "busy_rare")}
            | {"slow_spin": {"symbol": "slow_spin", "role": "step", "args": [{"name": "tokens", "arg": 0, "type": "i32"}]}},
            "requests": {"enabled": True},  # those of Prometheus, which runs in the session of the processes with steps
            "libraries": {"cuda_func_sym": [f"{STANDINS}/libcudart.so*", f"{FAKES}/libcuda.so*"],
                          "cublas_func_sym": [f"{STANDINS}/libcublas.so*"],
                          "nccl_func_sym": [f"{FAKES.parent / 'nccl'}/libnccl.so*"],
                          "custom_sym": [str(WORKLOADS / "slow_calls"), str(WORKLOADS / "parked_calls"),
                                         f"{folder}/busy_loop"]},
            "slow": {"default_threshold_ms": 5, "log_per_second": 1},
            "overhead": {"budget_percent": 1}}


class Load(contextlib.ExitStack):
    """The daemon and all that runs beside it; step() goes on with what does not go on by itself."""

    def __init__(self, **config):
        super().__init__()
        self.config = config
        self.heat_ns = 0
        self.steps = 0
        self.replays = []

    def __enter__(self):
        super().__enter__()
        try:
            self.daemon = FakeDriver(None, gpus=2, **{"0.thermal_field": 269, "0.reasons": 0x48,
                                                          "0.gpm.60": 4096, "0.gpm.61": 2048})
            settings = json.loads(self.daemon.config.read_text(encoding="utf-8"))
            for section, values in {**make_config(self.daemon.path), **self.config}.items():
                settings[section] = {**settings.get(section, {}), **values}
            self.daemon.config.write_text(json.dumps(settings), encoding="utf-8")
            shutil.copy(WORKLOADS / "busy_loop", self.daemon.path)
            self.callback(self.daemon.stop)  # also where it does not get ready
            self.enter_context(self.daemon)
            self.start()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def start(self):
        rounds = ("cuda_calls_standin", "--seconds", 100_000, "--rounds", 3_000_000)  # 600 calls a second
        self.run(*rounds)
        self.run(*rounds, cgroup=self.make_pod(),
                 env=os.environ | {"SLURM_JOB_ID": "4711", "SLURM_PROCID": "3"})
        self.run("slow_calls", "--requests", 1_000_000, "--duration-ms", 20)
        self.daemon.wait_attached("park_inner", seconds=60)  # calls that began before it are not seen
        self.run("parked_calls", "--threads", 2)
        self.run(self.daemon.path / "busy_loop", "--seconds", 100_000)
        self.injected = self.enter_context(Workload(self.daemon.path / "run/ingest.sock"))
        self.injected.do("init")
        self.injected.do("graph make decode 8")
        self.daemon.set(events="1:8:79")
        self.start_ranks()

    def start_ranks(self):
        """A job of two ranks, one of which is late."""
        environment = {"CUDA_INJECTION64_PATH": str(INJECTOR), "GPUPERF_SETTLE_MS": "0", "GPUPERF_INIT_WAIT_MS": "5000",
                       "GPUPERF_SOCKET": str(self.daemon.path / "run/ingest.sock"),
                       "LD_LIBRARY_PATH": f"{FAKES}:{FAKES / 'cupti_13'}:{FAKES.parent / 'nccl'}"}
        folder = self.daemon.path / "ranks"
        folder.mkdir()
        ranks = [subprocess.Popen([WORKLOADS / "nccl_ranks", folder, str(rank), "2", *cause], stdin=subprocess.PIPE,
                                  stdout=subprocess.DEVNULL, env=os.environ | environment)
                 for rank, cause in enumerate(((), ("sleep", "20")))]
        for rank in ranks:
            self.callback(rank.wait)
            self.callback(rank.kill)
        self.daemon.wait_attached("ncclAllReduce", seconds=60)
        for rank in ranks:
            rank.stdin.write(b"go\n")
            rank.stdin.close()

    def run(self, *command, cgroup=None, **options):
        """A workload that goes on until the end; without standard output."""
        with open(os.devnull, "wb") as nowhere:
            process = subprocess.Popen([WORKLOADS / command[0], *map(str, command[1:])], stdout=nowhere, stderr=nowhere,
                                       **options)
        if cgroup is not None:
            (cgroup / "cgroup.procs").write_text(str(process.pid), encoding="ascii")
        self.callback(process.wait)
        self.callback(process.kill)
        return process

    def make_pod(self):
        """A control group with the name of a container of a pod."""
        cgroup = find_cgroup_root() / f"gpuperf-load-{os.getpid()}.slice"
        pod = f"kubepods-burstable-pod{POD_UID.replace('-', '_')}.slice"
        for part in ("", "kubepods.slice", pod, f"cri-containerd-{'5' * 64}.scope"):
            cgroup = cgroup / part
            if part or not cgroup.exists():
                cgroup.mkdir()
            self.callback(self.remove_cgroup, cgroup)
        return cgroup

    @staticmethod
    def remove_cgroup(cgroup):
        def remove():
            with contextlib.suppress(OSError):  # busy: its last process is not reaped yet
                cgroup.rmdir()
            return not cgroup.exists()
        wait_until(f"{cgroup} is empty", remove)

    def step(self):
        """Half a second with a bit of everything: GPU work, sessions that come and go, processes that do, heat."""
        time.sleep(0.5)
        self.injected.do("paths 20 1")
        self.injected.do("memory 2")
        self.injected.do("graph launch decode 2")
        self.injected.do("sync")
        self.heat_ns += 300_000_000
        self.daemon.set(**{"0.hw_thermal_ns": self.heat_ns})
        recording = RECORDINGS[self.steps % len(RECORDINGS)]
        self.replay(SOURCE / f"tests/recordings/{recording}.session")
        self.run_shortly()
        self.steps += 1

    def replay(self, path):
        """Another process with a session; the two before it stay."""
        process = subprocess.Popen([sys.executable, SOURCE / "tests/system/session_replay.py", path,
                                    self.daemon.path / "run/ingest.sock"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        self.replays.append(process)
        self.callback(process.communicate)
        if len(self.replays) > 2:
            self.replays.pop(0).stdin.close()

    def run_shortly(self):
        """A process that is there for 50 ms, a Slurm job of its own: new sets of labels each time."""
        process = start_workload("slow_calls", "--requests", 3, "--duration-ms", 8,
                                 env=os.environ | {"SLURM_JOB_ID": str(10_000 + self.steps)})
        self.callback(process.stdout.close)
        process.communicate(timeout=60)


class Prometheus:
    """A real one, for the targets given; a context manager."""

    def __init__(self, folder, targets, interval="1s", **config):
        self.port = free_port()
        path = folder / "prometheus.yml"
        scrape = {"job_name": "gpuperf", "static_configs": [{"targets": targets}]}
        path.write_text(json.dumps({  # JSON is YAML
            "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": "1s"},
            "scrape_configs": [scrape], **config}), encoding="utf-8")
        self.log_path = folder / "prometheus.log"
        self.command = ["prometheus", f"--config.file={path}", f"--storage.tsdb.path={folder}/tsdb",
                        f"--web.listen-address=127.0.0.1:{self.port}"]

    def __enter__(self):
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
        wait_until("Prometheus answers", lambda: self.fetch("/-/ready", silent=True), 60)
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=30)

    def fetch(self, path, silent=False, **parameters):
        url = f"http://127.0.0.1:{self.port}{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return answer.read().decode()
        except OSError as error:
            if silent:
                return None
            text = error.read().decode() if isinstance(error, urllib.error.HTTPError) else str(error)
            raise AssertionError(f"{path} {parameters}: {text}") from error

    def ask(self, path, **parameters):
        return json.loads(self.fetch(path, **parameters))["data"]

    def query(self, expression):
        """Rows of an instant query: (labels, value)."""
        return [(row["metric"], float(row["value"][1]))
                for row in self.ask("/api/v1/query", query=expression, time=time.time())["result"]]
