"""A browser without a window, driven by the WebDriver protocol: JSON over HTTP, nothing but Python's own library."""

import base64
import contextlib
import http.client
import json
import shutil
import socket
import subprocess
import tempfile
import time

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"Escape": "\ue00c", "Enter": "\ue007", "Home": "\ue011", "Control": "\ue009", "Down": "\ue015", "Up": "\ue013",
        "Right": "\ue014", "Left": "\ue012"}


def find_missing():
    """What is not installed; None = all is there."""
    for program in ("chromedriver", "chromium"):
        if shutil.which(program) is None:
            return f"{program} is not installed (deploy/install_packages.sh tests)"
    return None


class Browser:
    """A context manager. Its console is kept from the beginning of each page on."""

    def __init__(self, width=1200, height=800, dark=False):
        self.size = (width, height)
        self.dark = dark
        self.profile = tempfile.TemporaryDirectory(prefix="gpuperf-browser-")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.driver = None
        self.session = None

    def __enter__(self):
        self.driver = subprocess.Popen(["chromedriver", f"--port={self.port}"], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
        try:
            self.wait_ready()
            arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                         "--disable-dev-shm-usage", "--disable-background-networking", f"--user-data-dir={self.profile.name}",
                         f"--window-size={self.size[0]},{self.size[1]}"]
            capabilities = {"browserName": "chrome", "goog:loggingPrefs": {"browser": "ALL"},
                            "goog:chromeOptions": {"args": arguments}}
            answer = self.ask("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})
            self.session = f"/session/{answer['sessionId']}"
            if self.dark:
                self.command("Emulation.setEmulatedMedia",
                             {"features": [{"name": "prefers-color-scheme", "value": "dark"}]})
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        try:
            self.ask("DELETE", self.session)
        finally:
            self.stop()

    def stop(self):
        self.driver.terminate()
        self.driver.wait(timeout=30)
        self.profile.cleanup()

    def wait_ready(self):
        deadline = time.monotonic() + 60
        while True:
            try:
                if self.ask("GET", "/status")["ready"]:
                    return
            except OSError:
                pass
            if time.monotonic() > deadline:
                raise AssertionError("chromedriver did not start within 60 s")
            time.sleep(0.05)

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request(method, path, None if body is None else json.dumps(body),
                               {"Content-Type": "application/json"})
            answer = json.loads(connection.getresponse().read())["value"]
        finally:
            connection.close()
        if isinstance(answer, dict) and "error" in answer:
            raise AssertionError(f"{method} {path}: {answer['error']}: {answer['message']}")
        return answer

    def command(self, name, parameters):
        return self.ask("POST", self.session + "/goog/cdp/execute", {"cmd": name, "params": parameters})

    def open(self, path):
        self.go(f"file://{path}")

    def go(self, address):
        self.ask("POST", self.session + "/url", {"url": address})

    @contextlib.contextmanager
    def frame(self, selector):
        """What is done within is done in that frame of the page."""
        frame = self.ask("POST", self.session + "/element", {"using": "css selector", "value": selector})
        self.ask("POST", self.session + "/frame", {"id": frame})
        try:
            yield
        finally:
            self.ask("POST", self.session + "/frame", {"id": None})

    @contextlib.contextmanager
    def new_tab(self, seconds=20):
        """What is done within is done in the tab that the page has opened, which is closed then."""
        first = self.ask("GET", self.session + "/window")
        deadline = time.monotonic() + seconds
        while not (others := [tab for tab in self.ask("GET", self.session + "/window/handles") if tab != first]):
            if time.monotonic() > deadline:
                raise AssertionError(f"no tab was opened within {seconds} s")
            time.sleep(0.05)
        self.ask("POST", self.session + "/window", {"handle": others[0]})
        try:
            yield
        finally:
            self.ask("DELETE", self.session + "/window")
            self.ask("POST", self.session + "/window", {"handle": first})

    def resize(self, width, height):
        self.ask("POST", self.session + "/window/rect", {"width": width, "height": height})

    def run(self, script, *arguments):
        """What the body of a function answers."""
        return self.ask("POST", self.session + "/execute/sync", {"script": script, "args": list(arguments)})

    def wait_for(self, what, script, *arguments, seconds=20):
        deadline = time.monotonic() + seconds
        while True:
            answer = self.run(script, *arguments)
            if answer:
                return answer
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds} s: {what}")
            time.sleep(0.05)

    def act(self, *sources):
        self.ask("POST", self.session + "/actions", {"actions": list(sources)})
        self.ask("DELETE", self.session + "/actions")

    def move(self, x, y, *then):
        """The pointer to a place in the window; `then`: "down", "up"."""
        actions = [{"type": "pointerMove", "duration": 0, "x": round(x), "y": round(y)}]
        actions += [{"type": f"pointer{step.capitalize()}", "button": 0} for step in then]
        self.ask("POST", self.session + "/actions",
                 {"actions": [{"type": "pointer", "id": "mouse", "actions": actions}]})

    def click(self, x, y):
        self.move(x, y, "down", "up")

    def wheel(self, x, y, delta_y):
        self.act({"type": "wheel", "id": "wheel", "actions": [
            {"type": "scroll", "x": round(x), "y": round(y), "deltaX": 0, "deltaY": delta_y, "duration": 0}]})

    def press(self, *keys):
        """All down in order, then up: ("Control", "f")."""
        names = [KEYS.get(key, key) for key in keys]
        self.act({"type": "key", "id": "keys", "actions": [{"type": "keyDown", "value": key} for key in names] +
                  [{"type": "keyUp", "value": key} for key in reversed(names)]})

    def type(self, text):
        self.act({"type": "key", "id": "keys", "actions": [
            {"type": kind, "value": letter} for letter in text for kind in ("keyDown", "keyUp")]})

    def console(self):
        """Messages since the last call, those of level INFO and below left out."""
        entries = self.ask("POST", self.session + "/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] in ("WARNING", "SEVERE")]

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self.ask("GET", self.session + "/screenshot")))
