#!/usr/bin/env python3
"""PyTorch work whose results are compared, told by lines of standard input what to do; each is answered by
one line of JSON.

usage: session_finalize_work.py work | session_finalize_work.py ids

  spin PARTS       threads, for example "work:4,alloc:2", until "halt": work launches, copies, allocates and
                   records events; with eight and more of it, memory goes back to the driver now and then, which
                   captures forbid. launch launches only, copy copies, alloc, host, streams, query, esync make these
                   calls, graph captures, replays, updates and destroys graphs, profiler runs torch.profiler each second
  halt             {"rounds", "wrong"}: how often each result was compared, and how often it differed
  capture NAME     a graph of 200 kernels
  replay NAME N    replays it, and compares what it leaves
  launch N         so many kernels
  quit

ids: whether CUPTI takes single calls by callback id before and after cuptiFinalize, without our library.
"""

import ctypes
import functools
import json
import sys
import threading
import time

import torch

RUNTIME, LAUNCH_ID = 5, 211  # CUPTI_ACTIVITY_KIND_RUNTIME; cudaLaunchKernel's callback id
REQUEST = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t),
                           ctypes.POINTER(ctypes.c_size_t))
COMPLETE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t,
                            ctypes.c_size_t)


class Calls:
    """Each returns a call of the CUDA runtime that may be made again and again."""

    def __init__(self):
        self.runtime = ctypes.CDLL("libcudart.so.13")  # of PyTorch, mapped already

    def do(self, name, *arguments):
        if (error := getattr(self.runtime, name)(*arguments)) != 0:
            raise RuntimeError(f"{name}: {error}")

    def make(self, name, *arguments):
        handle = ctypes.c_void_p()
        self.do(name, ctypes.byref(handle), *arguments)
        return handle

    def alloc(self):
        return lambda: self.do("cudaFree", self.make("cudaMalloc", ctypes.c_size_t(1 << 16)))

    def host(self):
        return lambda: self.do("cudaFreeHost", self.make("cudaHostAlloc", ctypes.c_size_t(1 << 16), 0))

    def streams(self):
        return lambda: self.do("cudaStreamDestroy", self.make("cudaStreamCreateWithFlags", 1))

    def query(self):
        event = self.make("cudaEventCreate")
        return lambda: self.do("cudaEventQuery", event)

    def esync(self):
        event = self.make("cudaEventCreate")
        return lambda: self.do("cudaEventSynchronize", event)

    def copy(self):
        stream = self.make("cudaStreamCreateWithFlags", 1)
        device, host = torch.zeros(4096, device="cuda"), torch.zeros(4096).pin_memory()

        def call():
            self.do("cudaMemcpyAsync", ctypes.c_void_p(device.data_ptr()), ctypes.c_void_p(host.data_ptr()),
                    ctypes.c_size_t(4096), 1, stream)
            self.do("cudaStreamSynchronize", stream)
        return call


def is_wrong(result, expected):
    return int(not torch.allclose(result.float(), expected.float(), atol=1e-2, rtol=1e-2))


class Work:
    def __init__(self):
        torch.manual_seed(1)
        self.weights = torch.randn(512, 512, device="cuda", dtype=torch.bfloat16) * 0.05
        self.start = torch.randn(64, 512, device="cuda", dtype=torch.bfloat16)
        self.expected = self.compute(self.start, 40).clone()
        with torch.cuda.stream(torch.cuda.Stream()):
            self.graph_expected = self.compute(self.start, 100).clone()
        torch.cuda.synchronize()
        self.graphs = {}
        self.threads, self.is_over = [], False
        self.rounds = self.wrong = 0
        self.lock = threading.Lock()
        self.capturing = threading.Lock()  # the profiler waits for the device, which captures forbid
        self.numbers = torch.zeros(16, device="cuda")

    def compute(self, value, steps):
        for _ in range(steps):
            value = torch.relu(value @ self.weights)
        return value

    def run_work(self, number):
        stream = torch.cuda.Stream()
        host = torch.empty_like(self.start, device="cpu").pin_memory()
        expected = self.expected.cpu()
        rounds = wrong = 0
        with torch.cuda.stream(stream):
            while not self.is_over:
                result = self.compute(self.start.clone(), 40)
                host.copy_(result, non_blocking=True)
                extra = torch.empty(1 << (12 + (rounds + number) % 12), device="cuda")
                extra.fill_(number)
                event = torch.cuda.Event()
                event.record(stream)
                event.synchronize()
                wrong += is_wrong(host, expected) or extra[0].item() != number
                rounds += 1
                del extra
                if number == 7 and rounds % 64 == 0:
                    torch.cuda.empty_cache()
        self.add(rounds, wrong)

    def spin(self, parts):
        self.is_over, self.rounds, self.wrong = False, 0, 0
        for part in parts.split(","):
            name, _, count = part.partition(":")
            do = getattr(self, f"run_{name}", None) or functools.partial(self.repeat, getattr(Calls(), name))
            self.threads += [threading.Thread(target=do, args=(number,)) for number in range(int(count or 1))]
        for thread in self.threads:
            thread.start()
        return {}

    def add(self, rounds, wrong=0):
        with self.lock:
            self.rounds += rounds
            self.wrong += wrong

    def repeat(self, make_call, _number):
        """A call of the CUDA runtime, again and again."""
        call, rounds = make_call(), 0
        while not self.is_over:
            for _ in range(50):
                call()
            rounds += 1
        self.add(rounds)

    def run_launch(self, _number):
        numbers, count = torch.zeros(4096, device="cuda"), 0
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            while not self.is_over:
                for _ in range(200):
                    numbers.add_(1)
                count += 200
                torch.cuda.current_stream().synchronize()
            self.add(count, int(numbers[0].item() != count))

    def record_graph(self, stream, numbers, addend):
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        with self.capturing, torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            for _ in range(20):
                numbers.add_(addend)
        return graph

    def run_graph(self, _number):
        calls, stream, rounds, wrong = Calls(), torch.cuda.Stream(), 0, 0
        handle = ctypes.c_void_p(stream.cuda_stream)
        while not self.is_over:
            with torch.cuda.stream(stream):
                numbers = torch.zeros(256, device="cuda")
                stream.synchronize()
                graphs = [self.record_graph(stream, numbers, addend) for addend in (1, 2)]
                first, second = (ctypes.c_void_p(graph.raw_cuda_graph()) for graph in graphs)
                executable = calls.make("cudaGraphInstantiate", first, ctypes.c_ulonglong(0))
                for _ in range(15):
                    calls.do("cudaGraphLaunch", executable, handle)
                calls.do("cudaGraphExecUpdate", executable, second, (ctypes.c_uint64 * 3)())
                for _ in range(15):
                    calls.do("cudaGraphLaunch", executable, handle)
                stream.synchronize()
                wrong += numbers[0].item() != 15 * 20 * (1 + 2)
                calls.do("cudaGraphExecDestroy", executable)
            del graphs
            rounds += 1
        self.add(rounds, wrong)

    def run_profiler(self, _number):
        from torch.profiler import ProfilerActivity, profile
        rounds = 0
        while not self.is_over:
            time.sleep(1)
            with self.capturing, profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]):
                numbers = torch.zeros(64, device="cuda")
                for _ in range(50):
                    numbers.add_(1)
                torch.cuda.synchronize()
            rounds += 1
        self.add(rounds)

    def halt(self):
        self.is_over = True
        for thread in self.threads:
            thread.join()
        self.threads = []
        return {"rounds": self.rounds, "wrong": self.wrong}

    def capture(self, name):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            output = self.compute(self.start, 100)
        self.graphs[name] = (graph, output)
        return {}

    def replay(self, name, count):
        graph, output = self.graphs[name]
        output.zero_()
        for _ in range(int(count)):
            graph.replay()
        torch.cuda.synchronize()
        return {"wrong": is_wrong(output, self.graph_expected)}

    def launch(self, count):
        for _ in range(int(count)):
            self.numbers.add_(1)
        torch.cuda.synchronize()
        return {}


def serve():
    work = Work()
    print(json.dumps({}), flush=True)
    for line in sys.stdin:
        verb, *words = line.split()
        if verb == "quit":
            break
        print(json.dumps(getattr(work, verb)(*words)), flush=True)


class Records:
    """Records of cudaLaunchKernel, by single calls. No other thread uses CUDA here."""

    def __init__(self):
        self.cupti = ctypes.CDLL("libcupti.so.13")  # of PyTorch, mapped already
        self.libc = ctypes.CDLL(None)
        self.libc.aligned_alloc.restype = ctypes.c_void_p
        self.count = 0
        self.callbacks = REQUEST(self.request), COMPLETE(self.complete)

    def request(self, buffer, size, records_max):
        size[0] = 1 << 20
        buffer[0] = self.libc.aligned_alloc(ctypes.c_size_t(64), ctypes.c_size_t(1 << 20))
        records_max[0] = 0

    def complete(self, _context, _stream, buffer, _size, valid):
        record = ctypes.c_void_p()
        while self.cupti.cuptiActivityGetNextRecord(ctypes.c_void_p(buffer), ctypes.c_size_t(valid),
                                                    ctypes.byref(record)) == 0:
            self.count += ctypes.c_uint32.from_address(record.value).value == RUNTIME

    def record(self, value, launches=500):
        """How many of the launches left a record."""
        self.count = 0
        answers = [self.cupti.cuptiActivityRegisterCallbacks(*self.callbacks),
                   self.cupti.cuptiActivityEnableRuntimeApi(LAUNCH_ID, ctypes.c_uint8(1))]
        for _ in range(launches):
            value.add_(1)
        torch.cuda.synchronize()
        self.cupti.cuptiActivityEnableRuntimeApi(LAUNCH_ID, ctypes.c_uint8(0))
        self.cupti.cuptiActivityFlushAll(1)
        return {"recorded": self.count, "launches": launches, "answers": answers}


def try_ids():
    value = torch.zeros(16, device="cuda")
    calls = Records()
    rows = [calls.record(value)]
    for _ in range(2):
        torch.cuda.synchronize()
        finalized = calls.cupti.cuptiFinalize()
        rows.append(calls.record(value) | {"finalize": finalized})
    print(json.dumps(rows), flush=True)


if __name__ == "__main__":
    try_ids() if sys.argv[1] == "ids" else serve()
