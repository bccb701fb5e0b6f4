"""The tests that take advice of errors about formats, durable files, local copies, records, functions and values."""

_NUMBERS = "formats/test_newer_numbers.py::test_the_release_that_wrote_it_reads_what_this_one_has_refused"
_DURABLE = "durability/test_advice.py::"
_FILE = f"{_DURABLE}test_a_durable_file_is_put_back_or_the_query_restarts_before_it"
_PLACE = f"{_DURABLE}test_a_storage_that_cannot_be_written_or_read_is_used_once_the_place_is_right"
_DELETED = f"{_DURABLE}test_a_copy_that_cannot_be_deleted_is_deleted_by_hand"
_KIND = "stores/test_migration.py::test_rows_of_a_format_that_a_kind_cannot_have_are_read_by_their_kind_or_left"
_DIRECTORY = "contract/test_engine.py::test_a_directory_that_the_system_refuses_says_what_to_do"
_CHECKPOINT = "inspect/test_state_inspector.py::"
_CHECKPOINT += "test_of_a_checkpoint_with_damaged_manifests_an_undamaged_copy_is_put_back"
_RECORDS = "processors/test_advice.py::"
_VECTORIZED = f"{_RECORDS}test_a_vectorized_function_returns_an_array_of_one_value_for_each_record"
_READ = f"{_RECORDS}test_records_are_read_by_sound_serdes_that_wrote_them"
_CLOSED = f"{_RECORDS}test_what_is_closed_is_opened_again"
_PACKED = "stores/rows/test_packing.py::test_what_cannot_be_packed_is_packed_as_the_message_says"
_RULES = "processors/verbs/test_apply.py::"
_ROWS = f"{_RULES}test_results_that_are_no_rows_are_refused"
_LOOKED_UP = "pond/test_lookup_join.py::"
_DELTA_READ = f"{_LOOKED_UP}test_what_a_reader_would_have_to_know_of_a_delta_table_is_refused_with_what_to_do"
FOLLOWED = {
    " to be read, which is not known here; drop it from the table": _DELTA_READ,
    ", so its files have other names of columns; set it to none": _DELTA_READ,
    " are deleted by a deletion vector, which is not read here; write": _DELTA_READ,
    ", which is not in it, as a shallow clone has; make it a deep one": _DELTA_READ,
    "table needs; have the table keep its log longer": f"{_LOOKED_UP}"
    "test_a_delta_table_is_what_its_log_says_of_each_version",
    ", which a version of the table has that is read; what deletes old files": f"{_LOOKED_UP}"
    "test_a_file_that_is_lost_or_damaged_is_told",
    "; correct it, or leave out right_op": f"{_LOOKED_UP}"
    "test_an_unknown_operation_is_refused_and_none_without_the_column",
    "; round it, or cast the column to another type": "pond/test_refused_calls.py::"
    "test_a_value_that_cannot_be_kept_is_rounded_or_cast",
    ", but this release reads version \n; run the release that wrote it": _NUMBERS,
    "a row with a foreign key is of version ": _NUMBERS,
    " is a claim that this release of Millpond does not know; run": _NUMBERS,
    "a manifest has version ": _NUMBERS,
    ", but this release of Millpond knows formats ": _NUMBERS,
    "schemas are in the format ": _NUMBERS,
    "a subscription has version ": _NUMBERS,
    "a response has version ": _NUMBERS,
    ", which this release does not know; run the release": _NUMBERS,
    "an evolution record has version ": _NUMBERS,
    "a shape of state has version ": _NUMBERS,
    "terms have version ": _NUMBERS,
    " was written by release \n of Millpond for release ": _NUMBERS,
    "; use the release that wrote it, or delete the directory": "formats/test_newer_numbers.py::"
    "test_a_copy_in_a_directory_of_a_later_version_is_restored_once_it_is_deleted",
    "rows without a layout's number (version 0), but this release": "stores/test_layouts.py::"
    "test_rows_without_a_number_are_refused_where_one_is_expected",
    "was opened without a layout; take its spec from the topology": "stores/test_layouts.py::"
    "test_rows_of_a_layout_are_refused_by_a_spec_without_one",
    "; keep the timestamped kind, or delete the directory": _KIND,
    "; choose the kind that wrote it, or another name": _KIND,
    "; such a backend must not be used until it keeps to": "contract/test_outside.py::"
    "test_a_backend_that_shows_old_rows_is_used_once_it_keeps_to_its_contract",
    " of a store cannot be read: \n; check its access": f"{_DURABLE}"
    "test_a_stores_directory_is_opened_once_it_can_be_read",
    "this is not a manifest: ": _CHECKPOINT,
    "a manifest of version ": _CHECKPOINT,
    "an evolution record is damaged (": f"{_DURABLE}test_an_undamaged_copy_of_an_evolution_record_is_put_back",
    "rows cannot be read without it; put an undamaged copy": "durability/test_schema_log.py::"
    "test_a_flip_in_any_bit_of_a_schemas_file_is_found",
    "; put it back, or restart the query at a batch": _FILE,
    "; put an undamaged copy back, or restart the query": _FILE,
    "; put what it leads to in its place, or delete it if": f"{_DURABLE}"
    "test_what_a_link_leads_to_is_put_in_its_place_and_a_strangers_is_deleted",
    "cannot write \n: \n; check the free space": _PLACE,
    "cannot read \n: \n; check the permissions and": _PLACE,
    "so nothing tells how old its files are; put the state": f"{_DURABLE}"
    "test_a_storage_without_dates_is_left_for_one_that_has_them",
    "; end that process, or give this job another application": f"{_DURABLE}"
    "test_a_local_directory_in_use_is_free_once_its_process_has_ended_and_another_is_free_at_once",
    "; make it a directory that this process may write": f"{_DURABLE}"
    "test_a_local_directory_is_used_once_it_can_be_written",
    "; make it a directory that this process may read": "durability/test_standby.py::"
    "test_a_place_that_is_no_directory_is_made_one",
    "; give a directory that this process may read": f"{_DURABLE}"
    "test_local_directories_are_cleaned_once_a_directory_is_given",
    " is not held; acquire it before clock_ms()": f"{_DURABLE}test_a_lease_tells_the_time_once_it_is_acquired",
    " has no batch open; call open(manifest) before": f"{_DURABLE}test_a_task_commits_once_a_batch_is_open",
    " are read only; open the task to change them": f"{_DURABLE}"
    "test_durable_rows_are_changed_by_the_task_that_is_opened",
    "the local copy in \n cannot be deleted: \n; delete it by hand": _DELETED,
    "the idle copy \n cannot be deleted: \n; delete it by hand": f"{_DURABLE}"
    "test_an_idle_copy_that_cannot_be_deleted_is_deleted_by_hand",
    " cannot be duplicated for reading: \n; check room": f"{_DURABLE}"
    "test_a_copy_is_verified_once_there_is_room_to_duplicate_it",
    " cannot be used: \n; check room and access": "durability/test_backlog.py::"
    "test_what_cannot_be_written_does_not_wait",
    "; free some space there": _DIRECTORY,
    "; see that those above it may be written, or choose": _DIRECTORY,
    "or that of one above; move the file away": "contract/test_engine.py::"
    "test_a_file_that_has_the_name_of_a_directory_is_left_alone_and_told",
    " is closed; open it again from its spec": _CLOSED,
    "the transaction is closed; begin a new one on": _CLOSED,
    "nothing of this micro-batch was kept; ": f"{_RECORDS}"
    "test_a_function_is_corrected_and_the_job_restarted_or_what_it_fails_for_is_left_out",
    "; return an array of one value for each record": _VECTORIZED,
    " records; return one for each": _VECTORIZED,
    " is not a pair of a text and bytes or None; make it one": f"{_RECORDS}"
    "test_a_header_is_made_a_pair_of_a_text_and_bytes",
    "; raise them, ": f"{_RECORDS}test_a_full_buffer_gets_higher_bounds_or_waits_for_less_or_emits_early",
    ": bad ": _READ,
    "only the second time; is its serde sound?": _READ,
    " cannot hold the key None; drop such records": f"{_RECORDS}test_records_without_a_key_are_dropped_or_given_one",
    " is null as a whole; filter such rows out": _PACKED,
    "; filter such rows out, or coalesce": _PACKED,
    "; make the column binary, or clean it": _PACKED,
    " cannot be kept as \n: \n; filter such rows out": _PACKED,
    " is there twice; keep one of them": "stores/evolution/test_seeding.py::"
    "test_an_entry_that_is_there_twice_is_found_even_far_apart_and_leaves_no_file",
    "; filter such rows out, or cast the column to a string": f"{_RULES}"
    "test_a_value_that_python_cannot_hold_is_filtered_out_or_cast",
    "; cast the column to a wider type, or filter first": "processors/verbs/test_row_aggregate.py::"
    "test_a_sum_that_overflows_gets_a_wider_type_or_fewer_rows",
    "; return a list of rows, or yield them": _ROWS,
    ", which is no row; give dicts of columns": _ROWS,
    "; return a list of rows, dicts of columns, or yield them": _ROWS,
    "state holds \n": "pond/test_words.py::test_what_state_cannot_hold_is_told_with_the_line_that_makes_it_hold",
    ": they would never end; ": f"{_RULES}test_timers_that_never_end_are_an_error_that_says_so",
}
"""The test that takes the advice, by words of the error."""
PLAIN: set[str] = set()
"""What has a semicolon and advises nothing."""
