"""The tests that take the advice of errors of the adapters and the front door about state, engines and records.

Refused calls and state of another shape are noted in ``test_advice.py``.
"""

_KAFKA = "kafka_streams/test_advice.py::test_what_is_refused_is_read_once_what_its_message_says_is_done"
_KAFKA_NEWER = "kafka_streams/test_advice.py::test_what_a_later_release_has_written_is_read_by_one_that_knows_it"
_LOOKED = "inspect/test_state_inspector.py::"
_LOOKED += "test_damaged_and_missing_files_of_spark_are_named_and_put_back_or_another_micro_batch_is_looked_at"
_PROGRESS = "monitor/test_query_monitor.py::"
_PROGRESS += "test_progress_that_is_damaged_is_deleted_and_that_of_a_newer_release_read_by_that"
_KEPT = "monitor/test_kept.py::"
_KEPT += "test_runs_and_history_that_are_damaged_are_deleted_and_those_of_a_newer_release_read_by_that"
_BY_SPARK = "spark/test_read_store.py::test_state_that_is_not_known_without_spark_is_read_by_spark"
_WRITTEN = "spark/test_continued_query.py::test_what_cannot_be_written_is_once_that_has_been_seen_to"
_ENGINE = "contract/test_engine_advice.py::"

_LOST = "backup/test_backups.py::test_what_a_backup_has_lost_is_told_before_anything_is_written"

FOLLOWED = {
    " is gone; put it back, or restore another backup": _LOST,
    ", and had \n; put it back, or restore another backup, with --backup": _LOST,
    "; restore another backup, or delete this one": _LOST,
    "; choose another --": "kafka_streams/test_command_line.py::"
    "test_what_the_serde_cannot_read_is_named_and_read_as_bytes",
    "; bring it into a store, with --to DIRECTORY": "kafka_streams/test_command_line.py::"
    "test_a_time_that_no_column_holds_is_named_and_goes_into_a_store",
    "; see that its files may be read, or ": _KAFKA,
    "or read a copy that was made while it was stopped": _KAFKA,
    "; take that out of the application's RocksDBConfigSetter": _KAFKA,
    " is damaged or not complete (": _KAFKA,
    "if it was, the MANIFEST is damaged; ": _KAFKA,
    "which brings the log into the tables": _KAFKA,
    "Unless another --kind is right, the directory is damaged": _KAFKA,
    "opened all of them, and stop it": _KAFKA,
    "move it away, as Kafka Streams has not put it there": _KAFKA,
    "which renames it, and stop it": _KAFKA,
    "or this is a part of a copy; start the application": _KAFKA,
    "store \n: \n cannot be read: \n; ": _KAFKA,
    "expected a number of lines, and lines of topic": _KAFKA,
    "so the application was changed while these were there; ": _KAFKA,
    ", and this release of Millpond knows \n; read it with a newer one\n": _KAFKA_NEWER,
    ", and this release of Millpond knows \n; read it with a newer one, ": _KAFKA_NEWER,
    " has no room left (\n); free some space": f"{_ENGINE}test_a_full_disk_is_written_on_once_some_space_is_free",
    "RocksDB in \n has no room left (": f"{_ENGINE}test_a_directory_is_made_once_some_space_is_free",
    "; give a smaller map_size, or": f"{_ENGINE}test_a_map_that_has_grown_fits_once_the_process_has_more_address_space",
    " is open in this process already; close": f"{_ENGINE}test_what_this_process_has_open_opens_once_it_is_closed",
    "; close it there first": f"{_ENGINE}test_what_another_process_has_open_opens_once_it_is_closed_there",
    "; close some of their scans": f"{_ENGINE}test_what_is_read_by_too_many_is_read_once_some_scans_are_closed",
    " cannot be used (\n); see that its files may be": f"{_ENGINE}"
    "test_a_file_of_the_package_is_used_once_it_may_be_read",
    "; put it back, or look at another micro-batch": _LOOKED,
    "is damaged, or of a later release": "backup/test_backups.py::"
    "test_a_clone_has_another_application_id_and_so_has_a_clone_of_it",
    " is damaged: \n; put an undamaged copy back, or look at another micro-batch": _LOOKED,
    " is damaged (\n); put an undamaged copy back\n": _LOOKED,
    "; wait for Spark's next snapshot, ": "inspect/test_state_inspector.py::"
    "test_state_with_more_than_manifests_is_looked_at_once_there_is_a_snapshot_of_it",
    "can be read without Spark; ": _BY_SPARK,
    ": \n; \nor \n": _BY_SPARK,
    "the checkpoint holds a value of version ": "inspect/test_state_inspector.py::"
    "test_state_of_a_newer_release_is_read_by_that",
    "the progress of a micro-batch is damaged": _PROGRESS,
    "the progress of a micro-batch has version ": _PROGRESS,
    "the runs of a query are damaged": _KEPT,
    "the runs of a query have version ": _KEPT,
    "the history of a query is damaged": _KEPT,
    "the history of a query has version ": _KEPT,
    "or a newer one, but this is release \n; run": "durability/test_manifest.py::"
    "test_a_manifest_for_a_later_release_is_read_by_that",
    " is no snapshot of Spark's RocksDB state store; ": "spark/test_continuation.py::"
    "test_state_of_another_provider_is_refused_until_spark_writes_that_of_rocksdb",
    "; see that both may be written, and run it": _WRITTEN,
    "; see to the free space, the permissions or the": _WRITTEN,
    "; the column of the whole value is called": "spark/test_sink.py::test_a_value_that_is_no_dict_has_no_entries",
    " cannot hold \n of type \n; it takes ": "spark/test_sink.py::"
    "test_what_a_refusal_says_to_write_makes_a_value_that_the_column_takes",
    "If only some values have it, say so: ": "spark/test_sink.py::"
    "test_an_entry_that_some_values_lack_is_null_only_where_the_sink_calls_it_optional",
    ": \n (\n)\n; \n": "spark/test_records.py::test_an_unusable_record_is_cleaned_out_or_left_out",
    "; delete the file to read the others": "spark/test_dead_letters.py::"
    "test_what_is_left_out_can_be_read_and_is_there_once_though_its_micro_batch_is_repeated",
}
"""The test, by words of the error."""
PLAIN: set[str] = set()
"""What has nothing to advise."""
