"""KIP-258's options for an upgrade of local copies."""

from collections.abc import Callable
from typing import Any

import pytest

from millpond.adapters.spark import Millpond, SparkStreams
from millpond.adapters.spark.job.options import Upgrade
from millpond.errors import ConfigurationError
from millpond.processors import StreamsBuilder
from millpond.releases import RELEASE, Release
from millpond.stores.durability.copies.upgrade_mode import UpgradeMode

JOBS: dict[str, Callable[..., object]] = {
    "streams": lambda **options: SparkStreams(StreamsBuilder().build(), **options),
    "verbs": Millpond,
}


@pytest.mark.parametrize(
    ("release", "mode", "message"),
    [
        ("0.1.0", None, "upgrade_mode is None; with upgrade_from, give 'in_place' or 'roll_over'"),
        ("0.1.0", "offline", "upgrade_mode is 'offline'; give one of 'in_place', 'roll_over'"),
        (None, "offline", "upgrade_mode is 'offline'; give one of 'in_place', 'roll_over'"),
        ("yesterday", "in_place", "upgrade_from is 'yesterday'; give a release of Millpond"),
        (1, "in_place", "upgrade_from is 1; give a release of Millpond"),
        (
            "1.1.0",
            "in_place",
            f"upgrade_from is '1.1.0'; this is release {RELEASE}, so give one from 0.1.0 to {RELEASE}",
        ),
        ("0.0.9", "in_place", "upgrade_from is '0.0.9'; this is release"),
    ],
)
@pytest.mark.parametrize("job", JOBS)
def test_options_that_make_no_sense_are_refused(job: str, release: Any, mode: str | None, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        JOBS[job](application_id="app", state_dir="/tmp/state", upgrade_from=release, upgrade_mode=mode)


def test_without_upgrade_from_the_mode_is_ignored() -> None:
    assert Upgrade.of(None, "in_place") is None
    assert Upgrade.of("0.1", "in_place") == Upgrade(Release(0, 1), UpgradeMode.IN_PLACE)
    assert Upgrade.of("0.1", "roll_over") == Upgrade(Release(0, 1), UpgradeMode.ROLL_OVER)
