"""What tells one kind of store from another, and where and in which format a store is kept."""
