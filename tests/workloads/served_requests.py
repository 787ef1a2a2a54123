#!/usr/bin/env python3
"""Serves a tiny random model of llama.cpp over HTTP, a token at a time, and tells which step made which token. For programs that must
find the same.

usage: served_requests.py [--apart] FOLDER_OF_LLAMA_CPP GO_FILE
Waits for GO_FILE, prints its port, and serves until its input ends; then it prints one JSON object: for each streamed response, in the
order of their beginnings, `read_ns` (its request was read) and `parts`: when each token was written (CLOCK_MONOTONIC) and the step, from 0
on, that made it; and the process ids of server and engine. Every other response is written in pieces (writev). With --apart the engine is a
process of its own, as in vLLM. GET /generate/PROMPT/TOKENS streams as many `bytes` as no other
of so many tokens, a prompt of 81 tokens is read slowly; any other path has an answer of a known length."""

import argparse
import asyncio
import json
import multiprocessing
import os
import pathlib
import sys
import tempfile
import threading
import time

import llama_steps

STREAMS = 128
LAST_CHUNK = b"0\r\n\r\n"
MOST_NEW = 3  # requests that one step begins with
SLOW_PROMPT, SLOW_S = 81, 0.3  # the step that reads a prompt of so many tokens takes so much longer


def make_model(folder):
    with tempfile.TemporaryDirectory() as room:
        path = pathlib.Path(room) / "tiny.gguf"
        llama_steps.write_model(path, 0)
        return llama_steps.Llama(folder, path, 1, False, STREAMS)


def run_engine(folder, pipe):
    """Takes (request, tokens of its prompt, tokens to make); tells (requests, step) after each step. A request is a sequence."""
    llama = make_model(folder)
    pipe.send(os.getpid())
    left, fresh = {}, []
    while True:
        while pipe.poll() or not (left or fresh):
            try:
                asked = pipe.recv()
            except EOFError:
                return
            if asked is None:
                return
            fresh.append(asked)
        begun, fresh = fresh[:MOST_NEW], fresh[MOST_NEW:]
        lengths = {f"s{request}": prompt for request, prompt, _ in begun} or {f"s{request}": 1 for request in left}
        if any(prompt == SLOW_PROMPT for _, prompt, _ in begun):
            llama.step_during(lambda: time.sleep(SLOW_S), **lengths)
        else:
            llama.step(**lengths)
        left |= {request: tokens for request, _, tokens in begun}
        made = [int(name[1:]) for name in lengths]
        pipe.send((made, len(llama.steps) - 1))
        for request in made:
            left[request] -= 1
        left = {request: tokens for request, tokens in left.items() if tokens > 0}


class Server:
    def __init__(self, pipe):
        self.pipe = pipe
        self.tokens = {}  # by request: a queue of steps
        self.responses = []

    def take_tokens(self):
        while self.pipe.poll():
            requests, step = self.pipe.recv()
            for request in requests:
                self.tokens[request].put_nowait(step)

    async def serve(self, reader, writer):
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                read_ns = time.monotonic_ns()
                path = head.split(b" ")[1].decode()
                if path.startswith("/generate/"):
                    _, _, prompt, count = path.split("/")
                    await self.stream(writer, read_ns, int(prompt), int(count))
                else:
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nOK")
        except asyncio.IncompleteReadError:
            pass
        writer.close()

    async def stream(self, writer, read_ns, prompt, count):
        request = len(self.responses)
        response = {"read_ns": read_ns, "parts": []}
        self.responses.append(response)
        self.tokens[request] = asyncio.Queue()
        head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nx-filler: " + b"." * request + b"\r\n\r\n"
        writer.write(head)
        response["bytes"] = len(head) + len(LAST_CHUNK)
        self.pipe.send((request, prompt, count))
        for i in range(count):
            step = await self.tokens[request].get()
            data = f"data: token {i}\n\n".encode()
            pieces = [f"{len(data):x}\r\n".encode(), data, b"\r\n"]
            response["parts"].append((time.monotonic_ns(), step))
            response["bytes"] += sum(map(len, pieces))
            if request % 2:
                os.writev(writer.get_extra_info("socket").fileno(), pieces)
            else:
                writer.write(b"".join(pieces))
        writer.write(LAST_CHUNK)


async def run_server(pipe):
    server = Server(pipe)
    loop = asyncio.get_running_loop()
    loop.add_reader(pipe.fileno(), server.take_tokens)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    loop.remove_reader(pipe.fileno())
    pipe.send(None)
    return server.responses


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("go")
    parser.add_argument("--apart", action="store_true")
    options = parser.parse_args()
    ours, engines = multiprocessing.Pipe()
    make = multiprocessing.get_context("spawn").Process if options.apart else threading.Thread
    engine = make(target=run_engine, args=(options.folder, engines), daemon=True)
    engine.start()
    engine_pid = ours.recv()
    llama_steps.wait_for(options.go)
    responses = asyncio.run(run_server(ours))
    engine.join()
    print(json.dumps({"server": os.getpid(), "engine": engine_pid, "responses": responses}), flush=True)


if __name__ == "__main__":
    main()
