"""What runs inside a recorded process, beside the user's program: needs PyTorch, and touches its inside."""
