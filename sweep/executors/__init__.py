"""Where chunks are simulated: threads, processes or a cluster, and what the machine lets them use."""
