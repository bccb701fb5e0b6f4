"""``count`` with caching folds in a whole batch at once: the answers are the same as record by record."""

from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.processors import Consumed, Materialized, StreamsBuilder, Topology, TopologyDriver

RECORDS = st.tuples(st.sampled_from("abc"), st.just("x"), st.integers(0, 50))
BATCHES = st.lists(st.lists(RECORDS, max_size=20), max_size=4)


def counts(*, caching: bool) -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("words", Consumed("string", "string"))
    words.group_by_key().count(Materialized("counts", caching=caching)).to("counts")
    return builder.build()


@settings(deadline=None)
@given(BATCHES)
def test_each_keys_last_update_is_the_same_as_without_caching(batches: list[list[tuple[str, str, int]]]) -> None:
    with TopologyDriver(counts(caching=True)) as cached, TopologyDriver(counts(caching=False)) as plain:
        for batch in batches:
            cached.pipe_all("words", batch)
            plain.pipe_all("words", batch)
            assert cached.read("counts") == list({record.key: record for record in plain.read("counts")}.values())
        assert list(cached.store("counts").scan()) == list(plain.store("counts").scan())
