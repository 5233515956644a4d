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
- {apiGroups: [weir.dev], resources: [pipelinejobs], verbs: [get, list, watch, delete]}
- {apiGroups: [weir.dev], resources: [pipelinejobs/status], verbs: [get, patch]}
- {apiGroups: [weir.dev], resources: [pipelinejobs/finalizers], verbs: [update]}
- {apiGroups: [""], resources: [pods], verbs: [get, list, watch, create, patch, delete]}
- {apiGroups: [""], resources: [services, configmaps], verbs: [get, list, watch, create, patch, delete]}
- {apiGroups: [events.k8s.io], resources: [events], verbs: [create, patch]}
{{- if .Values.gang.volcano.enabled }}
- {apiGroups: [scheduling.volcano.sh], resources: [podgroups], verbs: [get, list, watch, create, patch, delete]}
{{- end }}
{{- end -}}
