"""What GPUs cost and draw, and what that makes of their tokens."""
