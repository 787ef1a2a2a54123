#!/usr/bin/env python3
"""Makes a man page: a template in mdoc(7), in which lines of the form @NAME@ stand for what is known elsewhere.

@DATE@               in .Dd: the day of SOURCE_DATE_EPOCH, or today
@GPUPERFD_OPTIONS@   what `gpuperfd --help` says
@GPUPERFCTL_OPTIONS@ the options of every command; @GPUPERFCTL_COMMANDS@ every command with its own
@SETTINGS@, @SECTIONS@  what docs/config.schema.json says of settings, and of sections of functions

usage: make_man.py TEMPLATE PAGE --gpuperfctl PROGRAM --gpuperfd PROGRAM --schema FILE
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import textwrap
from typing import NamedTuple


class Row(NamedTuple):
    name: str  # "-o,--output table|json|csv=table", "PATTERN TEXT REQUIRED", "status"
    text: str


class Help(NamedTuple):
    """What a program says of one of its commands."""
    summary: str
    rows: dict  # "Options", "Positionals", "Subcommands" -> [Row]


def read_help(program, *words):
    text = subprocess.run([program, *words, "--help"], capture_output=True, text=True, check=True, timeout=60,
                          env={**os.environ, "NO_COLOR": "1", "LC_ALL": "C.UTF-8"}).stdout
    summary = next(line for line in text.splitlines() if line.strip())
    rows, current = {}, None
    for line in text.splitlines():
        if match := re.fullmatch(r"(Options|Positionals|Subcommands):", line):
            current = rows.setdefault(match[1], [])
        elif current is None or not line.startswith("  "):
            current = current if line.startswith("  ") or not line else None
        elif line.startswith(" " * 8):  # the text of a name that fills its column, or more of a text
            current[-1] = Row(current[-1].name, f"{current[-1].text} {line.strip()}".strip())
        else:
            name, _, described = line.strip().partition("  ")
            current.append(Row(name.strip(), described.strip()))
    return Help(summary, rows)


def escape(text):
    """Text as mdoc prints it: no macro at its begin, no hyphen that looks like one of prose."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return f"\\&{text}" if text.startswith((".", "'")) else text


def prose(text):
    """Sentences on lines of their own, as mdoc wants them."""
    return "\n".join(escape(line).replace("\\-", "-")
                     for line in re.sub(r"\. (?=[A-Z0-9(])", ".\n", text.strip()).splitlines())


def item(head, text):
    return f".It {head}\n{prose(text)}" if text else f".It {head}"


def quoted(words):
    return '"' + escape(words) + '"'


def render_option(row):
    names, _, value = row.name.partition(" ")
    head = " , ".join(f"Fl {escape(name[1:])}" for name in names.split(","))
    excludes = re.search(r"Excludes: (--\S+(?: --\S+)*)", value)
    environment = re.search(r"\(Env:(\w+)\)", value)
    value = re.sub(r"Excludes: --\S+(?: --\S+)*|\(Env:\w+\)|REQUIRED|Needs: \S+", "", value).strip()
    value, _, default = value.partition("=")
    text = row.text.rstrip(".") + "."
    if default:
        text += f" Default: {default}."
    if environment:
        text += f" Also set by the environment variable {environment[1]}."
    if excludes:
        text += f" Not together with {excludes[1].replace(' ', ', ')}."
    return item(head + (f" Ar {quoted(value.strip())}" if value.strip() else ""), text)


def render_options(rows, hidden=("-h,--help",)):
    shown = [render_option(row) for row in rows if row.name.split(" ")[0] not in hidden]
    return "\n".join([".Bl -tag -width Ds", *shown, ".El"]) if shown else ""


def render_positional(row):
    name, _, kind = row.name.partition(" ")
    values = kind.replace("REQUIRED", "").replace("TEXT", "").replace("UINT", "").strip()
    text = row.text.rstrip(".") + "." if row.text else ""
    return item(f"Ar {escape(name)}", f"{text} One of {values}." if "|" in values else text)


def render_command(program, words):
    """The command and those below it."""
    told = read_help(program, *words)
    positionals = told.rows.get("Positionals", [])
    inner = told.rows.get("Subcommands", [])
    options = [render_option(row) for row in told.rows.get("Options", []) if row.name != "-h,--help"]
    is_listed = any(row.name == "list" for row in inner)  # the same as without a subcommand
    lines = []
    if not inner or (options and not is_listed):
        arguments = "".join(f" Ar {escape(row.name.split(' ')[0].rstrip('.'))}" for row in positionals)
        lines += [f".It Cm {' '.join(words)}{arguments}", prose(told.summary.rstrip(".") + ".")]
        details = [render_positional(row) for row in positionals if row.text]
        if details or options:
            lines += [".Bl -tag -width Ds", *details, *options, ".El"]
    for row in inner:
        lines += render_command(program, [*words, row.name])
    return lines


def render_commands(program):
    commands = read_help(program).rows["Subcommands"]
    lines = [".Bl -tag -width Ds"]
    for row in commands:
        lines += render_command(program, [row.name])
    return "\n".join([*lines, ".El"])


def describe_bounds(rule):
    """"integer from 0 to 100, default 16" of a setting's rule."""
    parts = [rule.get("type", "value")]
    if "enum" in rule:
        parts = ["one of " + ", ".join(str(value) for value in rule["enum"])]
    if "minimum" in rule:
        parts.append(f"from {rule['minimum']} to {rule['maximum']}")
    if "default" in rule:
        parts.append("default " + json.dumps(rule["default"]))
    return ", ".join(parts)


def list_settings(prefix, settings):
    """Those of groups within a section, too, by their whole names."""
    for name, rule in settings.items():
        if "properties" in rule:
            yield from list_settings(f"{prefix}.{name}", rule["properties"])
        else:
            yield f"{prefix}.{name}", rule


def render_settings(schema):
    lines = []
    for section, rule in schema["properties"].items():
        settings = rule.get("properties", {})
        if section == "libraries" or not settings:
            continue
        lines += [f".Ss {section}", ".Bl -tag -width Ds"]
        for name, setting in list_settings(section, settings):
            lines.append(item(f"Cm {escape(name)} Pq {quoted(describe_bounds(setting))}", setting.get("description", "")))
        lines.append(".El")
    return "\n".join(lines)


def render_sections(schema):
    rows = [item(f"Cm {escape(name)}", rule["description"]) for name, rule in schema["properties"].items()
            if name.endswith("_sym")]
    return "\n".join([".Bl -tag -width Ds", *rows, ".El"])


def wrap_lines(page):
    """Lines of text, not of macros, of at most 80 bytes: mandoc's style."""
    lines = []
    for line in page.splitlines():
        lines += [line] if line.startswith(".") else textwrap.wrap(line, 78, break_on_hyphens=False) or [line]
    return "\n".join(lines) + "\n"


def render_date():
    day = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")) or
                                          datetime.datetime.now().timestamp(), datetime.timezone.utc)
    return f"{day:%B} {day.day}, {day.year}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("template", type=pathlib.Path)
    parser.add_argument("page", type=pathlib.Path)
    parser.add_argument("--gpuperfctl", required=True)
    parser.add_argument("--gpuperfd", required=True)
    parser.add_argument("--schema", type=pathlib.Path, required=True)
    given = parser.parse_args()
    schema = json.loads(given.schema.read_text(encoding="utf-8"))
    makers = {
        "DATE": render_date,
        "GPUPERFD_OPTIONS": lambda: render_options(read_help(given.gpuperfd).rows["Options"], hidden=()),
        "GPUPERFCTL_OPTIONS": lambda: render_options(read_help(given.gpuperfctl).rows["Options"], hidden=()),
        "GPUPERFCTL_COMMANDS": lambda: render_commands(given.gpuperfctl),
        "SETTINGS": lambda: render_settings(schema),
        "SECTIONS": lambda: render_sections(schema),
    }
    page = re.sub(r"@([A-Z_]+)@", lambda match: makers[match[1]](), given.template.read_text(encoding="utf-8"))
    given.page.write_text(wrap_lines(page), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
