#!/usr/bin/env python3
"""The dashboards, rules and alerts that are shipped: as generated, as Grafana's types and Prometheus's grammar want
them, without gaps, and every query answered by a real Prometheus that scrapes the real daemon under load."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from gpuperf_system import BUILD, GPUPERFCTL, SOURCE, require_root
from injector_workload import require_fakes

NPM = pathlib.Path(os.environ.get("GPUPERF_NPM", BUILD / "npm/node_modules"))
GRAFANA = SOURCE / "deploy/grafana"
PROMETHEUS = SOURCE / "deploy/prometheus"
RUNBOOKS = SOURCE / "docs/runbooks"
KINDS = {"timeseries", "stat", "table", "heatmap", "bargauge", "row"}
# Grafana's own, as if all values were chosen; ranges as a young Prometheus has them.
INTERPOLATED = {"$__rate_interval": "20s", "$__range": "1m", "offset 1d": "offset 5s", "offset 1w": "offset 10s"}
# What Prometheus itself knows beside our metrics.
FOREIGN_METRICS = {"up", "ALERTS", "scrape_samples_scraped", "scrape_duration_seconds"}
# Variables that may be empty: without a container runtime to ask, pods have no namespace.
MAY_BE_EMPTY = {"namespace"}
LOAD_SECONDS = 150
# Grafana's types as JSON has them: enumerations by their value, and what the Prometheus data source adds.
TYPED = """import { FieldColorModeId, ThresholdsMode } from '@grafana/schema';
import type { AnnotationQuery, Dashboard, VariableModel } from '@grafana/schema';
type Annotation = AnnotationQuery & { expr: string; titleFormat: string; useValueForTime: boolean; step: string };
type Typed = Omit<Dashboard, 'annotations' | 'templating'> & {
  annotations: { list: Annotation[] }; templating: { list: (VariableModel & { definition?: string })[] } };
export const dashboards = [
%s
] satisfies Typed[];
"""
ENUMERATIONS = {'"mode": "absolute"': '"mode": ThresholdsMode.Absolute',
                '"color": {"mode": "thresholds"': '"color": {"mode": FieldColorModeId.Thresholds',
                '"color": {"mode": "palette-classic"': '"color": {"mode": FieldColorModeId.PaletteClassic'}


def load_dashboards():
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(GRAFANA.glob("*.json"))}


def list_queries(dashboards):
    """(where, expression) of panels, and of annotations."""
    for name, dashboard in dashboards.items():
        for panel in dashboard["panels"]:
            for target in panel.get("targets", []):
                yield f"{name}: {panel['title']} ({target['refId']})", target["expr"]


def interpolate(expression):
    for name, value in INTERPOLATED.items():
        expression = expression.replace(name, value)
    return re.sub(r"\$[a-z_]+", ".*", expression)


def list_rules():
    """(alert or record, expression)."""
    for path in (PROMETHEUS / "gpuperf-rules.yaml", PROMETHEUS / "gpuperf-alerts.yaml"):
        text = path.read_text(encoding="utf-8")
        for rule in re.split(r"^      - (?=alert|record)", text, flags=re.M)[1:]:
            name = re.match(r"(?:alert|record): (\S+)", rule)[1]
            yield name, re.search(r"expr: (?:>-\n)?((?:.|\n)*?)(?=^ {8}\w+:|^ {2,6}\S|\Z)", rule, re.M)[1]


def find_metrics(expression):
    """Names that are read, not labels, functions or what stands in quotes."""
    plain = re.sub(r'"[^"]*"|\{[^}]*\}|\[[^]]*\]|\b(by|on|without|ignoring|group_left|group_right) *\([^)]*\)', " ", expression)
    return set(re.findall(r"(?<![\w:$])(gpuperf_\w+|up|ALERTS|scrape_\w+)(?![\w:(])", plain))


class FilesTest(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.dashboards = load_dashboards()
        assert len(cls.dashboards) == 7, sorted(cls.dashboards)

    def test_the_json_is_what_the_generator_writes(self):
        result = subprocess.run([sys.executable, GRAFANA / "generate.py", "--check"], capture_output=True, text=True, check=False)
        self.assertEqual(result.stderr, "")

    def test_panels_fill_a_grid_of_24_columns(self):
        for name, dashboard in self.dashboards.items():
            cells = {}
            for panel in dashboard["panels"]:
                grid = panel["gridPos"]
                for x in range(grid["x"], grid["x"] + grid["w"]):
                    for y in range(grid["y"], grid["y"] + grid["h"]):
                        self.assertNotIn((x, y), cells, f"{name}: {panel['title']} lies on {cells.get((x, y))}")
                        cells[x, y] = panel["title"]
            height = max(y for _, y in cells) + 1
            self.assertEqual(set(cells), {(x, y) for x in range(24) for y in range(height)}, name)

    def test_every_panel_says_what_it_is_in_which_unit_from_the_chosen_source(self):
        uids = set()
        for name, dashboard in self.dashboards.items():
            uids.add(dashboard["uid"])
            self.assertRegex(dashboard["uid"], "^gpuperf-")
            self.assertEqual(dashboard["uid"], name)
            self.assertIn("gpuperf", dashboard["tags"])
            self.assertEqual([panel["id"] for panel in dashboard["panels"]], list(range(1, len(dashboard["panels"]) + 1)))
            self.assertEqual(set(re.findall(r'"type": "prometheus", "uid": "([^"]*)"', json.dumps(dashboard))), {"${datasource}"})
            for panel in dashboard["panels"]:
                with self.subTest(dashboard=name, panel=panel["title"]):
                    self.assertIn(panel["type"], KINDS)
                    if panel["type"] == "row":
                        continue
                    self.assertRegex(panel["description"], r"\.$")
                    self.assertTrue(panel["fieldConfig"]["defaults"]["unit"])
                    self.assertTrue(panel["targets"])
                    self.assertEqual(panel["datasource"]["uid"], "${datasource}")
        self.assertEqual(len(uids), len(self.dashboards))

    def test_tables_name_each_value_and_fit_into_their_panel(self):
        page_pixels, least_pixels = 1248, 150  # of all columns of the grid; of a column that is not told its width
        for name, dashboard in self.dashboards.items():
            for panel in (panel for panel in dashboard["panels"] if panel["type"] == "table"):
                with self.subTest(dashboard=name, panel=panel["title"]):
                    order = panel["transformations"][1]["options"]
                    letters = [f" #{target['refId']}" for target in panel["targets"]] if len(panel["targets"]) > 1 else [""]
                    self.assertEqual(list(order["renameByName"]), [f"Value{letter}" for letter in letters])
                    widths = {override["matcher"]["options"]: value["value"] for override in panel["fieldConfig"]["overrides"]
                              for value in override["properties"] if value["id"] == "custom.width"}
                    columns = [order["renameByName"].get(column, column) for column in order["indexByName"]]
                    self.assertLessEqual(sum(widths.get(column, least_pixels) for column in columns),
                                         page_pixels * panel["gridPos"]["w"] / 24)

    def test_charts_of_a_dashboard_can_be_told_apart(self):
        for name, dashboard in self.dashboards.items():
            titles = [panel["title"] for panel in dashboard["panels"] if panel["type"] in ("timeseries", "heatmap", "bargauge")]
            self.assertEqual(len(titles), len(set(titles)), f"{name}: {titles}")

    def test_variables_that_queries_use_are_there(self):
        own = {"__rate_interval", "__range"}
        for name, dashboard in self.dashboards.items():
            known = {variable["name"] for variable in dashboard["templating"]["list"]}
            used = {variable for text in [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
                    for variable in re.findall(r"\$([a-z_]+)", text)}
            self.assertLessEqual(used - own, known, name)
            self.assertEqual(known - used - {"datasource"}, set(), f"{name}: variables without a use")

    def test_links_lead_to_dashboards_that_are_there(self):
        text = json.dumps(list(self.dashboards.values()))
        self.assertEqual(set(re.findall(r"/d/([\w-]+)", text)) - set(self.dashboards), set())

    def test_every_metric_is_documented(self):
        documented = set(re.findall(r"^### `(\w+)`", (SOURCE / "docs/metrics.md").read_text(encoding="utf-8"), re.M))
        histograms = {f"{name}_{part}" for name in documented if name.endswith("_seconds") for part in ("bucket", "sum", "count")}
        used = 0
        for where, expression in [*list_queries(self.dashboards), *list_rules()]:
            metrics = find_metrics(expression)
            used += len(metrics)
            self.assertLessEqual(metrics, documented | histograms | FOREIGN_METRICS, where)
        self.assertGreater(used, 200)

    def test_every_alert_has_a_runbook_and_every_runbook_an_alert(self):
        text = (PROMETHEUS / "gpuperf-alerts.yaml").read_text(encoding="utf-8")
        alerts = set(re.findall(r"- alert: (\w+)", text))
        self.assertEqual({path.stem for path in RUNBOOKS.glob("*.md")} - {"README"}, alerts)
        self.assertEqual(re.findall(r"runbook_url: https://\S+/docs/runbooks/(\w+).md", text), re.findall(r"- alert: (\w+)", text))
        index = (RUNBOOKS / "README.md").read_text(encoding="utf-8")
        self.assertEqual(set(re.findall(r"\((\w+)\.md\)", index)), alerts)
        listed = set(re.findall(r"^#   (Gpuperf\w+)", text, re.M))
        self.assertEqual(listed, alerts, "the table of thresholds")

    def test_commands_of_runbooks_are_understood(self):
        """By gpuperfctl itself, without a daemon: all but usage errors."""
        commands = set()
        for path in RUNBOOKS.glob("*.md"):
            for line in re.findall(r"^    (gpuperfctl [^|\n]*)|`(?:sudo )?(gpuperfctl [^`|]*)`", path.read_text(encoding="utf-8"), re.M):
                commands.add("".join(line).strip())
        self.assertGreater(len(commands), 20)
        for command in sorted(commands):
            words = [word.strip("'") for word in re.sub(r"\b(ID|PID|BEFORE|NOW)\b", "1", command).split()][1:]
            with tempfile.TemporaryDirectory() as folder:
                result = subprocess.run([GPUPERFCTL, "--address", "unix:/nonexistent/gpuperf.sock", *words], cwd=folder,
                                        capture_output=True, text=True, timeout=60, check=False)
            self.assertNotEqual(result.returncode, 2, f"{command}: {result.stderr}")


class GrammarTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if shutil.which("npm") is None or shutil.which("node") is None:
            raise unittest.SkipTest("npm and node are not installed: neither Grafana's types nor Prometheus's grammar")
        for package in ("@grafana/schema", "typescript", "@prometheus-io/lezer-promql"):
            if not (NPM / package).is_dir():
                raise RuntimeError(f"{package} is not in {NPM}: run tests/run.sh, which installs it by npm")
        cls.dashboards = load_dashboards()

    def check_types(self, dashboards):
        """What the TypeScript compiler says."""
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "node_modules").symlink_to(NPM)
            source = pathlib.Path(folder) / "dashboards.ts"
            text = ",\n".join(json.dumps(row) for row in dashboards)
            for value, member in ENUMERATIONS.items():
                text = text.replace(value, member)
            source.write_text(TYPED % text, encoding="utf-8")
            return subprocess.run(["node", NPM / "typescript/bin/tsc", "--noEmit", "--strict", "--skipLibCheck", "--target", "es2022",
                                   "--module", "nodenext", "--moduleResolution", "nodenext", source],
                                  capture_output=True, text=True, timeout=300, check=False).stdout

    def test_dashboards_are_of_grafanas_type(self):
        self.assertEqual(self.check_types(self.dashboards.values()), "")

    def test_a_dashboard_of_the_wrong_type_is_noticed(self):
        wrong = json.loads(json.dumps(next(iter(self.dashboards.values()))))
        wrong["panels"][1]["gridPos"]["w"] = "wide"

        self.assertIn("is not assignable", self.check_types([wrong]))

    def test_every_query_is_promql(self):
        queries = [*list_queries(self.dashboards), *list_rules(), ("wrong", "sum(up"), ("empty", "")]
        script = """
            import { parser } from '@prometheus-io/lezer-promql';
            const rows = JSON.parse((await import('node:fs')).readFileSync(0, 'utf8'));
            for (const [where, text] of rows) {
              let errors = text.trim() === '' ? 1 : 0;
              parser.parse(text).iterate({ enter: (node) => { errors += node.type.isError ? 1 : 0; } });
              if (errors) console.log(where);
            }"""
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "node_modules").symlink_to(NPM)
            path = pathlib.Path(folder) / "parse.mjs"
            path.write_text(script, encoding="utf-8")
            result = subprocess.run(["node", "--preserve-symlinks", "--preserve-symlinks-main", path], capture_output=True, text=True, timeout=60, check=False,
                                    input=json.dumps([(where, interpolate(text)) for where, text in queries]))

        self.assertEqual((result.stdout.split(), result.stderr), (["wrong", "empty"], ""))


class AnswersTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        require_root()
        require_fakes()
        if shutil.which("prometheus") is None:
            self.skipTest("prometheus is not installed (Debian package prometheus)")

    def test_every_query_is_answered_under_load(self):
        import monitored_load  # needs control groups: imported once it is known that root runs this
        dashboards = load_dashboards()
        queries = {where: interpolate(text) for where, text in list_queries(dashboards)}
        rules = [str(PROMETHEUS / f"gpuperf-{name}.yaml") for name in ("rules", "alerts")]
        with monitored_load.Load() as load, monitored_load.Prometheus(
                load.daemon.path, [f"127.0.0.1:{load.daemon.port}"], rule_files=rules) as prometheus:
            end = time.monotonic() + LOAD_SECONDS
            missing = dict(queries)
            while missing and time.monotonic() < end:
                load.step()
                missing = {where: text for where, text in missing.items() if not prometheus.query(text)}
            status = load.daemon.query("status")
            self.assertEqual(missing, {}, f"{len(missing)} of {len(queries)} queries have no answer; suspended: "
                                          f"{status['suspensions']}, problems: {status['problems']}")
            self.check_variables(prometheus, dashboards)
            for dashboard in dashboards.values():  # no answer is an answer: nothing restarted
                for annotation in dashboard["annotations"]["list"]:
                    prometheus.query(interpolate(annotation["expr"]))
        print(f"{len(queries)} queries answered")

    def check_variables(self, prometheus, dashboards):
        for name, dashboard in dashboards.items():
            for variable in dashboard["templating"]["list"]:
                if variable["type"] == "datasource":
                    continue
                match = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"])
                values = prometheus.ask(f"/api/v1/label/{match[2]}/values", **{"match[]": interpolate(match[1])})
                if variable["name"] not in MAY_BE_EMPTY:
                    self.assertTrue(values, f"{name}: no values for ${variable['name']}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
