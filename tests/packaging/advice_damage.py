"""The tests that take the advice of errors about damaged rows and bytes that nobody can read.

Most of them advise nothing: the task, the driver or the reader of durable files adds a note, which
``metamorphic/test_damaged_rows.py``, ``durability/test_damage.py`` and ``processors/test_driver.py`` follow.
"""

_SENT_AGAIN = "metamorphic/test_damaged_rows.py::test_records_that_are_damaged_on_their_way_are_sent_again"
FOLLOWED = {
    " are damaged: \n; restart the query, which sends them": _SENT_AGAIN,
    " have other columns than the rest: ": _SENT_AGAIN,
    " is no windowed key; if an operator gives a windowed table": "processors/test_porting.py::"
    "test_select_key_of_a_windowed_table_s_updates_has_to_say_how_the_new_keys_become_bytes",
    "; give the serde the size of its table's windows": "processors/test_windowed_aggregations.py::"
    "test_a_window_of_another_size_is_refused_and_one_of_the_table_s_size_is_taken",
    "; choose another serde or convert the value first": "processors/test_driver.py::"
    "test_what_is_advised_for_a_value_that_a_serde_cannot_write_is_taken",
}
"""The test that takes the advice, by words of the error."""
PLAIN: set[str] = set()
"""What says what is wrong, and nothing to do."""
