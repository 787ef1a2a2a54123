#!/usr/bin/env bash
# Fetches speedscope, the timeline viewer that the page of gpuperfd embeds: the version and checksum
# in daemon/web/npm/package-lock.json, through npm.
#
# usage: deploy/fetch_viewer.sh BUILD_FOLDER
#
# Exit code: 0 also without npm or network. The build then leaves the viewer out and the page says so;
# nothing else needs it.
set -euo pipefail
[[ $# -eq 1 ]] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
cd "$(dirname "$0")/.."

readonly FOLDER=$1/viewer LOCK=daemon/web/npm/package-lock.json
if cmp -s "$LOCK" "$FOLDER/package-lock.json" && [[ -d $FOLDER/node_modules/speedscope ]]; then
  exit 0
fi
if ! command -v npm >/dev/null; then
  echo "npm is not installed: the page of gpuperfd is built without its timeline viewer"
  exit 0
fi
mkdir -p "$FOLDER"
cp daemon/web/npm/package.json "$LOCK" "$FOLDER"
if ! npm ci --prefix "$FOLDER" --ignore-scripts --no-audit --no-fund --loglevel=error; then
  echo "npm could not fetch speedscope (above): the page of gpuperfd is built without its timeline viewer"
  rm -rf "$FOLDER"
fi
