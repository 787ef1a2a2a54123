#!/usr/bin/env python3
"""Requests of a server before real llama.cpp: each is found, and each wait of its client with the step that the server says it was for."""

import asyncio
import json
import os
import subprocess
import sys
import time
import unittest
import urllib.request

from gpuperf_system import BUILD, SOURCE, SharedDaemonTest, require_root, wait_until

LLAMA = BUILD / "npm/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64"
STREAMS = 64
LATE_STREAMS = 16  # their prompts are read while others generate
SLOW_NS = 300_000_000  # as served_requests.py plants it
ERROR_NS = 20_000_000  # the server takes its times in Python, later than it reads and before it writes


def setUpModule():
    require_root()


async def ask(port, path):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    await reader.readuntil(b"\r\n0\r\n\r\n")
    writer.close()


async def load(port):
    """So many streams at once that their tokens come from the same steps, and prompts later that hold them up."""
    asked = [asyncio.create_task(ask(port, f"/generate/{20 + i % 7}/40")) for i in range(STREAMS - LATE_STREAMS)]
    await asyncio.sleep(0.3)
    for i in range(LATE_STREAMS):
        asked.append(asyncio.create_task(ask(port, f"/generate/{81 if i == 3 else 80}/30")))
        await asyncio.sleep(0.02)
    await asyncio.gather(*asked)


class RequestsTest(SharedDaemonTest):
    CONFIG = {"shipped_functions": True, "requests": {"enabled": True}, "overhead": {"budget_percent": 0}}

    @classmethod
    def setUpClass(cls):
        if not LLAMA.exists():
            raise unittest.SkipTest(f"no llama.cpp: {LLAMA} is what npm installs (tests/run.sh)")
        super().setUpClass()

    def start(self, *arguments):
        go = self.daemon.path / "go"
        go.unlink(missing_ok=True)
        server = subprocess.Popen([sys.executable, SOURCE / "tests/workloads/served_requests.py", *arguments, LLAMA, go],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(server.communicate)
        self.addCleanup(server.kill)
        wait_until("llama.cpp probed", lambda: {"llama_decode", "llama_get_logits_ith"} <= {
            row["function"] for row in self.daemon.query("probes")
            if row["state"] in ("attached", "entry_only") and str(LLAMA) in row["library"]}, 30)
        go.touch()
        return server, int(server.stdout.readline())

    def warm_up(self, server, port):
        """Until requests are seen: the engine must have made a step first."""
        def is_seen():
            asyncio.run(ask(port, "/generate/5/2"))
            return self.daemon.query("requests", "--pid", server.pid)
        wait_until("a request is seen", is_seen, 20)

    def finish(self, server):
        output, _ = server.communicate("", timeout=60)
        return json.loads(output)

    def check_waits(self, *arguments):
        server, port = self.start(*arguments)
        self.warm_up(server, port)
        asyncio.run(load(port))
        truth = self.finish(server)

        def find():
            rows = self.daemon.query("requests", "list", "--pid", truth["server"])
            streams = [row for row in rows if row["parts"] > 2 and not row["open"]]
            return streams if len(streams) >= STREAMS - 1 else None
        found = wait_until("the requests", find)
        steps = sorted(self.daemon.query("steps", "list", "--pid", truth["engine"]), key=lambda step: step["id"])
        ids = [step["id"] for step in steps]
        told = [response for response in truth["responses"] if len(response["parts"]) > 2]
        self.assertEqual(len(told), STREAMS)
        by_bytes = {row["bytes"]: row for row in found}
        told = [response for response in told if response["bytes"] in by_bytes]
        self.assertGreaterEqual(len(told), STREAMS - 1)
        streams = [by_bytes[response["bytes"]] for response in told]
        waits = [wait for row, response in zip(streams, told) for wait in self.list_waits(row, response)]
        ends = [step["start_unix_ns"] + step["duration_ns"] for step in steps] + [float("inf")]
        # Where the server wrote after the next step, that one is taken: docs/steps.md.
        in_time = [(found_id, step) for found_id, step, _, end_ns in waits if end_ns < ends[step + 1]]
        right = sum(found_id == ids[step] for found_id, step in in_time)
        near = sum(error_ns < ERROR_NS for _, _, error_ns, _ in waits)
        print(f"{right} of {len(in_time)} waits have their step, {len(waits) - len(in_time)} ended late; {near} have their length; "
              f"{sum(row['parts'] == len(response['parts']) for row, response in zip(streams, told))} of {len(told)} "
              f"streams all parts")
        self.assertGreater(len(in_time), STREAMS / 2)
        self.assertGreaterEqual(right, 0.95 * len(in_time))
        self.assertGreaterEqual(near, 0.9 * len(waits))
        self.check_prompts_are_named(streams, {step["id"]: step for step in steps})
        self.assertEqual({reason for reason in self.daemon.drops() if "response" in reason or "request" in reason}, set())
        return streams

    def list_waits(self, row, response):
        """Of the first part and of the longest gap: the step found, the one that the server says, how far their lengths differ, and
        when it ended."""
        times = [at for at, _ in response["parts"]]
        first = row["first"]
        yield (first["last_step_id"], response["parts"][0][1], abs(first["duration_ns"] - times[0] + response["read_ns"]),
               first["start_unix_ns"] + first["duration_ns"])
        gap = row["longest_gap"]
        end_ns = gap["start_unix_ns"] + gap["duration_ns"] - (time.time_ns() - time.monotonic_ns())
        nearest = min(range(1, len(times)), key=lambda i: abs(times[i] - end_ns))
        longest_ns = max(b - a for a, b in zip(times, times[1:]))
        yield (gap["last_step_id"], response["parts"][nearest][1], abs(longest_ns - gap["duration_ns"]),
               gap["start_unix_ns"] + gap["duration_ns"])

    def check_prompts_are_named(self, streams, steps):
        """One of the late prompts is read slowly: who was answered meanwhile waited for that step most."""
        longest = max(streams, key=lambda row: row["longest_gap"]["duration_ns"])["longest_gap"]
        self.assertEqual(longest["longest_step_phase"], "prefill", longest)
        self.assertGreaterEqual(longest["longest_step_tokens"], 81)
        self.assertGreater(longest["longest_step_ns"], SLOW_NS)
        self.assertGreater(sum(row["longest_gap"]["longest_step_id"] == longest["longest_step_id"] for row in streams), 10)
        self.assertEqual(steps[longest["longest_step_id"]]["duration_ns"], longest["longest_step_ns"])
        shown = self.daemon.ctl("steps", "show", longest["longest_step_id"]).stdout
        self.assertRegex(shown, r"requests +[1-9]\d* waited for this step most")

    def test_waits_in_a_server_that_computes_itself(self):
        streams = self.check_waits()

        (row,) = self.daemon.query("requests", "--pid", streams[0]["pid"])
        self.assertGreaterEqual(row["requests"], STREAMS)
        self.assertGreater(row["gaps"], 30 * STREAMS)
        self.assertTrue(wait_until("its end", lambda: self.daemon.query("requests", "--pid", row["pid"])[0]["exited"]))
        with urllib.request.urlopen(f"http://127.0.0.1:{self.daemon.port}/metrics") as answer:
            metrics = answer.read().decode()
        self.assertRegex(metrics, r"gpuperf_request_first_write_seconds_count \d\d")
        self.assertRegex(metrics, r"gpuperf_request_gap_seconds_count \d{4}")
        shown = self.daemon.ctl("requests", "--pid", row["pid"]).stdout
        self.assertRegex(shown.splitlines()[0], r"answers [\d.]+ requests per second; 99 of 100 clients wait at most|No process has begun")

    def test_waits_in_a_server_before_an_engine_of_its_own(self):
        streams = self.check_waits("--apart")
        self.assertEqual({row["comm"] for row in streams}, {"python3"})

    def test_answers_of_a_known_length_end_with_the_next_request(self):
        server, port = self.start()
        self.warm_up(server, port)

        async def ask_three_times():
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for _ in range(3):
                writer.write(b"GET /health HTTP/1.1\r\n\r\n")
                await reader.readuntil(b"OK")
                await reader.readuntil(b"OK")
            await asyncio.sleep(0.5)
            rows = self.daemon.query("requests", "list", "--pid", server.pid)
            writer.close()
            return rows
        open_rows = [row["open"] for row in asyncio.run(ask_three_times())[:3]]
        self.assertEqual(open_rows, [True, False, False])
        wait_until("all have ended", lambda: not any(
            row["open"] for row in self.daemon.query("requests", "list", "--pid", server.pid)))

    def test_clients_in_the_servers_session_make_no_requests_of_their_own(self):
        server, port = self.start()
        self.warm_up(server, port)
        before = self.daemon.query("requests", "--pid", server.pid)[0]["requests"]
        for _ in range(5):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health") as answer:
                answer.read(2)

        # Those of the warm-up may still be on their way when they are counted.
        wait_until("the answers", lambda: self.daemon.query("requests", "--pid", server.pid)[0]["requests"] >= before + 5)
        self.assertEqual(self.daemon.query("requests", "--pid", os.getpid()), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
