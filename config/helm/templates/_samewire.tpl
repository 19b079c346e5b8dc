{{- define "samewire.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 63 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" }}{{ end -}}
{{- end -}}

{{- define "samewire.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "samewire.labels" -}}
{{ include "samewire.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "samewire.image" -}}
{{- if .Values.image.digest }}{{ .Values.image.repository }}@{{ .Values.image.digest }}{{ else }}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end -}}
{{- end -}}

{{- /* The file that samewire reads: the lines of the operator, which may begin outside of tables, then the engines. */ -}}
{{- define "samewire.config" -}}
{{- with .Values.config }}
{{- . | trim }}
{{ end }}
{{- range .Values.engines }}
[[upstream]]
name = {{ .name | quote }}
{{- if .service }}
url = "http://{{ .service }}.{{ $.Release.Namespace }}.svc:{{ .port }}"
pods = "kubernetes.io/service-name={{ .service }}"
{{- else }}
url = {{ .url | quote }}
{{- end }}
{{- with .engine }}
engine = {{ . | quote }}
{{- end }}
{{- with .extra }}
{{ . | trim }}
{{- end }}
{{ end }}
{{- end -}}

{{- /* Mistakes that a schema cannot tell. */ -}}
{{- define "samewire.check" -}}
{{- if not (or .Values.insecureNoAuth .Values.configSecret (contains "[[auth.key]]" .Values.config)) }}
{{- fail "there are no keys: give config [[auth.key]] tables, name a configSecret that has them, or say insecureNoAuth: true" }}
{{- end }}
{{- if and .Values.config .Values.configSecret }}
{{- fail "config and configSecret exclude each other: the Secret holds the whole samewire.toml" }}
{{- end }}
{{- if and .Values.engines .Values.configSecret }}
{{- fail "engines and configSecret exclude each other: the Secret holds the whole samewire.toml, with the [[upstream]] tables" }}
{{- end }}
{{- if and (ne .Values.mode "sidecar") (not .Values.engines) (not .Values.configSecret) }}
{{- fail (printf "engines is empty: mode %s needs one at least" .Values.mode) }}
{{- end }}
{{- range $at, $engine := .Values.engines }}
{{- if and (eq $.Values.mode "services") (not $engine.service) }}
{{- fail (printf "engines[%d].service is missing, which mode services needs" $at) }}
{{- end }}
{{- if and (eq $.Values.mode "gateway") $engine.service }}
{{- fail (printf "engines[%d].service is only for mode services; mode gateway needs url" $at) }}
{{- end }}
{{- end }}
{{- if eq .Values.mode "sidecar" }}
{{- if not .Values.sidecar.image }}
{{- fail "sidecar.image is empty: mode sidecar runs the engine" }}
{{- end }}
{{- if .Values.engines }}
{{- fail "engines is only for the modes gateway and services: the engine of mode sidecar is sidecar" }}
{{- end }}
{{- if .Values.autoscaling.enabled }}
{{- fail "autoscaling is only for the modes gateway and services" }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* Command that asks the sidecar's engine whether it is well. */ -}}
{{- define "samewire.engineHealth" -}}
{{- if .Values.sidecar.healthCommand }}
{{- toYaml .Values.sidecar.healthCommand }}
{{- else -}}
- python3
- -c
- import urllib.request as u; u.urlopen("http://127.0.0.1:{{ .Values.sidecar.port }}/health", timeout=5)
{{- end }}
{{- end -}}

{{- /* samewire's container. */ -}}
{{- define "samewire.container" -}}
name: samewire
image: {{ include "samewire.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args: [serve]
env:
  - name: SAMEWIRE_CONFIG
    value: /etc/samewire/samewire.toml
  - name: SAMEWIRE_LISTEN
    value: 0.0.0.0:8080
  # On the pod's address, because the kubelet asks it from outside the pod.
  - name: SAMEWIRE_ADMIN_LISTEN
    value: 0.0.0.0:9090
  - name: SAMEWIRE_TIMEOUTS__SETTLE
    value: {{ .Values.settle | quote }}
  - name: SAMEWIRE_TIMEOUTS__DRAIN
    value: {{ .Values.drain | quote }}
  {{- if .Values.insecureNoAuth }}
  - name: SAMEWIRE_INSECURE_NO_AUTH
    value: "true"
  {{- end }}
  {{- if eq .Values.mode "sidecar" }}
  - name: SAMEWIRE_UPSTREAM
    value: http://127.0.0.1:{{ .Values.sidecar.port }}
  - name: SAMEWIRE_ENGINE
    value: {{ .Values.sidecar.engine }}
  {{- end }}
  {{- with .Values.store.secret }}
  - name: SAMEWIRE_STORE
    valueFrom:
      secretKeyRef:
        name: {{ . }}
        key: {{ $.Values.store.key }}
  {{- end }}
  {{- with .Values.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
ports:
  - name: proxy
    containerPort: 8080
  - name: admin
    containerPort: 9090
# Ready means that an engine answers and nothing drains.
readinessProbe:
  httpGet: { path: /readyz, port: admin }
  periodSeconds: 5
  timeoutSeconds: 2
  failureThreshold: 2
# Says nothing of the engine: a restart of samewire would not mend that.
livenessProbe:
  httpGet: { path: /livez, port: admin }
  periodSeconds: 10
  timeoutSeconds: 2
  failureThreshold: 3
lifecycle:
  preStop:
    exec:
      command: [/samewire, drain, --wait, {{ add .Values.settle .Values.drain 5 }}s]
resources:
  {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  readOnlyRootFilesystem: true
  allowPrivilegeEscalation: false
  capabilities:
    drop: [ALL]
volumeMounts:
  - name: samewire
    mountPath: /etc/samewire
    readOnly: true
{{- end -}}
