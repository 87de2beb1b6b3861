"""Lines of the summary that are sentences: profiles, scope, the bottleneck, throughput, costs, packets and
uncertainty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from et_sim.basics.uncertainty import ASSUMED_SOFTWARE, SOFTWARE, UNMEASURED
from et_sim.basics.units import format_bytes, format_joules, format_ns, format_watts, plural
from et_sim.views.bands import SURE
from et_sim.views.summary.rank_table import called
from et_sim.views.text import share

if TYPE_CHECKING:
    from et_sim.tables.summary import (
        Bottleneck,
        OtherProfile,
        Scope,
        Steady,
        Summary,
        Throughput,
        TriedCorrection,
        Uncertainty,
    )


WORTH_NAMING = 0.05  # share of a time
MANY_ACTORS = 128  # fewer cost little time
MOST_NAMED = 3  # corrections that may act

COMPLETE, STALLED, NOT_SIMULATED, OUT_OF_MEMORY = "complete", "stalled", "not simulated", "out of memory"
MOSTLY_SEEN = 0.9  # share of a step's operations: above it, a figure without masked scores adds nothing
NAMED_BY = {"workload": ", named by the workload", "nobody": ", as none is named"}


def makespan_text(summary: Summary) -> str:
    """Return the makespan, and its change by the corrected profile if that is known."""
    makespan = summary["makespan_ns"]
    text = f"{format_ns(makespan)} ({makespan:,} ns)"
    other = summary["other_profile"]
    if other is None:
        return text
    stalled = "" if summary["status"] == COMPLETE else f", {summary['status']}"
    text = f"{text}{stalled} in the {summary['profile']} profile"
    if not stalled and other["makespan_ns"] == makespan:
        return f"{text}; the {other['profile']} one gives the same on this network model"
    return f"{text}; {_other(summary, other)}"


def limits_text(summary: Summary) -> str:
    """Return why many actors are simulated, and changes with which fewer would be; empty if few are."""
    if summary["folded"]["actors"] < MANY_ACTORS:
        return ""
    limits = summary["folded"].get("limits", [])
    return "; ".join(f"{limit['reason']} (fewer actors: {limit['remedy']})" for limit in limits)


def _other(summary: Summary, other: OtherProfile) -> str:
    """Return the other profile's result, such as `3.53 s corrected (-21 %): concurrent-communication`."""
    stalls, corrected = summary["status"] != COMPLETE, other["profile"]
    if other["status"] == STALLED:
        return f"the {corrected} profile stalls{', too' if stalls else ''}"
    if other["status"] == OUT_OF_MEMORY:
        return f"the {corrected} profile needs more memory than there is"
    if other["status"] == NOT_SIMULATED:
        named = other["corrections"]
        which = f"{len(named)} corrections" if len(named) > MOST_NAMED else _names(named) or "its corrections"
        return f"{which} may change that: --profile {corrected}"
    after = other["makespan_ns"]
    if after is None:
        return f"the {corrected} profile is refused: {other['reason']}"
    figure = format_ns(after)
    if stalls:
        return f"{corrected}, it completes in {figure}{_reason(other, None)}"
    before = summary["makespan_ns"]
    return f"{figure} {corrected} ({_percent(before, after)}){_reason(other, before)}"


def _reason(other: OtherProfile, before: int | None) -> str:
    """Return the corrections that act."""
    acting = other["corrections"]
    if not other["measured"]:
        return f"; these corrections may act: {_names(acting)}" if acting else ""
    if not acting:
        return ", by corrections that act only together"
    if len(acting) == 1 and acting[0]["makespan_ns"] == other["makespan_ns"]:
        return f": {acting[0]['correction']}"
    return f": {', '.join(_by_itself(correction, before) for correction in acting)}"


def _by_itself(correction: TriedCorrection, before: int | None) -> str:
    """Return a correction with its effect by itself."""
    after = correction["makespan_ns"]
    if after is None:
        return f"{correction['correction']} (alone: {correction['status']})"
    share = f" {_percent(before, after)}" if before else ""
    return f"{correction['correction']} (alone{share or ': complete'})"


def _names(corrections: Sequence[TriedCorrection]) -> str:
    return ", ".join(correction["correction"] for correction in corrections)


def _percent(before: int, after: int) -> str:
    """Return the change in percent; two digits, so that a small change is not shown as none."""
    percent = 100 * (after - before) / before if before else 100.0
    return f"{percent:+.0f} %" if abs(percent) >= 9.5 else f"{percent:+.2g} %"


def model_text(summary: Summary) -> str:
    """Return the network model, a note on it, and the profile."""
    note = summary.get("model_note")
    in_brackets = f" ({note})" if note else ""
    return f"{summary['model']} network{in_brackets}, {profile_text(summary)}"


def profile_text(summary: Summary) -> str:
    """Return the profile, and who named it unless the machine or the command did."""
    named_by = NAMED_BY.get(summary["profile_named_by"], "")
    return f"{summary['profile']} profile{named_by}"


def scope_text(scope: Scope | None) -> str:
    """Return what figures include and leave out; empty if the run does not record it."""
    if scope is None:
        return ""
    includes, leaves_out = ("; ".join(scope[side]) for side in ("includes", "leaves_out"))
    return f"{includes or 'nothing that takes time'} (left out: {leaves_out})"


MOST_LETTERS = 24  # width of a list of ranks


def bottleneck_text(summary: Summary) -> str:
    """Return the most loaded link or switch; empty if nothing was carried, or it was not counted."""
    bottleneck = summary["bottleneck"]
    if bottleneck is None:
        return ""
    waits = "" if bottleneck["has_contention"] else "; nothing waits on this model"
    return f"{_most_loaded(bottleneck)}{waits}"


def _most_loaded(bottleneck: Bottleneck) -> str:
    tier, ranks = bottleneck["tier"], bottleneck["ranks"]
    links, alike, named = (bottleneck[name] or 0 for name in ("tier_links", "links_as_loaded", "links"))
    percent = share(bottleneck["used"], 1)
    if bottleneck["of"] == "rate":
        passes = "passes" if bottleneck["has_contention"] else "would pass"
        rate = f"{passes} data on at its rate for {percent} of the run"
        return f"{tier}: the busiest switch {rate}, more than any link"
    if bottleneck["of"] == "time":  # all that a rank sends, over whichever links
        owner = called(ranks or "", MOST_LETTERS)
        if not (ranks or "").isdecimal():
            owner = "each rank" if alike == links else f"each of {owner}"
        return f"{tier}: what {owner} sends takes {percent} of the run, message after message"
    several, singular = ("use", "uses") if bottleneck["has_contention"] else ("would need", "would need")
    if alike == links:
        them = "its link" if links == 1 else f"each of its {links:,} links"
        return f"{tier}: {them} {singular} {percent} of its bandwidth over the run"
    others = alike - named
    more = f" and {plural(others, 'other')}" if others else ""
    name = bottleneck["link"] if ranks is None else f"{bottleneck['link']}, {called(ranks, MOST_LETTERS)}"
    verb, owner = (singular, "its") if alike == 1 else (several, "their")
    of_tier = f"the tier's {links:,} links {share(bottleneck['tier_used'] or 0, 1)}"
    return f"{name}{more} ({tier}): {verb} {percent} of {owner} bandwidth over the run; {of_tier}"


class SlowLink(Struct, frozen=True):
    """The bottleneck, if it is a link slower than its equals."""

    text: str
    takes_longer_ns: int


def slow_link(summary: Summary) -> SlowLink | None:
    """Return the slow link, and how much longer its bytes take than on an equal one; None: there is none."""
    bottleneck = summary["bottleneck"]
    slower = 1.0 if bottleneck is None else bottleneck.get("times_slower") or 1.0
    if bottleneck is None or slower <= 1.0:
        return None
    ranks = bottleneck["ranks"]
    owner = "" if ranks is None else f" of {called(ranks, MOST_LETTERS)}"
    name = f"link {bottleneck['link']}{owner} ({bottleneck['tier']})"
    text = f"{name}, {slower:.3g} times slower than its equals"
    return SlowLink(text, round(bottleneck["used"] * (1 - 1 / slower) * summary["makespan_ns"]))


def software_text(summary: Summary) -> str:
    """Return the software that the workload was made for, and the time in another one if the former is
    assumed; empty if no input states it."""
    software = summary.get("software")
    if software is None:
        return ""
    about = f"{software['name']}: {software['about']}" if software.get("about") else str(software["name"])
    launch = software.get("launch")
    text = f"{about}, {format_ns(launch)} of the host for a launch" if launch else about
    if not software.get("assumed"):
        return text
    return f"{text}{_in_other(summary)} (not stated: et-sim make --software names another)"


def _in_other(summary: Summary) -> str:
    """Return the time of the step in another software, such as `; as torchtitan 2.3 s, +15 %`."""
    other = summary.get("other_software")
    if other is None:
        return ""
    name, before, after = other["name"], summary["makespan_ns"], other["makespan_ns"]
    if after is None:
        reason = f" ({other['reason']})" if "reason" in other else ""
        return f"; as {name} {other['status']}{reason}"
    return f"; as {name} {format_ns(after)}, {_percent(before, after)}"


def throughput_text(throughput: Throughput | None) -> str:
    """Return the throughput; empty if the workload does not state its tokens."""
    if throughput is None:
        return ""
    parts = [
        f"{_rounded(throughput['tokens_per_s'])} tokens/s",
        f"{_rounded(throughput['tokens_per_s_per_rank'])} tokens/s/NPU",
    ]
    if throughput["tflops_per_rank"] is not None:
        parts.append(f"{throughput['tflops_per_rank']:,.4g} TFLOP/s/NPU")
    return ", ".join(parts)


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def utilisation_text(utilisation: Throughput | None) -> str:
    """Return MFU and HFU; empty if the machine's peak is unknown."""
    if utilisation is None or utilisation["mfu"] is None:
        return ""
    mfu, hfu = utilisation["mfu"], utilisation["hfu"]
    unmasked = utilisation.get("mfu_unmasked")
    counts_skipped = hfu is not None and hfu < mfu
    parts = [f"MFU {100 * mfu:.1f} %{' with masked scores' if counts_skipped else ''}"]
    if unmasked is not None and unmasked < MOSTLY_SEEN * mfu:
        parts = [f"MFU {100 * mfu:.1f} % with masked scores ({100 * unmasked:.1f} % without)"]
    if hfu is not None:
        parts.append(f"HFU {100 * hfu:.1f} %")
    of = " ".join(filter(None, (utilisation["datatype"], "dense peak")))
    return f"{', '.join(parts)} of the {of}, {utilisation['peak_tflops']:g} TFLOP/s"


def per_million_tokens(summary: Summary, name: Literal["price", "joules"]) -> str:
    """Return price or energy per million tokens; empty if it is unknown."""
    throughput, costs = summary["throughput"], summary["costs"]
    if throughput is None or costs is None:
        return ""
    is_energy = name == "joules"
    value = throughput["joules_per_million_tokens" if is_energy else "price_per_million_tokens"]
    if value is None:
        return ""
    shown = format_joules(value) if is_energy else f"{value:,.4g} {costs['currency']}"
    return f"{shown} per million tokens"


def packets_text(summary: Summary) -> str:
    """Return the counts of packets; empty if packets were not simulated."""
    packets = summary["packets"]
    if packets is None:
        return ""
    parts = [f"{packets['sent']:,} sent"]
    parts.append(
        f"{packets['lost']:,} lost, most at {packets['lost_at']}" if packets["lost"] else "none lost"
    )
    if packets["sent_again"]:
        parts.append(f"{packets['sent_again']:,} sent again")
    if packets["timeouts"]:
        parts.append(plural(packets["timeouts"], "timeout"))
    if packets["marked"]:
        parts.append(f"{packets['marked']:,} marked")
    if packets["pauses"]:
        parts.append(f"{plural(packets['pauses'], 'pause')}, most at {packets['paused_at']}")
    else:
        parts.append("no pauses")
    if "steady" in packets:
        parts.append(_steady_text(packets["steady"], packets["sent"]))
    return "; ".join(parts)


def _steady_text(steady: Steady, sent: int) -> str:
    """Return what was skipped of steady phases, and the error that this may cause."""
    if steady["contends"]:
        return f"all packets simulated, as messages contend (--steady {steady['tolerance']:.3%})"
    if not steady["packets"]:
        return f"no steady phase found (--steady {steady['tolerance']:.3%})"
    return (
        f"{steady['packets'] / sent:.2%} of packets skipped (--steady {steady['tolerance']:.3%}: "
        f"{plural(steady['messages'], 'message')} like earlier ones), times "
        f"within {steady['error']:.3%} by estimate, not a proven bound"
    )


def power_text(summary: Summary) -> str:
    """Return the cap on devices, and the resulting clock; empty if no kernel's power is known."""
    power = summary.get("power")
    if power is None or power["mean_clock"] is None:
        return ""
    caps = " or ".join(format_watts(cap) for cap in power["caps_watts"])
    if not power["lowered_share"]:
        return f"at most {caps} a device: kernels run at the full clock"
    return (
        f"at most {caps} a device: {100 * power['lowered_share']:.0f} % of the time of kernels at a lowered "
        f"clock, {100 * power['mean_clock']:.0f} % of the full one in the mean"
    )


def energy_text(summary: Summary) -> str:
    """Return the energy; empty if the machine does not state the power of NPUs."""
    costs = summary["costs"]
    if costs is None or costs["joules"] is None:
        return ""
    parts = (
        ("computing", costs["computing_joules"]),
        ("not computing", costs["not_computing_joules"]),
        ("network", costs["network_joules"]),
    )
    total = costs["joules"]
    shares = ", ".join(f"{name} {100 * value / total:.0f} %" for name, value in parts if total and value)
    per_tokens = per_million_tokens(summary, "joules")
    return f"{format_joules(total)}{': ' * bool(shares)}{shares}{'; ' * bool(per_tokens)}{per_tokens}"


def price_text(summary: Summary) -> str:
    """Return the price; empty if the machine does not state the rent of NPUs."""
    costs = summary["costs"]
    if costs is None or costs["price"] is None:
        return ""
    per_tokens = per_million_tokens(summary, "price")
    return f"{costs['price']:,.4g} {costs['currency']}{'; ' * bool(per_tokens)}{per_tokens}"


def spilled_text(summary: Summary) -> str:
    """Return the tensors moved to remote memory and back on all ranks; empty if none can move."""
    moved = summary.get("spilled")
    if moved is None:
        return ""
    if not moved["stores"] and not moved["loads"]:
        return "nothing: local memory suffices"
    stores = plural(moved["stores"], "move")
    return (
        f"{format_bytes(moved['stored_bytes'])} stored in {stores}, "
        f"{format_bytes(moved['loaded_bytes'])} loaded in {moved['loads']:,}, on all ranks together"
    )


def uncertainty_text(summary: Summary) -> str:
    """Return the uncertainty, such as `80 %: 1.33 s to 1.5 s; 71 % of the time is calibrated, 29 % modelled`;
    empty if it is unknown."""
    uncertainty = summary.get("uncertainty")
    if uncertainty is None:
        return ""
    shares = [(share, basis) for basis, share in uncertainty["shares"].items() if share >= 0.005]
    shares_texts = [f"{100 * share:.0f} % {basis}" for share, basis in sorted(shares, reverse=True)]
    first, *rest = shares_texts or ["none of the time is known"]
    amount, basis = first.rsplit(" ", 1)
    low, high = (format_ns(_three_digits(uncertainty[name])) for name in ("low_ns", "high_ns"))
    rests_on = ", ".join([f"{amount} of the time is {basis}", *rest])
    band = f"{SURE}: {low} to {high}"
    if summary["makespan_ns"] < uncertainty["low_ns"]:
        band += ", above the makespan, as such runs took longer than predicted"
    return "; ".join([band, rests_on, *_assumptions(uncertainty)])


def _assumptions(uncertainty: Uncertainty) -> list[str]:
    """Return the reasons for a wide band, and classes that rest on measurements of whole steps."""
    texts = []
    for trait in uncertainty.get("traits", ()):
        name, rows = trait["class"].replace("_", " "), trait.get("rows", 0)
        text = f"software: {trait['item']} described" if trait["class"] == SOFTWARE else name
        if trait["class"] == ASSUMED_SOFTWARE:
            text = "software not stated"
        texts.append(f"{text}, errors of {rows} rows left out" if rows else text)
    unmeasured = sum(part["share"] for part in uncertainty["parts"] if part["class"] == UNMEASURED)
    if unmeasured >= WORTH_NAMING:
        texts.append("kernels not measured on this device")
    return texts


def _three_digits(time_ns: int) -> int:
    """Round to three digits, which is all that the figure supports."""
    return int(float(f"{time_ns:.3g}"))
