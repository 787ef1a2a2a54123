#!/usr/bin/env python3
"""Runs a tiny random model on llama.cpp and prints what it asked for: one JSON object with the steps in order. For programs that
must find the same.

usage: llama_steps.py [--experts] FOLDER_OF_LLAMA_CPP GO_FILE [STALL_FILE]
Waits for GO_FILE. With STALL_FILE the last step lasts until that file exists. With --experts the model's layers are mixtures of
experts, two threads compute, and what llama.cpp says of its operators while it runs them is printed too."""

import argparse
import array
import collections
import ctypes
import json
import math
import os
import pathlib
import random
import struct
import sys
import tempfile
import time

EMBEDDING, HEADS, FEED_FORWARD, LAYERS, VOCABULARY, CONTEXT = 64, 4, 128, 2, 512, 512
SEQUENCES, MICRO_BATCH = 6, 64
EXPERTS, EXPERTS_USED = 8, 2
DECODES = 40
SLOW_S = 0.3


def write_model(path, experts):
    """A random model of llama.cpp's file format GGUF, version 3. `experts`: of each layer; 0 = none."""
    rng = random.Random(1)
    shapes = {"token_embd.weight": (EMBEDDING, VOCABULARY), "output_norm.weight": (EMBEDDING,), "output.weight": (EMBEDDING, VOCABULARY)}
    for i in range(LAYERS):
        shapes |= {f"blk.{i}.{name}.weight": shape for name, shape in {
            "attn_norm": (EMBEDDING,), "ffn_norm": (EMBEDDING,), "attn_q": (EMBEDDING, EMBEDDING), "attn_k": (EMBEDDING, EMBEDDING),
            "attn_v": (EMBEDDING, EMBEDDING), "attn_output": (EMBEDDING, EMBEDDING)}.items()}
        forward = {"gate": (EMBEDDING, FEED_FORWARD), "up": (EMBEDDING, FEED_FORWARD), "down": (FEED_FORWARD, EMBEDDING)}
        if experts:
            shapes[f"blk.{i}.ffn_gate_inp.weight"] = (EMBEDDING, experts)
            shapes |= {f"blk.{i}.ffn_{name}_exps.weight": (*shape, experts) for name, shape in forward.items()}
        else:
            shapes |= {f"blk.{i}.ffn_{name}.weight": shape for name, shape in forward.items()}

    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()
    pairs = [text(key) + struct.pack("<I", 8) + text(value) for key, value in
             {"general.architecture": "llama", "tokenizer.ggml.model": "no_vocab"}.items()]
    mixture = {"expert_count": experts, "expert_used_count": EXPERTS_USED} if experts else {}
    pairs += [text("llama." + key) + struct.pack("<II", 4, value) for key, value in mixture.items()]
    pairs += [text("llama." + key) + struct.pack("<II", 4, value) for key, value in {
        "context_length": CONTEXT, "embedding_length": EMBEDDING, "block_count": LAYERS, "feed_forward_length": FEED_FORWARD,
        "attention.head_count": HEADS, "attention.head_count_kv": HEADS, "rope.dimension_count": EMBEDDING // HEADS,
        "vocab_size": VOCABULARY}.items()]
    pairs.append(text("llama.attention.layer_norm_rms_epsilon") + struct.pack("<If", 6, 1e-5))
    head = struct.pack("<IIQQ", 0x46554747, 3, len(shapes), len(pairs)) + b"".join(pairs)
    data = b""
    for name, shape in shapes.items():
        count = math.prod(shape)
        head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, len(data))
        data += array.array("f", [1.0] * count if len(shape) == 1 else [rng.gauss(0, 0.1) for _ in range(count)]).tobytes()
        data += bytes(-len(data) % 32)
    path.write_bytes(head + bytes(-len(head) % 32) + data)


class ContextSettings(ctypes.Structure):
    """The first fields of llama_context_params, and room for the rest."""
    _fields_ = [("n_ctx", ctypes.c_uint32), ("n_batch", ctypes.c_uint32), ("n_ubatch", ctypes.c_uint32), ("n_seq_max", ctypes.c_uint32),
                ("rest", ctypes.c_uint8 * 144)]


class ModelSettings(ctypes.Structure):
    _fields_ = [("all", ctypes.c_uint64 * 10)]


class Batch(ctypes.Structure):
    _fields_ = [("n_tokens", ctypes.c_int32), ("token", ctypes.POINTER(ctypes.c_int32)), ("embd", ctypes.c_void_p),
                ("pos", ctypes.POINTER(ctypes.c_int32)), ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
                ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))), ("logits", ctypes.POINTER(ctypes.c_int8))]


EVALUATED = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_bool, ctypes.c_void_p)
ABORT = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)
LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


class Operators:
    """What llama.cpp tells its evaluation callback: each operator, and the experts that its tokens go to."""

    def __init__(self, ggml_base):
        self.calls = collections.Counter()
        self.experts = collections.defaultdict(collections.Counter)
        self.lib = ggml_base
        for name in ("ggml_op_desc", "ggml_get_name"):
            getattr(self.lib, name).restype = ctypes.c_char_p
            getattr(self.lib, name).argtypes = [ctypes.c_void_p]
        self.lib.ggml_get_data.restype = ctypes.POINTER(ctypes.c_int32)
        self.lib.ggml_nelements.restype = ctypes.c_int64
        for name in ("ggml_get_data", "ggml_nelements"):
            getattr(self.lib, name).argtypes = [ctypes.c_void_p]
        self.callback = EVALUATED(self.take)

    def take(self, tensor, is_asked, _):
        name = self.lib.ggml_get_name(tensor).decode()
        sorts = name.startswith("ffn_moe_argsort-")
        if is_asked:
            if self.lib.ggml_nelements(tensor) > 0:  # else nothing is run
                self.calls[f"{self.lib.ggml_op_desc(tensor).decode()} {name}"] += 1
            return sorts  # computed by itself, and then seen again
        if sorts:  # all experts of each token, best first
            order = self.lib.ggml_get_data(tensor)
            for row in range(0, self.lib.ggml_nelements(tensor), EXPERTS):
                for i in range(EXPERTS_USED):
                    self.experts[name.removeprefix("ffn_moe_argsort-")][order[row + i]] += 1
        return True

    def listen(self, settings):
        """Sets the callback among the settings of a context, which move from release to release: it comes before the types of
        the cache, both GGML_TYPE_F16, and is null like what it is called with."""
        for at in range(0, len(settings.rest) - 24, 8):
            if bytes(settings.rest[at:at + 24]) == struct.pack("<QQII", 0, 0, 1, 1):
                callback = struct.pack("<Q", ctypes.cast(self.callback, ctypes.c_void_p).value)
                settings.rest[at:at + 8] = callback
                return
        raise RuntimeError("the settings of a context are not what they were")


class Llama:
    """A model in memory, and the steps asked of it."""

    def __init__(self, folder, model_path, threads, has_operators, sequences=SEQUENCES):
        def load(pattern):
            return ctypes.CDLL(str(next(folder.glob(pattern))), mode=ctypes.RTLD_GLOBAL)
        base = load("libggml-base*.so")
        ggml, self.lib = load("libggml.*so"), load("libllama.*so")
        self.operators = Operators(base) if has_operators else None
        ggml.ggml_backend_load.restype = ctypes.c_void_p
        if not ggml.ggml_backend_load(str(next(folder.glob("libggml-cpu-x64*.so"))).encode()):
            raise RuntimeError("no CPU backend")
        lib = self.lib
        self.ignore = LOG(lambda *_: None)  # kept: the library calls it from now on
        lib.llama_log_set(self.ignore, None)
        lib.llama_backend_init()
        lib.llama_model_default_params.restype = ModelSettings
        lib.llama_model_load_from_file.restype = ctypes.c_void_p
        lib.llama_model_load_from_file.argtypes = [ctypes.c_char_p, ModelSettings]
        lib.llama_context_default_params.restype = ContextSettings
        lib.llama_init_from_model.restype = ctypes.c_void_p
        lib.llama_init_from_model.argtypes = [ctypes.c_void_p, ContextSettings]
        lib.llama_set_n_threads.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32]
        lib.llama_batch_init.restype = Batch
        lib.llama_decode.argtypes = [ctypes.c_void_p, Batch]
        lib.llama_get_logits_ith.restype = ctypes.c_void_p
        lib.llama_get_logits_ith.argtypes = [ctypes.c_void_p, ctypes.c_int32]
        lib.llama_set_abort_callback.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        model = lib.llama_model_load_from_file(str(model_path).encode(), lib.llama_model_default_params())
        settings = lib.llama_context_default_params()
        settings.n_ctx, settings.n_batch, settings.n_ubatch, settings.n_seq_max = CONTEXT * sequences, 256, MICRO_BATCH, sequences
        if self.operators:
            self.operators.listen(settings)
        self.context = lib.llama_init_from_model(model, settings)
        if not self.context:
            raise RuntimeError("no context")
        lib.llama_set_n_threads(self.context, threads, threads)
        self.batch = lib.llama_batch_init(256, 0, 1)
        self.positions = [0] * sequences
        self.steps = []

    def step(self, **lengths):
        """One step of so many tokens of each sequence: step(s0=1, s1=30)."""
        lengths = {int(name[1:]): length for name, length in lengths.items()}
        count = 0
        for sequence, length in lengths.items():
            for i in range(length):
                self.batch.token[count] = (count * 7) % VOCABULARY
                self.batch.pos[count] = self.positions[sequence]
                self.batch.n_seq_id[count] = 1
                self.batch.seq_id[count][0] = sequence
                self.batch.logits[count] = i == length - 1
                self.positions[sequence] += 1
                count += 1
        self.batch.n_tokens = count
        begin = time.monotonic_ns()
        if self.lib.llama_decode(self.context, self.batch) != 0:
            raise RuntimeError("llama_decode failed")
        if not self.lib.llama_get_logits_ith(self.context, count - 1):
            raise RuntimeError("no logits")
        single = [length == 1 for length in lengths.values()]
        self.steps.append({"tokens": count, "sequences": len(lengths),
                           "phase": "decode" if all(single) else "mixed" if any(single) else "prefill",
                           "duration_ns": time.monotonic_ns() - begin})

    def step_during(self, wait, **lengths):
        """The same; in its midst `wait` is called, once."""
        waits = [wait]

        def on_node(_):
            if waits:
                waits.pop()()
            return False
        callback = ABORT(on_node)
        self.lib.llama_set_abort_callback(self.context, ctypes.cast(callback, ctypes.c_void_p), None)
        self.step(**lengths)
        self.lib.llama_set_abort_callback(self.context, None, None)


def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.01)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("go")
    parser.add_argument("stall", nargs="?")
    parser.add_argument("--experts", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as room:
        write_model(pathlib.Path(room) / "tiny.gguf", EXPERTS if options.experts else 0)
        llama = Llama(options.folder, pathlib.Path(room) / "tiny.gguf", 2 if options.experts else 1, options.experts)
    wait_for(options.go)
    llama.step(s0=100)  # two micro-batches
    llama.step(s1=37)
    for _ in range(DECODES):
        llama.step(s0=1, s1=1)
    llama.step(s0=1, s1=1, s2=30)  # two continue while a prompt is read
    llama.step(s3=20, s4=9)        # two prompts at once
    llama.step(s0=1, s2=1, s4=1)   # not next to each other
    llama.step(s5=150)             # three micro-batches
    llama.step_during(lambda: time.sleep(SLOW_S), s0=1, s1=1)
    if options.stall:
        llama.step_during(lambda: wait_for(options.stall), s0=1, s1=1)
    told = {"pid": os.getpid(), "steps": llama.steps}
    if llama.operators:
        told |= {"operators": llama.operators.calls, "experts": llama.operators.experts}
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
