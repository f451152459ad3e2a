{{/* The Secret with the credentials of a kind. Call with (dict "root" $ "kind" kind). */}}
{{- define "outrider.secret" -}}
{{- printf "%s-%s" (.root.Values.credentials.prefix | default (include "outrider.fullname" .root)) .kind -}}
{{- end }}

{{/*
The volume for /credentials of a kind. Files are named one by one, so that the pod waits until a Secret has all of them.
The admin has no certificate, and takes the authority of the gateways' one. Call with (dict "root" $ "kind" kind).
*/}}
{{- define "outrider.credentialsVolume" -}}
{{- $admin := eq .kind "admin" -}}
{{- $secret := include "outrider.secret" . -}}
{{- $certified := ternary (include "outrider.secret" (dict "root" .root "kind" "gateway")) $secret $admin -}}
{{- $keys := dict "ca.crt" "ca.crt" -}}
{{- $managed := ne .root.Values.credentials.certManager.name "" -}}
{{- if $managed }}{{ $certified = printf "%s-tls" $certified }}{{ end -}}
{{- if not $admin -}}
{{- $keys = set $keys (ternary "tls.crt" (printf "%s.crt" .kind) $managed) (printf "%s.crt" .kind) -}}
{{- $keys = set $keys (ternary "tls.key" (printf "%s.key" .kind) $managed) (printf "%s.key" .kind) -}}
{{- end -}}
name: credentials
projected:
  defaultMode: 0440
  sources:
    - secret:
        name: {{ $secret }}
        items:
          {{- range ternary (list "gateway.nk" "issuer.nk") (list (printf "%s.nk" .kind)) (eq .kind "gateway") }}
          - {key: {{ . }}, path: {{ . }}}
          {{- end }}
    - secret:
        name: {{ $certified }}
        items:
          {{- range $key, $path := $keys }}
          - {key: {{ $key }}, path: {{ $path }}}
          {{- end }}
{{- end }}
