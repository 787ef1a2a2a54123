#!/usr/bin/env python3
"""Takes the pictures of the README: the page and a slow call of a program that runs meanwhile, the flame graph of the decode
that was recorded on an H200, and dashboards. As root, after a build.

usage: docs/images/make.py                      writes the pictures into this folder
       docs/images/make.py --look FOLDER        pictures of all dashboards, whole, into FOLDER
       docs/images/make.py --look-again FOLDER  the same of the last answers, without load: for another look of a panel

Dashboards need npm, which installs Grafana's components into the build folder.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "tests/system"), str(HERE / "dashboards")]
sys.dont_write_bytecode = True
import picture  # noqa: E402
import web_driver  # noqa: E402
from gpuperf_system import SOURCE, WORKLOADS, Daemon, wait_until  # noqa: E402

RECORDED_ID = 2  # of tests/recordings/decode.capture, within the file
WIDTH, HEIGHT = 1280, 900
README_DASHBOARDS = {"gpuperf-fleet": "Hosts", "gpuperf-kernels": "Copies, graphs and memory"}  # up to this row
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


def main(arguments):
    if len(arguments) == 2 and arguments[0] in ("--look", "--look-again"):
        picture.take(pathlib.Path(arguments[1]), reuse=arguments[0] == "--look-again")
        return
    if arguments:
        sys.exit(__doc__)
    with web_driver.Browser(WIDTH, HEIGHT) as browser:
        take_page(browser)
        take_flame_graph(browser)
    picture.take(HERE, README_DASHBOARDS)


if __name__ == "__main__":
    main(sys.argv[1:])
