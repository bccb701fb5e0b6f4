"""Local copies: holding, sealing, restoring and preparing them in another format."""
