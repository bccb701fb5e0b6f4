"""From rows of DataFrames to records, and back: columns, times, and unusable rows."""
