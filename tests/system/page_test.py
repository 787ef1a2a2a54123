#!/usr/bin/env python3
"""The page in a real browser: what moves while a program runs, who may see it, captures and what opens them."""

import json
import os
import pathlib
import stat
import subprocess
import unittest
import urllib.error
import urllib.request

import web_driver
from gpus_test import FakeDriver
from gpuperf_system import WORKLOADS, Daemon, finish_workload, require_root, start_workload, wait_until

CONFIG = {"custom_sym": {"slow_sleep": {"symbol": "slow_sleep", "slow_threshold_ms": 5},
                         "usleep": {"symbol": "usleep", "slow_threshold_ms": 5}},
          "libraries": {"custom_sym": [str(WORKLOADS / "slow_calls"), "libc.so.6"]}}
PYTHON_SLEEPER = """
import ctypes
libc = ctypes.CDLL("libc.so.6")
def sleep_a_little():
    libc.usleep(20000)
while True:
    sleep_a_little()
"""
# GPUPERF_SCREENSHOTS=FOLDER keeps pictures, for eyes.
PICTURES = os.environ.get("GPUPERF_SCREENSHOTS")

CELLS = """
  const row = [...document.querySelectorAll('#view tbody tr.opens')].find(r => r.textContent.includes(arguments[0]));
  return row ? [...row.cells].map(cell => cell.textContent) : null"""
SAYS = "return document.querySelector(arguments[0])?.textContent || ''"
CLICK = """
  const found = [...document.querySelectorAll(arguments[0])].find(e => !e.disabled && e.textContent.includes(arguments[1] || ''));
  if (found) found.click();
  return Boolean(found)"""


def setUpModule():
    require_root()
    missing = web_driver.find_missing()
    if missing:
        raise unittest.SkipTest(missing)


class Page:
    """The page of a daemon in a browser."""

    def __init__(self, daemon, browser):
        self.daemon, self.browser = daemon, browser
        self.root = f"http://127.0.0.1:{daemon.port}/"

    def token(self, name="page"):
        return (self.daemon.path / "run" / f"{name}.token").read_text().strip()

    def open(self, view="", token="page"):
        """In a tab that knows no token; `token`: the file whose token comes along, None = none."""
        self.browser.go("about:blank")
        self.browser.go(self.root + "ui/")
        self.browser.run("sessionStorage.clear()")
        self.browser.go("about:blank")
        self.browser.go(f"{self.root}#token={self.token(token)}" if token else self.root)
        if token:
            self.wait("the page is live", "return document.querySelector('#live').className === 'is-live'")
        if view:
            self.browser.run("location.hash = arguments[0]", view)

    def wait(self, what, script, *arguments):
        try:
            return self.browser.wait_for(what, script, *arguments, seconds=30)
        except AssertionError as error:
            text = self.browser.run("return document.body.innerText")
            raise AssertionError(f"{error}\nThe page shows:\n{text}") from error

    def click(self, selector, text=""):
        self.wait(f"{selector} {text} can be clicked", CLICK, selector, text)

    def picture(self, name):
        if PICTURES:
            self.browser.screenshot(pathlib.Path(PICTURES) / f"page_{name}.png")

    def ask(self, what, token="page"):
        request = urllib.request.Request(f"{self.root}api/v1/{what}", headers={"Authorization": f"Bearer {self.token(token)}"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)


def run_slow_calls(requests=3):
    finish_workload(start_workload("slow_calls", "--requests", requests, "--duration-ms", 20))


class PageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon(CONFIG).start()
        cls.addClassCleanup(cls.daemon.__exit__, None)
        cls.daemon.wait_attached("slow_sleep")
        cls.browser = web_driver.Browser(width=1440, height=900)
        cls.browser.__enter__()
        cls.addClassCleanup(cls.browser.__exit__)
        cls.page = Page(cls.daemon, cls.browser)

    def tearDown(self):
        # A refusal is shown on the page; the browser writes it down, too. The viewer of timelines draws by WebGL, of which
        # a browser without a GPU complains.
        messages = [text for text in self.browser.console() if "status of 40" not in text and "/ui/speedscope/" not in text]
        self.assertEqual(messages, [])

    def calls_shown(self):
        cells = self.browser.run(CELLS, "slow_sleep")
        return int(cells[2].replace(",", "")) if cells else 0

    def test_functions_move_while_a_program_calls(self):
        run_slow_calls()
        self.page.open()
        self.page.wait("the function is in the table", CELLS, "slow_sleep")
        before = self.calls_shown()

        run_slow_calls()

        wait_until("more calls on the page", lambda: self.calls_shown() > before, 30)
        self.page.click("tr.opens", "slow_sleep")
        self.page.wait("its chart", "return document.querySelectorAll('tr.detail .chart .line').length > 0")
        self.page.picture("functions")

    def test_a_slow_call_opens_with_its_explanation(self):
        run_slow_calls()
        self.page.open("#slow")
        call = wait_until("a slow call", lambda: self.page.ask("slow_calls?page.limit=1")["slow_calls"])[0]

        self.page.click(f".calls a[data-id='{call['id']}']")

        self.page.wait("the call is open", "return location.hash === `#slow/${arguments[0]}`", call["id"])
        wait_until("its explanation", lambda: self.browser.run(SAYS, "#explanation") == call["explanation"], 30)
        self.assertIn("blocked", self.browser.run(SAYS, "#view .legend"))
        self.assertIn("slow_sleep", self.browser.run(SAYS, "#view .headline"))
        # After the stacks of its waits.
        self.assertIn("main", self.browser.run("return [...document.querySelectorAll('#view .stack')].at(-1).textContent"))
        self.page.picture("slow_call")

    def test_the_interpreters_own_frames_are_shown_on_demand(self):
        program = subprocess.Popen(["/usr/bin/python3", "-c", PYTHON_SLEEPER])
        self.addCleanup(program.wait)
        self.addCleanup(program.kill)
        self.page.open("#slow")
        call = wait_until("a slow call of Python's with frames of both kinds", self.find_python_call, 30)
        self.page.click(f".calls a[data-id='{call['id']}']")
        text = "[...document.querySelectorAll('#view .stack')].at(-1).innerText"  # after the stacks of its waits

        self.page.wait("the call is open", "return [...document.querySelectorAll('#view dd')].some(d => d.textContent === arguments[0])",
                       call["id"])
        self.assertIn("sleep_a_little", self.browser.run(f"return {text}"))
        self.assertNotIn("python3", self.browser.run(f"return {text}"))
        self.page.picture("slow_python_call")
        self.page.click("#interpreter-frames")
        self.page.wait("the interpreter's frames", f"return {text}.includes('python3')")

    def find_python_call(self):
        for call in self.page.ask("slow_calls?page.limit=20&filter.function=usleep")["slow_calls"]:
            frames = call["user_stack"]
            if any(frame["kind"] == "python" for frame in frames) and any("python3" in frame["module"] for frame in frames):
                return call
        return None

    def test_a_gpu_shows_its_hardware_counters_and_why_another_has_none(self):
        with FakeDriver(gpus=2, **{"1.gpm_supported": 0}) as daemon:
            daemon.wait_for_counters()
            page = Page(daemon, self.browser)
            page.open("#gpus")

            page.wait("the counters", "return document.querySelector('.counters')?.innerText.includes('Tensor pipe')")
            text = self.browser.run("return document.querySelector('#view').innerText")
            page.picture("gpus")
            self.browser.go("about:blank")  # before the daemon is gone

        self.assertRegex(text, r"Hardware counters, average of [\d.]+ m?s")
        self.assertRegex(text, r"Tensor pipe\s+84 %")
        self.assertIn("2.0 GiB/s received", text)
        self.assertIn("Hardware counters: none, this GPU has none that NVML can read", text)

    def test_a_rate_does_not_jump_when_answers_come_fast(self):
        """A total that grows by 38 once a second, asked for at odd moments as by a change of tabs."""
        self.page.open()
        self.page.wait("rates were computed", """
          window.rates ??= import('/ui/history.js').then(({growthOver}) => {
            const rates = [];
            for (let at = 0; at < 90e3; at += at % 3 ? 150 : 2000) rates.push([at, growthOver('test', 38 * Math.floor(at / 1e3), 60e3, at)]);
            window.rates = rates;
          });
          return Array.isArray(window.rates)""")
        rates = self.browser.run("return window.rates")

        self.assertIsNone(rates[0][1])
        late = [rate * 60 for at, rate in rates if at > 30_000]
        self.assertGreater(min(late), 2280 * 0.95)
        self.assertLess(max(late), 2280 * 1.05)

    def test_without_a_token_it_asks_for_one_and_shows_nothing(self):
        self.page.open(token=None)
        self.page.wait("it asks", "return document.querySelector('#token').open")

        self.assertIn(str(self.daemon.path / "run/page.token"), self.browser.run(SAYS, "#token-command"))
        self.assertEqual(self.browser.run("return document.querySelectorAll('#view tbody tr').length"), 0)
        self.page.picture("token")
        self.browser.run("document.querySelector('#token-text').value = arguments[0]", self.page.token())
        self.page.click("#token button", "Use it")
        self.page.wait("the page is live", "return document.querySelector('#live').className === 'is-live'")

    def test_the_token_does_not_stay_in_the_address(self):
        self.page.open()

        self.assertNotIn(self.page.token(), self.browser.run("return location.href"))

    def test_capturing_needs_the_other_token(self):
        self.page.open("#captures")
        self.page.wait("it says why", "return document.querySelector('#read-only').textContent.includes('page-admin.token')")

        shown = self.browser.run("return [...document.querySelectorAll('#view button')].filter(b => b.offsetParent).map(b => b.textContent)")
        for button in ("Capture", "Freeze recorder", "Stop", "Delete"):
            self.assertNotIn(button, shown)
        self.page.click("#read-only button")
        self.page.wait("it asks for the other", "return document.querySelector('#token').open")

    def capture(self):
        """A stored capture, made with the page's button; its id."""
        known = {row["id"] for row in self.page.ask("captures")["captures"]}
        self.page.open("#captures", token="page-admin")
        self.page.wait("the view", "return Boolean(document.querySelector('#start-capture')?.offsetParent)")
        self.browser.run("document.querySelector('[name=seconds]').value = 1; document.querySelector('[name=name]').value = 'from the page'")
        self.page.click("#start-capture")
        run_slow_calls()

        def stored():
            return [row["id"] for row in self.page.ask("captures")["captures"]
                    if row["id"] not in known and row["state"] == "CAPTURE_STATE_STORED"]
        found = wait_until("a stored capture", stored, 60)[0]
        self.page.wait("its buttons", "return [...document.querySelectorAll('#view tbody tr')].some(r => r.cells[0].textContent === arguments[0] && "
                       "r.querySelector('[data-action=\"flame graph\"]'))", found)
        return found

    def test_a_capture_made_here_opens_as_a_flame_graph(self):
        self.capture()
        self.page.click("[data-action='flame graph']")
        self.page.wait("a frame", "return Boolean(document.querySelector('iframe.shown'))")
        self.browser.run("document.querySelector('[aria-label=Weight]').value = 'CAPTURE_WEIGHT_OFF_CPU_TIME';"
                         "document.querySelector('[aria-label=Weight]').dispatchEvent(new Event('change'))")
        self.page.wait("the other weight", "return document.querySelector('[aria-label=Weight]')?.value === 'CAPTURE_WEIGHT_OFF_CPU_TIME'")

        with self.browser.frame("iframe.shown"):
            self.page.wait("boxes are drawn", "return document.querySelectorAll('.fg-box').length > 1")
            self.assertIn("slow_sleep", self.browser.run("return document.documentElement.textContent"))
            self.assertEqual(self.browser.run("return self.origin"), "null")
        self.page.picture("flamegraph")

    def test_a_capture_says_why(self):
        self.capture()
        self.page.click("[data-action='why']")

        self.page.wait("the verdict", "return Boolean(document.querySelector('#why section .parts i'))")
        shown = self.browser.run(SAYS, "#why")
        found = self.page.ask(f"capture_explanation?id={self.page.ask('captures')['captures'][0]['id']}&limit=3")["processes"][0]
        self.assertIn(f"{found['comm']} (pid {found['pid']})", shown)
        self.assertIn(found["summary"], shown)
        self.assertIn(found["findings"][0]["text"], shown)
        self.assertIn(found["findings"][0]["command"], shown)
        self.page.picture("why")

    def test_a_capture_opens_in_the_timeline_viewer(self):
        self.page.open("#captures")
        if not self.browser.run("return fetch('/ui/speedscope/index.html', {method: 'HEAD'}).then(r => r.ok)"):
            self.skipTest("speedscope was not built in (deploy/fetch_viewer.sh)")
        self.capture()
        self.page.click("[data-action='timeline']")

        with self.browser.new_tab():
            self.page.wait("it has read the trace", "return document.title.includes('from the page')")
            self.page.picture("timeline")

    def test_dark_and_narrow_it_has_no_sideways_scroll(self):
        self.browser.command("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]})
        self.addCleanup(self.browser.command, "Emulation.setEmulatedMedia", {"features": []})
        self.addCleanup(self.browser.resize, 1440, 900)
        self.page.open()
        for view in ("functions", "slow", "kernels", "gpus", "captures", "daemon"):
            for width in (1440, 520):
                with self.subTest(view=view, width=width):
                    self.browser.resize(width, 900)
                    self.browser.run("location.hash = arguments[0]", f"#{view}")
                    self.page.wait("the view is live", "return document.title.toLowerCase().startsWith(arguments[0].slice(0, 3)) && "
                                   "document.querySelector('#live').className === 'is-live'", view)
                    self.page.picture(f"dark_{view}_{width}")
                    self.assertLessEqual(self.browser.run("return document.documentElement.scrollWidth - innerWidth"), 0)

    def test_tokens_are_for_root_and_the_group(self):
        modes = {name: stat.S_IMODE((self.daemon.path / "run" / name).stat().st_mode) for name in ("page.token", "page-admin.token")}

        self.assertIn(modes["page.token"], (0o600, 0o640))
        self.assertEqual(modes["page-admin.token"], 0o600)
        self.assertIn(f"token_file={self.daemon.path}/run/page.token", self.daemon.log())


class PageOffTest(unittest.TestCase):
    def test_one_switch_ends_all_of_it(self):
        with Daemon({**CONFIG, "metrics": {"page": False}}) as daemon:
            for path in ("ui/", "api/v1/status"):
                with self.assertRaises(urllib.error.HTTPError) as refused:
                    urllib.request.urlopen(f"http://127.0.0.1:{daemon.port}/{path}", timeout=10)
                refused.exception.close()
                self.assertEqual(refused.exception.code, 404)
            with urllib.request.urlopen(f"http://127.0.0.1:{daemon.port}/metrics", timeout=10) as metrics:
                self.assertEqual(metrics.status, 200)
            self.assertEqual(list((daemon.path / "run").glob("*.token")), [])

    def test_a_stopped_daemon_leaves_no_token_and_the_page_says_that_it_is_gone(self):
        with Daemon(CONFIG) as daemon, web_driver.Browser() as browser:
            page = Page(daemon, browser)
            page.open()
            self.assertEqual(len(list((daemon.path / "run").glob("*.token"))), 2)

            daemon.stop()

            page.wait("it says so", "return document.querySelector('#banner').textContent.includes('does not answer')")
            self.assertEqual(list((daemon.path / "run").glob("*.token")), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
