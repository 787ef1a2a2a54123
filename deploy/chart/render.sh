#!/usr/bin/env bash
# Renders the chart with its defaults into deploy/manifests, for `kubectl apply -k`.
#
# usage: deploy/chart/render.sh [FOLDER]     instead of deploy/manifests; HELM names the program to use
set -euo pipefail
cd "$(dirname "$0")"
folder=${1:-../manifests}
helm=${HELM:-helm}

command -v "$helm" >/dev/null || {
  echo "render.sh: $helm: not found; install helm, or name it: HELM=/path/to/helm $0" >&2
  exit 1
}
./sync.py

# render TEMPLATE FILE ARGUMENT...: one template into one file, for namespace gpuperf.
render() {
  local template=$1 file=$2
  shift 2
  mkdir -p "$(dirname "$folder/$file")"
  {
    echo "# Made from deploy/chart by render.sh; do not edit."
    "$helm" template gpuperf . --namespace gpuperf --show-only "templates/$template.yaml" "$@" \
      2> >(grep -v "found symbolic link" >&2) |
      sed -e 's/managed-by: Helm/managed-by: kustomize/' -e '/^# Source: /d'
  } >"$folder/$file"
}

render serviceaccount serviceaccount.yaml
render configmap configmap.yaml
# Without helm a changed ConfigMap comes with no new checksum: it waits for a reload.
render daemonset daemonset.yaml --set rollOnConfigChange=false
render networkpolicy networkpolicy.yaml --set networkPolicy.enabled=true
# What needs Prometheus's operator or Grafana's sidecar: a component of its own.
render monitor monitoring/podmonitor.yaml --set monitoring.kind=PodMonitor
monitoring=(podmonitor.yaml)
if compgen -G "files/rules/*.yaml" >/dev/null; then
  render rules monitoring/rules.yaml --set monitoring.rules=true
  monitoring+=(rules.yaml)
fi
if compgen -G "files/dashboards/*.json" >/dev/null; then
  render dashboards monitoring/dashboards.yaml --set monitoring.dashboards=true
  monitoring+=(dashboards.yaml)
fi
{
  echo "# Made by deploy/chart/render.sh; do not edit. Needs Prometheus's operator."
  printf 'apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nresources:\n'
  printf '  - %s\n' "${monitoring[@]}"
} >"$folder/monitoring/kustomization.yaml"
