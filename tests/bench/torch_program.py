#!/usr/bin/env python3
"""A PyTorch program for daemon_cost.py: trains a small network on the CPU, calls the CUDA libraries that are here, and now
and then one of PyTorch's functions that takes longer than the daemon's threshold, on ever other ways through Python, and through each
LIBRARY, whose function call_back() calls what it is given.

usage: torch_program.py SECONDS SLOW_CALLS [LIBRARY...]     prints "ready" once everything is mapped, then how often it was slow
"""

import ctypes
import sys
import time

import torch

LIBRARIES = ("libcudart.so.13", "libcublas.so.13", "libcudnn.so.9", "libnccl.so.2")
SLOW_SECONDS = 0.15  # beyond slow.default_threshold_ms


def load_cuda():
    """The libraries that could be loaded, by name."""
    loaded = {}
    for name in LIBRARIES:
        try:
            loaded[name] = ctypes.CDLL(f"/usr/local/cuda/lib/{name}")
        except OSError:
            print(f"{name} is not here", file=sys.stderr)
    return loaded


def call_cuda(loaded):
    """Without a GPU each call fails, and is counted as any other."""
    pointer = ctypes.c_void_p()
    if "libcudart.so.13" in loaded:
        loaded["libcudart.so.13"].cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(4096))
    if "libcudnn.so.9" in loaded:
        loaded["libcudnn.so.9"].cudnnCreate(ctypes.byref(pointer))


def train(network, optimizer):
    loss = network(torch.randn(16, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def make_large():
    """A tensor whose nonzero() is slow."""
    count = 1 << 20
    while True:
        large = torch.ones(count)
        begin = time.monotonic()
        large.nonzero()
        if time.monotonic() - begin > SLOW_SECONDS:
            return large
        count *= 2


def call_deep(large, depth):
    """Another stack for each depth."""
    return large.nonzero() if depth == 0 else call_deep(large, depth - 1)


class Slow(torch.nn.Module):
    """Called by PyTorch's own code."""

    def forward(self, large):
        return large.nonzero()


def make_way_through(path):
    library = ctypes.CDLL(path)

    def call(large, _):
        library.call_back(ctypes.CFUNCTYPE(None)(large.nonzero))
    return call


def main():
    seconds, slow_calls = float(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    network = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(8)))
    optimizer = torch.optim.Adam(network.parameters())
    slow_ways = [call_deep, lambda large, _: Slow()(large),
                 lambda large, _: torch.nn.Sequential(Slow(), torch.nn.Identity())(large)]
    slow_ways += [make_way_through(library) for library in sys.argv[3:]]
    large = make_large()
    loaded = load_cuda()
    train(network, optimizer)
    print("ready", flush=True)
    begin, done = time.monotonic(), 0
    while time.monotonic() - begin < seconds:
        train(network, optimizer)
        call_cuda(loaded)
        if done < slow_calls and time.monotonic() - begin > done * seconds / slow_calls:
            slow_ways[done % len(slow_ways)](large, done % 32)
            done += 1
        time.sleep(0.002)
    print(done, flush=True)


if __name__ == "__main__":
    main()
