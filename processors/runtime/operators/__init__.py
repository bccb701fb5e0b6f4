"""What the operators that come with Millpond promise, and can do, beyond processors of one's own."""
