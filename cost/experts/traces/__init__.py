"""What serving engines recorded: opened without running anything in it, read in pieces."""
