"""What a step costs: its composition, its memory, its score."""
