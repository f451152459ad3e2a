"""Settings of the verifier."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, Literal

from msgspec import Meta, field
from outrider.engine.settings import EngineSettings
from outrider.mesh.config import Settings
from outrider.wire.sampling import MOST_NODES


class VerifierSettings(Settings, kw_only=True, frozen=True):
    """Settings of the verifier, in the configuration's ``[verifier]`` table."""

    model: Annotated[
        str,
        Meta(
            description="directory or GGUF file of the target, `pocket` for the shipped one, or a name of the "
            "Hugging Face Hub: org/repository[:file][@revision]"
        ),
    ] = "pocket"
    integrity: Annotated[
        Literal["off", "size", "full"],
        Meta(
            description="how a model's files are compared with those of its first load: not, by sizes and times, "
            "or by SHA-256"
        ),
    ] = "size"
    served_name: Annotated[
        str,
        Meta(
            description="name that requests use; when empty the name of the directory or file, or of the Hub's "
            "repository in full"
        ),
    ] = ""
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float16"],
        Meta(description="of the weights; auto: the checkpoint's, or float32 if the CPU lacks that type"),
    ] = "auto"
    kv_dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float16", "int8", "fp8"],
        Meta(
            description="of the KV pages; auto: the weights', or float32 where a CPU does not multiply in that; int8 "
            "and, on GPUs, fp8 take half of 16 bits"
        ),
    ] = "auto"
    device: Annotated[str, Meta(description="torch device: cpu, cuda or cuda:N")] = "cpu"
    determinism: Annotated[
        Literal["strict", "fast"],
        Meta(description="strict: a token's bits do not depend on its batch; fast: the fastest kernels"),
    ] = "strict"
    quantization: Annotated[
        Literal["none", "int8", "int4", "fp8"],
        Meta(description="of the layers' weights, at load: int8, int4 in groups of 128, or on newer GPUs fp8"),
    ] = "none"
    tensor_parallel: Annotated[
        int,
        Meta(
            ge=1,
            description="processes that share the model, each with a part of every layer: with cuda one for each GPU; "
            "above 1 pages are not exchanged with KV caches or other verifiers",
        ),
    ] = 1
    peak_tflops: Annotated[
        float,
        Meta(
            ge=0,
            description="peak of the device in the model's dtype, in 10^12 operations a second, for the metric of its "
            "use; 0: unknown",
        ),
    ] = 0.0
    cuda_graphs: Annotated[bool, Meta(description="run steps of few rows as CUDA graphs; no effect on a CPU")] = True
    threads: Annotated[
        int, Meta(ge=0, description="CPU threads of the model; 0: OMP_NUM_THREADS, or one for each core of the process")
    ] = 0
    threads_beside: Annotated[
        int,
        Meta(
            ge=0,
            description="CPU threads of the model while a proposer on the same machine guesses; 0: no change",
        ),
    ] = 0
    pages: Annotated[
        int, Meta(ge=0, description="KV pages; 0: as many as memory_fraction allows and max_running sequences can use")
    ] = 0
    memory_fraction: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="share of the memory that is free beside the weights, for KV pages; 0: 0.9 on a GPU; on a CPU "
            "0.25, and at most 512 MiB or what one sequence of the model's context takes",
        ),
    ] = 0.0
    memory_sharers: Annotated[
        int, Meta(ge=1, description="processes that share the pages' memory equally; `outrider up` sets it")
    ] = 1
    page_size: Annotated[int, Meta(ge=1, le=256, description="tokens a KV page")] = 16
    pinned_share: Annotated[
        float, Meta(ge=0, le=0.9, description="largest share of the KV pages that named prompts may pin; 0 for none")
    ] = 0.5
    tenant_pinned_share: Annotated[
        float,
        Meta(ge=0, le=1, description="largest share of those pages that the named prompts of one tenant may pin"),
    ] = 0.5
    kv_cache: Annotated[
        Literal["auto", "always", "off"],
        Meta(
            description="KV caches of the mesh: auto fetches pages if that is faster than computing them, "
            "always fetches all pages it finds, off neither fetches nor offers"
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
            description="prefill: computes prompts for other verifiers, and serves requests only if no other can; "
            "decode: serves requests, and computes no prompts for others; both: does both"
        ),
    ] = "both"
    handover: Annotated[
        Literal["auto", "always", "off"],
        Meta(
            description="whether another verifier computes prompts: auto asks if that costs less than computing "
            "them here, always asks if there is one, off never asks"
        ),
    ] = "auto"
    handover_deadline_s: Annotated[
        float, Meta(gt=0, le=600, description="most seconds that a request waits for another verifier's pages")
    ] = 10.0
    keep_s: Annotated[
        float,
        Meta(
            ge=1,
            le=31536000,
            description="most seconds for which pages, learnt answers and grammars are kept after their last use",
        ),
    ] = 3600.0
    max_running: Annotated[int, Meta(ge=0, description="most sequences in a step; 0: 64 on a CPU, 128 on a GPU")] = 0
    max_waiting: Annotated[
        int, Meta(ge=1, description="most requests in the queue; a full queue still admits tenants up to their share")
    ] = 256
    prefill_rows: Annotated[
        int, Meta(ge=0, description="most prompt tokens in a step; 0: 256 on a CPU, 512 on a GPU")
    ] = 0
    max_rows: Annotated[
        int,
        Meta(
            ge=0,
            description="most rows in a step (sequences, guesses and prompts), above max_running; "
            "fewer rows limit how long a prompt delays other sequences; 0: 320 on a CPU, 640 on a GPU",
        ),
    ] = 0
    embedding_share: Annotated[
        float,
        Meta(ge=0.01, le=1, description="share of the time that embeddings take while answers are computed"),
    ] = 0.1
    priority_aging_s: Annotated[
        float, Meta(gt=0, description="seconds of waiting that raise a priority by one level")
    ] = 10.0
    max_guesses: Annotated[
        int, Meta(ge=-1, description="most guesses in a step; 0 turns them off; -1: 64 on a CPU, 256 on a GPU")
    ] = -1
    max_nodes: Annotated[int, Meta(ge=1, le=MOST_NODES, description="most guesses of a sequence in a step")] = 31
    max_tenant_guesses: Annotated[
        int, Meta(ge=0, description="most guesses in a step over one tenant's sequences; 0 for no limit")
    ] = 0
    cost: Annotated[
        float,
        Meta(gt=0, description="relative cost of a request on this verifier, for routers that compare costs"),
    ] = 1.0
    acceptance: Annotated[
        str,
        Meta(description="rule of acceptance, by plug-in name: race, rejection, or typical (lossy)"),
    ] = "race"
    acceptance_options: Annotated[dict[str, Any], Meta(description="settings of the rule of acceptance")] = {}
    audit_share: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="share of the finished answers that is replayed where no request waits, to notice tokens that "
            "are not the target's; 0: none",
        ),
    ] = 0.0
    drafters: Annotated[
        list[str],
        Meta(
            description="local drafters, by plug-in name; remote drafters need no entry. auto: ngram and suffix, and "
            "on a CPU also model: the shipped draft model, or the one of options.model; -NAME leaves one out"
        ),
    ] = field(default_factory=lambda: ["auto"])
    options: Annotated[
        dict[str, dict[str, Any]],
        Meta(description="settings of the local drafters, a table each; `model` names a drafter's model, as above"),
    ] = {}

    def __post_init__(self) -> None:
        """Refuses exchanges of pages that a model in several processes does not have."""
        exchanges = {"kv_cache": self.kv_cache == "always", "handover": self.handover == "always"}
        exchanges["role"] = self.role != "both"
        if self.tensor_parallel > 1 and (asked := [name for name, value in exchanges.items() if value]):
            raise ValueError(
                f"tensor_parallel must be 1 for {asked[0]} = {getattr(self, asked[0])}: pages of a model in several "
                "processes are not exchanged"
            )

    def engine(self) -> EngineSettings:
        """The settings of the verifier's engine."""
        return EngineSettings(**{each.name: getattr(self, each.name) for each in fields(EngineSettings)})
