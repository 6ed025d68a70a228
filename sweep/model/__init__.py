"""What is simulated: lengths, memory, theory and the kernels."""
