"""The cleaning of durable files and of local copies: what may go, and why the rest stays."""
