{{/* The Secret with the credentials of a kind. Call with (dict "root" $ "kind" kind). */}}
{{- define "outrider.secret" -}}
{{- printf "%s-%s" (.root.Values.credentials.prefix | default (include "outrider.fullname" .root)) .kind -}}
{{- end }}

{{/*
The volume for /credentials of a kind. Files are named one by one, so that the pod waits until a Secret has all of them.
Call with (dict "root" $ "kind" kind).
*/}}
{{- define "outrider.credentialsVolume" -}}
{{- $files := list (printf "%s.nk" .kind) -}}
{{- if eq .kind "gateway" }}{{ $files = append $files "issuer.nk" }}{{ end -}}
{{- $certificate := list "ca.crt" (printf "%s.crt" .kind) (printf "%s.key" .kind) -}}
{{- $issuer := .root.Values.credentials.certManager.name -}}
name: credentials
projected:
  defaultMode: 0440
  sources:
    - secret:
        name: {{ include "outrider.secret" . }}
        items:
          {{- range ternary $files (concat $files $certificate) (ne $issuer "") }}
          - {key: {{ . }}, path: {{ . }}}
          {{- end }}
    {{- if $issuer }}
    - secret:
        name: {{ include "outrider.secret" . }}-tls
        items:
          - {key: ca.crt, path: ca.crt}
          - {key: tls.crt, path: {{ .kind }}.crt}
          - {key: tls.key, path: {{ .kind }}.key}
    {{- end }}
{{- end }}
