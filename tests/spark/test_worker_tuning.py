"""The tuning of a worker's process, without Spark: it is that of the whole process, so each test has its own."""

import subprocess
import sys
import textwrap


def test_what_was_imported_by_the_second_task_is_looked_at_no_more_for_garbage() -> None:
    program = """
        import gc

        from millpond.adapters.spark.worker.worker import tune_worker

        tune_worker()
        print(gc.get_freeze_count())
        gc.collect()
        tune_worker()
        print(gc.get_freeze_count() > 10_000, len(gc.get_objects()) < 1_000)
    """
    told = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["0", "True", "True"]
