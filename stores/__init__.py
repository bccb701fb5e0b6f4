"""What keeps state: backends, transactions, typed stores, formats, durability and the registry that finds backends."""
