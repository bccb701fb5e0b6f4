"""Local copies: how they are held, sealed, restored and prepared in another format."""
