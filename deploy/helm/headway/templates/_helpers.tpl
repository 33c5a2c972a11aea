{{- define "headway.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Labels by which objects are selected. Takes a list: the root context and the component. */}}
{{- define "headway.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ default $root.Chart.Name $root.Values.nameOverride }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* Labels of an object. Takes a list: the root context and the component. */}}
{{- define "headway.labels" -}}
{{- $root := index . 0 -}}
{{ include "headway.selector" . }}
app.kubernetes.io/part-of: headway
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "headway.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end }}

{{- define "headway.secretName" -}}
{{- default (include "headway.fullname" .) .Values.secrets.existingSecret -}}
{{- end }}

{{/* Names under which every gateway and web are addressed inside the cluster, and by a port-forward. */}}
{{- define "headway.hosts" -}}
{{- $name := include "headway.fullname" . -}}
{{- $own := list "127.0.0.1" "localhost" ".svc" ".svc.cluster.local" -}}
{{- range $component := list "gateway" "web" -}}
{{- $own = concat $own (list (printf "%s-%s" $name $component) (printf "%s-%s.%s" $name $component $.Release.Namespace)) -}}
{{- end -}}
{{- concat .Values.hosts $own | join "," -}}
{{- end }}

{{/* Paths of the gateways: (prefix, exact). All other paths belong to web. */}}
{{- define "headway.gatewayPaths" -}}
Prefix:
  - /v1
  - /api/v1/route
  - /api/v1/requests
  - /api/v1/explain
  - /api/v1/observe
  - /api/v1/advisories
  - /api/v1/advisory_tokens
Exact:
  - /rerank
  - /v2/rerank
  - /score
  - /pooling
  - /classify
  - /tokenize
  - /detokenize
  - /ready
  - /health
{{- end }}

{{/* Pods restart when their settings or secrets change. */}}
{{- define "headway.podMetadata" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
labels:
  {{- include "headway.labels" . | nindent 2 }}
annotations:
  checksum/settings: {{ include (print $root.Template.BasePath "/settings.yaml") $root | sha256sum }}
  {{- if not $root.Values.secrets.existingSecret }}
  checksum/secrets: {{ $root.Values.secrets.values | toJson | sha256sum }}
  {{- end }}
  {{- with (index $root.Values $component).podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* What all pods of the program have in common. Takes a list: the root context and the component. */}}
{{- define "headway.podSpec" -}}
{{- $root := index . 0 -}}
{{- $values := index $root.Values (index . 1) -}}
# Variables of Services, such as HEADWAY_WEB_PORT, could be taken for settings.
enableServiceLinks: false
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  {{- include "headway.podSecurity" 10001 | nindent 2 }}
topologySpreadConstraints:
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "headway.selector" $ | nindent 8 }}
  {{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{- define "headway.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ . }}
runAsGroup: {{ . }}
fsGroup: {{ . }}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "headway.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "headway.mounts" -}}
- {name: state, mountPath: /var/lib/headway}
- {name: tmp, mountPath: /tmp}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Takes a list: the root context and the component. */}}
{{- define "headway.volumes" -}}
{{- $root := index . 0 -}}
- name: state
  emptyDir: {sizeLimit: {{ (index $root.Values (index . 1)).stateSize }}}
- name: tmp
  emptyDir: {sizeLimit: 1Gi}
{{- with $root.Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* One variable from the Secret. Takes a list: the root context, the name, and whether it may be missing. */}}
{{- define "headway.fromSecret" -}}
- name: {{ index . 1 }}
  valueFrom:
    secretKeyRef:
      name: {{ include "headway.secretName" (index . 0) }}
      key: {{ index . 1 }}
      {{- if index . 2 }}
      optional: true
      {{- end }}
{{- end }}

{{/* Secrets of every process. */}}
{{- define "headway.secretEnv" -}}
{{- include "headway.fromSecret" (list . "HEADWAY_FLEET_SECRET" false) }}
{{ include "headway.fromSecret" (list . "HEADWAY_SCRAPE_TOKEN" false) }}
{{- range list "HEADWAY_FLEET_SECRET_ALSO" "HEADWAY_KV_SECRET" "HEADWAY_KV_SECRET_ALSO" "HEADWAY_ENGINE_API_KEY" }}
{{ include "headway.fromSecret" (list $ . true) }}
{{- end }}
{{- range .Values.secrets.further }}
{{ include "headway.fromSecret" (list $ . false) }}
{{- end }}
{{- if .Values.valkey.bundled }}
{{ include "headway.fromSecret" (list . "VALKEY_PASSWORD" false) }}
- name: REDIS_URL
  value: redis://:$(VALKEY_PASSWORD)@{{ include "headway.fullname" . }}-valkey:6379/0
{{- else }}
- name: REDIS_URL
  valueFrom:
    secretKeyRef:
      name: {{ default (include "headway.secretName" .) .Values.valkey.urlSecret.name }}
      key: {{ .Values.valkey.urlSecret.key }}
{{- end }}
{{- end }}

{{/* Secrets of the control plane: web and jobs. */}}
{{- define "headway.controlPlaneEnv" -}}
{{- include "headway.fromSecret" (list . "SECRET_KEY" false) }}
{{- range list "SECRET_KEY_ALSO" "HEADWAY_WEBHOOK_SECRET" }}
{{ include "headway.fromSecret" (list $ . true) }}
{{- end }}
{{- if .Values.postgresql.bundled }}
{{ include "headway.fromSecret" (list . "POSTGRES_PASSWORD" false) }}
- name: DATABASE_URL
  value: postgres://headway:$(POSTGRES_PASSWORD)@{{ include "headway.fullname" . }}-postgresql:5432/headway
{{- else }}
- name: DATABASE_URL
  valueFrom:
    secretKeyRef:
      name: {{ default (include "headway.secretName" .) .Values.postgresql.urlSecret.name }}
      key: {{ .Values.postgresql.urlSecret.key }}
{{- end }}
{{ include "headway.secretEnv" . }}
{{- end }}

{{/* Its pod's address, and the port at which gateways, web's own among them, reach each other. */}}
{{- define "headway.peerEnv" -}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
- name: HEADWAY_PEER_LISTEN
  value: $(POD_IP):7946
{{- end }}

{{/* A pod leaves its Services first, then requests may continue, and the last steps take less than 10 s. */}}
{{- define "headway.graceSeconds" -}}
{{- add .Values.preStopSeconds .Values.drainSeconds 10 -}}
{{- end }}

{{- define "headway.preStop" -}}
preStop:
  exec: {command: [sleep, {{ .Values.preStopSeconds | quote }}]}
{{- end }}
