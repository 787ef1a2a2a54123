#!/usr/bin/env python3
"""Serves sequences with stand-ins of CUDA's runtime and cuBLAS, as an engine of PyTorch's does, and prints its steps: one JSON object.
For programs that must learn them: nothing here says what a step is.

usage: served_steps.py FOLDER_OF_STANDINS GO_FILE
Waits for GO_FILE."""

import ctypes
import json
import os
import pathlib
import random
import sys
import time

STEPS, PREFILL_EVERY = 120, 10
LAYERS, MAX_SEQUENCES = 4, 8
WIDTH = 64
TO_DEVICE, TO_HOST = 1, 2
TOKEN_ID_BYTES = 8


class Engine:
    def __init__(self, folder):
        self.runtime = ctypes.CDLL(str(folder / "libcudart.so.13"))
        self.blas = ctypes.CDLL(str(folder / "libcublas.so.13"))
        self.handle = ctypes.c_void_p()
        self.blas.cublasCreate_v2(ctypes.byref(self.handle))
        self.event = ctypes.c_void_p()
        self.runtime.cudaEventCreate(ctypes.byref(self.event))
        self.memory = ctypes.create_string_buffer(1 << 16)

    def copy(self, size, kind):
        assert self.runtime.cudaMemcpyAsync(self.memory, self.memory, ctypes.c_size_t(size), kind, None) == 0

    def multiply(self, rows, columns):
        one = ctypes.c_float(1)
        assert self.blas.cublasSgemm_v2(self.handle, 1, 0, columns, rows, WIDTH, ctypes.byref(one), self.memory, columns, self.memory,
                                        WIDTH, ctypes.byref(one), self.memory, columns) == 0

    def compute(self, sequences, tokens):
        self.copy(tokens * TOKEN_ID_BYTES, TO_DEVICE)
        for _ in range(LAYERS):
            self.multiply(tokens, 3 * WIDTH)
            self.multiply(tokens, WIDTH)
        self.multiply(sequences, 2 * WIDTH)

    def read_tokens(self, sequences):
        self.copy(sequences * TOKEN_ID_BYTES, TO_HOST)
        self.runtime.cudaStreamSynchronize(None)

    def is_done(self):
        """One more result, of another place in the program and soon there."""
        self.copy(TOKEN_ID_BYTES, TO_DEVICE)
        self.copy(1, TO_HOST)
        self.runtime.cudaEventSynchronize(self.event)


def serve(engine, rng):
    sequences = rng.randrange(1, MAX_SEQUENCES + 1)
    is_prefill = rng.randrange(PREFILL_EVERY) == 0
    tokens = sequences * (rng.randrange(5, 50) if is_prefill else 1)
    start_ns = time.monotonic_ns()
    engine.compute(sequences, tokens)
    engine.read_tokens(sequences)
    end_ns = time.monotonic_ns()
    engine.is_done()
    return {"tokens": tokens, "sequences": sequences, "phase": "prefill" if is_prefill else "decode", "duration_ns": end_ns - start_ns}


def main():
    engine, go = Engine(pathlib.Path(sys.argv[1])), pathlib.Path(sys.argv[2])
    while not go.exists():
        time.sleep(0.01)
    rng = random.Random(1)
    serve(engine, rng)  # the first turn of a process is its start
    steps = []
    for _ in range(STEPS):
        steps.append(serve(engine, rng))
        time.sleep(0.003)  # as for the next request
    print(json.dumps({"pid": os.getpid(), "steps": steps}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
