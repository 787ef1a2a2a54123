#!/usr/bin/env python3
"""A training step of PyTorch in a CUDA graph. Each function of its forward pass has a kernel of its own, which is
named after what it computes; the backward pass is captured by a thread of autograd.

usage: trace_graph_model.py serve IN OUT    by lines of the pipe IN, answers go to OUT:
                                            "capture"    captures the step anew
                                            "replay N"   launches it N times, by replay_step
"""

import gc
import json
import sys
import threading
import time

import torch

WIDTH, ROWS = 256, 64


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = torch.nn.ParameterList(torch.randn(WIDTH, WIDTH) / WIDTH ** 0.5 for _ in range(4))

    def embed_tokens(self, x):
        return torch.sin(x @ self.weights[0])

    def mix_heads(self, x):
        return torch.tanh(x @ self.weights[1])

    def feed_forward(self, x):
        return torch.sigmoid(x @ self.weights[2])

    def project_out(self, x):
        return torch.erf(x @ self.weights[3])

    def forward(self, x):
        return self.project_out(self.feed_forward(self.mix_heads(self.embed_tokens(x))))


class Step:
    def __init__(self):
        torch.manual_seed(1)
        self.model = Model().cuda()
        self.data = torch.randn(ROWS, WIDTH, device="cuda")
        self.graph = None
        # As PyTorch asks for: on a stream beside, and libraries load what they need before the capture.
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.train()
        torch.cuda.synchronize()

    def train(self):
        self.model.zero_grad(set_to_none=True)
        self.model(self.data).square().mean().backward()

    def capture(self):
        self.model.zero_grad(set_to_none=True)
        self.graph = None
        gc.collect()
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.train()
        return {"tid": threading.get_native_id()}

    def replay_step(self):
        self.graph.replay()

    def replay(self, count):
        begin = time.monotonic_ns()
        for _ in range(count):
            self.replay_step()
        torch.cuda.synchronize()
        return {"begin_mono_ns": begin, "end_mono_ns": time.monotonic_ns()}


def main():
    if len(sys.argv) != 4 or sys.argv[1] != "serve":
        sys.exit("trace_graph_model.py: no such use")
    step = Step()
    with open(sys.argv[2], encoding="utf-8") as orders, open(sys.argv[3], "w", encoding="utf-8") as answers:
        print("ready", file=answers, flush=True)
        for order in orders:
            word, *count = order.split()
            answer = step.capture() if word == "capture" else step.replay(int(count[0]))
            print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
