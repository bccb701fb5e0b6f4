"""``with_schema``: given columns for a table that may not be there yet."""

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from millpond.adapters.spark.rows.names import named
from millpond.adapters.spark.session.pipelines import analyzing, in_pipeline
from millpond.errors import ColumnTypeError, InvalidArgumentError


def with_schema(rows: DataFrame, schema: str | T.StructType) -> DataFrame:
    """Return the rows with given columns, for a verb in a Declarative Pipeline.

    A table of the pipeline is not there yet when its readers are defined for the first time. With its columns, this
    makes it, empty; the pipeline then writes to it. Columns that are not in ``schema`` are left out, and so is what an
    earlier verb has noted at a column, such as how late its times may come.

    Args:
        rows: the rows of the table: ``spark.readStream.table("orders")``.
        schema: its columns, as Spark DDL or as a StructType.

    Raises:
        ConfigurationError: ``schema`` is neither, or the table has no such column, or one of another type.

    >>> from pyspark.sql import SparkSession
    >>> def orders(spark: SparkSession) -> DataFrame:
    ...     return with_schema(spark.readStream.table("orders"), "id long, customer string, at timestamp")
    """
    session = rows.sparkSession
    makes_tables = in_pipeline(session)
    with analyzing(session):
        columns = _columns(schema)
        if makes_tables:
            from millpond.adapters.spark.session.pipeline_tables import make_table

            make_table(rows, columns)
        _check(rows.schema, columns)
    return rows.select(*(named(one.name).alias(one.name, metadata=one.metadata) for one in columns.fields))


def _columns(schema: str | T.StructType) -> T.StructType:
    if isinstance(schema, T.StructType):
        return schema
    try:
        columns = T.StructType.fromDDL(schema)
    except (PySparkException, TypeError) as error:
        raise InvalidArgumentError(
            f"the schema is {schema!r}, which is no Spark DDL; write such as 'id long, customer string, at timestamp'"
        ) from error
    assert isinstance(columns, T.StructType)
    return columns


def _check(there: T.StructType, said: T.StructType) -> None:
    """Check that rows have columns as they are said.

    Raises:
        ConfigurationError: they have not.
    """
    types = {field.name: field.dataType.simpleString() for field in there.fields}
    for field in said.fields:
        type_ = field.dataType.simpleString()
        if types.get(field.name) != type_:
            raise ColumnTypeError(
                f"with_schema says that the rows have {field.name} {type_}, but they have "
                f"{', '.join(f'{name} {one}' for name, one in types.items())}; say what they have"
            )
