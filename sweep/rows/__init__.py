"""Rows of a chunk: its draws, and what each kind of server makes of them. Plain slots are in `runner` itself."""
