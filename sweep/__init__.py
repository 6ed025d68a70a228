"""`sweep`: how much continuous batching buys over static batching, how sure that is, and where it stops holding."""
