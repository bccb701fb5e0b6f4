"""The duties of every engine that the benchmark measures."""

from millpond.bench.engines.engine import Engine, OrderedEngine, RawEngine

ROWS = [(b"%04d" % number, b"value-%d" % number) for number in range(50)]


def check_engine(engine: Engine) -> None:
    """Write, read, delete, scan and walk on a new engine, which is closed in the end."""
    engine.put_each(engine.prepared(ROWS[1:]))
    engine.put_each(engine.prepared(ROWS[:1]))
    engine.put_each(engine.prepared([(b"0001", b"other")]))
    engine.delete_each([b"0002", b"absent"])
    engine.delete_each([b"0003"])
    found = {key: engine.getter()(key) for key in (b"0000", b"0001", b"0002", b"0003")}
    plain = {key: value[0] if isinstance(value, tuple) else value for key, value in found.items()}
    assert plain == {b"0000": b"value-0", b"0001": b"other", b"0002": None, b"0003": None}
    if isinstance(engine, OrderedEngine):
        assert engine.scan(b"0001", 10) == 10
        assert engine.scan(b"0047x", 10) == 2
        assert sum(1 for _ in engine.entries(reverse=False)) == 48
        assert next(engine.entries(reverse=True)) in (ROWS[-1], ROWS[-1][1])
    if isinstance(engine, RawEngine):
        engine.put_many([(b"0002", b"many"), (b"0003", b"more")])
        assert len(engine.get_many([b"0002", b"0003", b"0002"])) == 3
        assert engine.scan(b"0000", 100) == 50
    engine.close()
