"""Local copies between and beside micro-batches: warmed, kept in reserve, converted."""
