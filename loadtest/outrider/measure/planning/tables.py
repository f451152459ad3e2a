"""Profiles and plans as tables."""

from __future__ import annotations

from outrider.measure.planning.profile import Profile
from outrider.measure.planning.search import Plan
from rich.table import Table


def columns(*titles: str) -> Table:
    """A table without rules, whose first column is never wrapped."""
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for place, title in enumerate(titles):
        shown.add_column(title, justify="right" if place else "left", no_wrap=not place)
    return shown


def parts(profile: Profile) -> Table:
    """Where the time of steps goes, in percent for each load; `publish` runs beside the steps."""
    names = sorted({part for load in profile.parts.values() for part in load})
    shown = columns("load", "s", *(f"{name} %" for name in names))
    for load, seconds in profile.parts.items():
        whole = sum(value for part, value in seconds.items() if part != "publish") or 1.0
        shown.add_row(load, f"{whole:.3g}", *(f"{100 * seconds.get(name, 0) / whole:.1f}" for name in names))
    return shown


def steps(profile: Profile) -> Table:
    """The steps by number of sequences, without and with speculation."""
    shown = columns("mode", "sequences", "rows each", "ms a step", "tokens a step")
    for mode, points in (("plain", profile.plain), ("speculative", profile.speculative)):
        for at in points:
            shown.add_row(mode, f"{at.running:.1f}", f"{at.rows:.2f}", f"{at.seconds * 1e3:.2f}", f"{at.tokens:.2f}")
    return shown


def facts(profile: Profile) -> list[str]:
    """What the tables leave out, and what could not be measured."""
    row_s = profile.prompt.row_s
    lines = [f"Prompts: {1 / row_s:.0f} tokens/s, and {profile.prompt.step_s * 1e3:.2f} ms a step." if row_s else ""]
    lines += [
        f"CPU of {kind}: {cpu.request_s * 1e3:.2f} ms a request, {cpu.token_s * 1e6:.1f} µs a token."
        for kind, cpu in profile.cpu.items()
    ]
    power = f"{profile.watts:.0f} W." if profile.watts else "not known: neither NVML nor RAPL tells it here."
    return [*filter(None, lines), f"Power while loaded: {power}"]


def plan(found: Plan) -> Table:
    """The plan, a line for each figure."""
    shown = columns("", "")
    for kind, count in found.replicas.items():
        spare = f" + {found.spare_verifiers}" if kind == "verifier" else ""
        shown.add_row(f"{kind} replicas", f"{count}{spare}, {100 * found.busy[kind]:.0f} % busy")
    shown.add_row("TTFT p95", f"{found.first_p95_s:.3g} s")
    shown.add_row("TTFT p95, a verifier dies (N+1)", f"{found.death_first_p95_s:.3g} s")
    shown.add_row("TPOT p95", f"{found.token_p95_s:.3g} s")
    shown.add_row("saturation", f"{found.saturation:.3g} requests/s, headroom {100 * found.headroom:.0f} %")
    shown.add_row("cost of a million tokens", "no prices given" if found.cost is None else f"{found.cost:.4g}")
    joule = "power not known" if found.tokens_per_joule is None else f"{found.tokens_per_joule:.3g}"
    shown.add_row("tokens a joule", joule)
    pays = "at every measured load" if found.pays_below is None else f"up to {found.pays_below:.3g} requests/s"
    shown.add_row("speculation pays", pays)
    return shown
