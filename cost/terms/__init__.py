"""The parts of a step, one file each: what each GPU computes, reads and sends, and how long that takes."""
