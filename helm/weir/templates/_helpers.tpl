{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}
{{- define "weir.fullname" -}}
{{- printf "%s-operator" .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "weir.selector" -}}
app.kubernetes.io/name: weir-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "weir.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "weir.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: operator
app.kubernetes.io/part-of: weir
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "weir.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "weir.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{- define "weir.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- /* What the operator may do with the objects of jobs: in all namespaces, or in each of watchNamespaces. */ -}}
{{- define "weir.jobRules" -}}
- {apiGroups: [weir.dev], resources: [pipelinejobs], verbs: [list, watch, delete]}
- {apiGroups: [weir.dev], resources: [pipelinejobs/status], verbs: [patch]}
- {apiGroups: [weir.dev], resources: [pipelinejobs/finalizers], verbs: [update]}
- {apiGroups: [""], resources: [pods], verbs: [get, list, watch, create, patch, delete]}
- {apiGroups: [""], resources: [services], verbs: [get, list, watch, create]}
- {apiGroups: [""], resources: [configmaps], verbs: [get, list, watch, create, patch, delete]}
- {apiGroups: [events.k8s.io], resources: [events], verbs: [create, list, patch]}
{{- if .Values.gang.volcano.enabled }}
- {apiGroups: [scheduling.volcano.sh], resources: [podgroups], verbs: [get, list, watch, create, patch, delete]}
{{- end }}
{{- end -}}

{{- /* Where and how Prometheus is asked: flags of run and check, and what they need in the pod. */ -}}
{{- define "weir.prometheusArgs" -}}
{{- $prometheus := .Values.prometheus -}}
{{- if and $prometheus.bearerTokenFile $prometheus.basicAuthSecret }}{{ fail "prometheus: bearerTokenFile and basicAuthSecret exclude each other" }}{{ end -}}
{{- with $prometheus.url -}}
- --prometheus-url={{ . }}
{{ end -}}
- --prometheus-scrape-interval={{ $prometheus.scrapeInterval }}
- --prometheus-namespace-label={{ $prometheus.namespaceLabel }}
{{- with $prometheus.bearerTokenFile }}
- --prometheus-bearer-token-file={{ . }}
{{- end }}
{{- if $prometheus.basicAuthSecret }}
- --prometheus-basic-auth-dir=/etc/weir/prometheus-auth
{{- end }}
{{- if $prometheus.caConfigMap }}
- --prometheus-ca-file=/etc/weir/prometheus/ca.crt
{{- end }}
{{- with $prometheus.extraMatchers }}
- {{ printf "--prometheus-extra-matchers=%s" . | quote }}
{{- end }}
{{- end -}}

{{- define "weir.prometheusMounts" -}}
{{- if .Values.prometheus.caConfigMap -}}
- {name: prometheus-ca, mountPath: /etc/weir/prometheus, readOnly: true}
{{ end -}}
{{- if .Values.prometheus.basicAuthSecret -}}
- {name: prometheus-auth, mountPath: /etc/weir/prometheus-auth, readOnly: true}
{{ end -}}
{{- end -}}

{{- define "weir.prometheusVolumes" -}}
{{- with .Values.prometheus.caConfigMap -}}
- {name: prometheus-ca, configMap: {name: {{ . }}}}
{{ end -}}
{{- with .Values.prometheus.basicAuthSecret -}}
- {name: prometheus-auth, secret: {secretName: {{ . }}, defaultMode: 0440}}
{{ end -}}
{{- end -}}

{{- /* PodSecurity level restricted */ -}}
{{- define "weir.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "weir.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}
