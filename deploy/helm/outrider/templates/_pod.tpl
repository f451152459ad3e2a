{{/* What no container may do. */}}
{{- define "outrider.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Who a pod runs as. */}}
{{- define "outrider.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* The Secrets by which images are pulled. */}}
{{- define "outrider.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{/* An image's name. Call with (dict "root" $ "image" image "suffix" suffix). */}}
{{- define "outrider.image" -}}
{{- with .root.Values.image }}{{ .prefix }}{{ $.image }}:{{ .tag | default $.root.Chart.AppVersion }}{{ $.suffix }}{{ end -}}
{{- end }}

{{/* Variables of settings. Call with (dict "prefix" prefix "settings" settings). */}}
{{- define "outrider.settings" -}}
{{- range $key, $value := .settings }}
- name: {{ printf "%s_%s" $.prefix (upper $key) }}
  value: {{ ternary $value (toJson $value) (kindIs "string" $value) | quote }}
{{- end }}
{{- end }}

{{/* Settings of all services that the chart itself decides, as YAML. */}}
{{- define "outrider.meshSettings" -}}
nats_url: {{ .Values.nats.url }}
{{- if ne .Values.credentials.source "none" }}
nats_credentials: /credentials
tls_certificate: /credentials/{kind}.crt
tls_key: /credentials/{kind}.key
tls_ca: /credentials/ca.crt
{{- end }}
{{- end }}

{{/* Settings of one block that the chart itself decides, as YAML. Call with (dict "root" $ "of" component). */}}
{{- define "outrider.ownSettings" -}}
drain_s: {{ .of.drainSeconds }}
{{- if .of.model }}
model: {{ .of.model }}
{{- end }}
{{- if .of.servedName }}
served_name: {{ .of.servedName }}
{{- end }}
{{- if .of.target }}
target: {{ .of.target }}
{{- end }}
{{- if .of.role }}
role: {{ .of.role }}
{{- end }}
{{- if .of.gpuClass }}
device: cuda
{{- $gpu := get .root.Values.gpuClasses .of.gpuClass }}
{{- if and (eq .of.kind "verifier") (gt (int $gpu.count) 1) }}
tensor_parallel: {{ $gpu.count }}
{{- end }}
{{- end }}
{{- with .of.facts.ports.rpc }}
port: {{ . }}
{{- end }}
{{- if eq .of.kind "gateway" }}
{{- with include "outrider.coldModels" .root | fromJsonArray }}
cold_models: {{ toJson . }}
{{- end }}
{{- if .of.tlsSecret }}
door_certificate: /door/tls.crt
door_key: /door/tls.key
{{- end }}
{{- end }}
{{- end }}

{{/* The variables of a container. Call with (dict "root" $ "of" component). */}}
{{- define "outrider.env" -}}
{{- $mesh := mergeOverwrite (include "outrider.meshSettings" .root | fromYaml) .root.Values.settings -}}
{{- $own := mergeOverwrite (include "outrider.ownSettings" . | fromYaml) .of.settings -}}
{{- include "outrider.settings" (dict "prefix" "OUTRIDER" "settings" $mesh) -}}
{{- include "outrider.settings" (dict "prefix" (printf "OUTRIDER_%s" (upper .of.kind)) "settings" $own) -}}
{{- if .of.facts.loadsModels }}{{ include "outrider.hubEnv" .root }}{{ end }}
{{- range $name, $value := .of.env }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}

{{/* The variables by which models are fetched. */}}
{{- define "outrider.hubEnv" -}}
{{- if not .Values.models.download }}
- name: HF_HUB_OFFLINE
  value: "1"
{{- end }}
{{- with .Values.models.tokenSecret }}
- name: HF_TOKEN
  valueFrom: {secretKeyRef: {name: {{ . }}, key: HF_TOKEN}}
{{- end }}
{{- end }}

{{/* The volume for /models. */}}
{{- define "outrider.modelsVolume" -}}
{{- $made := ternary (printf "%s-models" (include "outrider.fullname" .)) "" (ne .Values.models.create.size "") -}}
name: models
{{- with .Values.models.claim | default $made }}
persistentVolumeClaim: {claimName: {{ . }}}
{{- else }}
emptyDir: {}
{{- end }}
{{- end }}

{{/* Probes: ready once the model serves; a gateway is also not ready while no model can be served. */}}
{{- define "outrider.probes" -}}
startupProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: {{ div (add .startSeconds 4) 5 }}
livenessProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  {{- if eq .kind "gateway" }}
  httpGet: {path: /readyz, port: http, scheme: {{ ternary "HTTPS" "HTTP" (ne .tlsSecret "") }}}
  {{- else }}
  httpGet: {path: /readyz, port: metrics}
  {{- end }}
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: 2
{{- end }}

{{/* The pod of a block. Call with (dict "root" $ "of" component). */}}
{{- define "outrider.pod" -}}
{{- $root := .root -}}
{{- $gpu := get $root.Values.gpuClasses .of.gpuClass | default dict -}}
{{- $limits := .of.resources.limits | default dict -}}
{{- if $gpu }}{{ $limits = set (deepCopy $limits) ($gpu.resource | default "nvidia.com/gpu") ($gpu.count | default 1) }}{{ end -}}
automountServiceAccountToken: false
enableServiceLinks: false
terminationGracePeriodSeconds: {{ add .of.drainSeconds .of.preStopSeconds 15 }}
securityContext:
  {{- include "outrider.podSecurity" $root | nindent 2 }}
{{ include "outrider.pullSecrets" $root }}
{{- with $gpu.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with .of.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with merge (deepCopy .of.nodeSelector) ($gpu.nodeSelector | default dict) }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with concat .of.tolerations ($gpu.tolerations | default list) }}
tolerations: {{ toJson . }}
{{- end }}
{{- with .of.affinity }}
affinity: {{ toJson . }}
{{- end }}
topologySpreadConstraints:
  {{- range $key := list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - topologyKey: {{ $key }}
    maxSkew: 1
    whenUnsatisfiable: ScheduleAnyway
    labelSelector: {matchLabels: {{ toJson $.of.selector }}}
  {{- end }}
containers:
  - name: {{ .of.kind }}
    image: {{ include "outrider.image" (dict "root" $root "image" .of.facts.image "suffix" (ternary ($gpu.imageSuffix | default "-cuda") "" (ne .of.gpuClass ""))) }}
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    env:
      {{- include "outrider.env" . | trim | nindent 6 }}
    ports:
      {{- range $name, $port := .of.facts.ports }}
      - {name: {{ $name }}, containerPort: {{ $port }}}
      {{- end }}
    {{- include "outrider.probes" .of | nindent 4 }}
    {{- if .of.preStopSeconds }}
    lifecycle: {preStop: {sleep: {seconds: {{ .of.preStopSeconds }}}}}
    {{- end }}
    resources:
      requests: {{ toJson (.of.resources.requests | default dict) }}
      limits: {{ toJson $limits }}
    securityContext:
      {{- include "outrider.containerSecurity" $root | nindent 6 }}
    volumeMounts:
      - {name: tmp, mountPath: /tmp}
      {{- include "outrider.mounts" . | trim | nindent 6 }}
volumes:
  - {name: tmp, emptyDir: {}}
  {{- include "outrider.volumes" . | trim | nindent 2 }}
{{- end }}

{{/* Where a block's volumes are mounted, beside /tmp. */}}
{{- define "outrider.mounts" -}}
{{- if ne .root.Values.credentials.source "none" }}
- {name: credentials, mountPath: /credentials, readOnly: true}
{{- end }}
{{- if .of.facts.loadsModels }}
- {name: models, mountPath: /models}
{{- end }}
{{- if .of.sharedMemory }}
- {name: memory, mountPath: /dev/shm}
{{- end }}
{{- if .of.tlsSecret }}
- {name: door, mountPath: /door, readOnly: true}
{{- end }}
{{- end }}

{{/* A block's volumes, beside /tmp. */}}
{{- define "outrider.volumes" -}}
{{- if ne .root.Values.credentials.source "none" }}
- {{- include "outrider.credentialsVolume" (dict "root" .root "kind" .of.kind) | nindent 2 }}
{{- end }}
{{- if .of.facts.loadsModels }}
- {{- include "outrider.modelsVolume" .root | nindent 2 }}
{{- end }}
{{- if .of.sharedMemory }}
- {name: memory, emptyDir: {medium: Memory, sizeLimit: {{ .of.sharedMemory }}}}
{{- end }}
{{- if .of.tlsSecret }}
- {name: door, secret: {secretName: {{ .of.tlsSecret }}, defaultMode: 0440}}
{{- end }}
{{- end }}
