"""Pictures of the dashboards: their queries answered by a real Prometheus that scrapes a real gpuperfd under the load of the tests
and a recorded training that is replayed at its real rate, their panels drawn by Grafana's own components in a browser (draw.jsx). Grafana itself is not run."""

import contextlib
import functools
import http.server
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

import dashboards_test
import monitored_load
import web_driver
from gpuperf_system import BUILD, SOURCE

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = BUILD / "dashboards"  # what npm installs, what esbuild makes, and the last answers
ANSWERS = FOLDER / "answers.json"
SECONDS = 180  # of load, and of time in the pictures
SCRAPE_SECONDS, STEP_SECONDS = 2, 3
STEADY_SECONDS = 0.775  # at the end of the recording: what its last batches hold, all of it steps
HOST = "gpu-host"  # instead of 127.0.0.1 and a port
WIDTH, MARGINS = 1248, 32  # of the grid, and of the page beside it, pixels: as wide as the other pictures
PAGE = """<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><link rel="stylesheet" href="draw.css">
<body style="margin: 0"><div id="dashboard"></div><script src="draw.js"></script>"""
# Where Grafana's components look for icons and fonts -> where npm puts them.
SERVED = {"public/build/img": "@grafana/ui/dist/public/img",
          "public/fonts/inter/Inter-Regular.woff2": "@fontsource-variable/inter/files/inter-latin-wght-normal.woff2",
          "public/fonts/inter/Inter-Medium.woff2": "@fontsource-variable/inter/files/inter-latin-wght-normal.woff2"}


def build():
    """The page that draws, in FOLDER."""
    FOLDER.mkdir(exist_ok=True)
    wanted, installed = (HERE / "package.json").read_bytes(), FOLDER / "installed"
    if not installed.exists() or installed.read_bytes() != wanted:
        (FOLDER / "package.json").write_bytes(wanted)
        subprocess.run(["npm", "install", "--prefix", FOLDER, "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"],
                       check=True)
        installed.write_bytes(wanted)
    subprocess.run([FOLDER / "node_modules/.bin/esbuild", HERE / "draw.jsx", "--bundle", "--minify", "--jsx=automatic",
                    f"--outfile={FOLDER}/draw.js", "--loader:.ttf=empty", "--define:process.env.NODE_ENV=\"production\"",
                    "--define:global=window", "--log-level=error"],
                   env=os.environ | {"NODE_PATH": str(FOLDER / "node_modules")}, check=True)
    (FOLDER / "index.html").write_text(PAGE, encoding="utf-8")
    for place, source in SERVED.items():
        link = FOLDER / place
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(FOLDER / "node_modules" / source)


def ask(prometheus, panel, start, end):
    """refId -> result, of every query of a panel."""
    answers = {}
    for target in panel["targets"]:
        query = {"query": dashboards_test.interpolate(target["expr"])}
        path = "/api/v1/query" if target["instant"] else "/api/v1/query_range"
        query |= {"time": end} if target["instant"] else {"start": start, "end": end, "step": STEP_SECONDS}
        answers[target["refId"]] = prometheus.ask(path, **query)["result"]
    return answers


@contextlib.contextmanager
def train(socket):
    with subprocess.Popen([sys.executable, SOURCE / "tests/system/session_replay.py", SOURCE / "tests/recordings/pretrain.session",
                           socket, str(STEADY_SECONDS)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        yield
        process.stdin.close()


def collect():
    """Answers of all dashboards after SECONDS of load, into ANSWERS."""
    rules = [str(dashboards_test.PROMETHEUS / f"gpuperf-{name}.yaml") for name in ("rules", "alerts")]
    with tempfile.TemporaryDirectory(prefix="gpuperf-pictures-") as folder, contextlib.ExitStack() as stack:
        with monitored_load.Load() as load, train(load.daemon.path / "run/ingest.sock"):
            scrape = {"job_name": "gpuperf", "static_configs": [
                {"targets": [f"127.0.0.1:{load.daemon.port}"], "labels": {"instance": HOST}}]}
            prometheus = stack.enter_context(monitored_load.Prometheus(
                pathlib.Path(folder), [], interval=f"{SCRAPE_SECONDS}s", rule_files=rules, scrape_configs=[scrape]))
            start = int(time.time())
            while time.time() < start + SECONDS:
                load.step()
            end = time.time()
        answers = {name: {panel["id"]: ask(prometheus, panel, start, end) for panel in dashboard["panels"] if "targets" in panel}
                   for name, dashboard in dashboards_test.load_dashboards().items()}
    times = {"from_ms": start * 1000, "to_ms": end * 1000, "step_ms": STEP_SECONDS * 1000}
    ANSWERS.write_text(json.dumps({"range": times, "answers": answers}), encoding="utf-8")


@contextlib.contextmanager
def serve(folder):
    """Its address; icons are fetched, which pages from files may not do."""
    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def draw(browser, address, name, dashboard, target):
    """One picture; returns the titles of panels without data."""
    kept = json.loads(ANSWERS.read_text(encoding="utf-8"))
    browser.go(f"{address}/index.html")
    browser.run("window.draw(arguments[0])", {"dashboard": dashboard, "answers": kept["answers"][name], "range": kept["range"],
                                              "width": WIDTH})
    try:
        browser.wait_for("panels are drawn", "return document.querySelector('[data-panel]') !== null", seconds=60)
    except AssertionError as error:
        raise AssertionError("\n".join(browser.console())) from error
    height = browser.run("return document.querySelector('#dashboard').scrollHeight")
    browser.command("Emulation.setDeviceMetricsOverride",
                    {"width": WIDTH + MARGINS, "height": height, "deviceScaleFactor": 1, "mobile": False})
    time.sleep(3)  # charts follow the page
    browser.screenshot(target)
    return browser.run("return [...document.querySelectorAll('[data-empty=true]')].map((panel) => panel.dataset.panel)")


def cut(dashboard, row):
    """Without that row, and what is below it."""
    titles = [panel["title"] for panel in dashboard["panels"]]
    return dashboard | {"panels": dashboard["panels"][:titles.index(row)]}


def take(folder, rows=None, reuse=False):
    """Pictures of all dashboards into `folder`, or of those in `rows` (name -> row above which they end); `reuse`: of the last
    answers, without load."""
    build()
    if not reuse:
        collect()
    folder.mkdir(exist_ok=True)
    with web_driver.Browser(WIDTH + MARGINS, 1000) as browser, serve(FOLDER) as address:
        for name, dashboard in dashboards_test.load_dashboards().items():
            if rows is None or name in rows:
                dashboard = cut(dashboard, rows[name]) if rows else dashboard
                empty = draw(browser, address, name, dashboard, folder / f"{name}.png")
                print(f"{name}: without data: {', '.join(empty) or 'none'}", *browser.console(), sep="\n  ")
