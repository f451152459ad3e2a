"""Builds the parts of an engine from its settings: the model, its pages, scheduling and speculation."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from outrider.engine import store
from outrider.engine.decode.answer import Answers
from outrider.engine.decode.engine import Engine
from outrider.engine.decode.page_cache import PageCache
from outrider.engine.decode.runner import Runner
from outrider.engine.errors import RankLost, SettingsError
from outrider.engine.logits.grammar import Grammars
from outrider.engine.logs import get_logger
from outrider.engine.models.config import ModelConfig
from outrider.engine.models.int8_gain import int8_hint
from outrider.engine.models.llama import LlamaModel, ModelError
from outrider.engine.models.pooling import pooling_of
from outrider.engine.models.sharding.ranks import Ranks
from outrider.engine.models.threads import use_threads
from outrider.engine.pages.page_budget import LEAST_ROOM, page_count
from outrider.engine.pages.page_table import PageTable
from outrider.engine.requests.model_limits import ModelLimits
from outrider.engine.requests.parameters import Thought
from outrider.engine.scheduling.cost_curve import CostCurve, most_measured
from outrider.engine.scheduling.estimate import Estimate
from outrider.engine.scheduling.plan import Limits
from outrider.engine.scheduling.scheduler import Scheduler
from outrider.engine.settings import EngineSettings
from outrider.engine.speculation import Acceptance, Drafter
from outrider.engine.speculation.acceptance.accept import Race
from outrider.engine.speculation.policy.drafter_policy import DrafterPolicy
from outrider.engine.speculation.policy.guessing import Guessing, TargetView
from outrider.engine.speculation.policy.plugins import make_drafters, make_rule, make_version, remote_names
from outrider.engine.telemetry import Telemetry
from outrider.engine.text import TextError, Tokenizer
from outrider.engine.thoughts.marks import marks_of
from outrider.engine.thoughts.tracker import Tracker
from outrider.kernels.backend import triton_notice
from outrider.native.levels import LevelError
from outrider.native.presence import notice
from outrider.native.share import sentence

_MEASURED_CONTEXT = 256
_PROMPT_S, _PROMPT_STEPS = 1.0, 4
"""Prompts get so many rows of a step that it takes this many seconds, or as long as this many steps of one row.

Between two steps the engine takes requests and shows that it is alive; gateways wait some seconds for either.
"""

_log = get_logger("engine")


@dataclass(frozen=True, slots=True)
class Parts:
    """What an engine is made of. Measurements and tests name other parts.

    Attributes:
        policy: decides which drafters are asked.
        scheduler: shares slots, rows and pages among sequences.
        engine: runs the steps.
    """

    policy: Callable[[], DrafterPolicy] = DrafterPolicy
    scheduler: Callable[[Limits, PageTable, bytes], Scheduler] = Scheduler
    engine: type[Engine] = Engine


PARTS = Parts()
"""The parts of an engine that serves."""


@dataclass(frozen=True, slots=True)
class Target:
    """A loaded target and the parts around it.

    Attributes:
        directory: directory or GGUF file of the checkpoint.
        name: model name in requests.
        dtype: type of the weights.
        room: most tokens of a sequence.
        token_s: measured seconds for a token of a prompt.
        drafters: names of drafters that requests may use; grows when proposers join, and by `drafter`.
        cost: measured seconds of a step by rows.
        audit_share: share of the finished answers that the engine replays.
        telemetry: gets the engine's events.
        settings: the settings that the target was loaded with.
        hint: a sentence for the operator about a quicker setting, or empty.
        ranks: the other processes that run the model; None for a model in one process.
    """

    directory: Path
    name: str
    dtype: str
    room: int
    token_s: float
    drafters: set[str]
    tokenizer: Tokenizer
    grammars: Grammars
    model_limits: ModelLimits
    pages: PageTable
    runner: Runner
    scheduler: Scheduler
    cost: CostCurve
    estimate: Estimate
    guessing: Guessing
    settings: EngineSettings
    parts: Parts = PARTS
    audit_share: float = 0.0
    telemetry: Telemetry | None = None
    hint: str = ""
    ranks: Ranks | None = None

    @classmethod
    def load(
        cls,
        settings: EngineSettings,
        parts: Parts = PARTS,
        telemetry: Telemetry | None = None,
        alone: AbstractContextManager[object] | None = None,
    ) -> Target:
        """Loads the model and measures its steps.

        Args:
            settings: of the engine.
            parts: what the engine is made of.
            telemetry: gets the engine's events.
            alone: entered while free memory is measured and pages are taken.

        Raises:
            SettingsError: the settings are wrong.
        """
        threads = use_threads(settings.threads, ranks=settings.tensor_parallel)
        _log.info("share of the machine", share=sentence(), threads=threads)
        ranks: Ranks | None = None
        try:
            for lost in filter(None, (notice(), triton_notice(settings.device))):
                _log.warning(lost)
            directory = store.obtain(settings.model, settings.integrity, watch=store.logged(_log))
            with ThreadPoolExecutor(1) as beside:  # mostly Python, while the model is mostly compiled code
                loading = beside.submit(_load_tokenizer, directory)
                if settings.tensor_parallel > 1:
                    ranks = Ranks(directory, settings.tensor_parallel, threads, **_arguments(settings))
                model = LlamaModel.load(directory, **_arguments(settings)) if ranks is None else ranks.model
                make = partial(cls.over, model, loading.result(), directory, settings, parts, telemetry, alone)
                return make() if ranks is None else replace(ranks.attend(make), ranks=ranks)
        except BaseException as error:
            if ranks is not None:
                ranks.stop()
            if isinstance(error, LevelError | ModelError | TextError | RankLost):
                raise SettingsError(str(error)) from None
            raise

    @classmethod
    def over(
        cls,
        model: LlamaModel,
        tokenizer: Tokenizer,
        directory: Path,
        settings: EngineSettings,
        parts: Parts = PARTS,
        telemetry: Telemetry | None = None,
        alone: AbstractContextManager[object] | None = None,
    ) -> Target:
        """The target over a loaded model and its tokenizer, both from ``directory``; the rest as for `load`."""
        config = model.config
        drafters = make_drafters(settings, tokenizer.fingerprint, model)
        names = {*remote_names(), *(drafter.name for drafter in drafters)}
        ends = frozenset(token for token in tokenizer.eos_token_ids if token < config.vocab_size)
        pooling = pooling_of(directory)
        model_limits = ModelLimits(config.vocab_size, config.context_length, ends, names, pooling)
        with alone or nullcontext():
            count = page_count(model, settings)
            room = _room(model, settings, count)
            runner = Runner(model, count, settings.page_size, _rule(settings))
        pages = PageTable(count, _page_cost(config, settings.page_size))
        most = most_measured(model.device.type, settings.max_guesses, settings.max_rows)
        cost = runner.measure(min(_MEASURED_CONTEXT, room - 65), most)
        milliseconds = [round(s * 1e3, 2) for s in cost.seconds]
        compiled = model.compiled.library.level if model.compiled else None
        if hint := int8_hint(model):
            _log.warning(hint)
        _log.info("step measured", compiled=compiled, rows=list(cost.rows), milliseconds=milliseconds)
        _log.info("pages", pages=count, tokens=count * settings.page_size, dtype=str(runner.pool.dtype), served=room)
        limits = _limits(settings, config.context_length, count, cost)
        scheduler = parts.scheduler(limits, pages, tokenizer.fingerprint.encode())
        view = TargetView(runner.rule, config.vocab_size)
        return cls(
            directory=directory,
            name=settings.served_name or store.served_name(settings.model),
            dtype=str(model.dtype).removeprefix("torch."),
            room=room,
            token_s=cost(settings.prefill_rows) / settings.prefill_rows,
            drafters=names,
            tokenizer=tokenizer,
            grammars=Grammars(tokenizer.definition, config.vocab_size, model_limits.eos_ids),
            model_limits=model_limits,
            pages=pages,
            runner=runner,
            scheduler=scheduler,
            cost=cost,
            estimate=Estimate(cost),
            guessing=Guessing(view, scheduler, cost, drafters, parts.policy(), telemetry=telemetry),
            settings=settings,
            telemetry=telemetry,
            parts=parts,
            audit_share=settings.audit_share,
            hint=hint,
        )

    def drafter(self, name: str, model: str | None) -> Drafter | None:
        """A version of a drafter for `Engine.swap`, over the ``model`` of this name; any thread may load it.

        Without a model, the drafter as the settings have it: None where they have none. Raises `SettingsError`.
        """
        made = make_version(name, model, self.settings, self.tokenizer.fingerprint, self.runner.model)
        self.drafters.add(name)
        return made

    def tracker(self, thought: Thought) -> Tracker:
        """Follows thoughts with these marks, for a `Request`."""
        return Tracker(thought, self.tokenizer.single_token_bytes, self.model_limits.vocabulary_size)

    def engine(self, cache: PageCache | None = None) -> Engine:
        """The engine over these parts, with its ``cache`` of pages; create only one."""
        parts = self.runner, self.scheduler, self.guessing, self.estimate, Answers(self.tokenizer), cache
        return self.parts.engine(*parts, audit_share=self.audit_share, telemetry=self.telemetry)


def _load_tokenizer(directory: Path) -> Tokenizer:
    tokenizer = Tokenizer.load(directory)
    if marks_of(tokenizer) is not None:
        len(tokenizer.single_token_bytes)  # made now, so that the first thought does not wait
    _log.debug("tokenizer loaded", vocabulary=tokenizer.fingerprint)
    return tokenizer


def _arguments(settings: EngineSettings) -> dict[str, Any]:
    """Arguments of `LlamaModel.load`."""
    return {
        "dtype": settings.dtype,
        "device": settings.device,
        "determinism": settings.determinism,
        "quantization": None if settings.quantization == "none" else settings.quantization,
        "kv_dtype": settings.kv_dtype,
        "graphs": settings.cuda_graphs,
    }


def _rule(settings: EngineSettings) -> Acceptance:
    """The rule of acceptance; `SettingsError` if answers depend on more than a replay can know."""
    rule = make_rule(settings)
    if settings.audit_share and (settings.determinism != "strict" or not isinstance(rule, Race)):
        raise SettingsError(
            f'audit_share = {settings.audit_share:g} needs determinism = "strict" and acceptance = "race": '
            "with others a replay may differ though nothing is wrong"
        )
    return rule


def _room(model: LlamaModel, settings: EngineSettings, pages: int) -> int:
    """Most tokens of a sequence; `SettingsError` if these are too few, or if a step has no rows for prompts."""
    room = min(model.config.context_length, pages * settings.page_size)
    if room < min(model.config.context_length, LEAST_ROOM):
        raise SettingsError(f"pages = {pages} of {settings.page_size} tokens hold less than {LEAST_ROOM}")
    if settings.max_rows <= settings.max_running:
        raise SettingsError(
            f"max_rows = {settings.max_rows} must be above max_running = {settings.max_running}: "
            "each running sequence may take a row of a step, and prompts need some"
        )
    return room


def _limits(settings: EngineSettings, context_length: int, pages: int, cost: CostCurve) -> Limits:
    longest = max(_PROMPT_S, _PROMPT_STEPS * cost(1))
    return Limits(
        settings.max_running,
        settings.max_waiting,
        cost.most_rows(longest, settings.prefill_rows),
        settings.max_guesses,
        settings.max_nodes,
        settings.page_size,
        context_length,
        settings.max_tenant_guesses,
        settings.max_rows,
        aging_s=settings.priority_aging_s,
        pinned=int(pages * settings.pinned_share),
        embedding_rows=cost.most_rows(_PROMPT_STEPS * cost(1), settings.prefill_rows),
        embedding_share=settings.embedding_share,
    )


def _page_cost(config: ModelConfig, page_size: int) -> Callable[[int], float]:
    """Cost of computing a page by its index in the chain, from 0; the unit is its tokens times all weights.

    Attention adds to that, and grows with the tokens before the page: two multiplications for each token and each
    dimension of each head.
    """
    attention = 2 * config.heads * config.head_dim * page_size / config.layer_weights
    return lambda place: 1.0 + attention * (place + 0.5)
