"""The events of an auction site: persons, auctions and bids, as Nexmark defines them.

Rule of this module: what an event is follows from its number and the seed alone. Of 50 events the first is a person,
the next three are auctions, and the others are bids. The proportions, rates, sizes and hot keys are those of the suite
(github.com/nexmark/nexmark, which has them from Apache Beam's); the names of persons, cities and channels are not.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from millpond.bench.nexmark.draws import Draws, Numbers
from millpond.errors import ConfigurationError

pc: Any = _compute

PERSONS: Final = 1
AUCTIONS: Final = 3
EPOCH: Final = 50
"""The events of an epoch: its persons and auctions come first, in this order; the others are bids."""

FIRST_ID: Final = 1_000
"""The first id of persons, and of auctions."""

FIRST_CATEGORY: Final = 10
CATEGORIES: Final = 5

BEGIN: Final = 1_436_918_400_000
"""The time of the first event, 15 July 2015, in milliseconds."""

ACTIVE_PERSONS: Final = 1_000
"""The number of newest persons who sell and bid."""

IN_FLIGHT: Final = 100
"""The number of auctions that are open at a time, on average."""

LEAD: Final = 10
"""The number of persons and auctions to come that are named before they are there."""

HOT: Final = 100
"""The auctions, sellers or bidders of which one is hot: the first of each such group, and of bidders the second."""

HOT_AUCTIONS: Final = 2
HOT_SELLERS: Final = 4
HOT_BIDDERS: Final = 4
"""One of so many is for any auction, seller or bidder, all others for the hot one."""

CHANNELS: Final = 10_000
"""Half of all bids come by one of these, the others by one of ``HOT_CHANNELS``."""

HOT_CHANNELS: Final = ("harbor", "lantern", "orchard", "quarry")

PERSON_BYTES: Final = 200
AUCTION_BYTES: Final = 500
BID_BYTES: Final = 100
"""The average size of an event, with a number or a time counted as eight bytes."""

LATEST: Final = 4
"""The seconds that an event may be late: what the suite's watermark allows."""

STATES: Final = ("AZ", "CA", "ID", "OR", "WA", "WY")

_CITIES: Final = (
    *("Tucson", "Sacramento", "Oakland", "Pocatello", "Salem"),
    *("Eugene", "Tacoma", "Spokane", "Olympia", "Laramie"),
)
_FIRST_NAMES: Final = ("Ada", "Bruno", "Clara", "David", "Edith", "Felix", "Greta", "Hugo", "Ida", "Jonas", "Karin")
_LAST_NAMES: Final = ("Ahrens", "Brook", "Castle", "Draper", "Ellis", "Forester", "Glover", "Harper", "Ingram")

_SCATTER: Final = 953
"""Within a group, the event that is emitted in the n-th place is n times this from its beginning."""

_NUMBER_BYTES: Final = 8


@dataclass(frozen=True)
class Site:
    """An auction site.

    Args:
        rate: events in a second of event time.
        out_of_order: of so many events in a row, all are emitted in an order that is not that of their times.
        seed: of all chance.

    Raises:
        ConfigurationError: there is no such rate, such a group cannot be reordered, or events would be too late.
    """

    rate: int = 10_000
    out_of_order: int = 1
    seed: int = 1

    def __post_init__(self) -> None:
        if self.rate < 1:
            raise ConfigurationError(f"rate is {self.rate}, but must be at least 1 event in a second")
        if self.out_of_order < 1 or self.out_of_order % _SCATTER == 0:
            raise ConfigurationError(
                f"out_of_order is {self.out_of_order}; give 1 for events in order, or a number of events that is no "
                f"multiple of {_SCATTER}"
            )
        if self.out_of_order > LATEST * self.rate:
            raise ConfigurationError(
                f"at a rate of {self.rate}, {self.out_of_order:,} events out of order are up to "
                f"{self.out_of_order / self.rate:,.0f} s late, and the suite allows {LATEST}; give at most "
                f"{LATEST * self.rate:,}, or a higher rate"
            )

    def emitted(self, first: int, count: int) -> Numbers:
        """Return the numbers of events in the order in which they are emitted, from a place on."""
        places = np.arange(first, first + count, dtype=np.int64)
        group = self.out_of_order
        return places // group * group + places * _SCATTER % group

    def times(self, numbers: Numbers) -> Numbers:
        """Return the times of events, in milliseconds since 1970."""
        return BEGIN + numbers * 1_000 // self.rate

    def length(self, events: int) -> int:
        """Return how many milliseconds so many events take at most."""
        return -(-events * 1_000 // self.rate) + 1

    @property
    def longest_auction(self) -> int:
        """The longest time that an auction is open, in milliseconds."""
        return 2 * self.length(_until_in_flight())

    @property
    def oldest_auction(self) -> int:
        """The longest time from the beginning of an auction to a bid on it, in milliseconds."""
        return self.length((-(-max(HOT, IN_FLIGHT) // AUCTIONS) + 1) * EPOCH)

    @property
    def latest_auction(self) -> int:
        """The longest time from a bid to the beginning of its auction, in milliseconds."""
        return self.length((-(-LEAD // AUCTIONS) + 1) * EPOCH)

    def persons(self, emitted: Numbers) -> pa.Table:
        """Return the persons among events, in their order."""
        numbers = emitted[emitted % EPOCH < PERSONS]
        draws = Draws(self.seed, numbers)
        name = pc.binary_join_element_wise(draws.one_of(_FIRST_NAMES), draws.one_of(_LAST_NAMES), " ")
        email = pc.binary_join_element_wise(
            draws.text(3 + draws.below(4)), pc.binary_join_element_wise(draws.text(3 + draws.below(2)), "com", "."), "@"
        )
        card = pc.binary_join_element_wise(*(_digits(draws.below(10_000)) for _ in range(4)), " ")
        known = [name, email, card, draws.one_of(_CITIES), draws.one_of(STATES)]
        size = np.add.reduce([_lengths(one) for one in known]) + _NUMBER_BYTES
        names = "name", "emailAddress", "creditCard", "city", "state"
        columns: dict[str, Any] = {
            "id": FIRST_ID + _last_person(numbers),
            **dict(zip(names, known, strict=True)),
            "dateTime": _timestamps(self.times(numbers)),
            "extra": draws.filling(size, PERSON_BYTES),
        }
        return pa.table(columns)

    def auctions(self, emitted: Numbers) -> pa.Table:
        """Return the auctions among events, in their order."""
        place = emitted % EPOCH
        numbers = emitted[(place >= PERSONS) & (place < PERSONS + AUCTIONS)]
        draws = Draws(self.seed, numbers)
        begin = self.times(numbers)
        horizon = self.times(numbers + _until_in_flight()) - begin
        item, description, first_bid = draws.name(20), draws.name(100), _prices(draws)
        size = 6 * _NUMBER_BYTES + _lengths(item) + _lengths(description)
        hot = _last_person(numbers) // HOT * HOT
        columns: dict[str, Any] = {
            "id": FIRST_ID + _last_auction(numbers),
            "itemName": item,
            "description": description,
            "initialBid": first_bid,
            "reserve": first_bid + _prices(draws),
            "dateTime": _timestamps(begin),
            "expires": _timestamps(begin + 1 + draws.below(np.maximum(2 * horizon, 1))),
            "seller": FIRST_ID + _mostly(draws, HOT_SELLERS, hot, _any_person(draws, numbers)),
            "category": FIRST_CATEGORY + draws.below(CATEGORIES),
            "extra": draws.filling(size, AUCTION_BYTES),
        }
        return pa.table(columns)

    def bids(self, emitted: Numbers, first: int = 0) -> pa.Table:
        """Return the bids among events, in their order.

        Args:
            emitted: the numbers of events, as ``emitted`` gives them.
            first: the place of the first of them among all that are emitted, by which ``arrived`` goes.
        """
        bids = emitted % EPOCH >= PERSONS + AUCTIONS
        numbers, places = emitted[bids], np.flatnonzero(bids) + first
        draws = Draws(self.seed, numbers)
        hot_auction, hot_bidder = _last_auction(numbers) // HOT * HOT, _last_person(numbers) // HOT * HOT + 1
        channel, url = _channels(draws)
        size = np.full(len(numbers), 4 * _NUMBER_BYTES)
        columns: dict[str, Any] = {
            "auction": FIRST_ID + _mostly(draws, HOT_AUCTIONS, hot_auction, _any_auction(draws, numbers)),
            "bidder": FIRST_ID + _mostly(draws, HOT_BIDDERS, hot_bidder, _any_person(draws, numbers)),
            "price": _prices(draws),
            "channel": channel,
            "url": url,
            "dateTime": _timestamps(self.times(numbers)),
            "extra": draws.filling(size, BID_BYTES),
            "arrived": _timestamps(self.times(places)),
        }
        return pa.table(columns)


def _last_person(numbers: Numbers) -> Numbers:
    """Return the number of the newest person as of an event, its own if it is one."""
    return numbers // EPOCH * PERSONS + np.minimum(numbers % EPOCH, PERSONS - 1)


def _last_auction(numbers: Numbers) -> Numbers:
    """Return the number of the newest auction as of an event, its own if it is one; -1 before the first."""
    place = numbers % EPOCH - PERSONS
    return numbers // EPOCH * AUCTIONS + np.minimum(place, AUCTIONS - 1)


def _any_person(draws: Draws, numbers: Numbers) -> Numbers:
    """Draw one of the active persons, or of those to come."""
    there = _last_person(numbers) + 1
    active = np.minimum(there, ACTIVE_PERSONS)
    return there - active + draws.below(active + LEAD)


def _any_auction(draws: Draws, numbers: Numbers) -> Numbers:
    """Draw one of the auctions in flight, or of those to come."""
    newest = _last_auction(numbers)
    oldest = np.maximum(newest - IN_FLIGHT, 0)
    return oldest + draws.below(newest - oldest + 1 + LEAD)


def _mostly(draws: Draws, ratio: int, hot: Numbers, others: Numbers) -> Numbers:
    """Return the hot one, or in one of ``ratio`` cases another one."""
    return np.where(draws.below(ratio) > 0, hot, others)


def _prices(draws: Draws) -> Numbers:
    """Draw prices from 100 to 100,000,000, as many of each order of magnitude."""
    return np.round(10.0 ** (draws.uniform() * 6) * 100).astype(np.int64)


def _channels(draws: Draws) -> tuple[Any, Any]:
    """Draw the channel of each bid, and its address; a channel has one."""
    hot = draws.below(2) > 0
    chosen: Any = np.where(hot, draws.below(len(HOT_CHANNELS)), len(HOT_CHANNELS) + draws.below(CHANNELS))
    names, addresses = _all_channels()
    return names.take(chosen), addresses.take(chosen)


@cache
def _all_channels() -> tuple[Any, Any]:
    names = [*HOT_CHANNELS, *(f"channel-{number}" for number in range(CHANNELS))]
    return pa.array(names), pa.array([_address(number) for number in range(len(names))])


def _address(channel: int) -> str:
    """Return the address of a channel's bids: three folders, and in nine of ten the channel's number."""
    folders = "/".join(f"{channel * factor % 9_973:04d}" for factor in (3, 5, 7))
    numbered = "" if channel % 10 == 0 else f"&channel_id={channel * 7_919 % 1_000_000_007:09d}"
    return f"https://auctions.example/{folders}/item.htm?query=1{numbered}"


def _until_in_flight() -> int:
    """Return the number of events in which as many auctions begin as are in flight."""
    return IN_FLIGHT * EPOCH // AUCTIONS


def _digits(numbers: Numbers) -> Any:
    return pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 4, "0")


def _lengths(text: Any) -> Numbers:
    found: Numbers = pc.binary_length(text).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _timestamps(millis: Numbers) -> Any:
    return pa.array(millis).cast(pa.timestamp("ms", "UTC"))
