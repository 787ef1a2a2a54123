#!/usr/bin/env python3
"""Writes the dashboards of dashboards.py as Grafana's JSON into this folder.

usage: deploy/grafana/generate.py            writes gpuperf-*.json
       deploy/grafana/generate.py --check    exit 1 when a file is not what would be written
"""

import json
import pathlib
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent))

from dashboards import DASHBOARDS  # noqa: E402

FOLDER = pathlib.Path(__file__).parent
SCHEMA_VERSION = 39  # Grafana 10.4 and newer; older ones are migrated by Grafana itself
COLUMNS = 24
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Colours from Panel.steps on; the last step is always red.
STEP_COLORS = ("orange", "red")
# Of tables, pixels: numbers in what they need, gauges a bit more, names of bounded length so that the others get the rest.
VALUE_WIDTH, GAUGE_WIDTH = 100, 140
LABEL_WIDTHS = {"instance": 140, "namespace": 120, "comm": 140, "version": 100}
# Of 24 columns: from WIDE on a legend stands beside the chart; there, and up to NARROW, it has room for one value.
WIDE, NARROW = 12, 6
# Columns of tables that lead to the next dashboard, narrower by their value.
DRILL_DOWN = {"instance": ("gpuperf-host", "Host"), "pod": ("gpuperf-workload", "Pod or process"),
              "comm": ("gpuperf-workload", "Pod or process"), "function": ("gpuperf-function", "Function")}


def make_url(uid, label, value):
    return (f"/d/{uid}?${{datasource:queryparam}}&${{job:queryparam}}&var-{label}={value}"
            "&${__url_time_range}")


def make_links(panel):
    """Of lines: to the dashboard of the last label in the legend of the first query."""
    label = panel.queries[0][1].strip("{}")
    if panel.kind == "table" or label not in DRILL_DOWN:
        return []
    uid, title = DRILL_DOWN[label]
    return [{"title": f"{title}: ${{__field.labels.{label}}}", "targetBlank": False,
             "url": make_url(uid, label, f"${{__field.labels.{label}}}")}]


def make_target(panel, index):
    expression, legend = panel.queries[index]
    target = {"datasource": DATASOURCE, "editorMode": "code", "expr": expression, "legendFormat": legend,
              "refId": chr(ord("A") + index), "range": True, "instant": False}
    if panel.kind in ("stat", "table", "bargauge"):
        target |= {"range": False, "instant": True}
    if panel.kind == "table":
        target["format"] = "table"
    if panel.kind == "heatmap":
        target["format"] = "heatmap"
    return target


def make_custom(panel):
    if panel.kind == "timeseries":
        return {"drawStyle": "line", "lineInterpolation": "linear", "lineWidth": 1,
                "fillOpacity": 30 if panel.stack else 4,  # ten lie over each other
                "showPoints": "never", "spanNulls": False,
                "stacking": {"mode": "normal" if panel.stack else "none", "group": "A"},
                "axisSoftMin": 0, **({"axisSoftMax": panel.reach} if panel.reach else {}),
                "thresholdsStyle": {"mode": "dashed" if panel.steps else "off"}}
    if panel.kind == "table":
        return {"align": "auto", "filterable": False}
    return {}


def make_overrides(panel):
    """Units, widths and links of a table's columns; names can be filtered."""
    overrides = []
    for name, unit in panel.columns.items():
        gauge = unit == "percentunit"
        properties = [{"id": "unit", "value": unit}, {"id": "custom.width", "value": GAUGE_WIDTH if gauge else VALUE_WIDTH}]
        if gauge:
            properties += [{"id": "custom.cellOptions", "value": {"type": "gauge", "mode": "basic"}},
                           {"id": "min", "value": 0}, {"id": "max", "value": 1},
                           {"id": "color", "value": {"mode": "fixed", "fixedColor": "blue"}}]
        overrides.append({"matcher": {"id": "byName", "options": name}, "properties": properties})
    for label in panel.labels:
        properties = [{"id": "custom.filterable", "value": True}]
        if label in LABEL_WIDTHS and label != panel.labels[-1]:
            properties.append({"id": "custom.width", "value": LABEL_WIDTHS[label]})
        if label in DRILL_DOWN:
            uid, title = DRILL_DOWN[label]
            link = {"title": f"{title}: ${{__value.text}}", "targetBlank": False,
                    "url": make_url(uid, label, "${__value.text}")}
            properties.append({"id": "links", "value": [link]})
        overrides.append({"matcher": {"id": "byName", "options": label}, "properties": properties})
    return overrides


def make_transformations(panel):
    """One row per set of labels; columns in the order of `labels` and `columns`."""
    if panel.kind != "table":
        return []
    # The only query of a table has no letter.
    queries = ([f"Value #{chr(ord('A') + index)}" for index in range(len(panel.queries))] if len(panel.queries) > 1
               else ["Value"])
    order = list(panel.labels) + queries
    return [{"id": "merge", "options": {}},
            {"id": "organize", "options": {
                "excludeByName": {"Time": True},
                "indexByName": {name: index for index, name in enumerate(order)},
                "renameByName": dict(zip(queries, panel.columns))}}]


def make_options(panel):
    reduce = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    if panel.kind == "timeseries":
        return {"legend": {"displayMode": "table", "placement": "right" if panel.width >= WIDE else "bottom", "showLegend": True,
                           "calcs": ["lastNotNull", "max"][:2 if NARROW < panel.width < WIDE else 1], "sortBy": "Last *", "sortDesc": True},
                "tooltip": {"mode": "multi", "sort": "desc"}}
    if panel.kind == "stat":
        return {"colorMode": "value" if panel.steps else "none", "graphMode": "none", "justifyMode": "auto",
                "orientation": "auto", "textMode": "value", "reduceOptions": reduce}
    if panel.kind == "bargauge":
        return {"displayMode": "basic", "orientation": "horizontal", "showUnfilled": True, "valueMode": "color",
                # Few bars are not larger than many.
                "sizing": "manual", "minVizWidth": 8, "minVizHeight": 16, "maxVizHeight": 24,
                "reduceOptions": reduce}
    if panel.kind == "heatmap":
        return {"calculate": False, "cellGap": 1, "yAxis": {"unit": panel.unit, "axisPlacement": "left"},
                "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64, "exponent": 0.5,
                          "fill": "dark-orange", "scale": "exponential", "reverse": False},
                "rowsFrame": {"layout": "auto"}, "filterValues": {"le": 1e-9}, "exemplars": {"color": "red"},
                "legend": {"show": True}, "tooltip": {"mode": "single", "yHistogram": True, "showColorScale": False}}
    sort = [{"displayName": next(iter(panel.columns)), "desc": True}] if panel.columns else []
    return {"showHeader": True, "cellHeight": "sm", "sortBy": sort,
            "footer": {"show": False, "reducer": ["sum"], "countRows": False, "fields": ""}}


def make_panel(panel, number, x, y, height):
    colors = STEP_COLORS[len(STEP_COLORS) - len(panel.steps):]
    steps = [{"color": "green", "value": None},
             *({"color": color, "value": value} for color, value in zip(colors, panel.steps))]
    defaults = {"unit": panel.unit, "color": {"mode": "thresholds" if panel.kind in ("stat", "bargauge")
                                              else "palette-classic"},
                "thresholds": {"mode": "absolute", "steps": steps}, "custom": make_custom(panel),
                "links": make_links(panel)}
    if panel.decimals is not None:
        defaults["decimals"] = panel.decimals
    if panel.kind == "bargauge" or panel.unit == "percentunit" and panel.kind != "table":
        defaults["min"] = 0  # bars begin at the least value otherwise
    return {"id": number, "type": panel.kind, "title": panel.title, "description": panel.description,
            "datasource": DATASOURCE, "gridPos": {"x": x, "y": y, "w": panel.width, "h": height},
            "targets": [make_target(panel, index) for index in range(len(panel.queries))],
            "fieldConfig": {"defaults": defaults, "overrides": make_overrides(panel)},
            "options": make_options(panel), "transformations": make_transformations(panel)}


def make_panels(dashboard):
    """Rows below each other, their panels side by side from the left."""
    panels, y = [], 0
    for heading, height, line in dashboard.rows:
        if sum(panel.width for panel in line) != COLUMNS:
            raise ValueError(f"{dashboard.uid}, row {heading or line[0].title!r}: not {COLUMNS} columns wide")
        if heading:
            panels.append({"id": len(panels) + 1, "type": "row", "title": heading, "collapsed": False,
                           "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1}, "panels": []})
            y += 1
        x = 0
        for panel in line:
            panels.append(make_panel(panel, len(panels) + 1, x, y, height))
            x += panel.width
        y += height
    return panels


def make_variable(name, label, query):
    if name == "datasource":
        return {"name": name, "type": "datasource", "label": label, "query": query, "regex": "", "refresh": 1,
                "hide": 0, "multi": False, "includeAll": False, "options": []}
    return {"name": name, "type": "query", "label": label, "datasource": DATASOURCE, "definition": query,
            "query": {"query": query, "refId": f"variable-{name}"}, "refresh": 2, "sort": 1, "regex": "", "hide": 0,
            "multi": True, "includeAll": True, "allValue": ".*", "options": [],
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]}}


def make_annotation(name, color, expression, title):
    return {"name": name, "enable": True, "hide": False, "iconColor": color, "datasource": DATASOURCE,
            "expr": expression, "titleFormat": title, "useValueForTime": False, "step": "30s"}


def make_dashboard(dashboard):
    return {
        "uid": dashboard.uid, "title": dashboard.title, "description": dashboard.description,
        "tags": ["gpu", "gpuperf"], "schemaVersion": SCHEMA_VERSION, "version": 1, "editable": True, "graphTooltip": 1,
        "time": {"from": "now-1h", "to": "now"}, "refresh": "30s", "timezone": "browser", "fiscalYearStartMonth": 0,
        "weekStart": "", "timepicker": {},
        "links": [{"type": "dashboards", "title": "gpuperf", "tags": ["gpuperf"], "asDropdown": False, "icon": "dashboard",
                   "includeVars": True, "keepTime": True, "targetBlank": False, "tooltip": "", "url": ""}],
        "annotations": {"list": [make_annotation(*row) for row in dashboard.annotations]},
        "templating": {"list": [make_variable(*row) for row in dashboard.variables]},
        "panels": make_panels(dashboard),
    }


def render(dashboard):
    return json.dumps(make_dashboard(dashboard), indent=2, ensure_ascii=False) + "\n"


def main():
    files = {FOLDER / f"{dashboard.uid}.json": render(dashboard) for dashboard in DASHBOARDS}
    if sys.argv[1:] == ["--check"]:
        stale = [path.name for path, text in files.items()
                 if not path.exists() or path.read_text(encoding="utf-8") != text]
        stale += [path.name for path in FOLDER.glob("*.json") if path not in files]
        if stale:
            sys.exit(f"not as generated: {', '.join(sorted(stale))}; run deploy/grafana/generate.py")
        return
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
