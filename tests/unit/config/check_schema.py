#!/usr/bin/env python3
"""Checks docs/config.schema.json: it is a valid schema, takes every configuration that gpuperfd
takes, and refuses what a schema can see of what gpuperfd refuses."""

import json
import pathlib
import sys

try:
    import jsonschema
except ImportError:
    print("skipped: python3-jsonschema is not installed (apt-get install python3-jsonschema)")
    sys.exit(77)

# Faults between two places of a file, or in the text itself: no schema sees them.
BEYOND_A_SCHEMA = {
    "duplicate_keys.json",
    "grpc_tcp.json",
    "metrics_address_port.json",
    "nothing_to_probe.json",
    "static_probes.json",
}


def refuse_constant(name):
    raise ValueError(f"{name} is no JSON")  # Python takes NaN and Infinity by default


def parse(path):
    try:
        return json.loads(path.read_text(), parse_constant=refuse_constant)
    except ValueError:
        return None


def main():
    root = pathlib.Path(sys.argv[1])
    schema = json.loads((root / "docs/config.schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    validator = jsonschema.Draft7Validator(schema)
    tests = root / "tests/unit/config"
    failures = []

    good = [root / "deploy/config.json", *sorted((tests / "good").glob("*.json"))]
    for path in good:
        failures += [f"{path}: refused: {error.json_path}: {error.message}"
                     for error in validator.iter_errors(parse(path))]

    refused = 0
    for path in sorted((tests / "bad").glob("*.json")):
        config = parse(path)
        if config is None or path.name in BEYOND_A_SCHEMA:
            continue
        if validator.is_valid(config):
            failures.append(f"{path}: accepted, but gpuperfd refuses it")
        refused += 1

    print(f"{len(good)} good files, {refused} bad files checked against the schema")
    for failure in failures:
        print(failure)
    return 1 if failures or refused < 15 else 0


if __name__ == "__main__":
    sys.exit(main())
