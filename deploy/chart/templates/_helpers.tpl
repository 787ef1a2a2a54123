{{- define "gpuperf.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What never changes for a release: selectors. */}}
{{- define "gpuperf.selectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: daemon
{{- end -}}

{{- define "gpuperf.labels" -}}
{{ include "gpuperf.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: gpuperf
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "gpuperf.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- define "gpuperf.serviceAccountName" -}}
{{- default (include "gpuperf.fullname" .) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "gpuperf.capabilities" -}}
[{{ concat (list "BPF" "PERFMON" "SYS_PTRACE" "DAC_READ_SEARCH") .Values.security.extraCapabilities | join ", " }}]
{{- end -}}

{{/* The daemon's config.json. The chart's own keys say where volumes and ports are: they have values of their own. */}}
{{- define "gpuperf.config" -}}
{{- $owned := list (list "metrics" "listen" "metrics.port") (list "grpc" "listen" "hostPaths.runtime") (list "storage" "path" "hostPaths.store") (list "ingest" "enabled" "injection.enabled") (list "ingest" "socket" "hostPaths.runtime") (list "ingest" "injector_path" "hostPaths.injector") (list "ingest" "device_plugin" "injection.devicePlugin.enabled") (list "ingest" "cdi_spec" "injection.cdi.enabled") -}}
{{- range $owned -}}
{{- if hasKey (default dict (get $.Values.config (index . 0))) (index . 1) -}}
{{- fail (printf "config.%s.%s is set by the chart: use the value %s" (index . 0) (index . 1) (index . 2)) -}}
{{- end -}}
{{- end -}}
{{- $ingest := dict "enabled" .Values.injection.enabled -}}
{{- if .Values.injection.enabled -}}
{{- if or .Values.injection.devicePlugin.enabled .Values.injection.cdi.enabled -}}
{{- $_ := set $ingest "injector_path" (printf "%s/libgpuperf_injector.so" .Values.hostPaths.injector) -}}
{{- end -}}
{{- if .Values.injection.devicePlugin.enabled -}}
{{- $_ := set $ingest "device_plugin" true -}}
{{- end -}}
{{- if .Values.injection.cdi.enabled -}}
{{- $_ := set $ingest "cdi_spec" (printf "%s/gpuperf.json" .Values.hostPaths.cdi) -}}
{{- end -}}
{{- else if or .Values.injection.devicePlugin.enabled .Values.injection.cdi.enabled -}}
{{- fail "injection.devicePlugin and injection.cdi need injection.enabled: true" -}}
{{- end -}}
{{- $own := dict "metrics" (dict "listen" (printf "0.0.0.0:%d" (int .Values.metrics.port))) "grpc" (dict "listen" (printf "unix:%s/api.sock" .Values.hostPaths.runtime)) "storage" (dict "path" .Values.hostPaths.store) "ingest" $ingest -}}
{{- $config := dict -}}
{{- if .Values.shippedFunctions -}}
{{- $config = .Files.Get "files/config.json" | fromJson -}}
{{- end -}}
{{- /* By hand: sprig's merge keeps a string where the user gives an object. */ -}}
{{- range $section, $given := .Values.config -}}
{{- if kindIs "map" $given -}}
{{- $merged := default dict (get $config $section) -}}
{{- range $key, $value := $given -}}
{{- $known := get $merged $key -}}
{{- /* As the daemon does: an object without a symbol changes the shipped entry. */ -}}
{{- if and $known (kindIs "map" $value) -}}
{{- if not (hasKey $value "symbol") -}}
{{- $value = merge (deepCopy $value) (kindIs "map" $known | ternary $known (dict "symbol" $known)) -}}
{{- end -}}
{{- end -}}
{{- $_ := set $merged $key $value -}}
{{- end -}}
{{- $_ := set $config $section $merged -}}
{{- else -}}
{{- $_ := set $config $section $given -}}
{{- end -}}
{{- end -}}
{{- if not (regexMatch "_sym( |$)" (keys $config | join " ")) -}}
{{- fail "no function to probe: add a section to config, such as config.cuda_func_sym, or set shippedFunctions: true" -}}
{{- end -}}
{{- mustMergeOverwrite $config $own | mustToPrettyJson -}}
{{- end -}}

{{/* Relabelings of a target: a node's series keep their name when its pod is replaced, and series without a
     workload do not get the daemon's own pod as theirs. */}}
{{- define "gpuperf.endpoint" -}}
port: metrics
path: /metrics
interval: {{ .Values.monitoring.interval }}
scrapeTimeout: {{ .Values.monitoring.scrapeTimeout }}
honorLabels: true
relabelings:
  - sourceLabels: [__meta_kubernetes_pod_node_name]
    targetLabel: node
  - sourceLabels: [__meta_kubernetes_pod_node_name]
    targetLabel: instance
  - action: labeldrop
    regex: pod|container|namespace|service|endpoint
{{- with .Values.monitoring.metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
