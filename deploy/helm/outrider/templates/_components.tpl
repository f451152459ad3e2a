{{/* The release's full name, at most 36 characters, so that names of parts fit into 63. */}}
{{- define "outrider.fullname" -}}
{{- $name := ternary .Release.Name (printf "%s-outrider" .Release.Name) (contains "outrider" .Release.Name) -}}
{{- $name | trunc 36 | trimSuffix "-" -}}
{{- end }}

{{/* Labels by which the pods of a kind are found. Call with (dict "root" $ "kind" kind). */}}
{{- define "outrider.selector" -}}
app.kubernetes.io/name: outrider
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .kind }}
{{- end }}

{{/* Labels of objects. Call with (dict "root" $ "kind" kind). */}}
{{- define "outrider.labels" -}}
{{ include "outrider.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{/* The name by which requests ask for a block's model: that of the Hub without revision, or the end of a path. */}}
{{- define "outrider.servedName" -}}
{{- $path := or (hasPrefix "/" .model) (hasPrefix "." .model) -}}
{{- .servedName | default (ternary (base .model) (regexReplaceAll "[:@].*$" .model "") $path) -}}
{{- end }}

{{/* All blocks of services as a list in JSON: values over defaults, with name, kind, pool, selector and facts. */}}
{{- define "outrider.components" -}}
{{- $root := . -}}
{{- $kinds := .Files.Get "files/kinds.yaml" | fromYaml -}}
{{- $blocks := dict "tokenizer" .Values.tokenizers "proposer" .Values.proposers "verifier" .Values.verifiers -}}
{{- $blocks = merge $blocks (dict "kvcache" .Values.kvcaches "gateway" (dict "" .Values.gateway)) -}}
{{- $components := list -}}
{{- range $kind := keys $kinds | sortAlpha -}}
{{- range $pool, $block := get $blocks $kind -}}
{{- $known := concat (keys $root.Values.defaults) (get $kinds $kind).values -}}
{{- range $key, $_ := $block -}}
{{- if not (has $key $known) -}}
{{- fail (printf "a %s has no value %q: there are %s" $kind $key (sortAlpha $known | join ", ")) -}}
{{- end -}}
{{- end -}}
{{- $component := mergeOverwrite (deepCopy $root.Values.defaults) (deepCopy $block) -}}
{{- $name := list (include "outrider.fullname" $root) $kind $pool | compact | join "-" -}}
{{- $selector := include "outrider.selector" (dict "root" $root "kind" $kind) | fromYaml -}}
{{- if $pool }}{{ $selector = set $selector "pool" $pool }}{{ end -}}
{{- $facts := dict "name" $name "kind" $kind "pool" $pool "selector" $selector "facts" (get $kinds $kind) -}}
{{- if $component.model }}{{ $facts = set $facts "serves" (include "outrider.servedName" $component) }}{{ end -}}
{{- $components = append $components (mergeOverwrite $component $facts) -}}
{{- end -}}
{{- end -}}
{{- $components | toJson -}}
{{- end }}

{{/* Names of the models whose verifiers may all end, as a list in JSON. */}}
{{- define "outrider.coldModels" -}}
{{- $cold := list -}}
{{- range include "outrider.components" . | fromJsonArray -}}
{{- if and (eq .kind "verifier") .scaling (eq (int .scaling.min) 0) -}}
{{- $cold = append $cold .serves -}}
{{- end -}}
{{- end -}}
{{- $cold | uniq | sortAlpha | toJson -}}
{{- end }}

{{/* Refuses values that fit their schema and not each other. */}}
{{- define "outrider.check" -}}
{{- $root := . -}}
{{- $tokenized := list -}}
{{- $components := include "outrider.components" . | fromJsonArray -}}
{{- if not (and .Values.tokenizers .Values.verifiers) -}}
{{- fail "a mesh needs a block in tokenizers and one in verifiers: see deploy/helm/values" -}}
{{- end -}}
{{- range $components }}{{ if eq .kind "tokenizer" }}{{ $tokenized = append $tokenized .serves }}{{ end }}{{ end -}}
{{- range $components -}}
{{- $block := ternary .kind (printf "%ss.%s" .kind .pool) (eq .pool "") -}}
{{- range $key, $_ := merge (deepCopy .settings) $root.Values.settings -}}
{{- if has $key (list "host" "port" "grpc_host" "grpc_port" "metrics_port" "metrics_tls") -}}
{{- fail (printf "the setting %s of %s is the chart's own: probes, policies and the Service count on it" $key $block) -}}
{{- end -}}
{{- end -}}
{{- if and .gpuClass (not (hasKey $root.Values.gpuClasses .gpuClass)) -}}
{{- fail (printf "%s.gpuClass is %q, and gpuClasses has: %s" $block .gpuClass (keys $root.Values.gpuClasses | sortAlpha | join ", ")) -}}
{{- end -}}
{{- if and (eq .kind "verifier") (not (has .serves $tokenized)) -}}
{{- fail (printf "%s serves the model %q, and no block of tokenizers does: they serve %s" $block .serves (join ", " $tokenized)) -}}
{{- end -}}
{{- if .scaling -}}
{{- if gt (int .scaling.min) (int .scaling.max) -}}
{{- fail (printf "%s.scaling.min is %d, and max is %d: min is at most max" $block (int .scaling.min) (int .scaling.max)) -}}
{{- end -}}
{{- if and (eq (int .scaling.min) 0) (or (ne .kind "verifier") (eq (.role | default "") "prefill")) -}}
{{- fail (printf "%s.scaling.min is 0: only verifiers that are no prefill pool may end altogether, since a request wakes them alone" $block) -}}
{{- end -}}
{{- $known := get ($root.Files.Get "files/triggers.yaml" | fromYaml) .kind | default dict -}}
{{- range $target, $_ := .scaling.targets -}}
{{- if not (hasKey $known $target) -}}
{{- fail (printf "%s.scaling.targets.%s is no trigger: there are %s" $block $target (keys $known | sortAlpha | join ", ")) -}}
{{- end -}}
{{- end -}}
{{- if not $known }}{{ fail (printf "%s.scaling is set, and there is nothing to scale it by" $block) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.models.pull (not (or .Values.models.claim .Values.models.create.size)) -}}
{{- fail "models.pull needs a volume that outlives the Job: models.claim or models.create.size" -}}
{{- end -}}
{{- if and .Values.inference.enabled (not .Values.inference.picker.name) -}}
{{- fail "inference.enabled is true, and inference.picker.name is empty: it names the Service of the endpoint picker" -}}
{{- end -}}
{{- end }}
