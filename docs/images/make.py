#!/usr/bin/env python3
"""Takes the pictures of the README: the page and a slow call of a program that runs meanwhile, and the flame graph of the decode
that was recorded on an H200. As root, after a build: docs/images/make.py"""

import json
import pathlib
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests/system"))
sys.dont_write_bytecode = True
import web_driver  # noqa: E402
from gpuperf_system import SOURCE, WORKLOADS, Daemon, wait_until  # noqa: E402

RECORDED_ID = 2  # of tests/recordings/decode.capture, within the file
WIDTH, HEIGHT = 1280, 900
LIVE = "return document.querySelector('#live').className === 'is-live'"


def open_page(browser, daemon, view):
    token = (daemon.path / "run/page.token").read_text(encoding="ascii").strip()
    browser.go("about:blank")
    browser.go(f"http://127.0.0.1:{daemon.port}/#token={token}")
    browser.wait_for("the page is live", LIVE)
    browser.run("location.hash = arguments[0]", view)


def take_page(browser):
    config = json.loads((SOURCE / "deploy/config.json").read_text(encoding="utf-8"))
    config["custom_sym"] = {name: {"symbol": name, "slow_threshold_ms": 20}
                            for name in ("cause_pipe", "cause_spin_user", "cause_sleep", "cause_futex")}
    config["libraries"] = {"custom_sym": [str(WORKLOADS / "known_causes")]}
    config["slow"] = {"default_threshold_ms": 0.1, "adaptive_factor": 0}
    with Daemon(config) as daemon:
        programs = [subprocess.Popen([WORKLOADS / "cuda_calls", "--seconds", "30"], stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL),
                    subprocess.Popen([WORKLOADS / "known_causes", "--cause", "pipe", "--runs", "200", "--ms", "40"],
                                     stdout=subprocess.DEVNULL)]
        time.sleep(20)
        open_page(browser, daemon, "functions")
        time.sleep(6)
        browser.screenshot(HERE / "page_functions.png")
        slow = wait_until("a slow call", lambda: daemon.query("slow", "list", "--function", "cause_pipe", "--limit", 1))
        open_page(browser, daemon, f"slow/{slow[0]['id']}")
        time.sleep(3)
        browser.screenshot(HERE / "page_slow.png")
        for program in programs:
            program.terminate()
            program.wait()


def take_flame_graph(browser):
    daemon = Daemon({"none_func_sym": {"nothing_has_this": "gpuperf_no_such_symbol"}, "ingest": {"enabled": False}})
    folder = daemon.path / "store/captures"
    folder.mkdir(parents=True)
    shutil.copy(SOURCE / "tests/recordings/decode.capture", folder / f"{RECORDED_ID}.capture")
    with daemon:
        target = daemon.path / "flamegraph.svg"
        daemon.ctl("flamegraph", daemon.query("trace", "list")[0]["id"], "--output", target)
        browser.open(target)
        time.sleep(2)
        browser.screenshot(HERE / "flamegraph.png")


def main():
    with web_driver.Browser(WIDTH, HEIGHT) as browser:
        take_page(browser)
        take_flame_graph(browser)


if __name__ == "__main__":
    main()
