"""The test of each advice: every refusal says what to do instead, a test does it, and which one is noted here.

A refusal is known by words that no other one has. What is new has to be noted, or gets a row of ``TABLES``, which is
its own note.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cache
from pathlib import Path

from millpond.errors import ConfigurationError, StateConflictError
from tests.packaging import advice_adapters, advice_damage, advice_rest
from tests.packaging.codes import every_error

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("adapters", "processors", "stores", "src/millpond")
OF_CALLS = {error.__name__ for error in every_error() if issubclass(error, ConfigurationError)}
OF_STATE = {error.__name__ for error in every_error() if issubclass(error, StateConflictError)} - OF_CALLS
REFUSALS = OF_STATE | OF_CALLS
OTHERS = {error.__name__ for error in every_error()} - REFUSALS | {"Closed", "TypeError", "ValueError"}
"""All other errors; what is ``Closed`` raises one, with its words, whatever it is asked."""
NOTED = (advice_adapters, advice_damage, advice_rest)
"""The modules that have notes for them, by what they are about."""

_MATCHING = "stores/evolution/test_advice.py::test_what_is_advised_for_stores_that_do_not_match_is_taken"
_ROWS_THAT_DO_NOT_FIT = "metamorphic/test_rekeyed.py::test_what_is_advised_for_rows_that_do_not_fit_is_taken"
_NO_SUCH_REKEYED = "metamorphic/test_rekeyed.py::test_what_is_advised_for_verbs_that_rekeyed_cannot_mean_is_taken"
_BACKFILL = "spark/test_renamed_verbs.py::"
_BACKFILL += "test_a_verb_by_another_key_begins_with_the_rows_of_the_old_one_and_the_plan_tells_the_line"
_WINDOWS_THAT_CHANGE = (
    "metamorphic/test_changed_windows.py::"
    "test_another_size_is_refused_with_what_to_write_and_another_time_with_the_earliest"
)
_SAID_WRONG = "evolution/test_verb_starts.py::test_what_is_no_mapping_or_list_is_refused_with_what_to_write"
_COMPARED = "pond/test_verify.py::test_what_cannot_be_compared_is_refused_with_what_to_give"
_PLAYED = "pond/test_grace_advice.py::test_what_cannot_be_played_is_refused_with_what_to_give"
_WHAT_IF = "spark/test_what_if.py::test_what_cannot_be_forked_is_refused_with_what_to_give"
_FORKED = "spark/test_fork.py::"
FOLLOWED = {
    "the rows in the state cannot be read with": "stores/rows/test_evolution.py::"
    "test_a_rename_within_a_struct_that_is_not_declared_is_refused",
    "and its state counts each change as a row; to aggregate": "spark/test_feed_aggregates.py::"
    "test_a_state_that_counts_changes_never_becomes_one_of_rows",
    " is that of \n": "evolution/test_verb_starts.py::"
    "test_the_name_of_a_verb_of_another_kind_is_refused_with_both_kinds_and_the_line_that_is_right",
    "call the verb with its former arguments, or give it another name, and drop this one": "spark/test_stream_join.py::"
    "test_another_type_that_cannot_go_on_with_the_stores_is_refused_without_advice_to_carry_them_over",
    "; call it with its former arguments, or ": "stores/evolution/test_advice.py::"
    "test_a_verb_is_told_of_its_own_name_and_of_the_kinds_that_its_stores_may_become",
    "lacks the edit; to go on with that, write": "evolution/test_verb_starts.py::"
    "test_a_start_that_takes_a_renaming_out_is_refused_where_there_is_an_edit_under_the_new_name",
    "it has gone on as": "evolution/test_verb_starts.py::"
    "test_a_verb_does_not_go_on_with_what_it_had_under_a_name_before_its_last_one",
    "which the topology has not; declare": _MATCHING,
    "write one of them, or, to go on": _MATCHING,
    "gives two old stores the same new name": _MATCHING,
    "is both renamed and dropped": _MATCHING,
    "dropped names the store": _MATCHING,
    "write a store by the name that it has there": _MATCHING,
    "valid_from gives a time": _MATCHING,
    "or change the topology": _MATCHING,
    "have no names of their own but running numbers": _MATCHING,
    "declare that it becomes another kind": _MATCHING,
    "cannot go on with the rows of": _MATCHING,
    "or of a release with other layouts; run": "durability/test_state.py::"
    "test_another_topology_on_the_same_state_directory_is_refused",
    "with renamed={...} and dropped=[...] for stores": "spark/test_evolution.py::"
    "test_a_store_is_renamed_and_another_counts_from_now_on_even_if_the_first_micro_batch_fails",
    ", but the state of \n has \ns of (": "spark/test_verbs.py::"
    "test_a_restart_by_other_columns_of_the_key_is_refused_and_renamed_ones_are_declared",
    "and what lies between the two, as before": "spark/test_shared_operators.py::"
    "test_a_verb_stays_in_the_operator_in_which_it_has_begun",
    "have other keys than the verb before it": "spark/test_shared_operators.py::"
    "test_a_verb_stays_in_the_operator_in_which_it_has_begun",
    "was written by another job at the same time": "stores/evolution/test_advice.py::"
    "test_of_two_jobs_that_were_started_at_once_the_other_goes_on_when_it_is_started_after_the_first",
    "have begun without seeds": "stores/evolution/test_seeding.py::test_seeds_that_come_too_late_are_refused",
    "that began without seeds": "stores/evolution/test_seeding.py::"
    "test_seeds_that_come_too_late_for_state_of_a_release_without_records_are_taken_out",
    "would lose what that does not keep": "stores/evolution/test_converting.py::"
    "test_a_table_becomes_versioned_and_back_on_every_engine_with_other_partitions_and_names",
    "have no known timestamp": "stores/evolution/test_converting.py::"
    "test_values_without_a_time_become_versions_from_a_time_that_is_given",
    "while the state was carried over after": "stores/evolution/test_evolving.py::"
    "test_a_job_that_commits_while_its_state_is_carried_over_goes_on_and_the_other_is_refused",
    "or stands at another micro-batch": "stores/evolution/test_evolving.py::"
    "test_a_query_that_is_set_back_gets_a_new_generation_from_where_it_stands",
    "rows do not lie by the records' keys": "stores/evolution/test_carrying.py::"
    "test_rows_that_do_not_lie_by_the_records_keys_are_refused",
    "nobody but the processor that put it": "stores/evolution/test_carrying.py::"
    "test_a_users_metadata_is_copied_and_must_agree_where_partitions_become_one",
    "that began without a backfill": "evolution/test_backfills.py::"
    "test_a_backfill_comes_too_late_for_a_job_that_has_begun",
    "has begun and has not come to its end": "spark/test_verb_backfill.py::"
    "test_what_waits_in_verbs_comes_out_of_the_stream_and_a_backfill_that_died_between_verbs_goes_on",
    "and cannot become others": "evolution/test_parameters.py::test_the_advice_of_a_refusal_works",
    "has other calls than its state": "processors/verbs/test_kept_calls.py::test_the_advice_of_each_refusal_works",
    "a job goes on there. Stop it": "spark/test_continuation.py::"
    "test_a_checkpoint_that_has_gone_on_since_state_was_carried_over_is_not_continued",
    "is another verb by now": "spark/test_verb_evolution.py::"
    "test_a_verb_does_not_take_the_state_of_another_in_addition_to_its_own",
    "and none of the verb": "spark/test_verb_evolution.py::"
    "test_a_verb_that_is_nowhere_is_refused_unless_it_may_have_a_place",
    "the checkpoint holds the state of the verb": "spark/test_renamed_verbs.py::"
    "test_verbs_that_share_an_operator_are_renamed_and_dropped_and_nothing_runs_before_that_is_said",
    "); write these columns again": "spark/test_verbs.py::"
    "test_a_restart_by_other_columns_of_the_key_is_refused_and_renamed_ones_are_declared",
    "rekeyed names the verb \n, which ": _BACKFILL,
    " begins with the rows of \n, which \n; ": _BACKFILL,
    ", which keeps of ": _BACKFILL,
    "and an order decides among them": _BACKFILL,
    "would not be what it is if it had had all rows": "metamorphic/test_rekeyed.py::"
    "test_rows_that_may_not_be_there_are_told_and_nothing_is_done_unless_that_is_accepted",
    "it has begun without them; give it another name": _NO_SUCH_REKEYED,
    "holds no state, only that of": _NO_SUCH_REKEYED,
    "start it once as it was, with this release": _NO_SUCH_REKEYED,
    "cast the new verb's time to": _ROWS_THAT_DO_NOT_FIT,
    "leave these out of the new verb's input": _ROWS_THAT_DO_NOT_FIT,
    "write the old windows again": _ROWS_THAT_DO_NOT_FIT,
    "cast it to that in the new verb's input": _ROWS_THAT_DO_NOT_FIT,
    " were put with ": "spark/test_verbs.py::"
    "test_a_restart_with_another_expression_is_refused_and_another_way_to_write_it_is_not",
    "the schemas of ": "durability/test_schema_log.py::"
    "test_of_queries_with_different_schemas_built_before_one_has_run_the_first_to_run_goes_on",
    "whose rows are to be carried over; give": "spark/test_verb_evolution.py::"
    "test_a_verb_is_not_renamed_to_one_that_had_other_columns_but_to_another_name",
    "in another shape than this query was built for": "stores/evolution/test_advice.py::"
    "test_of_two_jobs_that_were_built_before_either_ran_the_other_goes_on_when_it_is_built_again",
    "the erased rows would be missing": "edit/test_erasing.py::"
    "test_a_query_that_goes_on_from_before_an_erasure_is_told_of_it",
    "holds the state of that verb, whose files": "spark/test_renamed_verbs.py::"
    "test_verbs_that_share_an_operator_are_renamed_and_dropped_and_nothing_runs_before_that_is_said",
    "would begin empty in this one": "spark/test_renamed_verbs.py::"
    "test_a_verb_does_not_begin_empty_in_another_query_that_has_begun_without_it",
    "is to run; write ": "spark/test_verb_evolution.py::"
    "test_a_job_under_another_application_id_is_told_the_one_of_its_checkpoint",
    "and the one that has that name; write ": "processors/verbs/test_kept_calls.py::"
    "test_a_result_gets_the_name_of_another_one_that_is_dropped_or_has_a_new_name_itself",
    "so nothing tells how old they are; set": "durability/test_clocks.py::"
    "test_what_stays_as_the_hosts_clock_is_apart_goes_once_that_is_set",
    "so it cannot be undone; edit the rows once more": "edit/test_editing.py::"
    "test_an_edit_is_undone_until_a_micro_batch_has_followed_it",
    "so undo does not reach that; edit": "evolution/test_verb_starts.py::"
    "test_state_that_was_carried_over_last_is_told_why_nothing_is_undone_and_the_way_back",
    "again, carry it over once more: ": "evolution/test_verb_starts.py::"
    "test_state_that_was_carried_over_last_is_told_why_nothing_is_undone_and_the_way_back",
    "no longer exists anywhere, so it cannot be undone": "edit/test_erasing.py::test_it_is_not_undone",
    "the query has gone on while its keys were erased": "edit/test_erasing.py::"
    "test_keys_are_erased_again_from_a_query_that_has_gone_on_meanwhile_once_it_is_stopped",
    "and some would be missing in them; the earliest": _WINDOWS_THAT_CHANGE,
    "write its until again, with those times": _WINDOWS_THAT_CHANGE,
    "and some would be missing in it; the earliest": "metamorphic/test_changed_calls.py::"
    "test_a_time_that_rows_have_reached_is_refused_with_the_earliest_that_is_free",
    ", or begin anew under another name: ": "processors/verbs/test_kept_calls.py::"
    "test_another_time_than_the_call_began_with_is_refused_and_both_advices_work",
    "folded into the state from where the checkpoint": "spark/test_changed_calls.py::"
    "test_a_result_gets_the_rows_so_far_once_the_checkpoint_is_declared",
    "the checkpoint stands before the micro-batch after": "metamorphic/test_filled.py::"
    "test_a_query_that_is_set_back_behind_the_rows_so_far_gets_them_under_another_name",
}
"""The test that takes the advice, by words of the refusal."""
PLAIN = {
    "was not edited last, so there is no edit",
    "the last edit of the state of application",
    "has been used meanwhile, so it stays",
    "was written meanwhile, so ",
    "the checkpoint stands before \n",
}
"""What has nothing to advise: there is nothing to be done, or another one is raised in its place."""

TABLES = (
    "command_line/test_refused_calls.py",
    "edit/test_refused_edits.py",
    "kafka_streams/test_command_line.py",
    "pond/test_lookup_join.py",
    "pond/test_refused_calls.py",
    "processors/test_refused_calls.py",
    "spark/test_refused_calls.py",
    "stores/test_refused_calls.py",
)
"""The modules that have rows for refused calls: words of the refusal, and calls that are what it advises."""
_CONTINUED = "spark/test_continued_query.py::"
_CONTINUATION = "spark/test_continuation.py::"
_MENDED = f"{_CONTINUATION}test_what_cannot_be_continued_is_refused_and_nothing_is_made_until_it_is_mended"
_ELSEWHERE = f"{_CONTINUATION}test_where_something_is_nothing_is_made_and_another_place_is_taken"
_SEEDS = "spark/test_seeds.py::"
_SINKS = "spark/test_several_sinks.py::test_sinks_of_two_operators_get_what_each_gets_alone"
_VERB_BACKFILL = "spark/test_verb_backfill.py::"
_VERB_BACKFILL += "test_a_backfill_of_a_verb_is_done_once_and_what_makes_no_sense_is_refused_and_leaves_nothing"
_DELTA = "spark/test_outputs.py::test_a_session_without_delta_lake_is_started_with_what_the_messages_say"
_MERGED = "spark/test_outputs.py::test_a_sink_is_merged_into_a_table_as_the_messages_say"
_LOOKED_AT = "spark/test_state_source.py::"
_LOOKED_AT += "test_a_schema_and_changes_that_are_yet_to_come_are_refused_with_what_to_ask_for"
_GROWTH = "bench/test_bench_spark.py::"
_GROWTH += "test_the_command_tells_of_contenders_that_fail_writes_the_others_and_ends_with_1"
_ROWS_SO_FAR = "spark/test_changed_calls.py::test_a_result_gets_the_rows_so_far_once_the_checkpoint_is_declared"
_ANOTHER_RELEASE = "contract/test_plugins.py::test_a_broken_plugin_works_once_another_release_of_it_is_installed"
_CHECKED = "contract/test_backends_command.py::test_a_check_says_what_is_there_and_which_sentence_is_broken"
_BEGINS_EMPTY = "stores/evolution/test_seeding.py::"
_BEGINS_EMPTY += "test_stores_that_hold_more_than_their_entries_are_refused_and_begin_empty_beside_others"
_SAID_OF_COLUMNS = (
    "stores/rows/test_evolution.py::test_what_is_said_of_columns_that_are_there_is_taken_out_or_the_columns_are"
)
_AT_ROWS = "spark/test_accessor.py::test_a_stream_whose_session_names_no_state_takes_a_millpond"
_IN_PIPELINES = "spark/test_pipelines.py::test_each_table_has_what_its_verb_makes_of_the_one_before_within_one_run"
_TAKEN = "backup/test_backups.py::test_a_place_that_is_taken_or_within_the_original_is_refused"
FOLLOWED_CALLS = {
    "and that of the copy cannot be": "backup/test_backups.py::"
    "test_a_clone_has_another_application_id_and_so_has_a_clone_of_it",
    "a copy is being made there, or was interrupted": "backup/test_backups.py::"
    "test_of_two_who_copy_to_one_place_one_is_refused_and_the_other_has_a_whole_copy",
    "; millpond explain lists all of them": "command_line/test_explaining.py::"
    "test_what_is_no_code_is_refused_with_one_that_is",
    "is given the column '*'; all rows are counted by count()": "pond/test_calls_from_elsewhere.py::"
    "test_the_line_for_an_aggregate_from_elsewhere_is_followed",
    " is not Spark DDL: ": "spark/test_apply.py::test_a_schema_that_spark_cannot_read_is_told_how_to_write_one",
    "nothing tells of which kinds": "stores/evolution/test_advice.py::"
    "test_state_without_noted_kinds_is_converted_once_the_job_has_started_as_it_was",
    "would replace, as their numbers begin anew": "spark/test_owners.py::"
    "test_what_is_advised_for_a_checkpoint_and_a_path_of_others_is_taken",
    "give the checkpoint_location of this query": "spark/test_owners.py::"
    "test_what_is_advised_for_a_checkpoint_and_a_path_of_others_is_taken",
    "start the query whose checkpoint this is": "durability/test_state.py::"
    "test_a_manifest_of_another_topology_or_task_is_refused",
    "which cannot go on at another checkpoint; keep": "spark/test_continued_query.py::"
    "test_a_query_stays_where_it_is_unless_it_is_to_go_on_elsewhere",
    "was not carried over to go on elsewhere": "spark/test_continued_query.py::"
    "test_a_query_goes_on_exactly_once_with_other_operators_and_sources",
    "by a build that kept no names of calls": "spark/test_changed_calls.py::"
    "test_another_function_or_column_of_the_same_name_is_refused_and_the_advice_works",
    "give the checkpointLocation of this query": "stores/evolution/test_advice.py::"
    "test_a_query_goes_on_once_it_is_given_its_own_checkpoint",
    "is missing; install it (pip install millpond": "contract/test_registry.py::"
    "test_a_package_without_metadata_works_once_it_is_installed",
    ", which is not installed; pip install ": "contract/test_plugins.py::"
    "test_a_plugin_works_once_what_it_needs_is_installed",
    "; install what it needs again": "contract/test_plugins.py::test_a_plugin_works_once_what_it_needs_is_installed",
    "; run the pipeline with PySpark 4.3 or later": "spark/test_pipelines.py::"
    "test_a_pyspark_that_lets_verbs_ask_is_taken",
    "but the rows are a change feed: a row counts for it from its next change on": "spark/test_feed_aggregates.py::"
    "test_results_over_a_feed_come_go_and_are_called_otherwise_at_restarts",
    "; name fewer columns=[...], or give a greater max_bytes": "pond/test_lookup_join.py::"
    "test_more_rows_than_fit_are_refused_with_the_number_and_fewer_columns_fit",
    ", as the verb reads it: \n; round or cast it where the file is written": "pond/test_lookup_join.py::"
    "test_values_that_do_not_fit_are_rounded_or_cast_and_the_verb_is_made_again",
    "; give the query's checkpointLocation, and as batch_id one of the last": "spark/test_lookup_join.py::"
    "test_rows_are_explained_by_the_version_that_their_micro_batch_has_read",
    ", so there is nothing to run the code over; give after=... an earlier one": _WHAT_IF,
    ", which are not to be changed; give into=... a place beside them": _WHAT_IF,
    "; delete it if it is of an earlier call, or give into=... a place where nothing is": _WHAT_IF,
    "leave into=... out, and change no more than that allows": _WHAT_IF,
    "; have it call the verbs of the Millpond that it is given, on streaming DataFrames": _WHAT_IF,
    "; change what is made of them, and leave the sources as they are": _WHAT_IF,
    "cannot be run again elsewhere; compare what it has written by verify": f"{_FORKED}"
    "test_micro_batches_that_cannot_be_run_again_are_refused_and_later_ones_are_run",
    "so that the query cannot be run again from there; choose a later micro-batch": f"{_FORKED}"
    "test_micro_batches_that_cannot_be_run_again_are_refused_and_later_ones_are_run",
    " needs; choose a later micro-batch": f"{_FORKED}"
    "test_a_fork_has_the_state_and_records_of_its_micro_batch_and_whatever_is_gone_is_named",
    "; give a place beside them": _TAKEN,
    "; stop its query and move it away, or give a ": _TAKEN,
    " already; stop its query and move \n away, or give a place where nothing of it is": _TAKEN,
    "; give at least 1, which is the backup that is made": "backup/test_backups.py::"
    "test_as_many_backups_are_kept_as_are_wanted",
    " that is complete; ": _TAKEN,
    "would lack; make all verbs of the query with one Millpond": f"{_FORKED}"
    "test_a_query_with_state_of_two_jobs_is_refused_and_that_of_one_is_forked",
    "; give key=..., the columns of its key, with 'window' if ": _COMPARED,
    "; give time='at', or leave both out": _COMPARED,
    ", and rows are compared when all are there; give static ones, such as ": "spark/test_verify.py::"
    "test_rows_that_were_planted_in_what_a_query_has_written_are_found_and_nothing_in_what_it_wrote",
    " is an expression of one DataFrame, and the row is of none; ": "spark/test_explained_matches.py::"
    "test_an_earlier_micro_batch_knows_less_and_what_is_not_there_is_refused",
    "; give rows=..., left=... and right=... of a join, or tables=... of a ": _PLAYED,
    "; give how often a micro-batch begins, such as ": _PLAYED,
    "; give one of timestamps, which says of each row when it came": _PLAYED,
    "df.millpond takes a Millpond, not ": _AT_ROWS,
    "does not say whose state a stream has; set ": _AT_ROWS,
    ", which is no Spark DDL; write such as ": _IN_PIPELINES,
    "with_schema says that the rows have ": _IN_PIPELINES,
    "only the spec of a pipeline sets its session; write ": _IN_PIPELINES,
    " for a verb where its driver runs, too, and ": "spark/test_session.py::"
    "test_the_driver_of_a_cluster_needs_a_python_with_millpond_where_executors_have_theirs",
    "orders that are not shown, so they cannot be put; ": "spark/test_top_n.py::"
    "test_it_gives_what_row_number_gives_over_files_and_restarts_and_is_read_edited_and_erased",
    "give them names that none has had, ": "evolution/test_verb_starts.py::"
    "test_verbs_that_exchange_names_are_given_new_ones_and_one_that_has_its_former_name_again_goes_on",
    "; put it once one has come": "edit/test_refused_edits.py::"
    "test_a_window_of_a_task_without_rows_is_put_once_one_has_come_and_comes_out",
    "give a mapping from each old name": _SAID_WRONG,
    "; write the names in a list, such as ": _SAID_WRONG,
    "give a mapping from the name of each result": _SAID_WRONG,
    "; give Evolution(": _SAID_WRONG,
    "; give a static one, with the rows so far": _ROWS_SO_FAR,
    " different DataFrames; give all of ": _ROWS_SO_FAR,
    "its state does not say which rows a key has had": _ROWS_SO_FAR,
    ", and the rows that come ": _ROWS_SO_FAR,
    "does not tell how long its windows stay; give": "edit/test_editing.py::"
    "test_a_first_window_needs_the_spec_that_tells_how_long_it_stays",
    "none of them has a place of its own; erase the key, or leave them": "edit/test_editing.py::"
    "test_a_store_that_keeps_every_value_of_a_window_is_not_edited",
    "; give the store of timers of an apply": "metamorphic/test_edits.py::"
    "test_what_is_no_timer_is_refused_with_what_to_write",
    "; set, move or delete one with set_timer": "metamorphic/test_edits.py::"
    "test_what_is_no_timer_is_refused_with_what_to_write",
    "a rule cannot get the time": "metamorphic/test_edits.py::test_what_is_no_timer_is_refused_with_what_to_write",
    " its own name is ": _ANOTHER_RELEASE,
    "of the backend contract, but Millpond ": _ANOTHER_RELEASE,
    "; report it to those who made that distribution": _ANOTHER_RELEASE,
    " is written for another release of Millpond than this": _ANOTHER_RELEASE,
    "; uninstall all but one of them": "contract/test_plugins.py::"
    "test_of_two_distributions_with_one_name_the_other_works_once_one_is_uninstalled",
    "what else it breaks: millpond backends check": _CHECKED,
    "is nothing to opt out of; the features are ": _CHECKED,
    " has two stores with the name \n; rename one": "durability/test_state.py::"
    "test_two_stores_of_one_name_are_refused_until_one_is_renamed",
    " of Millpond reads no durable files; give release ": "durability/test_older_reader.py::"
    "test_a_release_before_the_first_reads_nothing",
    "was carried over to another shape, so nothing leads": "durability/test_older_reader.py::"
    "test_state_that_was_carried_over_does_not_go_back_to_a_release_without_records",
    " does not know the layout ": "durability/test_older_reader.py::"
    "test_a_layout_that_the_release_does_not_know_is_refused",
    "; install fsspec (pip install fsspec) and its driver": "durability/test_storage.py::"
    "test_a_place_that_nobody_knows_is_one_of_a_known_kind_instead",
    "; give the number that a failed test has printed": "crash/test_faults.py::test_a_failure_says_how_to_repeat_it",
    " is not possible where the step is ": "crash/test_faults.py::test_a_fault_where_it_is_not_possible_is_refused",
    "give the checkpointLocation of the query for ": "stores/evolution/test_advice.py::"
    "test_a_query_is_given_its_checkpoint_or_an_application_of_its_own_or_the_others_start_first",
    " becomes \n; give one of ": "stores/evolution/test_advice.py::test_a_store_becomes_one_of_the_kinds_that_are_told",
    "the state of several sinks of application \n, and nothing": "stores/evolution/test_history.py::"
    "test_a_checkpoint_of_another_query_and_one_of_two_sinks_are_refused",
    "; keep the number of partitions, which was ": "stores/evolution/test_carrying.py::"
    "test_keys_that_the_records_have_in_another_form_go_where_the_records_go",
    "; give the input and the store one serde": "stores/evolution/test_seeding.py::"
    "test_stores_keyed_by_another_serde_than_records_go_where_records_go",
    "keeps more than keys and values in it; take ": _BEGINS_EMPTY,
    "keeps several values of a key and window; take ": _BEGINS_EMPTY,
    " is asked for, but ": "stores/evolution/test_verbs.py::"
    "test_a_verb_that_is_said_to_be_gone_goes_on_once_that_is_taken_out_and_a_new_one_begins_under_another_name",
    "a column cannot move to another struct; write ": "stores/rows/test_evolution.py::"
    "test_a_rename_never_moves_a_column_into_or_out_of_a_struct",
    "; take that out, or, if an earlier run has applied": _SAID_OF_COLUMNS,
    "it is there; take it out of the columns, or": _SAID_OF_COLUMNS,
    "; leave it out, as the field's remove_metadata()": "stores/rows/test_schemas.py::"
    "test_metadata_that_is_no_text_is_refused",
    "; say so with --retain-duplicates": "kafka_streams/test_command_line.py::test_what_is_put_twice_needs_to_be_told",
    "; declare it by number: sources=": "spark/test_continued_query.py::"
    "test_a_query_goes_on_exactly_once_with_other_operators_and_sources",
    "--state-dir is that of a query; give its": "bench/test_advise.py::test_a_checkpoint_describes_the_job",
    "; give FEATURE=REASON, as in ": "contract/test_backends_command.py::"
    "test_a_check_says_what_is_there_and_which_sentence_is_broken",
    "growth is measured of one workload at a time; ": _GROWTH,
    "there is no page of growth; leave out ": _GROWTH,
    ", half of a pair; give ": "spark/test_evolution.py::"
    "test_a_store_is_renamed_and_another_counts_from_now_on_even_if_the_first_micro_batch_fails",
    "the session has no Delta Lake; start it": _DELTA,
    ", or take PySpark ": _DELTA,
    "is not set up for it; start it with ": _DELTA,
    " is no change feed, whose rows could be": _MERGED,
    " lacks; take them out of the schema, or": _MERGED,
    " is not the name of a table; write it as": _MERGED,
    "one would replace the files of the other; give": "spark/test_owners.py::"
    "test_sinks_with_one_path_are_given_each_its_own",
    "; give an earlier one, or that: ": _LOOKED_AT,
    "; leave .schema(...) out": _LOOKED_AT,
    "; give the checkpointLocation of the query that transform": "spark/test_read_store.py::"
    "test_a_checkpoint_of_another_topology_or_application_is_refused_and_its_own_is_read",
    "there is no Spark session; start one": "spark/test_session.py::"
    "test_what_has_no_session_is_told_to_start_one_which_any_thread_may_have_done",
    "a session of Spark Connect does not reach": "spark/test_session.py::"
    "test_a_session_of_spark_connect_does_not_reach_files_and_a_classic_one_does",
    "may not fit into one Arrow batch; set it": "spark/test_refusals.py::"
    "test_arrow_batches_that_cannot_hold_their_blobs_are_refused",
    "Spark's Python workers run ": "spark/test_refusals.py::"
    "test_workers_whose_python_lacks_millpond_are_refused_with_state_or_without",
    "the Python workers of the Spark Connect server": "spark/test_connect.py::"
    "test_workers_whose_python_lacks_millpond_are_refused",
    "no aggregate function ": "processors/verbs/test_row_aggregate.py::"
    "test_an_unknown_function_is_refused_with_those_that_there_are",
    " needs the package datasketches, which cannot be imported": "processors/verbs/test_approx_count_distinct.py::"
    "test_without_the_package_the_error_says_what_to_install",
    "; delete the key, which then begins anew": "metamorphic/test_edits.py::"
    "test_aggregates_whose_results_do_not_tell_their_states_are_refused_by_the_name_of_the_call",
    "no rows have \n: \n; put results that some rows have": "edit/test_putting_results.py::"
    "test_results_that_no_rows_have_together_are_refused_and_those_of_some_rows_are_put",
    " has a timestamp that no row of its window has; give a ": "metamorphic/test_edits.py::"
    "test_a_window_that_no_row_could_be_in_is_refused_with_one_that_fits",
    "; put results that some rows have together": "edit/test_putting_averages.py::"
    "test_an_average_beside_a_count_and_a_sum_goes_on_as_if_its_rows_had_come",
    "give a local_dir of its own to warm copies in": "durability/test_warming.py::"
    "test_the_directory_of_the_running_job_is_refused_and_left_alone",
    "a new place beside it, of which neither": _ELSEWHERE,
    "give into=... a place without any": _ELSEWHERE,
    "give into=... a place where nothing is, or give the checkpoint": f"{_CONTINUATION}"
    "test_a_new_checkpoint_is_there_for_the_one_that_it_goes_on_for",
    "delete that directory if the query at the former is sound": f"{_CONTINUATION}"
    "test_a_checkpoint_that_is_in_use_is_not_deleted_whatever_lies_beside_it",
    "or, if it has none yet, ": _MENDED,
    "so there is nothing to continue; let it commit one": _MENDED,
    "has no offsets of it; put the file offsets/": _MENDED,
    "a static DataFrame has no checkpoint; give": f"{_CONTINUED}"
    "test_a_query_goes_on_exactly_once_with_other_operators_and_sources",
    "and such a checkpoint cannot be continued; keep": f"{_CONTINUED}"
    "test_a_query_whose_sources_have_names_stays_where_it_is",
    "one of these, or Evolution the checkpoint of that": f"{_CONTINUED}"
    "test_a_query_stays_where_it_is_unless_it_is_to_go_on_elsewhere",
    " is of verbs of a Millpond, and this is a topology; ": "metamorphic/test_rekeyed.py::"
    "test_a_topology_has_no_rows_of_another_verb_and_begins_with_seeds_instead",
    "so say which is which, such as ": "metamorphic/test_rekeyed.py::"
    "test_declarations_that_name_no_rows_are_refused_with_what_there_is",
    "--share and --lag are for --standby; give that, too": "command_line/test_refused_calls.py::"
    "test_shares_and_lags_are_those_of_a_standby",
    "give the options that the job has (--checksums, --topology), and": "durability/test_standby.py::"
    "test_a_copy_that_an_earlier_format_of_the_job_has_left_is_deleted_and_the_new_one_is_kept",
    "copies with the topology of the restart: --topology": "durability/test_warming.py::"
    "test_a_record_says_plain_of_a_store_that_is_timestamped_by_now_and_nothing_is_warmed",
    "as read_store gives them": f"{_SEEDS}test_a_new_store_of_a_running_job_is_seeded_and_a_late_seed_is_refused",
    ": the DataFrame is streaming; give a static one": f"{_SEEDS}"
    "test_a_new_store_of_a_running_job_is_seeded_and_a_late_seed_is_refused",
    "and static ones start from empty state; leave seeds out": f"{_SEEDS}"
    "test_rows_that_cannot_be_seeds_are_refused_and_the_job_has_not_begun",
    "leave out either schema or for_seeds": "spark/test_read_store.py::"
    "test_values_whose_serde_spark_does_not_know_are_shown_as_json",
    "there is no local_dir to warm copies in": "spark/test_warming.py::test_what_cannot_be_warmed_is_refused",
    " are several sinks, and a DataFrame has the rows of one; ": _SINKS,
    "a query of several sinks goes on at its own ": _SINKS,
    "give static ones here, and the streaming ones to the": _VERB_BACKFILL,
    "store with the Millpond itself, where the verb has": _VERB_BACKFILL,
    "watch takes a SparkSession, not ": "spark/test_monitoring.py::test_only_a_session_can_be_watched",
    "what waits for others in its operator; erase the key, or leave them": "metamorphic/test_edits.py::"
    "test_what_waits_in_an_operator_is_erased_or_left",
    ", which belong together; let a change of the row arrive": "spark/test_feed_aggregates.py::"
    "test_what_is_kept_of_a_feed_is_shown_with_its_columns",
    "; let a row with a later order arrive, or erase the key": "metamorphic/test_edits.py::"
    "test_rows_with_an_order_are_replaced_by_one_with_a_later_order_or_erased",
    "depends on its rows; put a value of one that is there": "metamorphic/test_edits.py::"
    "test_of_windows_that_depend_on_rows_those_that_are_there_get_other_values",
    "so no reader would see it; put a later one": "metamorphic/test_edits.py::"
    "test_a_window_that_has_come_out_is_not_put_and_a_later_one_comes_out",
    "is to go on with what it was, let it run a micro-batch first": "evolution/test_verb_starts.py::"
    "test_an_edit_reaches_a_verb_that_has_gone_on_under_its_old_name_after_it_was_started_under_another",
    "before it became another one, or both after": "inspect/test_changes.py::"
    "test_stores_whose_rows_cannot_be_compared_are_refused",
    "take backfill out: the state is there": "spark/test_verb_backfill.py::"
    "test_a_backfill_of_a_verb_is_done_once_and_what_makes_no_sense_is_refused_and_leaves_nothing",
}
"""The test that takes the advice, by words of the refusal, for calls that need more than a row of a table."""
PLAIN_CALLS = {
    "; it must not be negative",
    "; it must be at least ",
}
"""What says that something is wrong, and so what would be right; a refusal without a semicolon only says that, too."""


@cache
def raised() -> Sequence[tuple[str, str, str]]:
    """Return where each refusal is made, the error, and its words; none if all of them are made elsewhere."""
    found = []
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and (error := ast.unparse(node.func)) in REFUSALS:
                    words = (one.value for one in ast.walk(node) if isinstance(one, ast.Constant))
                    text = "".join(f"{one}\n" for one in words if isinstance(one, str))
                    found.append((f"{path.relative_to(ROOT)}:{node.lineno}", error, text))
    return found


@cache
def others() -> Mapping[str, str]:
    """Return the words of all other errors, by where they are made; those of the functions that make them, too."""
    found = {}
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            tree = ast.parse(path.read_text())
            functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in OTHERS:
                    words = "".join(f"{one}\n" for one in _words(node, functions))
                    found[f"{path.relative_to(ROOT)}:{node.lineno}"] = words
    return found


def _words(node: ast.AST, functions: Mapping[str, ast.FunctionDef]) -> Iterator[str]:
    """Yield the texts of an expression, with those of the functions of its module that make a part of it."""
    for one in ast.walk(node):
        if isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield one.value
        if isinstance(one, ast.Call) and (made := functions.get(ast.unparse(one.func).removeprefix("self."))):
            others = {name: other for name, other in functions.items() if other is not made}
            yield from (text for part in made.body[_documented(made) :] for text in _words(part, others))


def _documented(function: ast.FunctionDef) -> int:
    """Return how many of a function's statements are its docstring."""
    return int(ast.get_docstring(function, clean=False) is not None)


def refusals(errors: Set[str]) -> dict[str, str]:
    """Return the words of the refusals by one of these errors, by where they are made."""
    return {where: text for where, error, text in raised() if error in errors}


def rows() -> Iterator[str]:
    """Yield the words of each row of a table of refused calls."""
    for table in TABLES:
        for node in ast.walk(ast.parse((ROOT / "tests" / table).read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Refused":
                yield ast.literal_eval(node.args[0])


def test_every_refusal_of_state_is_noted_with_the_test_that_takes_its_advice() -> None:
    noted = [*FOLLOWED, *PLAIN]
    found = refusals(OF_STATE)
    known = {where: [words for words in noted if words in text] for where, text in found.items() if text}
    assert {where: words for where, words in known.items() if len(words) != 1} == {}
    assert sorted(noted) == sorted({words for one in known.values() for words in one})


def test_every_refusal_of_a_call_is_followed_or_only_says_what_is_wrong() -> None:
    found = refusals(OF_CALLS)
    noted = [*rows(), *FOLLOWED_CALLS]
    places = {words: [where for where, text in found.items() if words in text] for words in noted}
    assert {words: where for words, where in places.items() if len(where) != 1} == {}
    plain = {words: [where for where, text in found.items() if words in text] for words in PLAIN_CALLS}
    assert [words for words, where in plain.items() if not where] == []
    settled = {where for some in (*places.values(), *plain.values()) for where in some}
    assert [where for where, text in found.items() if where not in settled and ";" in text] == []


def test_every_other_error_is_followed_or_only_says_what_is_wrong() -> None:
    found = others()
    noted = [words for notes in NOTED for words in (*notes.FOLLOWED, *notes.PLAIN)]
    places = {words: [where for where, text in found.items() if words in text] for words in noted}
    assert [words for words, where in places.items() if not where] == []
    settled = {where for some in places.values() for where in some}
    assert {where: text for where, text in found.items() if where not in settled and ";" in text} == {}


def test_the_tests_that_take_advice_are_there() -> None:
    elsewhere = {followed for notes in NOTED for followed in notes.FOLLOWED.values()}
    for followed in {*FOLLOWED.values(), *FOLLOWED_CALLS.values(), *elsewhere}:
        module, _, name = followed.partition("::")
        tree = ast.parse((ROOT / "tests" / module).read_text())
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, followed
