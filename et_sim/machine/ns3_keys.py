"""ns-3's key file, as ASTRA-sim's frontend reads it: a key and its values on each line.

Every key is used, reported as without effect, or refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import EtSimError, MachineError, unreadable
from et_sim.basics.units import parse_bandwidth
from et_sim.documents.keys import Remarks, made
from et_sim.machine.congestion import ROCE, telemetry, with_constants
from et_sim.machine.protocol_presets import PRESETS
from et_sim.machine.transports import Control, Marking, PacketProtocol, Packets, SwitchBuffers, Window

ALGORITHMS = {1: "dcqcn", 3: "hpcc", 7: "timely", 8: "dctcp"}
PINT = 10


class Ns3Key(Struct, frozen=True):
    """A key that is used: its default in the frontend, and the key of congestion control that it gives."""

    usual: str
    key: str = ""  # of the network file
    of: str = "whole"  # type of its value
    algorithms: tuple[int, ...] = ()  # algorithms that read it; (): all


DEFAULTS = {  # of the frontend
    "CC_MODE": Ns3Key("1"),
    "PACKET_PAYLOAD_SIZE": Ns3Key("1000"),
    "ENABLE_QCN": Ns3Key("1"),
    "HAS_WIN": Ns3Key("1"),
    "GLOBAL_T": Ns3Key("1"),
    "VAR_WIN": Ns3Key("0"),
    "FAST_REACT": Ns3Key("1", "fast-reaction", "flag", (3,)),
    "MI_THRESH": Ns3Key("5", "most-steps", "whole", (3,)),
    "MULTI_RATE": Ns3Key("1", algorithms=(3,)),
    "SAMPLE_FEEDBACK": Ns3Key("0", "sampled", "flag", (3,)),
    "U_TARGET": Ns3Key("0.95", "wanted-use", "number", (3,)),
    "INT_MULTI": Ns3Key("1", "telemetry-units", "count", (3,)),
    "RATE_BOUND": Ns3Key("1"),
    "ACK_HIGH_PRIO": Ns3Key("0"),
    "BUFFER_SIZE": Ns3Key("16"),
    "ALPHA_RESUME_INTERVAL": Ns3Key("55", "alpha-interval", "interval", (1,)),
    "RATE_DECREASE_INTERVAL": Ns3Key("4", "decrease-interval", "interval", (1,)),
    "CLAMP_TARGET_RATE": Ns3Key("0", "clamp-target", "flag", (1,)),
    "FAST_RECOVERY_TIMES": Ns3Key("5", "recoveries", "whole", (1,)),
    "EWMA_GAIN": Ns3Key("0", "gain", "number", (1, 8)),
    "MIN_RATE": Ns3Key("100Mb/s", "least-rate", "rate", (1, 3, 7, 8)),
    "DCTCP_RATE_AI": Ns3Key("1000Mb/s", "dctcp-step", "rate", (8,)),
}
REQUIRED = {  # with values in the file that comes with the frontend
    "L2_ACK_INTERVAL": Ns3Key("1"),
    "RP_TIMER": Ns3Key("900", "increase-interval", "interval", (1,)),
    "RATE_AI": Ns3Key("50Mb/s", "rate-step", "rate", (1, 3, 7)),
    "RATE_HAI": Ns3Key("100Mb/s", "large-rate-step", "rate", (1, 7)),
    "KMAX_MAP": Ns3Key(
        "6 25000000000 400 40000000000 800 100000000000 1600 200000000000 2400 400000000000 3200 "
        "2400000000000 3200"
    ),
    "KMIN_MAP": Ns3Key(
        "6 25000000000 100 40000000000 200 100000000000 400 200000000000 600 400000000000 800 "
        "2400000000000 800"
    ),
    "PMAX_MAP": Ns3Key(
        "6 25000000000 0.2 40000000000 0.2 100000000000 0.2 200000000000 0.2 400000000000 0.2 "
        "2400000000000 0.2"
    ),
}
USED = {**DEFAULTS, **REQUIRED}
MAPS = ("KMAX_MAP", "KMIN_MAP", "PMAX_MAP")
NEUTRAL = {  # key: the value that is simulated, and the reason why no other is
    "L2_ACK_INTERVAL": ("1", "there, with larger intervals, small messages are never acknowledged"),
    "L2_BACK_TO_ZERO": ("0", "there, messages that are no multiple of L2_CHUNK_SIZE never end"),
    "ERROR_RATE_PER_LINK": ("0", "links lose no packets here"),
    "NIC_TOTAL_PAUSE_TIME": ("0", "NPUs do not send pauses here"),
}
WITHOUT_EFFECT = {
    "USE_DYNAMIC_PFC_THRESHOLD": "thresholds are always dynamic, as there",
    "PAUSE_TIME": "a pause lasts until it is taken back, as there",
    "L2_CHUNK_SIZE": "there, it matters only with L2_BACK_TO_ZERO",
    "SIMULATOR_STOP_TIME": "a run ends when no event is left",
    "ENABLE_TRACE": "et-sim writes its own tables",
    "QLEN_MON_START": "et-sim writes its own tables",
    "QLEN_MON_END": "et-sim writes its own tables",
    "PINT_LOG_BASE": "PINT is not simulated",
    "PINT_PROB": "PINT is not simulated",
    "TOPOLOGY_FILE": "the network file describes the network",
    "FLOW_FILE": "the workload determines the messages",
    "TRACE_FILE": "et-sim writes its own tables",
}
OUTPUTS = ("TRACE_OUTPUT_FILE", "FCT_OUTPUT_FILE", "PFC_OUTPUT_FILE", "QLEN_MON_FILE")
QUIET = ("USE_DYNAMIC_PFC_THRESHOLD", "PINT_LOG_BASE", "PINT_PROB", "L2_CHUNK_SIZE", "SIMULATOR_STOP_TIME")


def read_ns3_keys(path: Path, remarks: Remarks) -> PacketProtocol:
    """Read the protocol of a key file."""
    try:
        raw = path.read_bytes()
        text = raw.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise MachineError(f"the file cannot be read: {unreadable(error)}", place=str(path)) from None
    remarks.inputs.append((str(path), hashlib.sha256(raw).hexdigest()))
    return _Reader(path, text, remarks).protocol()


class _Reader:
    """The keys of a file, with their lines and values."""

    def __init__(self, path: Path, text: str, remarks: Remarks) -> None:
        self._path, self._remarks = path, remarks
        self._lines: dict[str, int] = {}
        self._values: dict[str, list[str]] = {}
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split()
            if words and not words[0].startswith("#"):
                self._lines[words[0]], self._values[words[0]] = number, words[1:]

    def protocol(self) -> PacketProtocol:
        """Build the protocol."""
        missing = [key for key in REQUIRED if key not in self._values]
        self._check_keys()
        mode = self._whole("CC_MODE")
        if mode == PINT:
            raise self._refused("CC_MODE", "HPCC-PINT is not simulated", "take 1, 3, 7, 8, or 12 for none")
        if mode not in ALGORITHMS:
            self._remarks.warn(
                str(self._path), "CC_MODE", f"{mode} is no algorithm: no sender reacts, as there"
            )
        if mode == 3 and self._whole("MULTI_RATE"):
            raise self._refused("MULTI_RATE", "HPCC has one rate for all links here", "give 0")
        algorithm = ALGORITHMS.get(mode, "none")
        more = telemetry(algorithm)
        base = PRESETS["ns3-parity"]
        window = Window.LARGEST if self._whole("GLOBAL_T") else Window.PAIR
        packets = Packets(
            window=window if self._whole("HAS_WIN") else Window.NONE,
            window_shrinks=bool(self._whole("VAR_WIN")),
            paced=bool(self._whole("RATE_BOUND")),
            answers_pass=bool(self._whole("ACK_HIGH_PRIO")),
            as_ns3=True,
            control=self._control(algorithm),
            buffers=SwitchBuffers(
                size=self._whole("BUFFER_SIZE") << 20,
                marking=self._marking() if self._whole("ENABLE_QCN") else (),
            ),
        )
        protocol = replace(
            base,
            payload=self._whole("PACKET_PAYLOAD_SIZE", least=1),
            header=base.header + more[0],
            acknowledgement=base.acknowledgement + more[1],
            packets=packets,
        )
        if missing:
            raise self._incomplete(missing)
        return protocol

    def _control(self, algorithm: str) -> Control:
        readers: dict[str, Callable[[str], Any]] = {
            "flag": lambda key: bool(self._whole(key)),
            "whole": self._whole,
            "count": lambda key: self._whole(key, least=1),
            "number": self._number,
            "interval": self._interval_ns,
            "rate": self._rate,
        }
        constants = {key.key: readers[key.of](name) for name, key in USED.items() if key.key}
        return with_constants(made(Control, constants, Control(algorithm)), ROCE, constants)

    def _check_keys(self) -> None:
        """Refuse unknown, missing and unsupported keys; report keys without effect, and defaults."""
        known = {*USED, *NEUTRAL, *WITHOUT_EFFECT, *OUTPUTS, "LINK_DOWN"}
        for key in self._values:
            if key not in known:
                raise self._refused(key, "not a key of ns-3's file", "correct its name, or leave it out")
        for key, (value, why) in NEUTRAL.items():
            if key in self._values and self._number(key) != float(value):
                raise self._refused(key, f"only {value} is simulated: {why}", f"give {value}")
        if any(self._number("LINK_DOWN", at) for at in range(len(self._values.get("LINK_DOWN", ())))):
            raise self._refused("LINK_DOWN", "links do not fail during a run", "give 0 0 0")
        for key in self._values:
            if key in OUTPUTS or (key in WITHOUT_EFFECT and key not in QUIET):
                why = WITHOUT_EFFECT.get(key, "et-sim writes its own tables")
                self._remarks.warn(str(self._path), key, f"no effect: {why}")
        self._warn_of_unused()
        for name, used in DEFAULTS.items():
            if name not in self._values:
                self._values[name], self._lines[name] = [used.usual], 0
                self._remarks.default(str(self._path), name, f"not given; {used.usual} is taken, as there")
        if any(key not in self._values for key in MAPS):  # one map alone cannot be matched
            for key in filter(self._values.__contains__, MAPS):
                self._map(key, float)
            self._values |= {key: REQUIRED[key].usual.split() for key in MAPS}
        for name, used in REQUIRED.items():
            self._values.setdefault(name, used.usual.split())

    def _warn_of_unused(self) -> None:
        """Warn once of all keys that have no effect."""
        mode = self._whole("CC_MODE") if "CC_MODE" in self._values else int(USED["CC_MODE"].usual)
        unused = [key for key in self._values if key in QUIET]
        parts = [f"no effect: {', '.join(unused)}"] if unused else []
        unused = [
            key for key in self._values if key in USED and mode not in (USED[key].algorithms or (mode,))
        ]
        parts += [f"no effect with CC_MODE {mode}: {', '.join(unused)}"] if unused else []
        if parts:
            self._remarks.warn(str(self._path), "", "; ".join(parts))

    def _marking(self) -> tuple[Marking, ...]:
        """Combine the three maps, by bandwidth."""
        least, most = self._map("KMIN_MAP", int), self._map("KMAX_MAP", int)
        parts = self._map("PMAX_MAP", float)
        if set(least) != set(most) or set(least) != set(parts):
            raise self._refused(
                "KMIN_MAP", "the maps name different bandwidths", "name the same in all three"
            )
        return tuple(
            Marking(rate, least[rate] * 1000, most[rate] * 1000, parts[rate]) for rate in sorted(least)
        )

    def _map(self, key: str, kind: Callable[[str], Any]) -> dict[int, Any]:
        words = self._values[key]
        try:
            values = {int(words[at]): kind(words[at + 1]) for at in range(1, len(words), 2)}
            if len(words) != 1 + 2 * int(words[0]):
                raise ValueError
        except (ValueError, IndexError):
            raise self._refused(
                key, "not a count and as many pairs", "give the count, then bandwidth and value of each"
            ) from None
        return values

    def _number(self, key: str, at: int = 0) -> float:
        try:
            number = float(self._values[key][at])
            if not 0 <= number < float("inf"):
                raise ValueError
        except (ValueError, IndexError):
            raise self._refused(key, "no number of 0 or more follows", "give one") from None
        return number

    def _interval_ns(self, key: str) -> float:
        interval_ns = self._number(key) * 1000
        if interval_ns < 0.001:
            raise self._refused(key, "an interval of less than a picosecond", "give microseconds above 0")
        return interval_ns

    def _whole(self, key: str, least: int = 0) -> int:
        number = self._number(key)
        if number != int(number) or number < least:
            raise self._refused(key, f"not a whole number of {least} or more", "give one")
        return int(number)

    def _rate(self, key: str) -> int:
        text = (self._values[key] or [""])[0]
        try:
            return round(parse_bandwidth(text.replace("b/s", "bps")) * 8e9)
        except EtSimError:
            raise self._refused(key, "no bandwidth follows", 'give one such as "100Mb/s"') from None

    def _incomplete(self, missing: list[str]) -> MachineError:
        noun = "key" if len(missing) == 1 else "keys"
        lines = "; ".join(f"{key} {REQUIRED[key].usual}" for key in missing)
        return MachineError(
            f"{noun} {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing",
            place=str(self._path),
            remedy=f"add, as in the frontend's own file: {lines}",
        )

    def _refused(self, key: str, cause: str, remedy: str) -> MachineError:
        line = self._lines.get(key, 0)
        place = f"{self._path}: line {line}" if line else str(self._path)
        value = " ".join(self._values.get(key, ()))
        return MachineError(f"key {key} is {value!r}: {cause}", place=place, remedy=remedy)
