#!/usr/bin/env python3
"""Fills the chart with what is written elsewhere, so that each thing has one source.

usage: sync.py [--check]     --check: change nothing, fail when something is out of date

  files/config.json     -> deploy/config.json, the functions that are probed
  files/rules/*.yaml    -> deploy/prometheus/gpuperf-*.yaml, recording rules and alerts
  files/dashboards/*    -> deploy/grafana/*.json
  values.schema.json    its property `config` and its definitions: docs/config.schema.json
  README.md             its table of values: the comments of values.yaml

What stands under files/ is links: helm follows them when it renders, and packs what they lead to. It says so on stderr.
"""

import json
import os
import pathlib
import re
import sys

CHART = pathlib.Path(__file__).resolve().parent
DEPLOY = CHART.parent
# Go's regular expressions, which helm uses, have none; without it the schema is wider, never narrower.
LOOKAHEAD = re.compile(r"\(\?[!=][^()]*\)")
TABLE = re.compile(r"(<!-- values: .*? -->\n)(.*?)(<!-- end of values -->)", re.S)


def links():
    """Target by path of every link under files/."""
    wanted = {CHART / "files/config.json": DEPLOY / "config.json"}
    for folder, pattern in (("rules", "prometheus/gpuperf-*.yaml"), ("dashboards", "grafana/*.json")):
        for path in sorted(DEPLOY.glob(pattern)):
            if not path.name.endswith(".test.yaml"):  # cases for promtool
                wanted[CHART / "files" / folder / path.name] = path
    return {link: os.path.relpath(target, link.parent) for link, target in wanted.items()}


def make_schema():
    """values.schema.json with the daemon's schema as that of `config`: checked by helm at install."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    text = (DEPLOY.parent / "docs/config.schema.json").read_text(encoding="utf-8")
    config = json.loads(LOOKAHEAD.sub("", text))
    schema["definitions"] = config.pop("definitions")
    for key in ("$schema", "title"):
        config.pop(key)
    schema["properties"]["config"] = config
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def value_rows(text):
    """(name, default, meaning) of every value that has a comment, in the file's order."""
    rows, path, comment = [], [], []
    lines = text.splitlines()
    for number, line in enumerate(lines):
        match = re.match(r"( *)(\w+): ?(.*)$", line)
        if line.lstrip().startswith("# "):
            comment.append(line.strip()[2:])
        elif match and len(match[1]) % 2 == 0:
            path[len(match[1]) // 2:] = [match[2]]
            default = match[3]
            if not default:  # the value is the block below
                below = []
                for further in lines[number + 1:]:
                    if not re.match(match[1] + r"  +[^ #]", further):
                        break
                    below.append(further.strip())
                default = " ".join(below)
            if comment:
                rows.append((".".join(path), default, " ".join(comment)))
            comment = []
        else:
            comment = []
    return rows


def make_readme():
    rows = ["| value | default | meaning |", "|---|---|---|"]
    for name, default, meaning in value_rows((CHART / "values.yaml").read_text(encoding="utf-8")):
        rows.append(f"| `{name}` | `{default}` | {meaning} |".replace("``", ""))
    readme = (CHART / "README.md").read_text(encoding="utf-8")
    return TABLE.sub(lambda match: match[1] + "\n".join(rows) + "\n" + match[3], readme)


def main(check):
    texts = {CHART / "values.schema.json": make_schema(), CHART / "README.md": make_readme()}
    wanted = links()
    stale = [path for path, text in texts.items() if path.read_text(encoding="utf-8") != text]
    stale += [link for link, target in wanted.items() if not link.is_symlink() or os.readlink(link) != target]
    gone = [path for path in (CHART / "files").rglob("*") if not path.is_dir() and path not in wanted]
    if check:
        for path in stale + gone:
            print(f"{path.relative_to(DEPLOY.parent)}: out of date: run deploy/chart/render.sh",
                  file=sys.stderr)
        return 1 if stale or gone else 0
    for path in stale:
        if path in texts:
            path.write_text(texts[path], encoding="utf-8")
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(wanted[path])
    for path in gone:
        path.unlink()
    return 0


if __name__ == "__main__":
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    sys.exit(main(bool(sys.argv[1:])))
