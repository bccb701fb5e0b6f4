"""What may go of durable files and of local copies, and why the rest stays."""
