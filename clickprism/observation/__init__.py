"""What is seen: o(x, k), and how to estimate it."""
