#!/bin/sh
# Runs Prometheus' own linter over the exposition of the golden test, which export_test keeps equal
# to what the daemon serves. Exit 77 = skipped.
set -eu
if ! command -v promtool >/dev/null; then
  echo "skipped: promtool is not installed (apt-get install prometheus)"
  exit 77
fi
output=$(promtool check metrics <"$1" 2>&1) || { echo "$output"; exit 1; }
[ -z "$output" ] || { echo "$output"; exit 1; }
echo "promtool has nothing to say about $1"
