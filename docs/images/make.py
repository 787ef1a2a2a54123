#!/usr/bin/env python3
"""Takes the pictures of the README: the flame graph of a decode that was recorded on an H200, dashboards under a load that replays
a training as it was recorded on an H100, and the page's functions and a slow call of programs that run meanwhile, the latter on
the tests' own driver. As root, after a build.

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
import slow_gpu_test  # noqa: E402
import web_driver  # noqa: E402
from gpuperf_system import SOURCE, WORKLOADS, Daemon, wait_until  # noqa: E402
from injector_workload import Workload  # noqa: E402

RECORDED_ID = 2  # of tests/recordings/decode.capture, within the file
WIDTH, HEIGHT = 1280, 900
README_DASHBOARDS = {"gpuperf-fleet": "Hosts", "gpuperf-kernels": "Copies, graphs and memory"}  # up to this row
NOTHING = {"none_func_sym": {"nothing_has_this": "gpuperf_no_such_symbol"}, "ingest": {"enabled": False}}
LIVE = "return document.querySelector('#live').className === 'is-live'"


def open_page(browser, daemon, view):
    token = (daemon.path / "run/page.token").read_text(encoding="ascii").strip()
    browser.go("about:blank")
    browser.go(f"http://127.0.0.1:{daemon.port}/#token={token}")
    browser.wait_for("the page is live", LIVE)
    browser.run("location.hash = arguments[0]", view)


def take_functions(browser):
    config = json.loads((SOURCE / "deploy/config.json").read_text(encoding="utf-8"))
    with Daemon(config | {"slow": {"default_threshold_ms": 0.1}}) as daemon:
        program = subprocess.Popen([WORKLOADS / "cuda_calls", "--seconds", "30"], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        time.sleep(20)
        open_page(browser, daemon, "functions")
        time.sleep(6)
        browser.screenshot(HERE / "page_functions.png")
        program.terminate()
        program.wait()


def take_slow_call(browser):
    with Daemon(slow_gpu_test.make_config()) as daemon, Workload(daemon.path / "run/ingest.sock") as workload:
        workload.do("init")
        workload.do("launch 10 1")  # so that the library is found
        for function in slow_gpu_test.PROBES:
            daemon.wait_for_probe(function)
        for path, duration_ms in ((3, 200), (4, 100), (3, 100), (5, 40)) * 2:
            workload.do(f"path {path} {duration_ms * 1_000_000}")
        workload.do("sync")
        calls = wait_until("a slow call", lambda: [call for call in daemon.query(
            "slow", "list", "--function", "cuCtxSynchronize") if not call["in_flight"]], 30)
        open_page(browser, daemon, f"slow/{calls[0]['id']}")
        time.sleep(3)
        browser.screenshot(HERE / "page_slow.png")


def take_flame_graph(browser):
    daemon = Daemon(NOTHING)
    folder = daemon.path / "store/captures"
    folder.mkdir(parents=True)
    shutil.copy(SOURCE / "tests/recordings/decode.capture", folder / f"{RECORDED_ID}.capture")
    with daemon:
        target = daemon.path / "flamegraph.svg"
        daemon.ctl("flamegraph", daemon.query("trace", "list")[0]["id"], "--file", target)
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
        take_functions(browser)
        take_slow_call(browser)
        take_flame_graph(browser)
    picture.take(HERE, README_DASHBOARDS)


if __name__ == "__main__":
    main(sys.argv[1:])
