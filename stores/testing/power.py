"""The part of the suite about kills and losses of power in the middle of anything.

Rule of this module: nothing is left to chance. Another process does the work, and all of its calls of the system are
seen; before some of them, its directory is copied as a kill or a loss of power would leave it.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from millpond.stores.backend.registry import open_backend
from millpond.stores.testing.child import Child
from millpond.stores.testing.features import Feature
from millpond.stores.testing.programs import show_histories
from millpond.stores.testing.sentences import ATOMIC, FLUSHED, PREFIX
from millpond.stores.testing.suite import Suite
from millpond.stores.testing.watching.histories import HISTORIES, Content, contents
from millpond.stores.testing.watching.images import Image, Loss


class PowerSuite(Suite):
    """Kills and losses of power."""

    def test_a_kill_or_a_loss_of_power_at_any_moment_leaves_what_the_contract_says(
        self, directory: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        if not self.has(Feature.FILES):
            return
        expected = {name: contents(history()) for name, history in HISTORIES.items()}
        with Child(show_histories, self.supplier(), directory) as child:
            told: list[dict[str, Any]] = [json.loads(line) for line in child.read_rest()]
        with PREFIX:
            assert told, "the process that was to be killed did not begin"
            assert told[-1].keys() & {"whole", "unseen"}, "the process that was to be killed ended by itself"
        if "unseen" in told[-1]:
            with capsys.disabled():
                print(f"\nlosses of power, and kills at any call, are not tested here: {told[-1]['unseen']}")
        for name, image in _images(told[:-1]):
            self._check(image, expected[name])

    def _check(self, image: Image, expected: Sequence[Content]) -> None:
        """Check that an image shows the result of as many changes as it must."""
        where = f"{image.loss} {image.when}"
        powerless = image.loss is Loss.POWER
        with FLUSHED if powerless else PREFIX:
            try:
                with open_backend(self.supplier(), Path(image.place)) as backend:
                    found = dict(backend.scan())
            except Exception as error:
                raise AssertionError(f"{where}: {type(error).__name__}: {error}") from error
        shown = [number for number, content in enumerate(expected) if content == found]
        with FLUSHED if powerless else ATOMIC:
            assert shown != [], f"{where}: what is left is the result of no number of whole writes"
        with FLUSHED:
            assert max(shown) >= image.least, f"{where}: what was flushed is lost"
        with PREFIX:
            assert min(shown) <= image.most, f"{where}: what was not written yet is there"


def _images(told: Sequence[dict[str, Any]]) -> Iterator[tuple[str, Image]]:
    """Yield each image with the name of its history. A load need not be atomic, so its kills are left out."""
    for image in told:
        name = image.pop("history")
        taken = Image(**image | {"loss": Loss(image["loss"])})
        if name != "loaded" or taken.loss is Loss.POWER:
            yield name, taken
