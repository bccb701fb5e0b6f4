"""Results that came out because the input was complete matter until stream time has closed them."""

from millpond.processors.aggregations.closing import Window
from millpond.processors.aggregations.completion import Completion
from millpond.stores.backend.memory import MemoryBackend
from millpond.stores.backend.transaction import Transaction
from millpond.stores.encoding.serdes import STRING
from millpond.stores.specs.store_spec import StoreKind, StoreSpec
from millpond.stores.typed.windows.grids import EvenGrid


def test_a_completion_is_over_once_stream_time_has_closed_what_came_out() -> None:
    store = StoreSpec("s", StoreKind.KEY_VALUE, STRING, STRING).open(Transaction(MemoryBackend()))
    completion = Completion(store, 0, STRING.serialize, STRING, end=EvenGrid(10).end)
    completion.let_out_all(20)
    changed, as_it_was = Window("a", 15, 25, "a"), Window("b", 15, 25, "b")
    completion.change(changed, "before")
    completion.save(closed=5)
    for one in (completion, Completion(store, 0, STRING.serialize, STRING, end=EvenGrid(10).end)):
        one.close(19)
        assert one.happened
        assert (one.has_let_out(as_it_was), one.has_let_out(changed), one.before(changed)) == (True, False, "before")
        one.close(20)
        assert not one.happened
        assert not one.memory()
