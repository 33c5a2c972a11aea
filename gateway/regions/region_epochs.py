"""Determines which gateway serves each region's engines, by epochs and the takeover of dead regions.

A region serves its own engines. If its gateways have died (their addresses refuse connections; silence proves nothing),
the nearest live region claims the next epoch, which a majority of the other regions must grant. When the region's own
gateway is back, it takes the epoch after that. Of two claims, the higher number wins. Odd numbers belong to the region
itself and need no grant; even numbers are granted. Therefore no number has two holders.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

import msgspec

from gateway.base.event_log import log_event
from routing.regions.heartbeat import RegionEpoch


class RegionEpochs:
    """One gateway's knowledge of epochs. Mutable: the highest epoch of each region, and its own grants."""

    def __init__(
        self, tag: str, region: str, others: Collection[str], changed: Callable[[], None], path: Path | None = None
    ) -> None:
        """`changed` is called when this gateway begins or stops serving a region.

        `path` is the directory that stores its epochs and grants across restarts; None: they are not stored.
        """
        self._tag, self._region, self._path = tag, region, path
        self._governed = frozenset({region, *others})
        remembered = _read(path)
        self._granted = remembered.granted
        self._changed = changed
        self.known = remembered.known
        """Region → the highest epoch received."""
        own = self.known.setdefault(region, RegionEpoch(1, tag, region))
        if own.region != region:
            self._take_back(own)

    def serves(self, region: str) -> bool:
        """Return whether this gateway dispatches to the region's engines. All gateways do if no region's gateway is
        known.

        Gateways of one region serve it together.
        """
        epoch = self.known.get(region)
        if region == self._region:
            return epoch is None or epoch.region == region
        return region not in self._governed or (epoch is not None and epoch.holder == self._tag)

    def together(self, region: str) -> bool:
        """Return whether this region's gateways serve that region together, instead of one that took it over."""
        return region == self._region or region not in self._governed

    @property
    def adopted(self) -> tuple[str, ...]:
        """Return the other regions that this gateway serves."""
        return tuple(sorted(name for name, epoch in self.known.items() if self._took(name, epoch)))

    def holds(self, region: str, tag: str, home: str) -> bool:
        """Return whether a gateway of region `home` serves the region."""
        epoch = self.known.get(region)
        if epoch is None:
            return home == region
        return epoch.region == home and (home == region or epoch.holder == tag)

    def receive(self, epochs: Mapping[str, RegionEpoch]) -> None:
        """Apply a peer's epochs. The higher epoch wins, and this gateway's own region is taken back."""
        served = {region: self.serves(region) for region in self._governed}
        for region, epoch in epochs.items():
            known = self.known.get(region)
            ahead = epoch.number - (known.number if known is not None else 0)
            if region not in self._governed or epoch.holder == self._tag:
                continue
            # Gateways of one region all begin with 1, so that a tie needs an order.
            if ahead > 0 or (ahead == 0 and known is not None and epoch.holder > known.holder):
                self.known[region] = epoch
                self._save()
        own = self.known[self._region]
        if own.region != self._region:
            self._take_back(own)
        if served != {region: self.serves(region) for region in self._governed}:
            self._changed()

    def next_number(self, region: str) -> int:
        """Return the number that a claim on another region must have."""
        epoch = self.known.get(region)
        highest = max(epoch.number if epoch is not None else 1, self._granted.get(region, 0))
        # Even: odd numbers are the region's own.
        return highest + 2 - highest % 2

    def grant(self, region: str, number: int, dead: bool) -> bool:
        """Return whether another gateway can have this epoch. Each number is granted once."""
        if region == self._region or not dead or number % 2 or number < self.next_number(region):
            return False
        self._granted[region] = number
        self._save()
        return True

    def take(self, region: str, number: int) -> None:
        """Serve the region after its claim was granted."""
        known = self.known.get(region)
        if known is None or number > known.number:
            self._set(region, number, "taken_over")
            self._changed()

    def _take_back(self, epoch: RegionEpoch) -> None:
        # The next odd number: those are the region's own and need no grant.
        self._set(self._region, epoch.number + 1 + epoch.number % 2, "taken_back")

    def _took(self, region: str, epoch: RegionEpoch) -> bool:
        return region != self._region and epoch.holder == self._tag

    def _set(self, region: str, number: int, how: str) -> None:
        self.known[region] = RegionEpoch(number, self._tag, self._region)
        self._save()
        log_event("region_epoch", level=logging.WARNING, region_name=region, number=number, holder=self._tag, how=how)

    def _save(self) -> None:
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            beside = self._path.with_suffix(".new")
            beside.write_bytes(msgspec.json.encode(_Remembered(self.known, self._granted)))
            # A crash leaves the old file or the new one, never half of it.
            beside.replace(self._path)
        except OSError as error:
            log_event("region_epochs_not_saved", level=logging.ERROR, reason=error.strerror or type(error).__name__)


class _Remembered(msgspec.Struct):
    known: dict[str, RegionEpoch] = {}
    granted: dict[str, int] = {}


_DECODER = msgspec.json.Decoder(_Remembered)


def _read(path: Path | None) -> _Remembered:
    """Return the epochs and grants stored in this state directory, empty if the file is missing or unreadable."""
    if path is None:
        return _Remembered()
    try:
        return _DECODER.decode(path.read_bytes())
    except FileNotFoundError:
        return _Remembered()
    except (OSError, msgspec.DecodeError) as error:
        log_event("region_epochs_unreadable", level=logging.ERROR, error=type(error).__name__)
        return _Remembered()


def is_granted(votes: Iterable[bool]) -> bool:
    """Return whether a claim has the majority of votes, including its own."""
    cast = list(votes)
    return 2 * sum(cast) > len(cast)
