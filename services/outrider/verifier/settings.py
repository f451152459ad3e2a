"""What an operator may set on a verifier."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, field
from outrider.mesh.config import Settings
from outrider.wire.sampling import MOST_NODES


class VerifierSettings(Settings, kw_only=True, frozen=True):
    """Settings of the verifier, in the configuration's ``[verifier]`` table."""

    model: Annotated[str, Meta(description="directory of the target's checkpoint, or `pocket` for the shipped one")] = (
        "pocket"
    )
    served_name: Annotated[str, Meta(description="name that requests use; the directory's name when empty")] = ""
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float16"],
        Meta(description="of weights and KV pages; auto is the checkpoint's own, or float32 where the CPU lacks it"),
    ] = "auto"
    device: Annotated[str, Meta(description="torch device: cpu, cuda or cuda:N")] = "cpu"
    determinism: Annotated[
        Literal["strict", "fast"],
        Meta(description="strict: a token's bits do not depend on its batch; fast: the quickest kernels"),
    ] = "strict"
    quantization: Annotated[
        Literal["none", "int8", "int4", "fp8"],
        Meta(description="of the layers' weights, at load: int8, int4 in groups of 128, or on newer GPUs fp8"),
    ] = "none"
    cuda_graphs: Annotated[bool, Meta(description="run steps of few rows as CUDA graphs; on a CPU there are none")] = (
        True
    )
    threads: Annotated[
        int, Meta(ge=0, description="CPU threads of the model; 0: OMP_NUM_THREADS, or one for each core")
    ] = 0
    threads_beside: Annotated[
        int,
        Meta(
            ge=0,
            description="CPU threads of the model while a proposer on the same machine guesses; 0: no change",
        ),
    ] = 0
    pages: Annotated[int, Meta(ge=1, description="KV pages")] = 2048
    page_size: Annotated[int, Meta(ge=1, le=256, description="tokens a KV page")] = 16
    pinned_share: Annotated[
        float, Meta(ge=0, le=0.9, description="most of the KV pages that named prompts may keep; 0 keeps none")
    ] = 0.5
    kv_cache: Annotated[
        Literal["auto", "always", "off"],
        Meta(
            description="KV caches of the mesh: auto fetches pages that are quicker fetched than computed, "
            "always whatever there is; off neither asks nor offers"
        ),
    ] = "auto"
    kv_cache_deadline_s: Annotated[
        float, Meta(gt=0, le=60, description="most seconds that a request waits for pages from a KV cache")
    ] = 1.0
    kv_cache_shared: Annotated[
        bool, Meta(description="read pages of a KV cache on this host from its memory, else over gRPC")
    ] = True
    role: Annotated[
        Literal["prefill", "decode", "both"],
        Meta(
            description="prefill: computes prompts for others, and has requests only where nobody else takes them; "
            "decode: has requests, and none of others' prompts; both: either"
        ),
    ] = "both"
    handover: Annotated[
        Literal["auto", "always", "off"],
        Meta(
            description="prompts that another verifier may compute: auto asks it where that costs less than to compute "
            "them here, always whenever there is one; off never asks"
        ),
    ] = "auto"
    handover_deadline_s: Annotated[
        float, Meta(gt=0, le=600, description="most seconds that a request waits for another verifier's pages")
    ] = 10.0
    max_running: Annotated[int, Meta(ge=1, description="most sequences in a step")] = 64
    max_waiting: Annotated[
        int, Meta(ge=1, description="most requests in the queue; beyond it tenants are let in up to their share")
    ] = 256
    prefill_rows: Annotated[int, Meta(ge=1, description="most prompt tokens in a step")] = 256
    max_rows: Annotated[
        int,
        Meta(
            ge=2,
            description="most rows in a step over everything (sequences, guesses, prompts), above max_running; "
            "the fewer, the less a long prompt holds up the others",
        ),
    ] = 320
    priority_aging_s: Annotated[
        float, Meta(gt=0, description="seconds for which a priority has to be passed over to count one level more")
    ] = 10.0
    max_guesses: Annotated[int, Meta(ge=0, description="most guesses in a step; 0 turns them off")] = 64
    max_nodes: Annotated[int, Meta(ge=1, le=MOST_NODES, description="most guesses a sequence in a step")] = 31
    max_tenant_guesses: Annotated[
        int, Meta(ge=0, description="most guesses in a step over one tenant's sequences; 0 for no such limit")
    ] = 0
    cost: Annotated[
        float,
        Meta(gt=0, description="what a request costs here beside others, for gateways whose router asks"),
    ] = 1.0
    acceptance: Annotated[
        str,
        Meta(description="rule by which guesses are accepted, by plug-in name: race, rejection, or typical (lossy)"),
    ] = "race"
    acceptance_options: Annotated[dict[str, Any], Meta(description="settings of that rule")] = {}
    drafters: Annotated[
        list[str],
        Meta(
            description="drafters that run inside the verifier, by plug-in name; those of proposers need no mention. "
            "auto is ngram and suffix, and on a CPU also model: the shipped one, or that of options.model"
        ),
    ] = field(default_factory=lambda: ["auto"])
    options: Annotated[
        dict[str, dict[str, Any]],
        Meta(description="settings of those drafters, a table each; `model` is a drafter's own directory"),
    ] = {}
