{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}
{{- define "weir.name" -}}
{{- .Values.nameOverride | default "weir-operator" -}}
{{- end -}}

{{- /* Of all objects in the release's namespace. It names a Service, so it is a DNS-1035 label. */ -}}
{{- define "weir.fullname" -}}
{{- $derived := printf "%s-%s" .Release.Name (.Values.nameOverride | default "operator") | replace "." "-" | trunc 52 | trimSuffix "-" -}}
{{- $name := .Values.fullnameOverride | default $derived -}}
{{- if not (regexMatch "^[a-z]" $name) -}}
{{- fail (printf "the name of a Service must begin with a letter, and %q does not: set fullnameOverride" $name) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{- /* Of objects outside of the release's namespace: a release of the same name in another namespace has others. */ -}}
{{- define "weir.globalName" -}}
{{- printf "%s.%s" (include "weir.fullname" .) .Release.Namespace -}}
{{- end -}}

{{- define "weir.selector" -}}
app.kubernetes.io/name: {{ include "weir.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- /* Labels of commonLabels that are not the chart's own. */ -}}
{{- define "weir.labels" -}}
{{- $own := include "weir.selector" . | fromYaml -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_") -}}
{{- $_ := set $own "app.kubernetes.io/version" .Chart.AppVersion -}}
{{- $_ := set $own "app.kubernetes.io/component" "operator" -}}
{{- $_ := set $own "app.kubernetes.io/part-of" "weir" -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" .Release.Service -}}
{{- merge $own (.Values.commonLabels | default dict) | toYaml -}}
{{- end -}}

{{- /* A duration such as 500ms, 30s, 2m or 1h, in ms. */ -}}
{{- define "weir.milliseconds" -}}
{{- $units := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 -}}
{{- mul (regexFind "^[0-9]+" . | int) (get $units (regexFind "[a-z]+$" .)) -}}
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
{{- if (.Values.gang.volcano).enabled }}
- {apiGroups: [scheduling.volcano.sh], resources: [podgroups], verbs: [get, list, watch, create, patch, delete]}
{{- end }}
{{- end -}}

{{- /* What run and check have in common lies in the environment: so `kubectl exec deploy/... -- /weir-operator check` asks as the operator does. */ -}}
{{- define "weir.environment" -}}
{{- $prometheus := .Values.prometheus -}}
{{- if and $prometheus.bearerTokenFile $prometheus.basicAuthSecret }}{{ fail "prometheus: bearerTokenFile and basicAuthSecret exclude each other" }}{{ end -}}
- {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
- {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
- {name: WEIR_NAME, value: {{ include "weir.fullname" . | quote }}}
{{- with .Values.watchNamespaces }}
- {name: WEIR_WATCH_NAMESPACES, value: {{ join "," . | quote }}}
{{- end }}
{{- with $prometheus.url }}
- {name: WEIR_PROMETHEUS_URL, value: {{ . | quote }}}
{{- end }}
{{- with $prometheus.bearerTokenFile }}
- {name: WEIR_PROMETHEUS_BEARER_TOKEN_FILE, value: {{ . | quote }}}
{{- end }}
{{- if $prometheus.basicAuthSecret }}
- {name: WEIR_PROMETHEUS_BASIC_AUTH_DIR, value: /etc/weir/prometheus-auth}
{{- end }}
{{- if $prometheus.caConfigMap }}
- {name: WEIR_PROMETHEUS_CA_FILE, value: /etc/weir/prometheus/ca.crt}
{{- end }}
{{- with $prometheus.headers }}
{{- $lines := list }}
{{- range $name, $value := . }}{{ $lines = append $lines (printf "%s: %s" $name $value) }}{{ end }}
- {name: WEIR_PROMETHEUS_HEADERS, value: {{ join "\n" $lines | quote }}}
{{- end }}
{{- if (.Values.control.tls).existingSecret }}
- {name: WEIR_CONTROL_TLS_DIR, value: /etc/weir/tls}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "weir.mounts" -}}
{{- if .Values.prometheus.caConfigMap }}
- {name: prometheus-ca, mountPath: /etc/weir/prometheus, readOnly: true}
{{- end }}
{{- if .Values.prometheus.basicAuthSecret }}
- {name: prometheus-auth, mountPath: /etc/weir/prometheus-auth, readOnly: true}
{{- end }}
{{- if (.Values.control.tls).existingSecret }}
- {name: control-tls, mountPath: /etc/weir/tls, readOnly: true}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* Secrets are readable in their own pod by whatever user that runs as. */ -}}
{{- define "weir.volumes" -}}
{{- with .Values.prometheus.caConfigMap }}
- {name: prometheus-ca, configMap: {name: {{ . | quote }}}}
{{- end }}
{{- with .Values.prometheus.basicAuthSecret }}
- {name: prometheus-auth, secret: {secretName: {{ . | quote }}, defaultMode: 0444}}
{{- end }}
{{- with (.Values.control.tls).existingSecret }}
- {name: control-tls, secret: {secretName: {{ . | quote }}, defaultMode: 0444}}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* What the pods of the operator and of `helm test` have in common, beside their container. */ -}}
{{- define "weir.podSpec" -}}
serviceAccountName: {{ include "weir.serviceAccount" . | quote }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 0 }}
{{- end }}
{{- with .Values.podSecurityContext }}
securityContext: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "weir.volumes" . | trim }}
volumes: {{- . | nindent 0 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 0 }}
{{- end }}
{{- end -}}

{{- define "weir.container" -}}
image: {{ include "weir.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
env: {{- include "weir.environment" . | nindent 0 }}
{{- with .Values.extraEnvFrom }}
envFrom: {{- toYaml . | nindent 0 }}
{{- end }}
{{- with .Values.securityContext }}
securityContext: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "weir.mounts" . | trim }}
volumeMounts: {{- . | nindent 0 }}
{{- end }}
{{- end -}}

{{- /* Rules and dashboards ask for the default lease; here it is the one of this release: (list $ TEXT QUOTE) with QUOTE as it is
written in TEXT. The namespace is asked for where scrapes store it. */ -}}
{{- define "weir.ofRelease" -}}
{{- $root := index . 0 -}}
{{- $quote := index . 2 -}}
{{- $matchers := printf "name=%s%s%s" $quote (include "weir.fullname" $root) $quote -}}
{{- with $root.Values.prometheus.namespaceLabel -}}
{{- $matchers = printf "%s,%s=%s%s%s" $matchers . $quote $root.Release.Namespace $quote -}}
{{- end -}}
{{- index . 1 | replace (printf "name=%sweir-operator%s" $quote $quote) $matchers -}}
{{- end -}}

{{- /* Who else owns the CRD of this cluster, in words; "" when it is not there or ours. Helm would refuse to install over it. */ -}}
{{- define "weir.crdOwner" -}}
{{- with lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "pipelinejobs.weir.dev" -}}
{{- $noted := .metadata.annotations | default dict -}}
{{- $name := get $noted "meta.helm.sh/release-name" -}}
{{- $namespace := get $noted "meta.helm.sh/release-namespace" -}}
{{- if not $name -}}
no release of Helm
{{- else if or (ne $name $.Release.Name) (ne $namespace $.Release.Namespace) -}}
release {{ $name }} in namespace {{ $namespace }}
{{- end -}}
{{- end -}}
{{- end -}}
